"""The official `openai` package for Python, asked by its Responses API in this process."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from openai import APIStatusError, AsyncOpenAI, BadRequestError, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from tests.judges.gateway.asks import Failure
from tests.judges.responses.asks import SCHEMA, Ask, Report, Seen, SeenCall
from tests.judges.responses.response_sum import ResponseSum
from tests.messages import Json


class Weather(BaseModel):
    """The fields of `SCHEMA`."""

    city: str
    degrees: int


class OpenAIResponsesPython:
    """The package, sync and async."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._responses: list[Any] = []
        self._sent_text = ""
        self._turns: list[Seen] = []

        async def note(response: object) -> None:
            self._responses.append(response)

        hooks = {"response": [self._responses.append]}
        self._client = OpenAI(api_key="none", http_client=DefaultHttpxClient(trust_env=False, event_hooks=hooks))
        self._async_client = AsyncOpenAI(
            api_key="none", http_client=DefaultAsyncHttpxClient(trust_env=False, event_hooks={"response": [note]})
        )

    def close(self) -> None:
        """Close its connections."""
        self._client.close()
        self._runner.run(self._async_client.close())
        self._runner.close()

    def ask(self, ask: Ask) -> Report:
        """Put it to the gateway."""
        self._responses.clear()
        self._sent_text = ""
        turns = self._turns = []
        failure: Failure | None = None
        body = _body(ask)
        try:
            while True:
                response = _WAYS[ask.way](self, ask, body)
                turns.append(_seen(response))
                calls = [item for item in response.output if item.type == "function_call"]
                if not calls or not ask.results:
                    break
                body["input"] += [*response.output, *(_result(call, ask) for call in calls)]
        except Exception as error:  # noqa: BLE001 - whatever it is, the application gets it
            status = error.status_code if isinstance(error, APIStatusError) else None
            code = getattr(error, "code", None)
            failure = Failure(type(error).__name__, str(error), status, None if code is None else str(code))
        return Report(
            turns=turns,
            sent_text=self._sent_text,
            error=failure,
            statuses=[response.status_code for response in self._responses],
            headers=dict(self._responses[-1].headers) if self._responses else {},
        )

    def _create(self, ask: Ask, body: Json) -> Response:
        """The raw events, added up by hand."""
        whole = ResponseSum()
        with self._client.with_options(**_options(ask)).responses.create(
            stream=True, **_formatted(ask, body)
        ) as stream:
            for event in stream:
                self._sent_text += whole.add(event.to_dict(mode="json"))
        return Response.construct(**whole.whole())

    def _create_async(self, ask: Ask, body: Json) -> Response:
        async def read() -> Response:
            whole = ResponseSum()
            client = self._async_client.with_options(**_options(ask))
            async with await client.responses.create(stream=True, **_formatted(ask, body)) as stream:
                async for event in stream:
                    self._sent_text += whole.add(event.to_dict(mode="json"))
            return Response.construct(**whole.whole())

        return self._runner.run(read())

    def _stream(self, ask: Ask, body: Json) -> Response:
        with self._client.with_options(**_options(ask)).responses.stream(**_typed(ask, body)) as stream:
            cut = [response for event in stream if (response := self._incomplete(event)) is not None]
            return cut[0] if cut else stream.get_final_response()

    def _stream_async(self, ask: Ask, body: Json) -> Response:
        async def read() -> Response:
            client = self._async_client.with_options(**_options(ask))
            async with client.responses.stream(**_typed(ask, body)) as stream:
                cut = [response async for event in stream if (response := self._incomplete(event)) is not None]
                return cut[0] if cut else await stream.get_final_response()

        return self._runner.run(read())

    def _incomplete(self, event: Any) -> Response | None:
        """The response of the event that ends an incomplete answer: the helper has it in that event only."""
        self._sent_text += event.delta if event.type == "response.output_text.delta" else ""
        return event.response if event.type == "response.incomplete" else None

    def _plain(self, ask: Ask, body: Json) -> Response:
        return self._client.with_options(**_options(ask)).responses.create(**_formatted(ask, body))

    def _plain_async(self, ask: Ask, body: Json) -> Response:
        async def read() -> Response:
            client = self._async_client.with_options(**_options(ask))
            return await client.responses.parse(**_typed(ask, body))

        return self._runner.run(read())

    def _keep(self, ask: Ask, body: Json) -> Response:
        """A conversation in two turns by the id of the first, what is kept of it, and its end: the last one raises."""
        responses = self._client.with_options(**_options(ask)).responses
        first = responses.create(**body)
        with responses.stream(previous_response_id=first.id, **body) as stream:
            second = stream.get_final_response()
        self._turns += map(_seen, (first, second, responses.retrieve(second.id)))
        items: list[Any] = list(responses.input_items.list(second.id, order="asc", limit=2))
        self._sent_text = "".join(f"{item.content[0].text}|" for item in items)
        with suppress(BadRequestError):
            responses.cancel(second.id)
        responses.delete(second.id)
        return responses.retrieve(second.id)


_WAYS: dict[str, Callable[[OpenAIResponsesPython, Ask, Json], Response]] = {
    "create": OpenAIResponsesPython._create,
    "create async": OpenAIResponsesPython._create_async,
    "stream": OpenAIResponsesPython._stream,
    "stream async": OpenAIResponsesPython._stream_async,
    "create plain": OpenAIResponsesPython._plain,
    "parse async": OpenAIResponsesPython._plain_async,
    "kept": OpenAIResponsesPython._keep,
}


def _options(ask: Ask) -> Json:
    return {"api_key": ask.key, "base_url": ask.base_url, "max_retries": ask.max_retries, "timeout": ask.timeout_s}


def _body(ask: Ask) -> Json:
    body: Json = {"model": ask.model, "input": [{"role": "user", "content": [_part(part) for part in ask.parts]}]}
    if ask.system:
        body["instructions"] = ask.system
    if ask.tools:
        body["tools"] = [_tool(name) for name in ask.tools]
    if ask.reasoning:
        body |= {"reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"]}
        body["store"] = False
    if ask.max_tokens is not None:
        body["max_output_tokens"] = ask.max_tokens
    return body


def _formatted(ask: Ask, body: Json) -> Json:
    form = {"type": "json_schema", "name": "weather", "schema": SCHEMA, "strict": True}
    return body | ({"text": {"format": form}} if ask.schema else {})


def _typed(ask: Ask, body: Json) -> Json:
    return body | ({"text_format": Weather} if ask.schema else {})


def _part(part: Json) -> Json:
    if "image" not in part:
        return {"type": "input_text", "text": part["text"]}
    return {"type": "input_image", "image_url": f"data:image/png;base64,{part['image']}", "detail": "auto"}


def _tool(name: str) -> Json:
    schema: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    schema |= {"additionalProperties": False}
    return {"type": "function", "name": name, "description": name, "parameters": schema, "strict": True}


def _result(call: Any, ask: Ask) -> Json:
    return {"type": "function_call_output", "call_id": call.call_id, "output": ask.results[call.name]}


def _seen(response: Response) -> Seen:
    output: list[Any] = response.output
    parts = [part for item in output if item.type == "message" for part in item.content]
    thoughts = [item for item in output if item.type == "reasoning"]
    usage = response.usage
    return Seen(
        id=response.id,
        model=response.model,
        text=response.output_text,
        reasoning="".join(part.text for item in thoughts for part in [*item.summary, *(item.content or [])]),
        refusal="".join(part.refusal for part in parts if part.type == "refusal"),
        calls=[
            SeenCall(item.call_id, item.name, json.loads(item.arguments))
            for item in output
            if item.type == "function_call"
        ],
        status=response.status,
        reason=response.incomplete_details.reason if response.incomplete_details is not None else None,
        usage={
            "input": usage.input_tokens,
            "cached": usage.input_tokens_details.cached_tokens,
            "output": usage.output_tokens,
            "reasoning": usage.output_tokens_details.reasoning_tokens,
        }
        if usage is not None
        else None,
        items=[item.type for item in output],
        parsed=_parsed(response),
    )


def _parsed(response: Any) -> Json | None:
    """What `parse` and `stream` have decoded, if they were given a type."""
    parsed = getattr(response, "output_parsed", None)
    return parsed.model_dump() if isinstance(parsed, Weather) else None

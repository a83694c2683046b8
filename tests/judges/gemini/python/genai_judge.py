"""The official `google-genai` package for Python, which a test asks by lines. Runs in an environment of its own.

An ask comes in on stdin, its report goes out on stdout; `tests/judges/messages/asks.py` describes both.
"""

import asyncio
import json
import sys
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import httpx  # type: ignore[import-not-found]  # the tests do without
from google import genai
from google.genai import errors, types

Json = dict[str, Any]


class Judge:
    """The package, sync and async."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._responses: list[Any] = []
        self._sent_text = ""

        async def note(response: object) -> None:
            self._responses.append(response)

        self._http = httpx.Client(trust_env=False, event_hooks={"response": [self._responses.append]})
        self._async_http = httpx.AsyncClient(trust_env=False, event_hooks={"response": [note]})

    def ask(self, ask: Json) -> Json:
        """Put it to the gateway."""
        self._responses.clear()
        self._sent_text = ""
        turns: list[Json] = []
        failure = None
        try:
            client = self._client(ask)
            contents = [types.Content(role="user", parts=[_part(part) for part in ask["parts"]])]
            while True:
                pieces = WAYS[ask["way"]](self, client, ask["model"], contents, _config(ask))
                parts = [part for piece in pieces for part in _parts(piece)]
                turns.append(_seen(pieces, parts))
                calls = [part.function_call for part in parts if part.function_call]
                if not calls or not ask["results"]:
                    break
                results = [_result(call, ask["results"]) for call in calls]
                contents += [types.Content(role="model", parts=parts), types.Content(role="user", parts=results)]
        except Exception as error:  # noqa: BLE001 - whatever it is, the application gets it
            about = error if isinstance(error, errors.APIError) else None
            failure = {
                "name": type(error).__name__,
                "message": str(error),
                "status": about.code if about else None,
                "type": about.status if about else None,
            }
        return {
            "turns": turns,
            "sent_text": self._sent_text,
            "error": failure,
            "statuses": [response.status_code for response in self._responses],
            "headers": dict(self._responses[-1].headers) if self._responses else {},
        }

    def _client(self, ask: Json) -> Any:
        options = types.HttpOptions(
            base_url=ask["base_url"],
            timeout=int(ask["timeout_s"] * 1000),
            httpx_client=self._http,
            httpx_async_client=self._async_http,
        )
        return genai.Client(api_key=ask["key"], vertexai=False, http_options=options)

    def stream(self, client: Any, model: str, contents: list[Any], config: Any) -> list[Any]:
        return [self._taken(each) for each in client.models.generate_content_stream(**_named(model, contents, config))]

    def stream_async(self, client: Any, model: str, contents: list[Any], config: Any) -> list[Any]:
        async def read() -> list[Any]:
            stream = await client.aio.models.generate_content_stream(**_named(model, contents, config))
            return [self._taken(each) async for each in stream]

        return self._runner.run(read())

    def plain(self, client: Any, model: str, contents: list[Any], config: Any) -> list[Any]:
        return [client.models.generate_content(**_named(model, contents, config))]

    def _taken(self, piece: Any) -> Any:
        self._sent_text += _text(_parts(piece))
        return piece


WAYS: dict[str, Callable[..., list[Any]]] = {
    "stream": Judge.stream,
    "stream async": Judge.stream_async,
    "plain": Judge.plain,
}


def _named(model: str, contents: list[Any], config: Any) -> Json:
    return {"model": model, "contents": contents, "config": config}


def _config(ask: Json) -> Any:
    schema: Any = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}
    declared = [types.FunctionDeclaration(name=name, description=name, parameters=schema) for name in ask["tools"]]
    return types.GenerateContentConfig(
        system_instruction=ask["system"] or None,
        max_output_tokens=ask["max_tokens"],
        stop_sequences=ask["stop"] or None,
        thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_budget=1_024) if ask["thinking"] else None,
        tools=[types.Tool(function_declarations=declared)] if declared else None,
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )


def _part(part: Json) -> Any:
    if "image" in part:
        return types.Part.from_bytes(data=b64decode(part["image"]), mime_type="image/png")
    return types.Part.from_text(text=part["text"])


def _result(call: Any, results: Json) -> Any:
    found = results.get(call.name)
    response = {"output": "".join(part["text"] for part in found)} if found else {"error": "no such city"}
    return types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response=response))


def _parts(piece: Any) -> list[Any]:
    content = piece.candidates[0].content if piece.candidates else None
    return list(content.parts or []) if content else []


def _text(parts: list[Any]) -> str:
    return "".join(part.text or "" for part in parts if not part.thought)


def _seen(pieces: list[Any], parts: list[Any]) -> Json:
    """The answer, in the shape of `Seen` in tests/judges/messages/asks.py."""
    last = pieces[-1]
    usage, reason = last.usage_metadata, last.candidates[0].finish_reason
    assert [each.candidates[0].finish_reason for each in pieces[:-1]] == [None] * (len(pieces) - 1)
    cached = usage.cached_content_token_count or 0
    return {
        "id": last.response_id,
        "model": last.model_version,
        "text": _text(parts),
        "thinking": "".join(part.text or "" for part in parts if part.thought),
        "signature": None,
        "calls": [
            {"id": part.function_call.id, "name": part.function_call.name, "input": part.function_call.args}
            for part in parts
            if part.function_call
        ],
        "stop": reason.value if reason else None,
        "stop_sequence": None,
        "usage": {
            "input": usage.prompt_token_count - cached,
            "output": usage.candidates_token_count + (usage.thoughts_token_count or 0),
            "cache_read": cached,
        },
        "blocks": None,
    }


def main() -> None:
    """Answer line by line, until there are no more."""
    with asyncio.Runner() as runner:
        judge = Judge(runner)
        for line in sys.stdin:
            sys.stdout.write(f"{json.dumps(judge.ask(json.loads(line)))}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

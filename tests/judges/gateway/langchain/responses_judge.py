"""LangChain's client for OpenAI's API in its Responses mode, asked by lines, in an environment of its own.

An ask comes in on stdin, its report goes out on stdout; `tests/judges/responses/asks.py` describes both.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage  # type: ignore[import-not-found]  # the tests do without
from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

Json = dict[str, Any]
_TEXT: Json = {"type": "string"}
_SCHEMA: Json = {
    "title": "weather",
    "type": "object",
    "properties": {"city": _TEXT, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}


class Judge:
    """One client for each ask, over two shared pools of connections."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._responses: list[Any] = []
        self._sent_text = ""

        async def note(response: object) -> None:
            self._responses.append(response)

        self._sync = DefaultHttpxClient(trust_env=False, event_hooks={"response": [self._responses.append]})
        self._async = DefaultAsyncHttpxClient(trust_env=False, event_hooks={"response": [note]})

    def ask(self, ask: Json) -> Json:
        """Put it to the gateway."""
        self._responses.clear()
        self._sent_text = ""
        turns: list[Json] = []
        failure = None
        try:
            model, messages = self._model(ask), [HumanMessage([_block(part) for part in ask["parts"]])]
            if ask["system"]:
                messages.insert(0, ("system", ask["system"]))
            while True:
                message = WAYS[ask["way"]](self, model, messages)
                turns.append(_seen(message))
                if not message.tool_calls or not ask["results"]:
                    break
                results = [
                    ToolMessage(ask["results"][call["name"]], tool_call_id=call["id"]) for call in message.tool_calls
                ]
                messages += [message, *results]
        except Exception as error:  # noqa: BLE001 - whatever it is, the application gets it
            code = getattr(error, "code", None)
            failure = {
                "name": type(error).__name__,
                "message": str(error),
                "status": getattr(error, "status_code", None),
                "code": None if code is None else str(code),
            }
        return {
            "turns": turns,
            "sent_text": self._sent_text,
            "error": failure,
            "statuses": [response.status_code for response in self._responses],
            "headers": dict(self._responses[-1].headers) if self._responses else {},
        }

    def _model(self, ask: Json) -> Any:
        reasoning = {"reasoning": {"effort": "low", "summary": "auto"}, "store": False} if ask["reasoning"] else {}
        include = {"include": ["reasoning.encrypted_content"]} if ask["reasoning"] else {}
        model = ChatOpenAI(
            model=ask["model"],
            base_url=ask["base_url"],
            api_key=ask["key"],
            use_responses_api=True,
            max_tokens=ask["max_tokens"],
            max_retries=ask["max_retries"],
            timeout=ask["timeout_s"],
            http_client=self._sync,
            http_async_client=self._async,
            **reasoning,
            **include,
        )
        given = {"type": "object", "properties": {"city": _TEXT}, "required": ["city"], "additionalProperties": False}
        tools = [
            {"type": "function", "function": {"name": name, "description": name, "parameters": given}}
            for name in ask["tools"]
        ]
        if ask["schema"]:
            form = {"type": "json_schema", "json_schema": {"name": "weather", "schema": _SCHEMA, "strict": True}}
            return model.bind(response_format=form)
        return model.bind_tools(tools) if tools else model

    def stream(self, model: Any, messages: list[Any]) -> Any:
        answer = None
        for piece in model.stream(messages):
            self._sent_text += piece.text
            answer = piece if answer is None else answer + piece
        return answer

    def astream(self, model: Any, messages: list[Any]) -> Any:
        async def read() -> Any:
            answer = None
            async for piece in model.astream(messages):
                self._sent_text += piece.text
                answer = piece if answer is None else answer + piece
            return answer

        return self._runner.run(read())

    def invoke(self, model: Any, messages: list[Any]) -> Any:
        return model.invoke(messages)


WAYS: dict[str, Callable[[Judge, Any, list[Any]], Any]] = {
    "stream": Judge.stream,
    "astream": Judge.astream,
    "invoke": Judge.invoke,
}


def _block(part: Json) -> Json:
    if "image" not in part:
        return {"type": "text", "text": part["text"]}
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{part['image']}"}}


def _seen(message: Any) -> Json:
    """The message, in the shape of `Seen` in tests/judges/responses/asks.py."""
    about, usage, content = message.response_metadata, message.usage_metadata, message.content
    assert not message.invalid_tool_calls, message.invalid_tool_calls
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    thoughts = [block for block in blocks if block.get("type") == "reasoning"]
    texts = [part for block in thoughts for part in [*block.get("summary", []), *(block.get("content") or [])]]
    refusals = [block.get("refusal", "") for block in blocks if block.get("type") == "refusal"]
    return {
        "id": about.get("id"),
        "model": about.get("model_name"),
        "text": message.text,
        "reasoning": "".join(part["text"] for part in texts),
        "refusal": "".join(refusals) or message.additional_kwargs.get("refusal") or "",
        "calls": [{"id": call["id"], "name": call["name"], "arguments": call["args"]} for call in message.tool_calls],
        "status": about.get("status"),
        "reason": (about.get("incomplete_details") or {}).get("reason"),
        "usage": {
            "input": usage["input_tokens"],
            "cached": usage.get("input_token_details", {}).get("cache_read") or 0,
            "output": usage["output_tokens"],
            "reasoning": usage.get("output_token_details", {}).get("reasoning") or 0,
        },
        "items": None,
        "parsed": message.additional_kwargs.get("parsed"),
    }


def main() -> None:
    """Answer line by line, until there are no more."""
    with asyncio.Runner() as runner:
        judge = Judge(runner)
        for line in sys.stdin:
            sys.stdout.write(f"{json.dumps(judge.ask(json.loads(line)))}\n")
            sys.stdout.flush()


main()

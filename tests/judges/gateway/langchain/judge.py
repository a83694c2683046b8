"""LangChain's client for OpenAI's API, which a test asks by lines. Runs in an environment of its own.

An ask comes in on stdin, its report goes out on stdout; `tests/judges/gateway/asks.py` describes both.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]  # the tests do without
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

Json = dict[str, Any]


class Judge:
    """One client for each ask, over two shared pools of connections."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._answers: list[Any] = []
        self._sent_text = ""

        async def note(response: object) -> None:
            self._answers.append(response)

        self._sync = DefaultHttpxClient(trust_env=False, event_hooks={"response": [self._answers.append]})
        self._async = DefaultAsyncHttpxClient(trust_env=False, event_hooks={"response": [note]})

    def ask(self, ask: Json) -> Json:
        """Put it to the gateway."""
        self._answers.clear()
        self._sent_text = ""
        seen = failure = None
        try:
            seen = _seen(WAYS[ask["way"]](self, ask))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the application gets
            code = getattr(error, "code", None)
            failure = {
                "name": type(error).__name__,
                "message": str(error),
                "status": getattr(error, "status_code", None),
                "code": None if code is None else str(code),
            }
        return {
            "seen": seen,
            "sent_text": self._sent_text,
            "error": failure,
            "statuses": [answer.status_code for answer in self._answers],
            "headers": dict(self._answers[-1].headers) if self._answers else {},
        }

    def _model(self, ask: Json) -> Any:
        model = ChatOpenAI(
            model=ask["model"],
            base_url=ask["base_url"],
            api_key=ask["key"],
            max_retries=ask["max_retries"],
            timeout=ask["timeout_s"],
            stream_usage=ask["include_usage"],
            http_client=self._sync,
            http_async_client=self._async,
        )
        return model.bind_tools(ask["tools"]) if ask["tools"] else model

    def stream(self, ask: Json) -> Any:
        answer = None
        for piece in self._model(ask).stream(ask["messages"]):
            self._sent_text += piece.text
            answer = piece if answer is None else answer + piece
        return answer

    def astream(self, ask: Json) -> Any:
        async def read() -> Any:
            answer = None
            async for piece in self._model(ask).astream(ask["messages"]):
                self._sent_text += piece.text
                answer = piece if answer is None else answer + piece
            return answer

        return self._runner.run(read())

    def invoke(self, ask: Json) -> Any:
        return self._model(ask).invoke(ask["messages"])

    def ainvoke(self, ask: Json) -> Any:
        async def read() -> Any:
            return await self._model(ask).ainvoke(ask["messages"])

        return self._runner.run(read())


WAYS: dict[str, Callable[[Judge, Json], Any]] = {
    "stream": Judge.stream,
    "astream": Judge.astream,
    "invoke": Judge.invoke,
    "ainvoke": Judge.ainvoke,
}


def _seen(message: Any) -> Json:
    """The message, in the shape of `Seen` in tests/judges/cases.py."""
    about, usage = message.response_metadata, message.usage_metadata
    assert not message.invalid_tool_calls, message.invalid_tool_calls
    calls = [
        {
            "kind": "function",
            "id": call["id"],
            "name": call["name"],
            "arguments": json.dumps(call["args"], ensure_ascii=False, separators=(",", ":")),
        }
        for call in message.tool_calls
    ]
    choice = {
        "role": "assistant" if message.type in ("ai", "AIMessageChunk") else message.type,
        "text": message.text,
        "reasoning": "",
        "refusal": message.additional_kwargs.get("refusal") or "",
        "calls": calls,
        "finish": about.get("finish_reason"),
    }
    return {
        "id": "",
        "model": about.get("model_name"),
        "created": 0,
        "choices": {"0": choice},
        "usage": usage
        and {
            "prompt_tokens": usage["input_tokens"],
            "completion_tokens": usage["output_tokens"],
            "total_tokens": usage["total_tokens"],
        },
    }


def main() -> None:
    """Answer line by line, until there are no more."""
    with asyncio.Runner() as runner:
        judge = Judge(runner)
        for line in sys.stdin:
            sys.stdout.write(f"{json.dumps(judge.ask(json.loads(line)))}\n")
            sys.stdout.flush()


main()

"""LangChain's client for Gemini's API, which a test asks by lines. Runs in an environment of its own.

An ask comes in on stdin, its report goes out on stdout; `tests/judges/messages/asks.py` describes both.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage  # type: ignore[import-not-found]  # the tests do without
from langchain_google_genai import ChatGoogleGenerativeAI  # type: ignore[import-not-found]

Json = dict[str, Any]


class Judge:
    """One client for each ask."""

    def __init__(self) -> None:
        self._responses: list[Any] = []
        self._sent_text = ""

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
                messages += [message, *(_result(call, ask["results"]) for call in message.tool_calls)]
        except Exception as error:  # noqa: BLE001 - whatever it is, the application gets it
            about = error.__cause__ or error
            failure = {
                "name": type(error).__name__,
                "message": str(error),
                "status": getattr(about, "code", None),
                "type": getattr(about, "status", None),
            }
        return {
            "turns": turns,
            "sent_text": self._sent_text,
            "error": failure,
            "statuses": [response.status_code for response in self._responses],
            "headers": dict(self._responses[-1].headers) if self._responses else {},
        }

    def _model(self, ask: Json) -> Any:
        thinking = {"thinking_budget": 1_024, "include_thoughts": True} if ask["thinking"] else {}
        model = ChatGoogleGenerativeAI(
            model=ask["model"],
            base_url=ask["base_url"],
            google_api_key=ask["key"],
            max_output_tokens=ask["max_tokens"],
            max_retries=1 + ask["max_retries"],  # it counts the first attempt too
            timeout=ask["timeout_s"],
            stop=ask["stop"] or None,
            client_args={"event_hooks": {"response": [self._responses.append]}, "trust_env": False},
            vertexai=False,
            **thinking,
        )
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        tools = [{"name": name, "description": name, "parameters": schema} for name in ask["tools"]]
        return model.bind_tools(tools) if tools else model

    def stream(self, model: Any, messages: list[Any]) -> Any:
        answer = None
        for piece in model.stream(messages):
            self._sent_text += piece.text
            answer = piece if answer is None else answer + piece
        return answer

    def invoke(self, model: Any, messages: list[Any]) -> Any:
        return model.invoke(messages)


WAYS: dict[str, Callable[[Judge, Any, list[Any]], Any]] = {"stream": Judge.stream, "invoke": Judge.invoke}


def _block(part: Json) -> Json:
    if "image" not in part:
        return {"type": "text", "text": part["text"]}
    return {"type": "image_url", "image_url": f"data:image/png;base64,{part['image']}"}


def _result(call: Json, results: Json) -> Any:
    if call["name"] not in results:
        return ToolMessage("no such city", name=call["name"], tool_call_id=call["id"], status="error")
    text = "".join(part["text"] for part in results[call["name"]])
    return ToolMessage(text, name=call["name"], tool_call_id=call["id"])


def _seen(message: Any) -> Json:
    """The message, in the shape of `Seen` in tests/judges/messages/asks.py."""
    about, usage, content = message.response_metadata, message.usage_metadata, message.content
    assert not message.invalid_tool_calls, message.invalid_tool_calls
    thoughts = [block for block in content if isinstance(block, dict) and block.get("type") == "thinking"]
    cached = usage.get("input_token_details", {}).get("cache_read") or 0
    return {
        "id": None,
        "model": None,
        "text": message.text,
        "thinking": "".join(block.get("thinking", "") for block in thoughts),
        "signature": None,
        "calls": [{"id": call["id"], "name": call["name"], "input": call["args"]} for call in message.tool_calls],
        "stop": about.get("finish_reason"),
        "stop_sequence": None,
        "usage": {"input": usage["input_tokens"] - cached, "output": usage["output_tokens"], "cache_read": cached},
        "blocks": None,
    }


def main() -> None:
    """Answer line by line, until there are no more."""
    os.environ |= {"LANGSMITH_TRACING": "false", "NO_PROXY": "*"}
    judge = Judge()
    for line in sys.stdin:
        sys.stdout.write(f"{json.dumps(judge.ask(json.loads(line)))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""The oracle: what a stream of Ollama says. Standard library only; every line is one object, the whole file at once."""

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class SentLines:
    """The content of a stream."""

    ending: str = "truncated"
    model: str = ""
    text: str = ""
    thinking: str = ""
    calls: list[tuple[str | None, str, Any]] = field(default_factory=list)
    finish: str | None = None
    tokens: tuple[int | None, int | None] | None = None
    """Input and output."""


def expect(data: bytes) -> SentLines:
    """Read a whole file."""
    sent = SentLines()
    for line in data.decode().splitlines():
        value = json.loads(line)
        if "error" in value:
            sent.ending = "failed"
            continue
        sent.model = value["model"]
        message = value.get("message", {})
        sent.text += message.get("content", value.get("response", ""))
        sent.thinking += message.get("thinking", "")
        for call in message.get("tool_calls") or []:
            sent.calls.append((call.get("id"), call["function"]["name"], call["function"].get("arguments", {})))
        if value["done"]:
            sent.ending = "completed"
            sent.finish = "tool_calls" if sent.calls and value["done_reason"] == "stop" else value["done_reason"]
            sent.tokens = (value.get("prompt_eval_count"), value.get("eval_count"))
    return sent

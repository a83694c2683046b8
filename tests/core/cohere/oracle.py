"""The oracle: what a stream of Cohere says. Standard library only; one line of data per event."""

import json
from dataclasses import dataclass, field
from typing import Any

FINISH = {"COMPLETE": "stop", "MAX_TOKENS": "length", "TOOL_CALL": "tool_calls", "STOP_SEQUENCE": "stop"}


@dataclass
class SentEvents:
    """The content of a stream."""

    ending: str = "truncated"
    id: str = ""
    text: str = ""
    thinking: str = ""
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    citations: list[tuple[int, int, str]] = field(default_factory=list)
    finish: str | None = None
    tokens: tuple[int, int, int, int] | None = None
    """Input, output, cached and reasoning."""


def expect(data: bytes) -> SentEvents:
    """Read a whole file."""
    sent = SentEvents()
    arguments: list[str] = []
    for line in data.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        value = json.loads(line.removeprefix("data: "))
        sent.id = value.get("id", sent.id)
        message = value.get("delta", {}).get("message", {})
        content, call, citation = (message.get(name) or {} for name in ("content", "tool_calls", "citations"))
        if content:
            sent.text += content.get("text", "")
            sent.thinking += content.get("thinking", "")
        sent.thinking += message.get("tool_plan", "")
        if call and "id" in call:
            sent.calls.append((call["id"], call["function"]["name"], None))
            arguments.append("")
        if call:
            arguments[-1] += call["function"]["arguments"]
        if citation:
            sent.citations.append((citation["start"], citation["end"], citation["text"]))
        if value["type"] == "message-end":
            end = value["delta"]
            sent.ending, sent.finish = "completed", FINISH[end["finish_reason"]]
            usage = end["usage"]
            tokens = usage["tokens"]
            sent.tokens = (
                tokens["input_tokens"],
                tokens["output_tokens"],
                usage.get("cached_tokens", 0),
                tokens.get("reasoning_tokens", 0),
            )
    sent.calls = [
        (id, name, json.loads(text or "{}") if sent.finish else text)
        for (id, name, _), text in zip(sent.calls, arguments, strict=True)
    ]
    return sent

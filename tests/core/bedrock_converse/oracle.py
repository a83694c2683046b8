"""The oracle: what a stream of the Converse API says, by botocore's own parser of event streams."""

import json
from base64 import b64decode
from dataclasses import dataclass, field
from typing import Any

from botocore.eventstream import EventStreamBuffer

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "guardrail_intervened": "content_filter",
}


@dataclass
class SentBlocks:
    """The content of a stream."""

    ending: str = "truncated"
    text: str = ""
    thinking: str = ""
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    finish: str | None = None
    tokens: tuple[int, int, int, int] | None = None
    """Input, output, cached and written to the cache."""


def decoded(data: bytes) -> bytes:
    """The stream in a file of the corpus: some recorders wrote it in base64 or in hexadecimal digits."""
    if data[:1] == b"\0":
        return data
    if data.startswith(b"000"):
        return bytes.fromhex(data.decode())
    return b64decode(data.removeprefix(b"base64:"))


def messages(data: bytes) -> list[tuple[str, Any]]:
    """The names and payloads of all messages, by botocore."""
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    return [(message.headers[":event-type"], json.loads(message.payload)) for message in buffer]


def expect(data: bytes) -> SentBlocks:
    """Read a whole file."""
    sent = SentBlocks()
    arguments: list[str] = []
    for name, value in messages(data):
        delta = value.get("delta", {})
        sent.text += delta.get("text", "")
        sent.thinking += delta.get("reasoningContent", {}).get("text", "")
        if name == "contentBlockStart":
            sent.calls.append((value["start"]["toolUse"]["toolUseId"], value["start"]["toolUse"]["name"], None))
            arguments.append("")
        if "toolUse" in delta:
            arguments[-1] += delta["toolUse"]["input"]
        if name == "messageStop":
            sent.ending, sent.finish = "completed", FINISH[value["stopReason"]]
        if name == "metadata":
            usage = value["usage"]
            read, written = (usage.get(f"cache{kind}InputTokens", 0) for kind in ("Read", "Write"))
            sent.tokens = (usage["inputTokens"] + read + written, usage["outputTokens"], read, written)
    sent.calls = [
        (id, name, json.loads(text or "{}")) for (id, name, _), text in zip(sent.calls, arguments, strict=True)
    ]
    return sent

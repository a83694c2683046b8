"""The oracle: what a stream of Gemini says, in the simplest way that can be checked by reading it.

The tests compare Penstock's reader with this file, so it shares nothing with it: standard library only, the whole file
at once. Every object at the top level, in events or in an array, is one message. Parts are concatenated by their kind.
Streamed arguments are put into an object by their paths. A counter counts as it was sent last.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

FINISH = {"STOP": "stop", "MAX_TOKENS": "length"}
COUNTS = {
    "prompt": "promptTokenCount",
    "tools": "toolUsePromptTokenCount",
    "candidates": "candidatesTokenCount",
    "thoughts": "thoughtsTokenCount",
    "cached": "cachedContentTokenCount",
}


@dataclass
class SentText:
    """The content of a stream. `calls` are name and decoded arguments, `wholes` the types of all other parts."""

    ending: str = "truncated"
    text: str = ""
    thoughts: str = ""
    signatures: list[str] = field(default_factory=list)
    calls: list[tuple[str | None, str, Any]] = field(default_factory=list)
    wholes: list[str] = field(default_factory=list)
    finish: str | None = None
    tokens: tuple[int, int, int, int] | None = None
    """Input, output, cached and reasoning."""


def payloads(data: bytes) -> list[dict[str, Any]]:
    text = re.sub(r"(?m)^data:", "", data.decode())
    found, position = [], text.find("{")
    while position >= 0:
        payload, position = json.JSONDecoder().raw_decode(text, position)
        found.append(payload)
        position = text.find("{", position)
    return found


def expect(data: bytes) -> SentText:
    """Read a whole file."""
    sent = SentText()
    reason, usage = None, {}
    for message in payloads(data):
        if "error" in message:
            sent.ending = "failed"
        for candidate in message.get("candidates") or []:
            for part in (candidate.get("content") or {}).get("parts") or []:
                add(sent, part)
            reason = candidate.get("finishReason") or reason
        usage.update({name: count for name, count in (message.get("usageMetadata") or {}).items() if count is not None})
    if reason is not None and sent.ending != "failed":
        sent.ending = "completed"
        sent.finish = "tool_calls" if reason == "STOP" and sent.calls else FINISH[reason]
    prompt, tools, candidates, thoughts, cached = (usage.get(name, 0) for name in COUNTS.values())
    if any(name in usage for name in COUNTS.values()):
        sent.tokens = (prompt + tools, candidates + thoughts, cached, thoughts)
    return sent


def add(sent: SentText, part: dict[str, Any]) -> None:
    if "thoughtSignature" in part:
        sent.signatures.append(part["thoughtSignature"])
    if "text" in part:
        if part.get("thought"):
            sent.thoughts += part["text"]
        else:
            sent.text += part["text"]
    elif "functionCall" in part:
        call = part["functionCall"]
        if "name" in call:
            sent.calls.append((call.get("id"), call["name"], call.get("args", {})))
        for piece in call.get("partialArgs", []):
            put(sent.calls[-1][2], piece)
    else:
        sent.wholes += [name for name in part if name != "thoughtSignature"]


def put(arguments: Any, piece: dict[str, Any]) -> None:
    """Put a value at its path; append to the text that is there."""
    steps: list[str | int] = [
        int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", piece["jsonPath"].removeprefix("$"))
    ]
    value = piece.get("stringValue", piece.get("numberValue", piece.get("boolValue")))
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        is_last = following is None
        if isinstance(arguments, list):
            assert isinstance(step, int)
            if len(arguments) <= step:
                arguments.append("" if is_last else [] if isinstance(following, int) else {})
        elif step not in arguments:
            arguments[step] = "" if is_last else [] if isinstance(following, int) else {}
        if is_last:
            arguments[step] = arguments[step] + value if isinstance(value, str) else value
        arguments = arguments[step]

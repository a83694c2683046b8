"""The oracle: what a stream of Anthropic Messages says, in the simplest way that can be checked by reading it.

The tests compare Penstock's reader with this file, so it shares nothing with it: standard library only, the whole file
at once. Each `data:` line is one JSON object. Deltas are concatenated by the index of their block and by their type.
A counter counts as it was sent last, unless that is zero. The output that `message_start` reports is preliminary.
"""

import json
from dataclasses import dataclass, field
from typing import Any

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
    "pause_turn": "pause",
    "compaction": "pause",
}
COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


@dataclass
class SentText:
    """The content of a stream. `calls` are those that the client executes: id, name and decoded arguments."""

    ending: str = "truncated"
    text: str = ""
    thinking: str = ""
    signatures: list[str] = field(default_factory=list)
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    stop_reason: str | None = None
    stop_sequence: str | None = None
    tokens: dict[str, dict[str, int]] = field(default_factory=dict)
    """By model, "" for the one that answers: input with the caches, cached, written, output."""

    @property
    def finish(self) -> str | None:
        """The stop reason in the words of chat completions."""
        return FINISH.get(self.stop_reason) if self.stop_reason else None


def payloads(data: bytes) -> list[dict[str, Any]]:
    lines = [line[5:].strip() for line in data.decode().splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def expect(data: bytes) -> SentText:
    """Read a whole file."""
    sent_text = SentText()
    blocks: dict[int, dict[str, Any]] = {}
    order: list[dict[str, Any]] = []
    usage: dict[str, Any] = {}
    identity = None
    for event in payloads(data):
        match event["type"]:
            case "message_start":
                message = event["message"]
                if identity not in (None, message["id"]):
                    sent_text.ending = "failed"
                    break
                identity = message["id"]
                update(usage, {name: value for name, value in message["usage"].items() if name != "output_tokens"})
            case "content_block_start":
                block = dict(event["content_block"], pieces="")
                blocks[event["index"]] = block
                order.append(block)
            case "content_block_delta":
                block, delta = blocks[event["index"]], event["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] += delta["text"]
                    case "thinking_delta":
                        block["thinking"] += delta["thinking"]
                    case "signature_delta":
                        block["signature"] = delta["signature"]
                    case "input_json_delta":
                        block["pieces"] += delta["partial_json"]
                    case _:
                        pass
            case "message_delta":
                sent_text.stop_reason = event["delta"]["stop_reason"] or sent_text.stop_reason
                sent_text.stop_sequence = event["delta"].get("stop_sequence")
                update(usage, event.get("usage") or {})
            case "error":
                sent_text.ending = "failed"
                break
            case _:
                pass
    if sent_text.ending != "failed" and sent_text.stop_reason:
        sent_text.ending = "completed"
    for block in order:
        add(sent_text, block)
    sent_text.tokens = booked(usage)
    return sent_text


def add(sent_text: SentText, block: dict[str, Any]) -> None:
    sent_text.kinds.append(block["type"])
    match block["type"]:
        case "text":
            sent_text.text += block["text"]
        case "thinking":
            sent_text.thinking += block["thinking"]
            if block.get("signature"):
                sent_text.signatures.append(block["signature"])
        case "redacted_thinking":
            sent_text.signatures.append(block["data"])
        case "tool_use":
            sent_text.calls.append((block["id"], block["name"], block["pieces"] or block["input"]))
        case _:
            pass


def update(usage: dict[str, Any], report: dict[str, Any]) -> None:
    for name, value in report.items():
        if value or not usage.get(name):
            usage[name] = value


def booked(usage: dict[str, Any]) -> dict[str, dict[str, int]]:
    """The tokens of the answering model, and of others that took part."""
    steps = [step for step in usage.get("iterations") or [] if isinstance(step, dict)] or [usage]
    fallbacks = [step["model"] for step in steps if step.get("type") == "fallback_message"]
    sums: dict[str, dict[str, int]] = {}
    for step in steps:
        model = step.get("model") or ""
        model = "" if model in fallbacks[-1:] else model
        fresh, cached, written, output = (step.get(name) or 0 for name in COUNTS)
        known = sums.setdefault(model, {"input": 0, "cached": 0, "cache_write": 0, "output": 0})
        for name, count in (
            ("input", fresh + cached + written),
            ("cached", cached),
            ("cache_write", written),
            ("output", output),
        ):
            known[name] += count
    return sums

"""The oracle: what a stream of OpenAI Responses says, in the simplest way that can be checked by reading it.

The tests compare Penstock's reader with this file, so it shares nothing with it: standard library only, the whole file
at once. Each `data:` line is one JSON object. Deltas are concatenated by the index of their item, and by their type.
Calls and encrypted content are those of whole items (`output_item.done`). Where the whole text at its end begins with
the deltas and goes on, it counts (some fixtures left deltas out).
"""

import json
from dataclasses import dataclass, field
from typing import Any

REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}
# Searches on X, which xAI executes itself and sends as calls of custom tools.
X_SEARCHES = ("x_keyword_search", "x_semantic_search", "x_user_search", "x_thread_fetch", "view_x_video", "view_image")


@dataclass
class SentResponse:
    """What a stream says. `calls` are those that the client makes: kind, id, namespace, name, arguments."""

    ending: str = "truncated"
    text: str = ""
    refusal: str = ""
    summary: str = ""
    reasoning: str = ""
    seals: list[str] = field(default_factory=list)
    calls: list[tuple[str, str, str | None, str, str]] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """The types of all other items."""
    citations: list[Any] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    finish: str | None = None
    tokens: dict[str, int] = field(default_factory=dict)
    error: str = ""


def payloads(data: bytes) -> list[Any]:
    lines = [line[5:].strip() for line in data.decode().splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def expect(data: bytes) -> SentResponse:
    """Read a whole file."""
    sent = SentResponse()
    try:
        events = payloads(data)
    except ValueError:
        sent.ending = "failed"
        return sent
    texts: dict[str, dict[tuple[int, int], str]] = {"text": {}, "refusal": {}, "summary": {}, "reasoning": {}}
    called, identity = False, None
    for event in events:
        type, index = event["type"], event.get("output_index", 0)
        match type:
            case "response.created":
                if identity not in (None, event["response"]["id"]):
                    sent.ending = "failed"
                    break
                identity = event["response"]["id"]
            case "response.output_text.delta":
                append(texts["text"], index, event["content_index"], event["delta"])
            case "response.output_text.done":
                place = index, event["content_index"]
                if event["text"].startswith(texts["text"].get(place, "")):
                    texts["text"][place] = event["text"]
            case "response.refusal.delta":
                append(texts["refusal"], index, event["content_index"], event["delta"])
            case "response.reasoning_summary_text.delta":
                append(texts["summary"], index, event["summary_index"], event["delta"])
            case "response.reasoning_text.delta":
                append(texts["reasoning"], index, event["content_index"], event["delta"])
            case "response.output_item.done":
                called = add(sent, event["item"]) or called
            case "response.completed" | "response.incomplete":
                response = event["response"]
                sent.ending = "completed"
                details = response.get("incomplete_details") or {}
                sent.finish = REASONS[details["reason"]] if details else "tool_calls" if called else "stop"
                sent.tokens = booked(response.get("usage") or {})
            case "error" | "response.failed":
                error = event.get("error") or event["response"]["error"]
                sent.ending, sent.error = "failed", error["message"]
                break
            case _:
                pass
    sent.text, sent.refusal, sent.reasoning = (joined(texts[name]) for name in ("text", "refusal", "reasoning"))
    sent.summary = joined(texts["summary"])
    return sent


def append(texts: dict[tuple[int, int], str], item: int, part: int, text: str) -> None:
    texts[item, part] = texts.get((item, part), "") + text


def joined(texts: dict[tuple[int, int], str]) -> str:
    return "".join(texts[place] for place in sorted(texts))


def add(sent: SentResponse, item: dict[str, Any]) -> bool:
    """Add a whole item; returns whether it is a call of the client."""
    match item["type"]:
        case "function_call":
            sent.calls.append(
                ("function", item["call_id"], item.get("namespace"), item["name"], item["arguments"] or "{}")
            )
            return True
        case "custom_tool_call" if item["name"] not in X_SEARCHES:
            sent.calls.append(("custom", item["call_id"], item.get("namespace"), item["name"], item["input"]))
            return True
        case "message":
            for part in item["content"]:
                sent.citations += part.get("annotations") or []
                sent.phases.append(item.get("phase") or "")
        case "reasoning":
            sent.seals += [item["encrypted_content"]] if item.get("encrypted_content") else []
        case type:
            sent.others.append(type)
    return False


def booked(usage: dict[str, Any]) -> dict[str, int]:
    if not usage.get("input_tokens"):
        return {}
    read, given = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    return {
        "input": usage["input_tokens"],
        "cached": read.get("cached_tokens") or 0,
        "cache_write": read.get("cache_write_tokens") or 0,
        "output": usage["output_tokens"],
        "reasoning": given.get("reasoning_tokens") or 0,
    }

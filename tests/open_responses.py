"""What Open Responses (the specification of 2026-04-24) demands of the response object and of the events of a stream.

`problems` is a check of our own, from a table of the members of each object and their types. Items, parts, tools,
annotations and events of types that the specification does not name are extensions, and any object may have further
members. Four things are accepted that the published schema refuses, because OpenAI's own API and its SDKs have them:
the schema of a `text.format`, which it says is null; the effort `minimal`; tools, choices of tools and annotations of
further types; and `response.reasoning_text.*`, which it names `response.reasoning.*`.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]
# A type is a name below, a word of JSON, a list of words, `[type]` for a list, or several of them; `?` in front of a
# member's name says that it may be missing.
_STATUS = ("in_progress", "completed", "incomplete")
_TEXT: Json = {"item_id": str, "output_index": int}
_CONTENT: Json = _TEXT | {"content_index": int}
_SUMMARY: Json = _TEXT | {"summary_index": int}
_OBJECTS: Mapping[str, Json] = {
    "response": {
        "id": str, "object": ("response",), "created_at": int, "completed_at": (int, None), "status": str,
        "incomplete_details": ("@incomplete", None), "model": str, "previous_response_id": (str, None),
        "instructions": (str, None), "output": ["@item"], "error": ("@error", None), "tools": ["@tool"],
        "tool_choice": ("none", "auto", "required", "@choice"), "truncation": ("auto", "disabled"),
        "parallel_tool_calls": bool, "text": "@text", "top_p": float, "presence_penalty": float,
        "frequency_penalty": float, "top_logprobs": int, "temperature": float, "reasoning": ("@reasoning", None),
        "usage": ("@usage", None), "max_output_tokens": (int, None), "max_tool_calls": (int, None), "store": bool,
        "background": bool, "service_tier": str, "metadata": dict, "safety_identifier": (str, None),
        "prompt_cache_key": (str, None),
    },
    "incomplete": {"reason": str},
    "error": {"code": str, "message": str},
    "payload": {"type": str, "code": (str, None), "message": str, "param": (str, None)},
    "choice": {"type": str},
    "text": {"format": "@format", "?verbosity": ("low", "medium", "high")},
    "reasoning": {
        "effort": ("none", "minimal", "low", "medium", "high", "xhigh", None),
        "summary": ("concise", "detailed", "auto", None),
    },
    "usage": {
        "input_tokens": int, "output_tokens": int, "total_tokens": int, "input_tokens_details": "@input_details",
        "output_tokens_details": "@output_details",
    },
    "input_details": {"cached_tokens": int},
    "output_details": {"reasoning_tokens": int},
    "logprob": {"token": str, "logprob": float, "bytes": [int], "top_logprobs": ["@top_logprob"]},
    "top_logprob": {"token": str, "logprob": float, "bytes": [int]},
}  # fmt: skip
# Objects that differ by their `type`.
_TYPED: Mapping[str, Mapping[str, Json]] = {
    "format": {
        "text": {},
        "json_object": {},
        "json_schema": {"name": str, "description": (str, None), "strict": bool},
    },
    "tool": {
        "function": {"name": str, "description": (str, None), "parameters": (dict, None), "strict": (bool, None)},
    },
    "item": {
        "message": {
            "id": str, "status": _STATUS, "role": ("assistant",), "content": ["@part"],
            "?phase": ("commentary", "final_answer"),
        },
        "function_call": {"id": str, "call_id": str, "name": str, "arguments": str, "status": _STATUS},
        "reasoning": {"id": str, "summary": ["@part"], "?content": ["@part"], "?encrypted_content": str},
        "compaction": {"id": str, "encrypted_content": str},
    },
    "part": {
        "output_text": {"text": str, "annotations": ["@annotation"], "?logprobs": ["@logprob"]},
        "refusal": {"refusal": str},
        "summary_text": {"text": str},
        "reasoning_text": {"text": str},
    },
    "annotation": {"url_citation": {"url": str, "title": str, "start_index": int, "end_index": int}},
    "event": {
        "response.created": {"response": "@response"},
        "response.queued": {"response": "@response"},
        "response.in_progress": {"response": "@response"},
        "response.completed": {"response": "@response"},
        "response.failed": {"response": "@response"},
        "response.incomplete": {"response": "@response"},
        "response.output_item.added": {"output_index": int, "item": "@item"},
        "response.output_item.done": {"output_index": int, "item": "@item"},
        "response.content_part.added": _CONTENT | {"part": "@part"},
        "response.content_part.done": _CONTENT | {"part": "@part"},
        "response.output_text.delta": _CONTENT | {"delta": str, "?logprobs": ["@logprob"], "?obfuscation": str},
        "response.output_text.done": _CONTENT | {"text": str, "?logprobs": ["@logprob"]},
        "response.refusal.delta": _CONTENT | {"delta": str},
        "response.refusal.done": _CONTENT | {"refusal": str},
        "response.reasoning_text.delta": _CONTENT | {"delta": str, "?obfuscation": str},
        "response.reasoning_text.done": _CONTENT | {"text": str},
        "response.function_call_arguments.delta": _TEXT | {"delta": str, "?obfuscation": str},
        "response.function_call_arguments.done": _TEXT | {"arguments": str},
        "response.reasoning_summary_part.added": _SUMMARY | {"part": "@part"},
        "response.reasoning_summary_part.done": _SUMMARY | {"part": "@part"},
        "response.reasoning_summary_text.delta": _SUMMARY | {"delta": str, "?obfuscation": str},
        "response.reasoning_summary_text.done": _SUMMARY | {"text": str},
        "response.output_text.annotation.added": _CONTENT | {"annotation_index": int, "annotation": "@annotation"},
        "error": {"error": "@payload"},
    },
}  # fmt: skip


def problems(value: Json) -> list[str]:
    """What is wrong with an event, or with a response object."""
    return list(_wrong(value, "@response" if value.get("object") == "response" else "@event", "")) + (
        [] if "object" in value or type(value.get("sequence_number")) is int else ["sequence_number is missing"]
    )


def stream_problems(body: bytes) -> list[str]:
    """What is wrong with a whole stream: its events, their names, and its last line."""
    found: list[str] = []
    blocks = body.decode().split("\n\n")
    if blocks[-2:] != ["data: [DONE]", ""]:
        found.append(f"it does not end with [DONE]: {blocks[-2:]}")
    for block in blocks[:-2]:
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        event = json.loads(lines.pop("data"))
        if lines != {"event": event["type"]}:
            found.append(f"the fields of {event['type']} are {lines}")
        found += [f"{event['type']}: {problem}" for problem in problems(event)]
    return found


def _wrong(value: object, type: object, path: str) -> Iterator[str]:
    match type:
        case str() if type.startswith("@"):
            yield from _wrong_object(value, type[1:], path)
        case tuple():
            if not any(_fits(value, each) for each in type):
                named = next((each for each in type if isinstance(each, str) and each.startswith("@")), None)
                if named is not None and isinstance(value, dict):
                    yield from _wrong(value, named, path)
                else:
                    yield f"{path} is {value!r}"
        case list():
            if not isinstance(value, list):
                yield f"{path} is {value!r}"
                return
            for place, each in enumerate(value):
                yield from _wrong(each, type[0], f"{path}[{place}]")
        case _:
            if not _fits(value, type):
                yield f"{path} is {value!r}"


def _wrong_object(value: object, name: str, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path} is {value!r}"
        return
    members = _OBJECTS.get(name)
    if members is None:
        if not isinstance(value.get("type"), str):
            yield f"{path}.type is {value.get('type')!r}"
        members = _TYPED[name].get(str(value.get("type")), {})
    for member, type in members.items():
        known = member.removeprefix("?")
        if known in value:
            yield from _wrong(value[known], type, f"{path}.{known}")
        elif known == member:
            yield f"{path}.{known} is missing"


def _fits(value: object, type: object) -> bool:
    if type is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if type is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if type is None or (isinstance(type, str) and not type.startswith("@")):
        return value == type
    if isinstance(type, str):
        return next(_wrong(value, type, ""), None) is None
    return isinstance(value, type)  # type: ignore[arg-type]

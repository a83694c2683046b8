"""Members of an answer that only its provider's dialect has: each is a loss for a client of another dialect.

Readers keep what has no event of its own: in an `Extra`, in the `data` of a block or a citation, and in `Usage.raw`.
Writers of the same dialect write it again. For every other client `AnswerExtras` notes one loss for each kind of
member, however often a stream repeats it, except those of `INCIDENTAL`. Rules:

1. A value that says nothing (null, an empty text, list or object; in usage also zero) is no loss.
2. Events of a block that is a loss as a whole (an item that the provider executes) are no further losses.
3. The transcript of audio in chat completions is the text of the answer for clients that cannot get the audio.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from penstock.core.completion import Completion
from penstock.core.content import MediaPart, ReasoningPart, RefusalPart, TextPart, ToolCall
from penstock.core.events import BlockEnd, BlockStart, Event, Extra, TextDelta, UsageReport
from penstock.core.json_getters import object_of, objects_of, text_of
from penstock.core.losses import Loss
from penstock.core.usage import Usage
from penstock.core.usage_fields import REPORTED

_Json: TypeAlias = Mapping[str, object]
INCIDENTAL: Mapping[str, str] = {
    name: reason
    for reason, names in {
        "identifies the answer, or a part of it, at its provider": "id item_id index type object role status",
        "describes the provider's software, or how it transmits": "system_fingerprint obfuscation provider",
        "repeats content of the answer in another form": "other_function_call reasoning_content thinking",
        "is the media type, in another form": "output_format",
        "is how long the provider took": "metrics queue_time prompt_time completion_time total_time total_duration "
        "load_duration prompt_eval_duration eval_duration",
        "repeats the request": "background conversation instructions max_output_tokens max_tool_calls metadata "
        "parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_retention reasoning "
        "safety_identifier service_tier store temperature text tool_choice tools top_logprobs top_p truncation user",
    }.items()
    for name in names.split()
}
"""Members that clients of no other dialect miss, and why."""
# The losses of members that are content, by name. Any other member is a `field-dropped`.
_CONTENT = {
    "annotations": "citation-dropped",
    "audio": "media-dropped",
    "citations": "citation-dropped",
    "content_parts": "media-dropped",
    "images": "media-dropped",
    "search_results": "citation-dropped",
}
# Members of which the readers make events, by the object that has them.
_READ: Mapping[str, frozenset[str]] = {
    "citationMetadata": frozenset(("citations", "citationSources")),
    "groundingMetadata": frozenset(("groundingChunks", "groundingSupports")),
    "promptFeedback": frozenset(("blockReason",)),
}
_NOTED = frozenset((Extra, BlockStart, BlockEnd, UsageReport))
_EMPTY: tuple[object, ...] = (None, "", [], {})


class AnswerExtras:
    """Notes the losses of one answer. `carried` are extras that the client's dialect has (`Dialect.carried`)."""

    def __init__(self, losses: list[Loss], carried: frozenset[str]) -> None:
        self._losses = losses
        self._known = set(carried)

    def pass_on(self, events: Iterable[Event]) -> list[Event]:
        """The events for a client of another dialect: the same, but for audio that becomes its transcript."""
        passed: list[Event] = []
        for event in events:
            if type(event) in _NOTED:
                self._read(event, passed)
            passed.append(event)
        return passed

    def note_answer(self, completion: Completion) -> None:
        """Note the losses of an answer of which only the whole is known. Unknown events are not part of it."""
        self._note(completion.extras)
        for choice in completion.choices:
            self._note(choice.extras | choice.message_extras)
            for part in choice.parts:
                if isinstance(part, ToolCall):
                    self._note(part.extras)
                elif isinstance(part, TextPart | ReasoningPart | RefusalPart | MediaPart):
                    self._note(part.extras, "content.")
        if completion.usage is not None:
            self._note_usage(completion.usage)

    def _read(self, event: Event, passed: list[Event]) -> None:
        match event:
            case Extra("event"):
                self._note_event(event)
            case Extra(fields=fields):
                self._note(fields)
                transcript = text_of(object_of(fields.get("audio")).get("transcript"))
                if transcript and event.choice is not None:
                    passed.append(TextDelta(event.choice, transcript))
            case BlockStart(kind="text" | "reasoning" | "refusal" | "media", data=dict(fields)):
                self._note(fields, "content.")
            case BlockEnd(data=dict(fields)):
                self._note(fields, "content.")
            case UsageReport(usage):
                self._note_usage(usage)
            case _:
                pass

    def _note(self, fields: _Json, prefix: str = "") -> None:
        """Note each member that is not incidental, once."""
        for name, value in fields.items():
            if name in _READ:
                inner = object_of(value)
                self._note({key: inner[key] for key in inner if key not in _READ[name]}, f"{prefix}{name}.")
            elif name == "reasoning_details":  # the text in it is the reasoning
                if any(each.get("data") or each.get("signature") for each in objects_of(value)):
                    self._lose("seal-dropped", name)
            elif name not in INCIDENTAL and value not in _EMPTY:
                self._lose(_CONTENT.get(name, "field-dropped"), f"{prefix}{name}")

    def _lose(self, code: str, detail: str) -> None:
        if detail not in self._known:
            self._known.add(detail)
            self._losses.append(Loss(code, detail))

    def _note_event(self, extra: Extra) -> None:
        """Note an event of an unknown type, or a delta of an unknown type in a block of a known one."""
        type = text_of(extra.fields.get("type"))
        if type == "content_block_delta":
            self._lose("field-dropped", f"delta.{text_of(object_of(extra.fields.get('delta')).get('type'))}")
        elif extra.block is None and type != "message_start":
            self._lose("field-dropped", f"event.{type}")

    def _note_usage(self, usage: Usage) -> None:
        """Note the counts that the client's dialect lacks, and members of the report that are not known."""
        given = {
            "cache_write": usage.cache_write,
            "cache_write_1h": usage.cache_write_1h,
            "audio": usage.audio_input or usage.audio_output,
            "tool_requests": usage.tool_requests,
            "other models": usage.others,
        }
        for name, count in given.items():
            if count:
                self._lose("field-dropped", f"usage.{name}")
        self._note_report(usage.raw, "usage.")

    def _note_report(self, report: _Json, prefix: str) -> None:
        for name, value in report.items():
            inner = [value] if isinstance(value, dict) else objects_of(value)
            for each in inner:
                self._note_report(each, f"{prefix}{name}.")
            if value and not inner and name not in REPORTED and name not in INCIDENTAL:
                self._lose("field-dropped", f"{prefix}{name}")

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

from penstock.core.dialects.unread_members import member_tree, unread
from penstock.core.hub.completion import Completion
from penstock.core.hub.content import MediaPart, ReasoningPart, RefusalPart, TextPart, ToolCall
from penstock.core.hub.events import Annotation, BlockEnd, BlockStart, Event, Extra, Finish, TextDelta, UsageReport
from penstock.core.hub.losses import Loss
from penstock.core.hub.usage import Usage
from penstock.core.hub.usage_fields import REPORTED
from penstock.core.json.getters import object_of, objects_of, text_of

_Json: TypeAlias = Mapping[str, object]
INCIDENTAL: Mapping[str, str] = {
    name: reason
    for reason, names in {
        "identifies the answer, or a part of it, at its provider": "id item_id index type object role status",
        "describes the provider's software, or how it transmits": "system_fingerprint obfuscation provider",
        "is of use to its provider alone": "encrypted_index",
        "repeats a tool call in another form": "other_function_call",
        "is the media type, in another form": "output_format",
        "is how long the provider took": "completed_at metrics queue_time prompt_time completion_time total_time "
        "total_duration load_duration prompt_eval_duration eval_duration",
    }.items()
    for name in names.split()
}
"""Members that clients of no other dialect miss, and why."""
ECHOES = frozenset(
    (
        "background", "conversation", "frequency_penalty", "instructions", "max_output_tokens", "max_tool_calls",
        "metadata", "parallel_tool_calls", "presence_penalty", "previous_response_id", "prompt", "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning", "safety_identifier", "service_tier", "store", "temperature", "text", "tool_choice", "tools",
        "top_logprobs", "top_p", "truncation", "user",
    )
)  # fmt: skip
"""Members of an answer as a whole that repeat its request."""
# Members of a delta that repeat its reasoning under another name.
_REPEATED = frozenset(("reasoning", "reasoning_content", "thinking"))
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
_READ = member_tree(
    "",
    citationMetadata=member_tree("citations citationSources"),
    groundingMetadata=member_tree("groundingChunks groundingSupports"),
    promptFeedback=member_tree("blockReason"),
    extra_content=member_tree("", google=member_tree("thought_signature")),
)
# What the readers of all dialects read of a citation.
_CITATION = member_tree(
    "url uri title document_title filename cited_text text content_index start end start_index end_index "
    "startIndex endIndex start_char_index end_char_index groundingChunkIndices",
    url_citation=member_tree("url title content start_index end_index"),
    segment=member_tree("text startIndex endIndex partIndex"),
    location=member_tree("", web=member_tree("url")),
    sourceContent=member_tree("text"),
    sources=member_tree("", document=member_tree("url title")),
)
# Members of deltas of Messages that are content.
_PIECES = frozenset(("text", "thinking", "partial_json", "signature"))
NOTED = frozenset((Annotation, Extra, BlockStart, BlockEnd, Finish, UsageReport))
"""The events that may have members of which only the provider's dialect knows."""
_EMPTY: tuple[object, ...] = (None, "", [], {})


class AnswerExtras:
    """Notes the losses of one answer. `carried` are extras that the client's dialect has (`Dialect.carried`)."""

    def __init__(self, losses: list[Loss], carried: frozenset[str]) -> None:
        self._losses = losses
        self._carried = carried
        self._known: set[str] = set()

    def pass_on(self, events: Iterable[Event]) -> list[Event]:
        """The events for a client of another dialect: the same, but for audio that becomes its transcript."""
        passed: list[Event] = []
        for event in events:
            if type(event) in NOTED:
                self._read(event, passed)
            passed.append(event)
        return passed

    def note_answer(self, completion: Completion) -> None:
        """Note the losses of an answer of which only the whole is known. Unknown events are not part of it."""
        self._note(completion.extras, known=ECHOES)
        for choice in completion.choices:
            self._note_choice(choice.extras)
            self._note(choice.message_extras, known=_REPEATED)
            if choice.stop_sequence is not None:
                self._lose_unless_carried("stop_sequence")
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
            case Extra("choice", fields):
                self._note_choice(fields)
            case Extra(place, fields):
                self._note(fields, known=ECHOES if place == "chunk" else _REPEATED)
                transcript = text_of(object_of(fields.get("audio")).get("transcript"))
                if transcript and event.choice is not None:
                    passed.append(TextDelta(event.choice, transcript))
            case BlockStart(kind="text" | "reasoning" | "refusal" | "media", data=dict(fields)):
                self._note(fields, "content.")
            case BlockEnd(data=dict(fields)):
                self._note(fields, "content.")
            case UsageReport(usage):
                self._note_usage(usage)
            case Finish(stop_sequence=str()):
                self._lose_unless_carried("stop_sequence")
            case Annotation(url=url, data=dict(fields)) if url:  # any other is a loss as a whole
                if event.quote and event.start is None:  # of the source; with a position, it is the answer's own text
                    self._lose_unless_carried("citation.cited_text")
                others = unread(fields, _CITATION)
                self._note({name: others[name] for name in others if others[name] != url}, "citation.")
            case _:
                pass

    def _note(self, fields: _Json, prefix: str = "", known: frozenset[str] = frozenset()) -> None:
        """Note each member that is neither incidental nor one of the `known`, once."""
        for name, value in fields.items():
            if read := _READ.get(name):
                self._note(unread(object_of(value), read), f"{prefix}{name}.")
            elif name == "reasoning_details":  # the text in it is the reasoning
                if any(each.get("data") or each.get("signature") for each in objects_of(value)):
                    self._lose("seal-dropped", name)
            elif name.rpartition(".")[2] not in INCIDENTAL and name not in known and value not in _EMPTY:
                self._lose(_CONTENT.get(name.rpartition(".")[2], "field-dropped"), f"{prefix}{name}")

    def _note_choice(self, fields: _Json) -> None:
        if "logprobs.content" in self._carried and "logprobs" in fields:
            inner = object_of(fields["logprobs"])
            self._note({name: inner[name] for name in inner if name != "content"}, "logprobs.")
            fields = {name: fields[name] for name in fields if name != "logprobs"}
        self._note(fields, known=self._carried)

    def _lose(self, code: str, detail: str) -> None:
        if detail not in self._known:
            self._known.add(detail)
            self._losses.append(Loss(code, detail))

    def _lose_unless_carried(self, name: str) -> None:
        if name not in self._carried:
            self._lose("field-dropped", name)

    def _note_event(self, extra: Extra) -> None:
        """Note an event of an unknown type, or a delta of an unknown type in a block of a known one."""
        type = text_of(extra.fields.get("type"))
        if type == "content_block_delta":
            delta = object_of(extra.fields.get("delta"))
            if not _PIECES.isdisjoint(delta):  # of a known type, without content
                self._note(delta, "delta.")
            else:
                self._lose("field-dropped", f"delta.{text_of(delta.get('type'))}")
        elif extra.block is None and type != "message_start":
            self._lose("field-dropped", f"event.{type}")

    def _note_usage(self, usage: Usage) -> None:
        """Note the counts that the client's dialect lacks, and members of the report that are not known."""
        given = {
            "cache_write": usage.cache_write,
            "cache_write_1h": usage.cache_write_1h,
            "reasoning": usage.reasoning,
            "audio": usage.audio_input or usage.audio_output,
            "tool_requests": usage.tool_requests,
            "other models": usage.others,
        }
        for name, count in given.items():
            if count:
                self._lose_unless_carried(f"usage.{name}")
        self._note_report(usage.raw, "usage.")

    def _note_report(self, report: _Json, prefix: str) -> None:
        for name, value in report.items():
            inner = [value] if isinstance(value, dict) else objects_of(value)
            for each in inner:
                self._note_report(each, f"{prefix}{name}.")
            if value and not inner and name not in REPORTED and name not in INCIDENTAL:
                self._lose("field-dropped", f"{prefix}{name}")

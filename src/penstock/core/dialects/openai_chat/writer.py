"""Writes the OpenAI chat-completions dialect: events → the bytes of a stream that the official SDKs accept.

1. One id, one model, one creation time in every chunk; each choice's role once; one finish per choice.
2. Extras and the role are part of the next event's chunk, as they were when they were read; every other event has a
   chunk of its own. Extras of a chunk are buffered until a chunk with a choice: only usage may come with `choices: []`,
   because clients that did not request usage read `choices[0]` of every chunk.
3. With `include_usage` the usage has a chunk of its own with `choices: []`, and every other chunk has `usage: null`.
   Without it no chunk has usage.
4. `[DONE]` is last, and only after a completed stream. Any other ending is written as an error.
5. Chat has no blocks, so their borders are not written. Summaries of reasoning are written as reasoning, with a blank
   line between two parts. What has no place in a chunk is a `Loss`.
6. Seals are wrapped (`core/hub/seals.py`), in `reasoning_details`: clients that send that field back to providers of
   other gateways send it back here, too. Each says how many characters of the reasoning before it belong to it
   (`length`), and how many before those belong to none (`skipped`). One without text that is directly before a tool
   call has the id of that call: Gemini signs calls, and wants the signature back on the call.
7. U+2028, U+2029 and U+0085 are escaped: they are line ends to clients that split decoded text.
"""

from collections.abc import Iterable

import msgspec

from penstock.core.dialects.answer_parts import call_name
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.openai_chat.failures import write_error_frame
from penstock.core.hub.content import Citation, ReasoningSeal
from penstock.core.hub.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    End,
    Event,
    Extra,
    Fault,
    Finish,
    MediaDelta,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    Seal,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    ToolKind,
    UsageReport,
)
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.hub.seals import wrap
from penstock.core.hub.text import without_line_ends
from penstock.core.hub.usage import Usage

# Extras that OpenAI repeats in every chunk, so that clients may read them from any chunk.
_STICKY = ("service_tier", "system_fingerprint")
# The error message for a client, by the ending of a stream that has no fault.
_ENDINGS = {
    "truncated": "the provider's stream ended before the answer was complete",
    "timed_out": "the provider took too long",
    "cancelled": "the answer was cancelled",
    "failed": "the provider failed",
}
# The order of events in one chunk. A reader reads such a chunk as the same events again.
_CHOICE_START, _CHOICE_EXTRA, _DELTA_EXTRA, _SPEECH = range(4)


class OpenAIChatWriter:
    """Writes one stream (`AnswerWriter`)."""

    _failed = False
    # The last block of media for which a loss was noted: its choice and its number.
    _dropped: tuple[int, int] | None = None
    # The chunk under construction, and the last step of the order above that it contains.
    _step = -1
    _choice: dict[str, object] | None = None
    _delta: dict[str, object]

    def __init__(self, facts: AnswerFacts) -> None:
        self._facts = facts
        self._own = facts.same_dialect
        self._envelope: dict[str, object] = {
            "id": answer_id(facts),
            "object": "chat.completion.chunk",
            "created": facts.created,
            "model": facts.model,
        }
        self._include_usage = facts.include_usage
        self._kinds: dict[tuple[int, int], ToolKind] = {}
        self._out: list[bytes] = []
        self._extras: dict[str, object] = {}
        self._hidden_calls: set[tuple[int, int]] = set()
        self._summaries: dict[int, int] = {}
        # By choice: the characters of the open block of reasoning, and of those before it, that have no seal.
        self._unsealed: dict[int, tuple[int, int]] = {}
        self._seal: tuple[int, dict[str, object]] | None = None  # one that waits for the event after it
        self._seals = 0
        self.losses: list[Loss] = []
        """What this dialect cannot express."""

    def write(self, events: Iterable[Event]) -> bytes:
        """The bytes of these events."""
        for event in events:
            self._write(event)
        self._flush()
        out, self._out = self._out, []
        return b"".join(out)

    def heartbeat(self) -> bytes:
        """An SSE comment, which clients ignore."""
        return b": penstock\n\n"

    def fail(self, failure: Failure) -> bytes:
        """The error as the last frame, without `[DONE]`."""
        return write_error_frame(failure, self._facts.call_id)

    def note(self, events: Iterable[Event]) -> None:
        """Observe events whose bytes are forwarded unchanged: later chunks get the same envelope."""
        for event in events:
            if type(event) is Start:
                self._name(event)
            elif type(event) is Extra and event.place == "chunk":
                self._stick(event.fields)

    def _write(self, event: Event) -> None:
        if self._seal is not None and not isinstance(event, BlockEnd | Repair):
            self._write_seal(event)
        match event:  # the most frequent events first
            case TextDelta(choice, text):
                self._open(_SPEECH, choice)["content"] = text
            case ReasoningDelta(choice, text, native, part):
                delta = self._open(_SPEECH, choice)
                if native != "reasoning_details":  # written as an extra, which contains the text
                    delta[native] = text = text if part is None else self._summary(choice, part, text)
                    length, skipped = self._unsealed.get(choice, (0, 0))
                    self._unsealed[choice] = (length + len(text), skipped)
            case ToolCallDelta(choice, call, arguments):
                if (choice, call) not in self._hidden_calls:
                    self._open(_SPEECH, choice).update(self._call_delta(choice, call, arguments, {}))
            case Repair():
                pass  # ours to count, not the client's to see
            case Extra():
                self._write_extra(event)
            case Finish(choice, native=native):
                self._open(_SPEECH, choice)
                self._finish(finish_reason(event, self.losses, own=self._own), native)
            case UsageReport(usage):
                self._write_usage(usage)
            case End(ending):
                self._write_end(ending)
            case Start():
                self._name(event)
            case ChoiceStart(choice, role):
                self._open(_CHOICE_START, choice)["role"] = role
            case ToolCallStart(choice, call, server=True):
                self._hidden_calls.add((choice, call))
                self.losses.append(Loss("server-activity-hidden", event.name))
            case ToolCallStart(choice, call):
                self._kinds[choice, call] = event.kind
                self._open(_SPEECH, choice).update(self._call_start(event))
            case RefusalDelta(choice, text):
                self._open(_SPEECH, choice)["refusal"] = text
            case Annotation(choice, url=url) if url or self._own:
                self._open(_SPEECH, choice)["annotations"] = [citation_body(event, own=self._own)]
            case Annotation():
                self.losses.append(Loss("citation-dropped", event.title))
            case BlockStart(kind="result" | "opaque"):
                self.losses.append(Loss("server-activity-hidden", event.type))
            case Seal() if self._own:
                pass  # it is an extra of its call too
            case Seal():
                self._take_seal(event)
            case BlockStart(choice, kind="reasoning"):
                self._unsealed[choice] = (0, sum(self._unsealed.get(choice, ())))
            case BlockStart(choice, block, kind="media"):
                self._drop_media(choice, block, event.type)
            case MediaDelta(choice, block):
                self._drop_media(choice, block, event.mime)
            case BlockStart() | BlockEnd():
                pass  # chat has no blocks
            case Fault():
                self._write_error(_fault_body(event))

    def _take_seal(self, seal: Seal) -> None:
        """The seal, for the client to send back (rule 6). If it has no text, it waits for the event after it."""
        length, skipped = self._unsealed.get(seal.choice, (0, 0))
        if length:
            self._unsealed[seal.choice] = (0, 0)
        details = seal_body(
            ReasoningSeal(seal.scheme, seal.value, seal.redacted), self._facts.issuer, length, skipped if length else 0
        )
        self._seal = (seal.choice, details)
        if length:
            self._write_seal(seal)

    def _write_seal(self, event: Event) -> None:
        assert self._seal is not None
        (choice, details), self._seal = self._seal, None
        if isinstance(event, ToolCallStart) and not event.server:
            details["id"] = event.id or call_id(self._facts, event.choice, event.call)
        self._seals += 1
        self._open(_SPEECH, choice)["reasoning_details"] = [details | {"index": self._seals - 1}]

    def _drop_media(self, choice: int, block: int, detail: str) -> None:
        """Note one loss for each block, however many deltas it has."""
        if (choice, block) != self._dropped:
            self._dropped = (choice, block)
            self.losses.append(Loss("media-dropped", detail))

    def _name(self, start: Start) -> None:
        """Take id, model and creation time from the provider, as far as it sent them."""
        known = {"id": start.id, "model": start.model, "created": start.created}
        self._envelope.update({key: value for key, value in known.items() if value})

    def _open(self, step: int, choice: int) -> dict[str, object]:
        """The delta for an event: that of the chunk under construction if the order allows it, else a new one."""
        joins = step > self._step and (self._choice is None or self._choice["index"] == choice)
        if not joins:
            self._flush()
        if self._choice is None:
            self._delta = {}
            self._choice = {"index": choice, "delta": self._delta, "finish_reason": None}
        self._step = step
        return self._delta

    def _finish(self, reason: str, native: str | None) -> None:
        assert self._choice is not None  # _open has made it
        self._choice["finish_reason"] = reason
        if native is not None:
            self._choice["native_finish_reason"] = native

    def _summary(self, choice: int, part: int, text: str) -> str:
        """A piece of a summary, with a blank line before it if it begins another part."""
        before = self._summaries.get(choice, part)
        self._summaries[choice] = part
        return text if part == before else f"\n\n{text}"

    def _write_extra(self, extra: Extra) -> None:
        match extra:
            case Extra("choice", {"logprobs": dict(logprobs)}, int(choice)) if not self._own:
                self._add_to_choice(choice, {"logprobs": logprobs})
            case _ if not self._own:
                pass  # only providers of this dialect add to its chunks
            case Extra("chunk", fields):
                self._add_extras(fields)
            case Extra("choice", fields, int(choice)):
                self._add_to_choice(choice, fields)
            case Extra("delta", fields, int(choice)):
                self._open(_DELTA_EXTRA, choice).update(fields)
            case Extra("tool", fields, int(choice), int(call)):
                delta = self._call_delta(choice, call, "", fields)
                self._open(_SPEECH, choice).update(delta)
            case Extra("event"):
                pass  # an event of another dialect
            case Extra(fields=fields):  # without a choice or a call it can only belong to the chunk
                self._add_extras(fields)

    def _add_to_choice(self, choice: int, fields: dict[str, object]) -> None:
        self._open(_CHOICE_EXTRA, choice)
        assert self._choice is not None  # _open has made it
        self._choice.update(fields)

    def _add_extras(self, fields: dict[str, object]) -> None:
        """Add extras to the next chunk."""
        self._flush()
        self._stick(fields)
        self._extras |= fields

    def _stick(self, fields: dict[str, object]) -> None:
        for key in _STICKY:
            if key in fields:
                self._envelope[key] = fields[key]

    def _write_usage(self, usage: Usage) -> None:
        if not self._include_usage or self._failed:
            return  # clients stop reading after an error
        self._flush()
        self._emit({**self._envelope, **self._extras, "choices": [], "usage": usage_body(usage, own=self._own)})
        self._extras = {}

    def _write_end(self, ending: str) -> None:
        self._flush()
        if ending == "completed":
            self._out.append(b"data: [DONE]\n\n")
        elif not self._failed:
            self._write_error(_error_body(_ENDINGS[ending], ending))

    def _write_error(self, body: dict[str, object]) -> None:
        self._flush()
        self._failed = True
        self._emit({"error": body})

    def _flush(self) -> None:
        """End the chunk under construction."""
        if self._choice is None:
            return
        if "role" in self._delta and len(self._delta) == 1 and self._choice["finish_reason"] is None:
            self._delta["content"] = ""
        chunk = {**self._envelope, **self._extras, "choices": [self._choice]}
        if self._include_usage:
            chunk["usage"] = None
        self._emit(chunk)
        self._step = -1
        self._choice = None
        self._extras = {}

    def _emit(self, body: dict[str, object]) -> None:
        self._out.append(b"data: " + without_line_ends(msgspec.json.encode(body)) + b"\n\n")

    def _call_start(self, start: ToolCallStart) -> dict[str, object]:
        if start.kind == "function_call":
            return {"function_call": {"name": start.name, "arguments": ""}}
        body = {"name": call_name(start), ("input" if start.kind == "custom" else "arguments"): ""}
        id = start.id or call_id(self._facts, start.choice, start.call)
        return {"tool_calls": [{"index": start.call, "id": id, "type": start.kind, start.kind: body}]}

    def _call_delta(self, choice: int, call: int, arguments: str, extras: dict[str, object]) -> dict[str, object]:
        kind = self._kinds.get((choice, call), "function")
        if kind == "function_call":
            return {"function_call": {"arguments": arguments} | extras}
        body = {("input" if kind == "custom" else "arguments"): arguments}
        return {"tool_calls": [{"index": call, kind: body} | extras]}


def citation_body(citation: Annotation | Citation, length: int | None = None, *, own: bool) -> dict[str, object]:
    """A citation in the format of chat completions. That of a provider of this dialect (`own`) is as it was sent; any
    other covers all `length` characters of the text, if that is known, unless it says which."""
    if own and citation.data is not None:
        return citation.data
    start, end = citation.start, citation.end
    if length is not None:
        start, end = start if start is not None else 0, end if end is not None else length
    source = {"url": citation.url, "title": citation.title, "start_index": start, "end_index": end}
    return {
        "type": "url_citation",
        "url_citation": {key: value for key, value in source.items() if value is not None},
    }


def answer_id(facts: AnswerFacts) -> str:
    """The id of an answer whose provider gave none."""
    return facts.id or f"chatcmpl-{facts.call_id}"


def finish_reason(finish: Finish, losses: list[Loss], *, own: bool) -> str:
    """OpenAI's word for why an answer ended. It has none for an answer that the client must ask to go on."""
    if not own and finish.details is not None:
        losses.append(Loss("field-dropped", "stop_details"))
    if finish.reason != "pause":
        return finish.reason
    losses.append(Loss("pause-unknown", finish.native or ""))
    return "stop"


def call_id(facts: AnswerFacts, choice: int, number: int) -> str:
    """The id of a tool call to which the provider gave none. It must be another one in each answer."""
    return f"call_{facts.call_id or facts.id}_{choice}_{number}"


def seal_body(seal: ReasoningSeal, issuer: str, length: int, skipped: int) -> dict[str, object]:
    """A seal as an item of `reasoning_details`; `length` is the number of characters of reasoning that it covers, after
    those that no seal covers."""
    body: dict[str, object] = {"type": "reasoning.encrypted", "data": wrap(seal, issuer), "length": length}
    return body | ({"skipped": skipped} if skipped else {})


def usage_body(usage: Usage, *, own: bool) -> dict[str, object]:
    """The usage in OpenAI's spelling. Of a provider of this dialect, it keeps all other members."""
    figures: dict[str, object] = {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
    }
    if own:
        return usage.raw | {key: value for key, value in figures.items() if value is not None}
    body = {key: value or 0 for key, value in figures.items()}
    if usage.total is None:
        body["total_tokens"] = (usage.input or 0) + (usage.output or 0)
    details = {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_write}
    if known := {key: value for key, value in details.items() if value is not None}:
        body["prompt_tokens_details"] = known
    if usage.reasoning is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return body


def _error_body(message: str, code: str) -> dict[str, object]:
    return {"message": message, "type": "upstream_error", "param": None, "code": code}


def _fault_body(fault: Fault) -> dict[str, object]:
    """The provider's own object, with a message that clients can read."""
    body = _error_body(fault.message, fault.code) | (fault.provider or {})
    if not isinstance(body["message"], str) or not body["message"]:
        body["message"] = fault.message
    return body

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

from collections.abc import Mapping
from functools import partial

import msgspec

from penstock.core.dialects.answer_parts import call_name
from penstock.core.dialects.answer_writer import TEXT, AnswerFacts, AnswerWriter, TextWriter, text_template
from penstock.core.dialects.openai_errors import error_object
from penstock.core.hub.content import Citation, ReasoningSeal
from penstock.core.hub.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    Event,
    Extra,
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
# The order of events in one chunk. A reader reads such a chunk as the same events again.
_CHOICE_START, _CHOICE_EXTRA, _DELTA_EXTRA, _SPEECH = range(4)


class OpenAIChatWriter(AnswerWriter):
    """Writes the events of one answer."""

    has_blocks = False
    one_choice = False
    tells_seams = True
    # The last block of media for which a loss was noted: its choice and its number.
    _dropped: tuple[int, int] | None = None
    # The chunk under construction, and the last step of the order above that it contains.
    _step = -1
    pending: dict[str, object] | None
    _delta: dict[str, object]

    def __init__(self, facts: AnswerFacts) -> None:
        super().__init__(facts)
        self._envelope: dict[str, object] = {
            "id": answer_id(facts),
            "object": "chat.completion.chunk",
            "created": facts.created,
            "model": facts.model,
        }
        self._include_usage = facts.include_usage
        self._kinds: dict[tuple[int, int], ToolKind] = {}
        self._extras: dict[str, object] = {}
        self._hidden_calls: set[tuple[int, int]] = set()
        self._summaries: dict[int, int] = {}
        # By choice: the characters of the open block of reasoning, and of those before it, that have no seal.
        self._unsealed: dict[int, tuple[int, int]] = {}
        self._seal: tuple[int, dict[str, object]] | None = None  # one that waits for the event after it
        self._seals = 0

    def go_on(self, seam: Mapping[str, object]) -> None:
        """The next chunk has the seam: client libraries take unknown members of a chunk, but no other event."""
        super().go_on(seam)
        self.flush()
        self._extras = {"penstock": {"continued": seam}}

    def fail(self, failure: Failure) -> bytes:
        """The error as the last frame, without `[DONE]`."""
        return _frame({"error": error_object(failure, self._facts.call_id)})

    def note(self, event: Event) -> None:
        """Observe an event whose bytes are forwarded unchanged: later chunks get the same envelope."""
        if type(event) is Start:
            self._name(event)
        elif type(event) is Extra and event.place == "chunk":
            self._stick(event.fields)

    def write(self, event: Event) -> None:
        """Write an event."""
        if self._seal is not None and not isinstance(event, BlockEnd | Repair):
            self._write_seal(event)
        match event:  # the most frequent events first
            case TextDelta(choice, text):
                self._open(_SPEECH, choice)["content"] = text
            case ReasoningDelta(choice, text, native, part):
                delta = self._open(_SPEECH, choice)
                if native != "reasoning_details":  # written as an extra, which contains the text
                    delta[native] = text = text if part is None else self._summary(choice, part, text)
                    self._add_unsealed(choice, text)
            case ToolCallDelta(choice, call, arguments):
                if (choice, call) not in self._hidden_calls:
                    self._open(_SPEECH, choice).update(self._call_delta(choice, call, arguments, {}))
            case Extra():
                self._write_extra(event)
            case Finish(choice, native=native):
                reason = finish_reason(event, self.losses, own=self._own)
                named = {"native_finish_reason": native} if native is not None else {}
                self._add_to_choice(_SPEECH, choice, {"finish_reason": reason} | named)
            case UsageReport(usage):
                self._write_usage(usage)
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
            case _:
                self.write_rest(event)

    def text_writer(self, delta: TextDelta | ReasoningDelta) -> TextWriter | None:
        """Writes further texts of a choice, each in a chunk of its own."""
        choice, name = delta.choice, "content" if isinstance(delta, TextDelta) else delta.native
        if name == "reasoning_details":
            return None
        frame = _frame(self._chunk({"index": choice, "delta": {name: TEXT}, "finish_reason": None}))
        return text_template(frame, None if name == "content" else partial(self._add_unsealed, choice))

    def _add_unsealed(self, choice: int, text: str) -> None:
        length, skipped = self._unsealed.get(choice, (0, 0))
        self._unsealed[choice] = (length + len(text), skipped)

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
        joins = step > self._step and (self.pending is None or self.pending["index"] == choice)
        if not joins:
            self.flush()
        if self.pending is None:
            self._delta = {}
            self.pending = {"index": choice, "delta": self._delta, "finish_reason": None}
        self._step = step
        return self._delta

    def _summary(self, choice: int, part: int, text: str) -> str:
        """A piece of a summary, with a blank line before it if it begins another part."""
        before = self._summaries.get(choice, part)
        self._summaries[choice] = part
        return text if part == before else f"\n\n{text}"

    def _write_extra(self, extra: Extra) -> None:
        match extra:
            case Extra("choice", {"logprobs": dict(logprobs)}, int(choice)) if not self._own:
                self._add_to_choice(_CHOICE_EXTRA, choice, {"logprobs": logprobs})
            case _ if not self._own:
                pass  # only providers of this dialect add to its chunks
            case Extra("chunk", fields):
                self._add_extras(fields)
            case Extra("choice", fields, int(choice)):
                self._add_to_choice(_CHOICE_EXTRA, choice, fields)
            case Extra("delta", fields, int(choice)):
                self._open(_DELTA_EXTRA, choice).update(fields)
            case Extra("tool", fields, int(choice), int(call)):
                delta = self._call_delta(choice, call, "", fields)
                self._open(_SPEECH, choice).update(delta)
            case Extra("event"):
                pass  # an event of another dialect
            case Extra(fields=fields):  # without a choice or a call it can only belong to the chunk
                self._add_extras(fields)

    def _add_to_choice(self, step: int, choice: int, fields: Mapping[str, object]) -> None:
        self._open(step, choice)
        assert self.pending is not None  # _open has made it
        self.pending.update(fields)

    def _add_extras(self, fields: dict[str, object]) -> None:
        """Add extras to the next chunk."""
        self.flush()
        self._stick(fields)
        self._extras |= fields

    def _stick(self, fields: dict[str, object]) -> None:
        for key in _STICKY:
            if key in fields:
                self._envelope[key] = fields[key]

    def _write_usage(self, usage: Usage) -> None:
        if not self._include_usage or self._failed:
            return  # clients stop reading after an error
        self.flush()
        self._emit({**self._envelope, **self._extras, "choices": [], "usage": usage_body(usage, own=self._own)})
        self._extras = {}

    def complete(self, finish: Finish) -> None:  # noqa: ARG002
        """Write the sentinel."""
        self.flush()
        self.out.append(b"data: [DONE]\n\n")

    def write_error(self, message: str, code: str, provider: dict[str, object]) -> None:
        """Write the provider's own object, with a message that clients can read."""
        self.flush()
        body = {"message": message, "type": "upstream_error", "param": None, "code": code} | provider
        if not isinstance(body["message"], str) or not body["message"]:
            body["message"] = message
        self._emit({"error": body})

    def flush(self) -> None:
        """End the chunk under construction."""
        if self.pending is None:
            return
        if "role" in self._delta and len(self._delta) == 1 and self.pending["finish_reason"] is None:
            self._delta["content"] = ""
        self._emit(self._chunk(self.pending))
        self._step = -1
        self.pending = None
        self._extras = {}

    def _chunk(self, choice: dict[str, object]) -> dict[str, object]:
        usage: dict[str, object] = {"usage": None} if self._include_usage else {}
        return {**self._envelope, **self._extras, "choices": [choice], **usage}

    def _emit(self, body: dict[str, object]) -> None:
        self.out.append(_frame(body))

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


def _frame(body: dict[str, object]) -> bytes:
    return b"data: " + without_line_ends(msgspec.json.encode(body)) + b"\n\n"


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
    """The usage in OpenAI's spelling. Of a provider of this dialect, it keeps all other members.

    For another dialect, a count that is missing is the rest of the total, as in the ledger.
    """
    if not own and (usage.input is None or usage.output is None):
        usage = msgspec.structs.replace(usage, **usage.wholes())
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

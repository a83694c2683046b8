"""Writes the Gemini dialect: hub events → the bytes of a stream that Google's SDKs accept.

1. Each message has one part of one candidate. The last one has the finish reasons and the usage. There is neither a
   comment nor `[DONE]`: Google's SDK for JavaScript fails on both.
2. A function call is written when its arguments are complete. Clients of this API get calls whole.
3. The signature of a thought is written on an empty thought after it. A signature without a thought belongs to the part
   that follows, and at the end of the answer to an empty text. A seal of another API is wrapped (`signatures.py`).
4. Blocks that only this dialect has are written again where the provider speaks it too, and are losses otherwise.
5. A stream that is not completed ends with an error, and has no finish reason.
6. A client that does not ask for server-sent events (`alt=sse`) gets the same messages as one JSON array.
"""

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from penstock.core.dialects.answer_parts import CallInputs, SummaryParts
from penstock.core.dialects.answer_writer import TEXT, AnswerFacts, AnswerWriter, TextWriter, text_template
from penstock.core.dialects.gemini.answer_parts import Json, answer_id, call_part, finish_reason, grounding
from penstock.core.dialects.gemini.failures import error_of, write_error
from penstock.core.dialects.gemini.signatures import write_signature
from penstock.core.dialects.gemini.usage import write_usage
from penstock.core.hub.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    End,
    Event,
    Extra,
    Finish,
    MediaDelta,
    ReasoningDelta,
    RefusalDelta,
    Seal,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.hub.text import without_line_ends
from penstock.core.json.getters import integer_of, object_of

# The status of the error, by the ending of a stream that has no fault.
_STATUSES = {"truncated": 502, "timed_out": 504, "cancelled": 499, "failed": 502}


class _CandidateWriter:
    """The state of one candidate."""

    def __init__(self) -> None:
        self.begun = False  # whether a message has it
        self.signature = ""  # of the next part
        self.thoughts: set[int | None] = set()  # reasoning blocks that have text
        self.summary = SummaryParts()
        self.calls: dict[int | None, tuple[ToolCallStart, list[str], Json]] = {}  # by block, with its extras
        self.media: dict[int, tuple[list[str], list[str], Json]] = {}  # by block: media types, pieces, extras
        self.extras: Json = {}  # members of the candidate that are written next
        self.part_extras: Json = {}  # members of the part that is written next
        self.texts: list[str] = []  # for citations of another API
        self.size = 0  # of these, in characters
        self.starts: dict[int, int] = {}  # the number of characters before each text block
        self.citations: list[Annotation] = []
        self.refused = False
        self.finish: Finish | None = None

    def keep(self, text: str) -> None:
        """Keep a text: citations of another API refer to positions in the whole."""
        self.texts.append(text)
        self.size += len(text)


class GeminiWriter(AnswerWriter):
    """Writes the events of one answer."""

    tells_seams = True
    one_choice = False
    _begun = False
    _closed = False

    def __init__(self, facts: AnswerFacts) -> None:
        super().__init__(facts)
        self._array = bool(facts.stream_type)
        self._envelope: Json = {"modelVersion": facts.model, "responseId": answer_id(facts)}
        self._extras: Json = {}  # members of the message that is written next
        self._blocked: Json = {}  # what the provider says about a prompt that it blocks
        self._candidates: defaultdict[int, _CandidateWriter] = defaultdict(_CandidateWriter)
        self._inputs = CallInputs(self.losses)

    def note(self, event: Event) -> None:
        """Observe an event whose bytes are forwarded unchanged: what is written later must match it."""
        match event:
            case Start():
                self.write(event)
            case ChoiceStart():
                self._begun = True
            case _:
                pass

    def heartbeat(self) -> bytes:
        """A message without content; nothing before the first message. In an array, white space."""
        if not self._begun:
            return b""
        return b"\n" if self._array else self._framed({"usageMetadata": {}, **self._envelope})

    def fail(self, failure: Failure) -> bytes:
        """The error as the last message."""
        return self._framed(msgspec.json.decode(write_error(failure, self._facts.call_id))) + self._close()

    def go_on(self, seam: Mapping[str, object]) -> None:
        """The next message has the seam."""
        super().go_on(seam)
        self._extras = {"penstock": {"continued": seam}}

    def write(self, event: Event) -> None:
        """Write an event."""
        match event:
            case TextDelta(choice, text):
                self._add_text(choice, text)
            case ReasoningDelta(choice, text, _, part, block):
                self._candidates[choice].thoughts.add(block)
                self._add_unsigned(choice, {"text": self._candidates[choice].summary.join(part, text), "thought": True})
            case ToolCallDelta(choice, _, arguments, block):
                if block in self._candidates[choice].calls:
                    self._candidates[choice].calls[block][1].append(arguments)
            case BlockStart():
                self._start_block(event)
            case BlockEnd(choice, block):
                self._end_block(choice, block)
            case ToolCallStart():
                self._start_call(event)
            case ChoiceStart(choice):
                self._candidates[choice]  # which begins
            case Extra():
                self._take_extra(event)
            case Seal():
                self._write_seal(event)
            case Annotation():
                self._take_citation(event)
            case RefusalDelta(choice, text):
                self._candidates[choice].refused = True
                self._add_text(choice, text)
            case MediaDelta(choice, block, mime, data):
                mimes, pieces, _ = self._candidates[choice].media.setdefault(block, ([], [], {}))
                mimes.append(mime)
                pieces.append(data)
            case Start(id, model):
                self._envelope |= {
                    name: value for name, value in (("modelVersion", model), ("responseId", id)) if value
                }
            case Finish(choice):
                self._candidates[choice].finish = event
            case End():
                self.write_rest(event)
                self.out.append(self._close())
            case _:
                self.write_rest(event)

    # Parts.

    def _add(self, choice: int, part: Json) -> None:
        """Write a part, with the signature that belongs to it."""
        candidate = self._candidates[choice]
        if candidate.signature:
            part["thoughtSignature"], candidate.signature = candidate.signature, ""
        self._add_unsigned(choice, part)

    def _add_unsigned(self, choice: int, part: Json) -> None:
        candidate = self._candidates[choice]
        part, candidate.part_extras = part | candidate.part_extras, {}
        self._message([self._candidate_body(choice, [part])])

    def _add_text(self, choice: int, text: str) -> None:
        if not self._own:
            self._candidates[choice].keep(text)
        self._add(choice, {"text": text})

    def text_writer(self, delta: TextDelta | ReasoningDelta) -> TextWriter:
        """Writes further texts of a candidate, or further thoughts, each in a message of its own."""
        is_text = isinstance(delta, TextDelta)
        part: Json = {"text": TEXT} if is_text else {"text": TEXT, "thought": True}
        frame = self._framed({"candidates": [self._candidate_body(delta.choice, [part])], **self._envelope})
        return text_template(frame, self._candidates[delta.choice].keep if is_text and not self._own else None)

    def _start_block(self, start: BlockStart) -> None:
        candidate = self._candidates[start.choice]
        match start.kind:
            case "text" | "refusal":
                candidate.starts[start.block] = candidate.size
            case "reasoning":
                candidate.summary.start()
            case "result" | "opaque" if self._own:
                self._add(start.choice, dict(start.data or {}))
            case "result" | "opaque":
                self.losses.append(Loss("server-activity-hidden", start.type))
            case "media":
                candidate.media[start.block] = ([], [], start.data or {} if self._own else {})

    def _start_call(self, call: ToolCallStart) -> None:
        if call.server:
            self.losses.append(Loss("server-activity-hidden", call.name))
            return
        self._candidates[call.choice].calls[call.block] = (call, [], {})

    def _end_block(self, choice: int, block: int) -> None:
        candidate = self._candidates[choice]
        if block in candidate.calls:
            call, pieces, extras = candidate.calls.pop(block)
            self._add(choice, call_part(call, "".join(pieces), self._inputs, extras))
        elif block in candidate.media:
            mimes, pieces, extras = candidate.media.pop(block)
            if not any(pieces) and not self._own:
                self.losses.append(Loss("media-dropped", next(filter(None, mimes), "")))
                return
            mime = next(filter(None, mimes), "application/octet-stream")
            self._add(choice, {"inlineData": {"mimeType": mime, "data": "".join(pieces)} | extras})

    def _write_seal(self, seal: Seal) -> None:
        candidate = self._candidates[seal.choice]
        value = write_signature(seal.scheme, seal.value, self._facts.issuer, redacted=seal.redacted)
        if seal.block in candidate.thoughts:
            part: Json = {"text": "", "thought": True, "thoughtSignature": value}
            self._message([self._candidate_body(seal.choice, [part])])
            return
        self._end_signature(seal.choice)
        candidate.signature = value

    def _end_signature(self, choice: int) -> None:
        """Write a signature to which no part belongs."""
        if self._candidates[choice].signature:
            self._add(choice, {"text": ""})

    def _take_citation(self, citation: Annotation) -> None:
        if self._own:
            return  # the metadata of the candidate has it
        if citation.url:
            self._candidates[citation.choice].citations.append(citation)
        else:
            self.losses.append(Loss("citation-dropped", citation.title))

    def _take_extra(self, extra: Extra) -> None:
        if not self._own:
            return
        if extra.place == "chunk":
            feedback = object_of(extra.fields.get("promptFeedback"))
            if "blockReason" in feedback or "block_reason" in feedback:
                self._blocked = feedback
            self._extras |= extra.fields
        elif extra.place == "choice":
            self._candidates[extra.choice or 0].extras |= extra.fields
        elif extra.place == "delta":
            self._candidates[extra.choice or 0].part_extras |= extra.fields
        elif extra.place == "tool" and extra.block in self._candidates[extra.choice or 0].calls:
            self._candidates[extra.choice or 0].calls[extra.block][2].update(extra.fields)

    # Messages.

    def _candidate_body(self, choice: int, parts: list[Json]) -> Json:
        candidate = self._candidates[choice]
        candidate.begun = True
        extras, candidate.extras = candidate.extras, {}
        content: Json = {"content": {"parts": parts, "role": "model"}} if parts else {}
        return {**extras, **content, "index": choice}

    def _message(self, candidates: list[Json], **fields: object) -> None:
        extras, self._extras = self._extras, {}
        body: Json = {"candidates": candidates} if candidates else {}
        self.out.append(self._framed({**extras, **body, **fields, **self._envelope}))

    def _framed(self, message: object) -> bytes:
        data = without_line_ends(msgspec.json.encode(message))
        begun, self._begun = self._begun, True
        if self._array:
            return (b",\r\n" if begun else b"[") + data
        return b"data: %b\r\n\r\n" % data

    def _close(self) -> bytes:
        """The end of an array."""
        closed, self._closed = self._closed, True
        if not self._array or closed:
            return b""
        return b"]" if self._begun else b"[]"

    def complete(self, finish: Finish) -> None:  # noqa: ARG002
        """Write the finish reason of each candidate, and the usage."""
        for choice in self._candidates:
            self._end_signature(choice)
        usage = {"usageMetadata": write_usage(self._usage, same_dialect=self._own)} if self._usage is not None else {}
        finishes = [candidate.finish for candidate in self._candidates.values() if candidate.finish is not None]
        if self._blocked and not self._begun and all(finish.reason == "content_filter" for finish in finishes):
            self._message([], **usage)
            return
        bodies: list[Json] = []
        for choice, candidate in self._candidates.items():
            own = candidate.finish or Finish(choice, "stop")
            body = self._candidate_body(choice, [])
            body |= grounding(self._cited(candidate))
            body["finishReason"] = finish_reason(own, self.losses, own=self._own, refused=candidate.refused)
            bodies.append(body)
        self._message(bodies, **usage)

    def _cited(self, candidate: _CandidateWriter) -> list[tuple[str, Annotation]]:
        """Each citation of a candidate, counted from the beginning of the whole text."""
        text = "".join(candidate.texts)
        cited = []
        for citation in candidate.citations:
            before = candidate.starts.get(citation.block, 0)
            moved = (None if place is None else place + before for place in (citation.start, citation.end))
            start, end = moved
            cited.append((text, msgspec.structs.replace(citation, start=start, end=end)))
        return cited

    def write_error(self, message: str, code: str, provider: Json) -> None:
        """Write an error message. Where the provider sent none, it may follow a message with the empty candidates."""
        empty = [choice for choice, candidate in self._candidates.items() if not candidate.begun]
        if empty and code in _STATUSES:
            self._message([{"index": choice} for choice in empty])
        status = integer_of(provider.get("code"))
        known = status if status is not None and 400 <= status < 600 else _STATUSES.get(code, 502)
        self.out.append(self._framed(error_of(known, message)))

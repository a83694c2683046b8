"""Summary: the report of `inspect` about one stream, independent of its layout.

`plain.py` and `pretty.py` do the layout. Every string in a summary is safe to print: text of the stream has been
escaped by `text.visible` or `text.one_line`, so the layout need not escape.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from penstock import (
    Choice,
    Completion,
    Ending,
    Fault,
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolChange,
    ToolResult,
    Usage,
)
from penstock.capture import Capture, How
from penstock.cli.inspection.defect_locator import DefectSpan
from penstock.cli.inspection.explain import FOUND_BY, explain_fault, explain_repair
from penstock.cli.inspection.loss_counts import count_losses
from penstock.cli.inspection.stream_file import ReadStream
from penstock.cli.inspection.timing import StreamTiming
from penstock.cli.text import counted, one_line, seconds, to_json, visible
from penstock.core.hub.losses import LOSSES
from penstock.core.hub.repairs import Level
from penstock.providers.evidence import guess

Tone: TypeAlias = Literal["", "good", "warning", "bad"]
TextKind: TypeAlias = Literal["reasoning", "answer", "refusal", "tool call", "other"]

# Parts that are shown even without text, because their existence is information.
_EVEN_IF_EMPTY = frozenset(("tool call", "other"))

TONES: dict[Ending, Tone] = {
    "completed": "good",
    "truncated": "warning",
    "failed": "bad",
    "cancelled": "warning",
    "timed_out": "warning",
}


HOW_IT_ENDED: dict[How, str] = {
    "complete": "the body is complete",
    "closed": "the provider closed the connection too early",
    "reset": "the provider reset the connection",
    "timed-out": "the provider took too long",
    "cancelled": "the client left",
    "abandoned": "Penstock wanted no more",
    "invalid": "the bytes were not valid HTTP",
    "limit": "the rest was too large to record",
}


class AnswerText(Struct, frozen=True):
    """One part of the answer, with its kind and its heading."""

    kind: TextKind
    heading: str
    text: str


class Fact(Struct, frozen=True):
    """A line about the stream; several if `detail` has line breaks."""

    label: str
    value: str
    detail: str = ""
    tone: Tone = ""


class SummaryDefect(Struct, frozen=True):
    """One kind of tolerated defect: its count, its first position and what is wrong."""

    code: str
    count: int
    line: int
    offset: int
    wrong: str


class DefectCounts(Struct, frozen=True):
    """The defects of one level: their number, then each kind."""

    fact: Fact
    kinds: list[SummaryDefect]


class Summary(Struct, frozen=True):
    """The report about one stream. `defects` are the repairs, then findings and notices, if there are any."""

    file: str
    texts: list[AnswerText]
    facts: list[Fact]
    defects: list[DefectCounts]


def summarize(reading: ReadStream, client: str | None = None) -> Summary:
    """Summarize a stream; with the losses for clients of a dialect, if one is given."""
    completion = reading.completion
    alone = len(completion.choices) == 1
    repairs = _defects(reading, "repair")
    others = (_defects(reading, "finding"), _defects(reading, "notice"))
    return Summary(
        file=one_line(reading.file),
        texts=[text for choice in completion.choices for text in _answer_texts(choice, alone=alone)],
        facts=[*_facts(reading), *([] if client is None else [_losses(reading, client)])],
        defects=[repairs, *(counts for counts in others if counts.kinds)],
    )


def _answer_texts(choice: Choice, *, alone: bool) -> list[AnswerText]:
    """The parts of a choice, in order."""
    texts = [text for part in choice.parts if (text := _answer_text(part)).text or text.kind in _EVEN_IF_EMPTY]
    prefix = "" if alone else f"choice {choice.index}: "
    return [
        AnswerText(each.kind, prefix + one_line(each.heading), visible(each.text).strip("\n"))
        for each in texts or [AnswerText("answer", "answer (empty)", "")]
    ]


def _answer_text(part: Part) -> AnswerText:
    match part:
        case TextPart(text):
            return AnswerText("answer", "answer", text)
        case ReasoningPart(text, summary, seals):
            sealed = "only its seal can be seen" if seals else ""
            return AnswerText("reasoning", "reasoning", text or "\n\n".join(summary) or sealed)
        case RefusalPart(text):
            return AnswerText("refusal", "refusal", text)
        case ToolCall(id, name, arguments, server=server):
            heading = f"tool call {name}" + (f" ({id})" if id else "")
            return AnswerText("tool call", f"{heading}, made by the provider" if server else heading, arguments)
        case ToolResult(call_id):
            return AnswerText("other", f"tool result ({call_id})", to_json(part.parts).decode())
        case MediaPart(kind=kind, mime=mime, data=data):
            heading = f"{kind} {mime}".rstrip() + (f", {decoded_size(data)} bytes" if data else "")
            return AnswerText("other", heading, part.url or part.file_id or part.name)
        case ToolChange():
            return AnswerText("other", "change of tools", str(part))
        case OpaquePart(_, type, data):
            return AnswerText("other", type or "other content", to_json(data).decode())


def decoded_size(base64: str) -> int:
    """The number of bytes that a base64 text encodes."""
    return len(base64.rstrip("=")) * 3 // 4


def _facts(reading: ReadStream) -> list[Fact]:
    completion = reading.completion
    facts = [_ending(completion)]
    if completion.fault is not None:
        facts += _fault(completion.fault, reading.locator()(completion.fault))
    if completion.choices:
        facts.append(Fact("finish", _finish(completion)))
    if reading.frames:
        facts += [
            Fact("usage", _usage(completion.usage)),
            Fact("model", one_line(completion.model) or "not named"),
            _provider(reading),
            Fact("id", one_line(completion.id) or "none"),
        ]
    facts += [
        _dialect(reading),
        Fact("framing", reading.framing or "none", counted(reading.frames, "frame")),
        *(_recorded(reading.capture) if reading.capture is not None else []),
        *(_times(reading.times) if reading.times is not None else []),
    ]
    return facts


def _dialect(reading: ReadStream) -> Fact:
    detected, capture = reading.dialect, reading.capture
    how = FOUND_BY[detected.by]
    if detected.by not in ("option", "capture") and capture is not None and capture.header.dialect:
        how += f"; the capture says {one_line(capture.header.dialect)}, which this Penstock does not know"
    return Fact("dialect", detected.dialect, how)


def _losses(reading: ReadStream, client: str) -> Fact:
    losses = count_losses(reading, client)
    if not losses:
        return Fact("losses", "none", f"for clients of {client}")
    lines = (
        f"{each.code} ×{each.count}: {LOSSES[each.code].meaning}"
        + (f" ({one_line(', '.join(each.details))})" if each.details else "")
        for each in losses
    )
    total = sum(each.count for each in losses)
    tone: Tone = "warning" if any(each.changes_meaning for each in losses) else ""
    return Fact("losses", str(total), "\n".join([f"for clients of {client}", *lines]), tone)


def _recorded(capture: Capture) -> list[Fact]:
    header, closing = capture.header, capture.closing
    target = "/".join(filter(None, (header.provider, header.model)))
    status = f"status {header.status}" if header.status is not None else "no answer began"
    known = [one_line(word) for word in (header.at, target, status) if word]
    if closing is None:
        reads = Fact("reads", str(len(capture.reads)), f"cut off: {capture.cut_off}", "warning")
    else:
        reads = Fact("reads", str(len(capture.reads)), HOW_IT_ENDED[closing.how])
    return [Fact("recorded", ", ".join(known)), reads]


def _times(times: StreamTiming) -> list[Fact]:
    parts = [f"first event {seconds(times.first_event_s)}"] if times.first_event_s is not None else []
    if times.longest_gap_s is not None and times.longest_gap_at_s is not None:
        parts.append(f"longest gap {seconds(times.longest_gap_s)} at {seconds(times.longest_gap_at_s)}")
    parts.append(f"total {seconds(times.total_s)}")
    if times.tokens_per_s is not None:
        rate = times.tokens_per_s
        parts.append(f"{rate:,.0f} tokens/s" if rate >= 100 else f"{rate:.3g} tokens/s")
    return [Fact("times", ", ".join(parts)), Fact("timeline", times.draw(), f"{seconds(times.slot_s)} each")]


def _ending(completion: Completion) -> Fact:
    ending = completion.ending
    assert ending is not None  # the stream was read to its end
    detail = "" if completion.fault else one_line(completion.ending_detail)  # otherwise the fault explains it better
    return Fact("ending", ending, detail, TONES[ending])


def _fault(fault: Fault, span: DefectSpan) -> list[Fact]:
    where = f"line {span.line}, byte {span.offset}"
    facts = [Fact("fault", fault.code, f"{where}\n{explain_fault(fault)}", "bad")]
    more = {key: value for key, value in (fault.provider or {}).items() if value not in (None, fault.message)}
    if more:
        facts.append(Fact("details", one_line(to_json(more).decode())))
    return facts


def _finish(completion: Completion) -> str:
    reasons = []
    for choice in completion.choices:
        reason, native = choice.finish_reason, choice.native_finish_reason
        text = one_line(reason) if reason else "none"
        if native and native != reason:
            text += f" ({one_line(native)})"
        reasons.append(text if len(completion.choices) == 1 else f"{choice.index} {text}")
    return ", ".join(reasons)


def _usage(usage: Usage | None) -> str:
    if usage is None:
        return "not reported"
    usage = usage.normal()
    whole = {"input": usage.input, "output": usage.output, "total": usage.total}
    parts = {"cached": usage.cached, "reasoning": usage.reasoning}
    counts = [f"{count} {name}" for name, count in whole.items() if count is not None]
    counts += [f"{count} {name}" for name, count in parts.items() if count]
    return ", ".join(counts) + (" (estimated)" if usage.source == "estimated" else "")


def _provider(reading: ReadStream) -> Fact:
    provider = guess(reading.completion, reading.dialect.dialect)
    return Fact("provider", provider, "guessed") if provider else Fact("provider", "unknown")


def _defects(reading: ReadStream, level: Level) -> DefectCounts:
    locate = reading.locator()
    kinds = [
        SummaryDefect(repair.code, repair.count, (at := locate(repair)).line, at.offset, explain_repair(repair))
        for repair in reading.completion.repairs
        if repair.level == level
    ]
    if not kinds:
        return DefectCounts(Fact(f"{level}s", "none"), [])
    count = str(sum(kind.count for kind in kinds))
    value = count if len(kinds) == 1 else f"{count} of {len(kinds)} kinds"
    return DefectCounts(Fact(f"{level}s", value, tone="" if level == "notice" else "warning"), kinds)

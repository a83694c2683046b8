"""The table of injectable faults: every way to break a stream on purpose.

A fault maps a `ScriptedResponse` to another one and has no other effect. Several faults are injected in the order of
this table, not in the order in which they were requested: first the content of events, then their framing, then
replacing or shortening the answer, and last its timing and how it is split.

Faults that depend on the events of a dialect have a form for each dialect that can have them (`faults/content/`).
`docs/reference/faults.md` is generated from this table.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from penstock.core.dialects.registry import find_dialect
from penstock.replay.faults import delivery, framing
from penstock.replay.faults.content import FORMS
from penstock.replay.faults.form import FaultForm, counted, exact, plain

Group: TypeAlias = Literal["content", "framing", "another response", "cut or stalled", "timing and splitting"]
# The argument that a fault takes, as the list of faults shows it.
Argument: TypeAlias = Literal["", "=N", "[=N]", "=BYTES", "=STATUS", "=TIME", "[=TIME[@N]]"]

_EVERY_FRAMING = ("sse", "json-lines", "event-stream")
_LINES = ("sse", "json-lines")
_SSE = ("sse",)


class FaultSpec(Struct, frozen=True):
    """One row of the table: a fault that streams of any dialect with such a framing can have, or those of the dialects
    in `forms`."""

    group: Group
    argument: Argument
    description: str
    any: FaultForm | None = None
    framings: tuple[str, ...] = _EVERY_FRAMING
    """The framings of streams that can have it in the form `any`."""
    forms: Mapping[str, FaultForm] = {}

    @property
    def dialects(self) -> tuple[str, ...]:
        """The dialects whose streams can have it; empty if all can."""
        if self.any is not None and self.framings == _EVERY_FRAMING:
            return ()
        return tuple(dialect for dialect in FORMS if self.form_for(dialect) is not None)

    def form_for(self, dialect: str) -> FaultForm | None:
        """The form in streams of a dialect; None if they cannot have it."""
        framed = find_dialect(dialect).framing in self.framings
        return self.forms.get(dialect) or (self.any if framed else None)


_ROWS: dict[str, FaultSpec] = {
    "no-usage": FaultSpec("content", "", "The usage is left out everywhere."),
    "zero-usage": FaultSpec("content", "", "Every count in the usage is zero."),
    "double-usage": FaultSpec("content", "", "The usage is sent twice."),
    "usage-start-zero": FaultSpec("content", "", "The counts that are reported at the start are zero."),
    "no-finish": FaultSpec("content", "", "There is no finish reason."),
    "duplicate-finish": FaultSpec("content", "", "The finish reason is sent twice."),
    "early-finish": FaultSpec("content", "", "The finish reason is sent before the last content."),
    "late-role": FaultSpec("content", "", "The role is sent with the finish reason."),
    "changing-id": FaultSpec("content", "", "Every chunk has a different id."),
    "start-missing": FaultSpec("content", "", "The event that starts the answer is missing."),
    "start-repeated": FaultSpec("content", "", "The event that starts the answer is sent twice."),
    "block-start-missing": FaultSpec(
        "content", "", "The starts of text blocks and thinking, or of output items, are missing."
    ),
    "block-unclosed": FaultSpec("content", "", "The ends of content blocks, or of output items, are missing."),
    "block-index-missing": FaultSpec("content", "", "The events of content blocks, or of output items, have no index."),
    "block-text-repeated": FaultSpec(
        "content", "", "The start of a text block has the text that its first delta repeats."
    ),
    "signature-late": FaultSpec("content", "", "The signature of a thinking block is sent after the end of the block."),
    "item-id-rotates": FaultSpec("content", "", "An output item has another id in each of its events."),
    "completed-output-empty": FaultSpec("content", "", "The whole response in the last event has no output items."),
    "sequence-number-missing": FaultSpec("content", "", "The events have no `sequence_number`."),
    "broken-arguments": FaultSpec("content", "", "The arguments of the last tool call lack their last character."),
    "prompt-blocked": FaultSpec("content", "", "The prompt is blocked: there is a block reason and no answer."),
    "error-event": FaultSpec(
        "content",
        "[=N]",
        "After N events, or half of them, an error is sent as an event, and the stream ends.",
        counted("failed, `provider-error`", delivery.error_event),
    ),
    "error-first": FaultSpec(
        "content",
        "",
        "The only event is an error, with status 200.",
        plain("failed, `provider-error`", delivery.error_first),
    ),
    "bad-json": FaultSpec(
        "framing",
        "[=N]",
        "The event after N, or after half of them, ends in the middle of its JSON.",
        counted("failed, `bad-json`, `ignored-after-fault`", framing.bad_json),
    ),
    "no-done": FaultSpec("framing", "", "The end marker (such as `[DONE]` or `message_stop`) is missing."),
    "done-twice": FaultSpec("framing", "", "The end marker (such as `[DONE]` or `message_stop`) is sent twice."),
    "event-name-missing": FaultSpec("framing", "", "The events have no names, only data."),
    "glued": FaultSpec("framing", "", "Every event contains two JSON objects, one after the other."),
    "split-lines": FaultSpec("framing", "", "The JSON of every line is on two lines."),
    "crc-wrong": FaultSpec("framing", "[=N]", "The checksum of the message after N, or after half of them, is wrong."),
    "json-next-line": FaultSpec(
        "framing",
        "[=N]",
        "In every Nth event, or in all, the `data:` line is empty and the JSON is on the next line.",
        counted("completed, `json-on-next-line`", framing.json_next_line),
        _SSE,
    ),
    "json-lines": FaultSpec("framing", "", "Every line is JSON, without `data:`, without names and without `[DONE]`."),
    "no-space": FaultSpec(
        "framing", "", "There is no space after `data:`.", plain("completed", framing.no_space), _SSE
    ),
    "keep-alives": FaultSpec(
        "framing", "", "A comment precedes every event.", plain("completed", framing.keep_alives), _SSE
    ),
    "pings": FaultSpec("framing", "", "An `event: ping` precedes every event."),
    "no-blank-lines": FaultSpec(
        "framing",
        "",
        "There is no blank line between events.",
        plain("completed, `missing-blank-line`", framing.no_blank_lines),
        _SSE,
    ),
    "no-final-newline": FaultSpec(
        "framing",
        "",
        "The last line has no newline.",
        plain("completed, `no-final-newline`", framing.no_final_newline),
        _LINES,
    ),
    "crlf": FaultSpec("framing", "", "Lines end in CR LF.", plain("completed", framing.crlf), _LINES),
    "cr": FaultSpec("framing", "", "Lines end in CR alone.", plain("completed", framing.cr), _LINES),
    "bom": FaultSpec(
        "framing", "", "A byte order mark precedes the stream.", plain("completed, `bom`", framing.bom), _LINES
    ),
    "html": FaultSpec(
        "another response",
        "",
        "The response is an HTML page, with status 200.",
        plain("failed, `html-page`", delivery.html),
    ),
    "status": FaultSpec(
        "another response",
        "=STATUS",
        "The response is an error with that status, 400 to 599; 429 has a `retry-after` of one second.",
        exact("failed, `provider-error`", delivery.status),
    ),
    "empty": FaultSpec(
        "another response",
        "",
        "The response has no body, with status 200.",
        plain("failed, `empty-stream`", delivery.empty),
    ),
    "unstreamed": FaultSpec(
        "another response",
        "",
        "The whole answer is one JSON object, as if the request had not asked for a stream.",
        plain("completed", delivery.unstreamed),
    ),
    "wrong-type": FaultSpec(
        "another response", "", "The content type is `text/plain`.", plain("completed", delivery.wrong_type)
    ),
    "cut-after": FaultSpec(
        "cut or stalled", "=N", "The body ends after N events.", exact("truncated", delivery.cut_after)
    ),
    "cut-inside": FaultSpec(
        "cut or stalled",
        "[=N]",
        "The body ends in the middle of the event after N, or after half of them.",
        counted("truncated", delivery.cut_inside),
    ),
    "cut-bytes": FaultSpec(
        "cut or stalled", "=BYTES", "The body ends after that many bytes.", exact("truncated", delivery.cut_bytes)
    ),
    "reset": FaultSpec(
        "cut or stalled",
        "[=N]",
        "After N events, or half of them, the connection is reset.",
        counted("truncated", delivery.reset),
    ),
    "stall": FaultSpec(
        "cut or stalled",
        "[=TIME[@N]]",
        "After N events, or half of them, nothing is sent for that time; without a time, for ever.",
        FaultForm("truncated", lambda script, fault: delivery.stall(script, fault.seconds, fault.count)),
    ),
    "slow": FaultSpec(
        "timing and splitting",
        "=TIME",
        "Every event is sent that long after the one before.",
        FaultForm("completed", lambda script, fault: delivery.slow(script, fault.seconds or 0.0)),
    ),
    "gzip": FaultSpec(
        "timing and splitting",
        "",
        "The body is compressed without a `content-encoding`.",
        plain("failed, `binary`", delivery.compressed),
    ),
    "one-read": FaultSpec(
        "timing and splitting", "", "Everything is sent at once, at the end.", plain("completed", delivery.one_read)
    ),
    "split-utf8": FaultSpec(
        "timing and splitting",
        "",
        "Characters of several bytes are split between two writes.",
        plain("completed", delivery.split_utf8),
    ),
    "drip": FaultSpec("timing and splitting", "", "One byte is sent at a time.", plain("completed", delivery.drip)),
}


INJECTABLE_FAULTS: dict[str, FaultSpec] = {
    name: structs.replace(row, forms={dialect: forms[name] for dialect, forms in FORMS.items() if name in forms})
    for name, row in _ROWS.items()
}

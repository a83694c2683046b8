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

    description: str
    any: FaultForm | None = None
    framings: tuple[str, ...] = _EVERY_FRAMING
    """The framings of streams that can have it in the form `any`."""
    argument: Argument = ""
    group: Group = "content"
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


_ROWS: dict[Group, dict[str, FaultSpec]] = {
    "content": {
        "no-usage": FaultSpec("The usage is left out everywhere."),
        "zero-usage": FaultSpec("Every count in the usage is zero."),
        "double-usage": FaultSpec("The usage is sent twice."),
        "usage-start-zero": FaultSpec("The counts that are reported at the start are zero."),
        "no-finish": FaultSpec("There is no finish reason."),
        "duplicate-finish": FaultSpec("The finish reason is sent twice."),
        "early-finish": FaultSpec("The finish reason is sent before the last content."),
        "late-role": FaultSpec("The role is sent with the finish reason."),
        "changing-id": FaultSpec("Every chunk has a different id."),
        "start-missing": FaultSpec("The event that starts the answer is missing."),
        "start-repeated": FaultSpec("The event that starts the answer is sent twice."),
        "block-start-missing": FaultSpec("The starts of text blocks and thinking, or of output items, are missing."),
        "block-unclosed": FaultSpec("The ends of content blocks, or of output items, are missing."),
        "block-index-missing": FaultSpec("The events of content blocks, or of output items, have no index."),
        "block-text-repeated": FaultSpec("The start of a text block has the text that its first delta repeats."),
        "signature-late": FaultSpec("The signature of a thinking block is sent after the end of the block."),
        "item-id-rotates": FaultSpec("An output item has another id in each of its events."),
        "completed-output-empty": FaultSpec("The whole response in the last event has no output items."),
        "sequence-number-missing": FaultSpec("The events have no `sequence_number`."),
        "broken-arguments": FaultSpec("The arguments of the last tool call lack their last character."),
        "prompt-blocked": FaultSpec("The prompt is blocked: there is a block reason and no answer."),
        "error-event": FaultSpec(
            "After N events, or half of them, an error is sent as an event, and the stream ends.",
            counted("failed, `provider-error`", delivery.error_event),
            argument="[=N]",
        ),
        "error-first": FaultSpec(
            "The only event is an error, with status 200.", plain("failed, `provider-error`", delivery.error_first)
        ),
    },
    "framing": {
        "bad-json": FaultSpec(
            "The event after N, or after half of them, ends in the middle of its JSON.",
            counted("failed, `bad-json`, `ignored-after-fault`", framing.bad_json),
            argument="[=N]",
        ),
        "no-done": FaultSpec("The end marker (such as `[DONE]` or `message_stop`) is missing."),
        "done-twice": FaultSpec("The end marker (such as `[DONE]` or `message_stop`) is sent twice."),
        "event-name-missing": FaultSpec("The events have no names, only data."),
        "glued": FaultSpec("Every event contains two JSON objects, one after the other."),
        "split-lines": FaultSpec("The JSON of every line is on two lines."),
        "crc-wrong": FaultSpec(
            "The checksum of the message after N, or after half of them, is wrong.", argument="[=N]"
        ),
        "json-next-line": FaultSpec(
            "In every Nth event, or in all, the `data:` line is empty and the JSON is on the next line.",
            counted("completed, `json-on-next-line`", framing.json_next_line),
            _SSE,
            argument="[=N]",
        ),
        "json-lines": FaultSpec("Every line is JSON, without `data:`, without names and without `[DONE]`."),
        "no-space": FaultSpec("There is no space after `data:`.", plain("completed", framing.no_space), _SSE),
        "keep-alives": FaultSpec("A comment precedes every event.", plain("completed", framing.keep_alives), _SSE),
        "pings": FaultSpec("An `event: ping` precedes every event."),
        "no-blank-lines": FaultSpec(
            "There is no blank line between events.",
            plain("completed, `missing-blank-line`", framing.no_blank_lines),
            _SSE,
        ),
        "no-final-newline": FaultSpec(
            "The last line has no newline.", plain("completed, `no-final-newline`", framing.no_final_newline), _LINES
        ),
        "crlf": FaultSpec("Lines end in CR LF.", plain("completed", framing.crlf), _LINES),
        "cr": FaultSpec("Lines end in CR alone.", plain("completed", framing.cr), _LINES),
        "bom": FaultSpec("A byte order mark precedes the stream.", plain("completed, `bom`", framing.bom), _LINES),
    },
    "another response": {
        "html": FaultSpec(
            "The response is an HTML page, with status 200.", plain("failed, `html-page`", delivery.html)
        ),
        "status": FaultSpec(
            "The response is an error with that status, 400 to 599; 429 has a `retry-after` of one second.",
            exact("failed, `provider-error`", delivery.status),
            argument="=STATUS",
        ),
        "empty": FaultSpec(
            "The response has no body, with status 200.", plain("failed, `empty-stream`", delivery.empty)
        ),
        "unstreamed": FaultSpec(
            "The whole answer is one JSON object, as if the request had not asked for a stream.",
            plain("completed", delivery.unstreamed),
        ),
        "wrong-type": FaultSpec("The content type is `text/plain`.", plain("completed", delivery.wrong_type)),
    },
    "cut or stalled": {
        "cut-after": FaultSpec("The body ends after N events.", exact("truncated", delivery.cut_after), argument="=N"),
        "cut-inside": FaultSpec(
            "The body ends in the middle of the event after N, or after half of them.",
            counted("truncated", delivery.cut_inside),
            argument="[=N]",
        ),
        "cut-bytes": FaultSpec(
            "The body ends after that many bytes.", exact("truncated", delivery.cut_bytes), argument="=BYTES"
        ),
        "reset": FaultSpec(
            "After N events, or half of them, the connection is reset.",
            counted("truncated", delivery.reset),
            argument="[=N]",
        ),
        "stall": FaultSpec(
            "After N events, or half of them, nothing is sent for that time; without a time, for ever.",
            FaultForm("truncated", lambda script, fault: delivery.stall(script, fault.seconds, fault.count)),
            argument="[=TIME[@N]]",
        ),
    },
    "timing and splitting": {
        "slow": FaultSpec(
            "Every event is sent that long after the one before.",
            FaultForm("completed", lambda script, fault: delivery.slow(script, fault.seconds or 0.0)),
            argument="=TIME",
        ),
        "gzip": FaultSpec(
            "The body is compressed without a `content-encoding`.", plain("failed, `binary`", delivery.compressed)
        ),
        "one-read": FaultSpec("Everything is sent at once, at the end.", plain("completed", delivery.one_read)),
        "split-utf8": FaultSpec(
            "Characters of several bytes are split between two writes.", plain("completed", delivery.split_utf8)
        ),
        "drip": FaultSpec("One byte is sent at a time.", plain("completed", delivery.drip)),
    },
}


INJECTABLE_FAULTS: dict[str, FaultSpec] = {
    name: structs.replace(row, group=group, forms={key: forms[name] for key, forms in FORMS.items() if name in forms})
    for group, rows in _ROWS.items()
    for name, row in rows.items()
}

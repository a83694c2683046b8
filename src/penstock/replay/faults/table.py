"""The table of faults on demand: every way to break a stream on purpose.

A fault changes a `Script` into another one and nothing else. Several are put in by the order of the table, whatever the
order in which they were asked for: first what the events say, then their framing, then what is sent in place of them,
how much of it, and at last when and in which pieces. `docs/reference/faults.md` is generated from this table.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.replay.faults import answers, delivery, framing
from penstock.replay.faults.script import Script

Group: TypeAlias = Literal["what is said", "framing", "in its place", "how much", "when, and in which pieces"]
# What a fault takes, by how it is written in `--help`.
Argument: TypeAlias = Literal["", "=N", "[=N]", "=BYTES", "=STATUS", "=TIME", "[=TIME[@N]]"]

# The dialect whose events the faults in content know.
_CHAT = DEFAULT_DIALECT


class PlannedFault(Struct, frozen=True):
    """A fault that was asked for, with its argument: a number of events, of bytes or a status; and seconds."""

    name: str
    count: int | None = None
    seconds: float | None = None


class OnDemand(Struct, frozen=True):
    """One row: what a fault does, what it takes, and what Penstock's own reader makes of it.

    `reads` is the ending that it tells and the codes of `core/repairs.py`, for a healthy stream that is broken so.
    A fault `of` one dialect changes what its events say, or the frames that only it has; the others break any stream.
    """

    group: Group
    argument: Argument
    does: str
    reads: str
    effect: Callable[[Script, PlannedFault], Script]
    of: str = ""


def _plain(effect: Callable[[Script], Script]) -> Callable[[Script, PlannedFault], Script]:
    return lambda script, _fault: effect(script)


def _counted(effect: Callable[[Script, int | None], Script]) -> Callable[[Script, PlannedFault], Script]:
    return lambda script, fault: effect(script, fault.count)


def _exact(effect: Callable[[Script, int], Script]) -> Callable[[Script, PlannedFault], Script]:
    return lambda script, fault: effect(script, fault.count or 0)


ON_DEMAND: dict[str, OnDemand] = {
    "no-usage": OnDemand(
        "what is said", "", "The usage is left out everywhere.", "completed", _plain(answers.no_usage), of=_CHAT
    ),
    "zero-usage": OnDemand(
        "what is said",
        "",
        "Every figure of the usage is zero.",
        "completed, `usage-placeholder`",
        _plain(answers.zero_usage),
        of=_CHAT,
    ),
    "double-usage": OnDemand(
        "what is said", "", "The usage comes twice.", "completed", _plain(answers.double_usage), of=_CHAT
    ),
    "no-finish": OnDemand(
        "what is said", "", "No finish reason ever comes.", "truncated", _plain(answers.no_finish), of=_CHAT
    ),
    "duplicate-finish": OnDemand(
        "what is said",
        "",
        "The finish comes twice.",
        "completed, `finish-repeated`",
        _plain(answers.duplicate_finish),
        of=_CHAT,
    ),
    "early-finish": OnDemand(
        "what is said",
        "",
        "The finish comes before the last words.",
        "completed, `content-after-finish`",
        _plain(answers.early_finish),
        of=_CHAT,
    ),
    "late-role": OnDemand(
        "what is said",
        "",
        "The role comes with the finish.",
        "completed, `role-missing`, `role-repeated`",
        _plain(answers.late_role),
        of=_CHAT,
    ),
    "changing-id": OnDemand(
        "what is said",
        "",
        "Every chunk has another id.",
        "completed, `id-changed`",
        _plain(answers.changing_id),
        of=_CHAT,
    ),
    "broken-arguments": OnDemand(
        "what is said",
        "",
        "The arguments of the last tool call lack their last character.",
        "completed, `tool-arguments-broken`",
        _plain(answers.broken_arguments),
        of=_CHAT,
    ),
    "error-event": OnDemand(
        "what is said",
        "[=N]",
        "After N events, or half of them, an error comes as an event, and then the end.",
        "failed, `provider-error`",
        _counted(answers.error_event),
        of=_CHAT,
    ),
    "error-first": OnDemand(
        "what is said",
        "",
        "An error comes as the only event, with status 200.",
        "failed, `provider-error`",
        _plain(answers.error_first),
        of=_CHAT,
    ),
    "bad-json": OnDemand(
        "framing",
        "[=N]",
        "The event behind N, or half of all, stops in the middle of its JSON.",
        "failed, `bad-json`, `ignored-after-fault`",
        _counted(framing.bad_json),
    ),
    "no-done": OnDemand(
        "framing", "", "There is no `[DONE]`.", "completed, `no-done`", _plain(framing.no_done), of=_CHAT
    ),
    "done-twice": OnDemand(
        "framing", "", "`[DONE]` comes twice.", "completed, `done-repeated`", _plain(framing.done_twice), of=_CHAT
    ),
    "glued": OnDemand(
        "framing",
        "",
        "Every event has two objects, one behind the other.",
        "completed, `glued-events`",
        _plain(framing.glued),
        of=_CHAT,
    ),
    "json-next-line": OnDemand(
        "framing",
        "[=N]",
        "`data:` stands alone in every Nth event, or in all, its JSON on the next line.",
        "completed, `json-on-next-line`",
        _counted(framing.json_next_line),
    ),
    "json-lines": OnDemand(
        "framing",
        "",
        "Every line is JSON, without `data:` and without `[DONE]`.",
        "completed, `json-lines`",
        _plain(framing.json_lines),
        of=_CHAT,
    ),
    "no-space": OnDemand("framing", "", "There is no space behind `data:`.", "completed", _plain(framing.no_space)),
    "keep-alives": OnDemand(
        "framing", "", "A comment comes before every event.", "completed", _plain(framing.keep_alives)
    ),
    "pings": OnDemand(
        "framing",
        "",
        "An `event: ping` comes before every event.",
        "completed, `keepalive-event`",
        _plain(framing.pings),
        of=_CHAT,
    ),
    "no-blank-lines": OnDemand(
        "framing",
        "",
        "There is no blank line between events.",
        "completed, `missing-blank-line`",
        _plain(framing.no_blank_lines),
    ),
    "no-final-newline": OnDemand(
        "framing",
        "",
        "The last line does not end.",
        "completed, `no-final-newline`",
        _plain(framing.no_final_newline),
    ),
    "crlf": OnDemand("framing", "", "Lines end in CR LF.", "completed", _plain(framing.crlf)),
    "cr": OnDemand("framing", "", "Lines end in CR alone.", "completed", _plain(framing.cr)),
    "bom": OnDemand(
        "framing", "", "A byte order mark stands before everything.", "completed, `bom`", _plain(framing.bom)
    ),
    "html": OnDemand(
        "in its place",
        "",
        "A page of HTML comes, with status 200.",
        "failed, `html-page`",
        _plain(delivery.html),
    ),
    "status": OnDemand(
        "in its place",
        "=STATUS",
        "An error comes with that status, 400 to 599; 429 asks to wait a second.",
        "failed, `provider-error`",
        _exact(delivery.status),
    ),
    "empty": OnDemand(
        "in its place", "", "No byte comes, with status 200.", "failed, `empty-stream`", _plain(delivery.empty)
    ),
    "unstreamed": OnDemand(
        "in its place",
        "",
        "The whole answer comes as one JSON object, as if no stream had been asked for.",
        "completed",
        _plain(delivery.unstreamed),
        of=_CHAT,
    ),
    "wrong-type": OnDemand(
        "in its place", "", "The content type is `text/plain`.", "completed", _plain(delivery.wrong_type)
    ),
    "cut-after": OnDemand(
        "how much", "=N", "After N events comes the end of the body.", "truncated", _exact(delivery.cut_after)
    ),
    "cut-bytes": OnDemand(
        "how much", "=BYTES", "After so many bytes comes the end of the body.", "truncated", _exact(delivery.cut_bytes)
    ),
    "reset": OnDemand(
        "how much",
        "[=N]",
        "After N events, or half of them, the connection is reset.",
        "truncated",
        _counted(delivery.reset),
    ),
    "stall": OnDemand(
        "how much",
        "[=TIME[@N]]",
        "After N events, or half of them, nothing comes for so long; without a time, for ever.",
        "truncated",
        lambda script, fault: delivery.stall(script, fault.seconds, fault.count),
    ),
    "slow": OnDemand(
        "when, and in which pieces",
        "=TIME",
        "Every event comes so long after the one before.",
        "completed",
        lambda script, fault: delivery.slow(script, fault.seconds or 0.0),
    ),
    "gzip": OnDemand(
        "when, and in which pieces",
        "",
        "The body is compressed, and no header says so.",
        "failed, `binary`",
        _plain(delivery.compressed),
    ),
    "one-read": OnDemand(
        "when, and in which pieces", "", "Everything comes at once, at the end.", "completed", _plain(delivery.one_read)
    ),
    "split-utf8": OnDemand(
        "when, and in which pieces", "", "Pieces end inside of characters.", "completed", _plain(delivery.split_utf8)
    ),
    "drip": OnDemand("when, and in which pieces", "", "One byte comes at a time.", "completed", _plain(delivery.drip)),
}

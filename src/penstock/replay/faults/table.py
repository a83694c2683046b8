"""The table of faults on demand: every way to break a stream on purpose.

A fault maps a `ScriptedResponse` to another one and has no other effect. Several faults are injected in the order of
this table, not in the order in which they were requested: first the content of events, then their framing, then
replacing or shortening the answer, and last its timing and how it is split.
`docs/reference/faults.md` is generated from this table.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.replay.faults import answers, delivery, framing
from penstock.replay.faults.script import ScriptedResponse

Group: TypeAlias = Literal["what is said", "framing", "in its place", "how much", "when, and in which pieces"]
# What a fault takes, by how it is written in `--help`.
Argument: TypeAlias = Literal["", "=N", "[=N]", "=BYTES", "=STATUS", "=TIME", "[=TIME[@N]]"]

# The dialect whose events the faults in content know.
_CHAT = DEFAULT_DIALECT


class InjectedFault(Struct, frozen=True):
    """A fault that was asked for, with its argument: a number of events, of bytes or a status; and seconds."""

    name: str
    count: int | None = None
    seconds: float | None = None


class FaultSpec(Struct, frozen=True):
    """One row: what a fault does, what it takes, and what Penstock's own reader makes of it.

    `reads` is the ending that it tells and the codes of `core/repairs.py`, for a healthy stream that is broken so.
    A fault `of` one dialect changes what its events say, or the frames that only it has; the others break any stream.
    """

    group: Group
    argument: Argument
    does: str
    reads: str
    effect: Callable[[ScriptedResponse, InjectedFault], ScriptedResponse]
    of: str = ""


def _plain(
    effect: Callable[[ScriptedResponse], ScriptedResponse],
) -> Callable[[ScriptedResponse, InjectedFault], ScriptedResponse]:
    return lambda script, _fault: effect(script)


def _counted(
    effect: Callable[[ScriptedResponse, int | None], ScriptedResponse],
) -> Callable[[ScriptedResponse, InjectedFault], ScriptedResponse]:
    return lambda script, fault: effect(script, fault.count)


def _exact(
    effect: Callable[[ScriptedResponse, int], ScriptedResponse],
) -> Callable[[ScriptedResponse, InjectedFault], ScriptedResponse]:
    return lambda script, fault: effect(script, fault.count or 0)


ON_DEMAND: dict[str, FaultSpec] = {
    "no-usage": FaultSpec(
        "what is said", "", "The usage is left out everywhere.", "completed", _plain(answers.no_usage), of=_CHAT
    ),
    "zero-usage": FaultSpec(
        "what is said",
        "",
        "Every figure of the usage is zero.",
        "completed, `usage-placeholder`",
        _plain(answers.zero_usage),
        of=_CHAT,
    ),
    "double-usage": FaultSpec(
        "what is said", "", "The usage comes twice.", "completed", _plain(answers.double_usage), of=_CHAT
    ),
    "no-finish": FaultSpec(
        "what is said", "", "No finish reason ever comes.", "truncated", _plain(answers.no_finish), of=_CHAT
    ),
    "duplicate-finish": FaultSpec(
        "what is said",
        "",
        "The finish comes twice.",
        "completed, `finish-repeated`",
        _plain(answers.duplicate_finish),
        of=_CHAT,
    ),
    "early-finish": FaultSpec(
        "what is said",
        "",
        "The finish comes before the last words.",
        "completed, `content-after-finish`",
        _plain(answers.early_finish),
        of=_CHAT,
    ),
    "late-role": FaultSpec(
        "what is said",
        "",
        "The role comes with the finish.",
        "completed, `role-missing`, `role-repeated`",
        _plain(answers.late_role),
        of=_CHAT,
    ),
    "changing-id": FaultSpec(
        "what is said",
        "",
        "Every chunk has another id.",
        "completed, `id-changed`",
        _plain(answers.changing_id),
        of=_CHAT,
    ),
    "broken-arguments": FaultSpec(
        "what is said",
        "",
        "The arguments of the last tool call lack their last character.",
        "completed, `tool-arguments-broken`",
        _plain(answers.broken_arguments),
        of=_CHAT,
    ),
    "error-event": FaultSpec(
        "what is said",
        "[=N]",
        "After N events, or half of them, an error comes as an event, and then the end.",
        "failed, `provider-error`",
        _counted(answers.error_event),
        of=_CHAT,
    ),
    "error-first": FaultSpec(
        "what is said",
        "",
        "An error comes as the only event, with status 200.",
        "failed, `provider-error`",
        _plain(answers.error_first),
        of=_CHAT,
    ),
    "bad-json": FaultSpec(
        "framing",
        "[=N]",
        "The event behind N, or half of all, stops in the middle of its JSON.",
        "failed, `bad-json`, `ignored-after-fault`",
        _counted(framing.bad_json),
    ),
    "no-done": FaultSpec(
        "framing", "", "There is no `[DONE]`.", "completed, `no-done`", _plain(framing.no_done), of=_CHAT
    ),
    "done-twice": FaultSpec(
        "framing", "", "`[DONE]` comes twice.", "completed, `done-repeated`", _plain(framing.done_twice), of=_CHAT
    ),
    "glued": FaultSpec(
        "framing",
        "",
        "Every event has two objects, one behind the other.",
        "completed, `glued-events`",
        _plain(framing.glued),
        of=_CHAT,
    ),
    "json-next-line": FaultSpec(
        "framing",
        "[=N]",
        "`data:` stands alone in every Nth event, or in all, its JSON on the next line.",
        "completed, `json-on-next-line`",
        _counted(framing.json_next_line),
    ),
    "json-lines": FaultSpec(
        "framing",
        "",
        "Every line is JSON, without `data:` and without `[DONE]`.",
        "completed, `json-lines`",
        _plain(framing.json_lines),
        of=_CHAT,
    ),
    "no-space": FaultSpec("framing", "", "There is no space behind `data:`.", "completed", _plain(framing.no_space)),
    "keep-alives": FaultSpec(
        "framing", "", "A comment comes before every event.", "completed", _plain(framing.keep_alives)
    ),
    "pings": FaultSpec(
        "framing",
        "",
        "An `event: ping` comes before every event.",
        "completed, `keepalive-event`",
        _plain(framing.pings),
        of=_CHAT,
    ),
    "no-blank-lines": FaultSpec(
        "framing",
        "",
        "There is no blank line between events.",
        "completed, `missing-blank-line`",
        _plain(framing.no_blank_lines),
    ),
    "no-final-newline": FaultSpec(
        "framing",
        "",
        "The last line does not end.",
        "completed, `no-final-newline`",
        _plain(framing.no_final_newline),
    ),
    "crlf": FaultSpec("framing", "", "Lines end in CR LF.", "completed", _plain(framing.crlf)),
    "cr": FaultSpec("framing", "", "Lines end in CR alone.", "completed", _plain(framing.cr)),
    "bom": FaultSpec(
        "framing", "", "A byte order mark stands before everything.", "completed, `bom`", _plain(framing.bom)
    ),
    "html": FaultSpec(
        "in its place",
        "",
        "A page of HTML comes, with status 200.",
        "failed, `html-page`",
        _plain(delivery.html),
    ),
    "status": FaultSpec(
        "in its place",
        "=STATUS",
        "An error comes with that status, 400 to 599; 429 asks to wait a second.",
        "failed, `provider-error`",
        _exact(delivery.status),
    ),
    "empty": FaultSpec(
        "in its place", "", "No byte comes, with status 200.", "failed, `empty-stream`", _plain(delivery.empty)
    ),
    "unstreamed": FaultSpec(
        "in its place",
        "",
        "The whole answer comes as one JSON object, as if no stream had been asked for.",
        "completed",
        _plain(delivery.unstreamed),
        of=_CHAT,
    ),
    "wrong-type": FaultSpec(
        "in its place", "", "The content type is `text/plain`.", "completed", _plain(delivery.wrong_type)
    ),
    "cut-after": FaultSpec(
        "how much", "=N", "After N events comes the end of the body.", "truncated", _exact(delivery.cut_after)
    ),
    "cut-bytes": FaultSpec(
        "how much", "=BYTES", "After so many bytes comes the end of the body.", "truncated", _exact(delivery.cut_bytes)
    ),
    "reset": FaultSpec(
        "how much",
        "[=N]",
        "After N events, or half of them, the connection is reset.",
        "truncated",
        _counted(delivery.reset),
    ),
    "stall": FaultSpec(
        "how much",
        "[=TIME[@N]]",
        "After N events, or half of them, nothing comes for so long; without a time, for ever.",
        "truncated",
        lambda script, fault: delivery.stall(script, fault.seconds, fault.count),
    ),
    "slow": FaultSpec(
        "when, and in which pieces",
        "=TIME",
        "Every event comes so long after the one before.",
        "completed",
        lambda script, fault: delivery.slow(script, fault.seconds or 0.0),
    ),
    "gzip": FaultSpec(
        "when, and in which pieces",
        "",
        "The body is compressed, and no header says so.",
        "failed, `binary`",
        _plain(delivery.compressed),
    ),
    "one-read": FaultSpec(
        "when, and in which pieces", "", "Everything comes at once, at the end.", "completed", _plain(delivery.one_read)
    ),
    "split-utf8": FaultSpec(
        "when, and in which pieces", "", "Pieces end inside of characters.", "completed", _plain(delivery.split_utf8)
    ),
    "drip": FaultSpec("when, and in which pieces", "", "One byte comes at a time.", "completed", _plain(delivery.drip)),
}

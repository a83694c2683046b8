"""The table of injectable faults: every way to break a stream on purpose.

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

Group: TypeAlias = Literal["content", "framing", "another response", "cut or stalled", "timing and splitting"]
# The argument that a fault takes, as the list of faults shows it.
Argument: TypeAlias = Literal["", "=N", "[=N]", "=BYTES", "=STATUS", "=TIME", "[=TIME[@N]]"]

# The dialect whose events the faults in content can change.
_CHAT = DEFAULT_DIALECT


class InjectedFault(Struct, frozen=True):
    """A requested fault with its argument: a number of events or bytes or a status, and seconds."""

    name: str
    count: int | None = None
    seconds: float | None = None


class FaultSpec(Struct, frozen=True):
    """One row of the table.

    `result` is what Penstock's own reader reports for a healthy stream with this fault: the ending, and the codes of
    `core/repairs.py`. A fault with a `dialect` changes the content of that dialect's events, or frames that only this
    dialect has. All others apply to any stream.
    """

    group: Group
    argument: Argument
    description: str
    result: str
    effect: Callable[[ScriptedResponse, InjectedFault], ScriptedResponse]
    dialect: str = ""


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


INJECTABLE_FAULTS: dict[str, FaultSpec] = {
    "no-usage": FaultSpec(
        "content", "", "The usage is left out everywhere.", "completed", _plain(answers.no_usage), dialect=_CHAT
    ),
    "zero-usage": FaultSpec(
        "content",
        "",
        "Every count in the usage is zero.",
        "completed, `usage-placeholder`",
        _plain(answers.zero_usage),
        dialect=_CHAT,
    ),
    "double-usage": FaultSpec(
        "content", "", "The usage is sent twice.", "completed", _plain(answers.double_usage), dialect=_CHAT
    ),
    "no-finish": FaultSpec(
        "content", "", "There is no finish reason.", "truncated", _plain(answers.no_finish), dialect=_CHAT
    ),
    "duplicate-finish": FaultSpec(
        "content",
        "",
        "The finish reason is sent twice.",
        "completed, `finish-repeated`",
        _plain(answers.duplicate_finish),
        dialect=_CHAT,
    ),
    "early-finish": FaultSpec(
        "content",
        "",
        "The finish reason is sent before the last content.",
        "completed, `content-after-finish`",
        _plain(answers.early_finish),
        dialect=_CHAT,
    ),
    "late-role": FaultSpec(
        "content",
        "",
        "The role is sent with the finish reason.",
        "completed, `role-missing`, `role-repeated`",
        _plain(answers.late_role),
        dialect=_CHAT,
    ),
    "changing-id": FaultSpec(
        "content",
        "",
        "Every chunk has a different id.",
        "completed, `id-changed`",
        _plain(answers.changing_id),
        dialect=_CHAT,
    ),
    "broken-arguments": FaultSpec(
        "content",
        "",
        "The arguments of the last tool call lack their last character.",
        "completed, `tool-arguments-broken`",
        _plain(answers.broken_arguments),
        dialect=_CHAT,
    ),
    "error-event": FaultSpec(
        "content",
        "[=N]",
        "After N events, or half of them, an error is sent as an event, and the stream ends.",
        "failed, `provider-error`",
        _counted(answers.error_event),
        dialect=_CHAT,
    ),
    "error-first": FaultSpec(
        "content",
        "",
        "The only event is an error, with status 200.",
        "failed, `provider-error`",
        _plain(answers.error_first),
        dialect=_CHAT,
    ),
    "bad-json": FaultSpec(
        "framing",
        "[=N]",
        "The event after N, or after half of them, ends in the middle of its JSON.",
        "failed, `bad-json`, `ignored-after-fault`",
        _counted(framing.bad_json),
    ),
    "no-done": FaultSpec(
        "framing", "", "There is no `[DONE]`.", "completed, `no-done`", _plain(framing.no_done), dialect=_CHAT
    ),
    "done-twice": FaultSpec(
        "framing",
        "",
        "`[DONE]` is sent twice.",
        "completed, `done-repeated`",
        _plain(framing.done_twice),
        dialect=_CHAT,
    ),
    "glued": FaultSpec(
        "framing",
        "",
        "Every event contains two JSON objects, one after the other.",
        "completed, `glued-events`",
        _plain(framing.glued),
        dialect=_CHAT,
    ),
    "json-next-line": FaultSpec(
        "framing",
        "[=N]",
        "In every Nth event, or in all, the `data:` line is empty and the JSON is on the next line.",
        "completed, `json-on-next-line`",
        _counted(framing.json_next_line),
    ),
    "json-lines": FaultSpec(
        "framing",
        "",
        "Every line is JSON, without `data:` and without `[DONE]`.",
        "completed, `json-lines`",
        _plain(framing.json_lines),
        dialect=_CHAT,
    ),
    "no-space": FaultSpec("framing", "", "There is no space after `data:`.", "completed", _plain(framing.no_space)),
    "keep-alives": FaultSpec(
        "framing", "", "A comment precedes every event.", "completed", _plain(framing.keep_alives)
    ),
    "pings": FaultSpec(
        "framing",
        "",
        "An `event: ping` precedes every event.",
        "completed, `keepalive-event`",
        _plain(framing.pings),
        dialect=_CHAT,
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
        "The last line has no newline.",
        "completed, `no-final-newline`",
        _plain(framing.no_final_newline),
    ),
    "crlf": FaultSpec("framing", "", "Lines end in CR LF.", "completed", _plain(framing.crlf)),
    "cr": FaultSpec("framing", "", "Lines end in CR alone.", "completed", _plain(framing.cr)),
    "bom": FaultSpec("framing", "", "A byte order mark precedes the stream.", "completed, `bom`", _plain(framing.bom)),
    "html": FaultSpec(
        "another response",
        "",
        "The response is an HTML page, with status 200.",
        "failed, `html-page`",
        _plain(delivery.html),
    ),
    "status": FaultSpec(
        "another response",
        "=STATUS",
        "The response is an error with that status, 400 to 599; 429 has a `retry-after` of one second.",
        "failed, `provider-error`",
        _exact(delivery.status),
    ),
    "empty": FaultSpec(
        "another response",
        "",
        "The response has no body, with status 200.",
        "failed, `empty-stream`",
        _plain(delivery.empty),
    ),
    "unstreamed": FaultSpec(
        "another response",
        "",
        "The whole answer is one JSON object, as if the request had not asked for a stream.",
        "completed",
        _plain(delivery.unstreamed),
        dialect=_CHAT,
    ),
    "wrong-type": FaultSpec(
        "another response", "", "The content type is `text/plain`.", "completed", _plain(delivery.wrong_type)
    ),
    "cut-after": FaultSpec(
        "cut or stalled", "=N", "The body ends after N events.", "truncated", _exact(delivery.cut_after)
    ),
    "cut-bytes": FaultSpec(
        "cut or stalled", "=BYTES", "The body ends after that many bytes.", "truncated", _exact(delivery.cut_bytes)
    ),
    "reset": FaultSpec(
        "cut or stalled",
        "[=N]",
        "After N events, or half of them, the connection is reset.",
        "truncated",
        _counted(delivery.reset),
    ),
    "stall": FaultSpec(
        "cut or stalled",
        "[=TIME[@N]]",
        "After N events, or half of them, nothing is sent for that time; without a time, for ever.",
        "truncated",
        lambda script, fault: delivery.stall(script, fault.seconds, fault.count),
    ),
    "slow": FaultSpec(
        "timing and splitting",
        "=TIME",
        "Every event is sent that long after the one before.",
        "completed",
        lambda script, fault: delivery.slow(script, fault.seconds or 0.0),
    ),
    "gzip": FaultSpec(
        "timing and splitting",
        "",
        "The body is compressed without a `content-encoding`.",
        "failed, `binary`",
        _plain(delivery.compressed),
    ),
    "one-read": FaultSpec(
        "timing and splitting", "", "Everything is sent at once, at the end.", "completed", _plain(delivery.one_read)
    ),
    "split-utf8": FaultSpec(
        "timing and splitting",
        "",
        "Characters of several bytes are split between two writes.",
        "completed",
        _plain(delivery.split_utf8),
    ),
    "drip": FaultSpec("timing and splitting", "", "One byte is sent at a time.", "completed", _plain(delivery.drip)),
}

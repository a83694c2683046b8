"""Playback: one answer to be played, made from a capture. PlaybackOptions: style, speed, faults and splitting.

The options are applied in this order, so that they combine: the body is rewritten in another style, sped up, broken by
injected faults, and split into other pieces. So the times in a fault are real time at any speed, and splitting applies
to what the faults have left.
"""

import math
import random
import re

from msgspec import Struct, structs

from penstock.capture import Capture, How
from penstock.core.dialects.registry import DEFAULT_DIALECT, answer_dialect, find_dialect, upstream_dialect
from penstock.core.hub.failure import Failure
from penstock.replay.faults import (
    ERROR_CODE,
    ERROR_MESSAGE,
    INJECTABLE_FAULTS,
    InjectedFault,
    Piece,
    ScriptedResponse,
    ScriptEnding,
    inject,
)
from penstock.replay.pieces import Split, pieces_of, split_up
from penstock.replay.rewrite import Rewriting, rewrite, rewrite_unstreamed
from penstock.replay.styles import ChatStyle, ProviderStyle, write_error_in_style

AS_FAST_AS_POSSIBLE = math.inf
# The least time between two pieces, unless the speed is `max`: closer pieces would reach the peer in one read.
APART_S = 0.001
_OK = 200
_JSON = "application/json"
# Header names and values that may be sent. A capture is untrusted input.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# Headers that the replaying server sets itself, because they describe its own framing.
_FRAMING = frozenset(("connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding", "upgrade"))
# The ending of a capture as that of a response.
_ENDINGS: dict[How, ScriptEnding] = {
    "complete": "end",
    "abandoned": "end",  # the rest was not recorded; the body may have ended properly
    "closed": "closed",
    "cancelled": "closed",
    "limit": "closed",
    "invalid": "closed",
    "reset": "reset",
    "timed-out": "stall",
}


class Playback(Struct, frozen=True, kw_only=True):
    """One answer to be played. Without a status there is no response head, only an ending or a stall.

    `head_s` counts from the request, `ending_after_s` from the last piece. `apart_s` is the least time between pieces.
    """

    status: int | None
    headers: dict[str, str] = {}
    head_s: float = 0.0
    pieces: list[Piece] = []
    ending: ScriptEnding = "end"
    ending_after_s: float = 0.0
    apart_s: float = APART_S
    refusal: str = ""
    """Why nothing is played: no capture matches the request."""

    def with_json(self, status: int | None, data: bytes) -> "Playback":
        """A copy with one JSON text as the body, sent when the last piece was."""
        pieces = [Piece(sum(piece.after_s for piece in self.pieces), data)]
        return structs.replace(self, status=status, headers=self.headers | {"content-type": _JSON}, pieces=pieces)


class PlaybackOptions(Struct, frozen=True, kw_only=True):
    """How captures are played: speed, splitting, provider style, and injected faults.

    A style writes one dialect: it applies to requests of that dialect, and to captures of any. Faults in the content of
    events apply to some dialects. Other requests are answered without them.
    """

    speed: float = 1.0
    split: Split = "reads"
    style: ProviderStyle | None = None
    faults: tuple[InjectedFault, ...] = ()
    dialect: str = DEFAULT_DIALECT
    """The dialect of the answers, and of errors that are sent in their place."""

    def translates_to(self, dialect: str) -> bool:
        """Whether captures of any dialect can answer requests of that one: the style is of that dialect."""
        return self.style is not None and self.style.dialect == dialect

    def of(self, dialect: str) -> "PlaybackOptions":
        """A copy for requests of a dialect, without the options that do not apply to it."""
        return structs.replace(
            self,
            style=self.style if self.translates_to(dialect) else None,
            faults=tuple(fault for fault in self.faults if INJECTABLE_FAULTS[fault.name].form_for(dialect) is not None),
            dialect=dialect,
        )

    def not_for(self, dialect: str) -> list[str]:
        """The faults that do not apply to answers of a dialect, as the command line writes them."""
        left = self.of(dialect).faults
        return [f"--fault {fault.name}" for fault in self.faults if fault not in left]


AS_RECORDED = PlaybackOptions()


def playback_of(
    capture: Capture,
    options: PlaybackOptions = AS_RECORDED,
    chance: random.Random | None = None,
    *,
    recorded_as: str = DEFAULT_DIALECT,
    include_usage: bool = True,
    stream: bool = True,
) -> Playback:
    """The answer in a capture. A capture without an ending ends as a connection that is closed too early.

    `recorded_as` is the dialect of the capture. `include_usage` and `stream` are whether the request asks for the usage
    and for a stream. Styles depend on them.
    """
    header, closing = capture.header, capture.closing
    ended_s = closing.at_s if closing is not None else None
    last_s = max((read.at_s or 0.0 for read in capture.reads), default=0.0)
    playback = Playback(
        status=header.status,
        headers=_headers(capture, recorded_as),
        head_s=(header.head_s or 0.0) / options.speed,
        pieces=[Piece(piece.after_s / options.speed, piece.data) for piece in pieces_of(capture)],
        ending=_ENDINGS[closing.how] if closing is not None else "closed",
        ending_after_s=max((ended_s or 0.0) - last_s, 0.0) / options.speed,
        apart_s=0.0 if options.speed == AS_FAST_AS_POSSIBLE else APART_S,
    )
    if options.style is not None and header.status is not None:
        rewriting = Rewriting(options.style, recorded_as, include_usage=include_usage)
        playback = _rewritten(playback, rewriting, stream=stream or bool(options.faults))  # faults are those of streams
    if options.faults:
        playback = _with_faults(playback, options)
    pieces = split_up(playback.pieces, options.split, chance or random.Random(0))
    return structs.replace(playback, pieces=pieces)


def parse_speed(text: str) -> float:
    """Parse `recorded`, `10x` or `max` as a factor; raises ValueError with the valid forms."""
    if text == "recorded":
        return 1.0
    if text == "max":
        return AS_FAST_AS_POSSIBLE
    factor = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)x?", text)
    if factor is None or float(factor[1]) <= 0:
        raise ValueError("must be `recorded`, a factor such as `10x` or `0.5x`, or `max`")
    return float(factor[1])


def _rewritten(playback: Playback, rewriting: Rewriting, *, stream: bool) -> Playback:
    """The answer in a style, if it is one. An error response stays, unless the style is of another dialect."""
    style = rewriting.style
    if playback.status != _OK:
        translated = _translated_error(playback, rewriting) if style.dialect != rewriting.recorded_as else b""
        return playback.with_json(playback.status, translated) if translated else playback
    if stream:
        written = rewrite(playback.pieces, rewriting)
        headers = playback.headers | {"content-type": style.content_type}
        return structs.replace(playback, headers=headers, pieces=written) if written is not None else playback
    answer = rewrite_unstreamed(playback.pieces, rewriting)
    return playback.with_json(*answer) if answer is not None else playback


def _translated_error(playback: Playback, rewriting: Rewriting) -> bytes:
    """The body of an error response in another dialect; empty if it cannot be read, such as an HTML page."""
    data = b"".join(piece.data for piece in playback.pieces)
    try:
        message = upstream_dialect(rewriting.recorded_as).read_error(data).message
    except ValueError:
        return b""
    failure = Failure(code="upstream_error", message=message, status=playback.status or 0)
    return answer_dialect(rewriting.style.dialect).write_error(failure, "")


def _with_faults(playback: Playback, options: PlaybackOptions) -> Playback:
    """Inject the faults into an answer. Without a response head there is nothing to break."""
    if playback.status is None:
        return playback
    script = ScriptedResponse(
        tuple(playback.pieces),
        playback.ending,
        playback.status,
        playback.headers,
        dialect=options.dialect,
        error=_error_event(options.style),
    )
    faulty = inject(script, options.faults)
    return structs.replace(
        playback, status=faulty.status, headers=faulty.headers, pieces=list(faulty.pieces), ending=faulty.ending
    )


def _error_event(style: ProviderStyle | None) -> bytes:
    """An error as a provider of chat completions writes it in a stream; empty for the form of the dialect itself."""
    return write_error_in_style(ERROR_MESSAGE, ERROR_CODE, style) if isinstance(style, ChatStyle) else b""


def _headers(capture: Capture, dialect: str) -> dict[str, str]:
    """The recorded headers that can be sent again, and a content type if none was recorded."""
    kept = {
        name.lower(): value
        for name, value in capture.header.headers.items()
        if _HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value) and name.lower() not in _FRAMING
    }
    return {"content-type": _content_type(capture, dialect)} | kept


def _content_type(capture: Capture, dialect: str) -> str:
    """The content type that the first bytes suggest."""
    data = capture.data.lstrip(b" \t\r\n")
    if data[:1] == b"<":
        return "text/html"
    if data[:1] == b"\0":
        return "application/vnd.amazon.eventstream"
    if data[:1] not in (b"{", b"["):
        return "text/event-stream"
    lines = find_dialect(dialect).framing == "json-lines" and b"\n" in data.rstrip()
    return "application/x-ndjson" if lines else _JSON

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
from penstock.core.dialects.registry import DEFAULT_DIALECT, surface_dialect, upstream_dialect
from penstock.core.failure import Failure
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
from penstock.replay.rewrite import rewrite
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
# The ending of a capture as that of a scripted response, and back.
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
_HOWS: dict[ScriptEnding, How] = {"end": "complete", "closed": "closed", "reset": "reset", "stall": "timed-out"}


class Playback(Struct, frozen=True, kw_only=True):
    """One answer to be played. Without a status there is no response head, only an ending or a stall.

    `head_s` counts from the request, `ending_after_s` from the last piece. `apart_s` is the least time between pieces.
    """

    status: int | None
    headers: dict[str, str]
    head_s: float
    pieces: list[Piece]
    ending: How
    ending_after_s: float
    apart_s: float = APART_S
    refusal: str = ""
    """Why nothing is played: no capture matches the request."""


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
) -> Playback:
    """The answer in a capture. A capture without an ending ends as a connection that is closed too early.

    `recorded_as` is the dialect of the capture, and `include_usage` whether the request asks for the usage. Styles
    depend on them.
    """
    header, closing = capture.header, capture.closing
    ended_s = closing.at_s if closing is not None else None
    last_s = max((read.at_s or 0.0 for read in capture.reads), default=0.0)
    pieces, headers = _body(capture, options.style, recorded_as, include_usage=include_usage)
    playback = Playback(
        status=header.status,
        headers=headers,
        head_s=(header.head_s or 0.0) / options.speed,
        pieces=[Piece(piece.after_s / options.speed, piece.data) for piece in pieces],
        ending=closing.how if closing is not None else "closed",
        ending_after_s=max((ended_s or 0.0) - last_s, 0.0) / options.speed,
        apart_s=0.0 if options.speed == AS_FAST_AS_POSSIBLE else APART_S,
    )
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


def _body(
    capture: Capture, style: ProviderStyle | None, recorded_as: str, *, include_usage: bool
) -> tuple[list[Piece], dict[str, str]]:
    """The body and its headers. An error response is played as it was, unless the style is of another dialect."""
    pieces, headers = pieces_of(capture), _headers(capture)
    if style is None or capture.header.status is None:
        return pieces, headers
    if capture.header.status == _OK:
        written = rewrite(pieces, style, recorded_as, include_usage=include_usage)
        if written is not None:
            return written, headers | {"content-type": style.content_type}
    elif style.dialect != recorded_as:
        body = _translated_error(capture, recorded_as, style.dialect)
        if body:
            return [Piece(sum(piece.after_s for piece in pieces), body)], headers | {"content-type": _JSON}
    return pieces, headers


def _translated_error(capture: Capture, recorded_as: str, dialect: str) -> bytes:
    """The body of an error response in another dialect; empty if it cannot be read, such as an HTML page."""
    try:
        message = upstream_dialect(recorded_as).read_error(capture.data).message
    except ValueError:
        return b""
    failure = Failure(code="upstream_error", message=message, status=capture.header.status or 0)
    return surface_dialect(dialect).write_error(failure, "")


def _with_faults(playback: Playback, options: PlaybackOptions) -> Playback:
    """Inject the faults into an answer. Without a response head there is nothing to break."""
    if playback.status is None:
        return playback
    script = ScriptedResponse(
        tuple(playback.pieces),
        _ENDINGS[playback.ending],
        playback.status,
        playback.headers,
        dialect=options.dialect,
        error=_error_event(options.style),
    )
    faulty = inject(script, options.faults)
    return structs.replace(
        playback,
        status=faulty.status,
        headers=faulty.headers,
        pieces=list(faulty.pieces),
        ending=_HOWS[faulty.ending],
    )


def _error_event(style: ProviderStyle | None) -> bytes:
    """An error as a provider of chat completions writes it in a stream; empty for the form of the dialect itself."""
    return write_error_in_style(ERROR_MESSAGE, ERROR_CODE, style) if isinstance(style, ChatStyle) else b""


def _headers(capture: Capture) -> dict[str, str]:
    """The recorded headers that can be sent again, and a content type if none was recorded."""
    kept = {
        name.lower(): value
        for name, value in capture.header.headers.items()
        if _HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value) and name.lower() not in _FRAMING
    }
    return {"content-type": _content_type(capture)} | kept


def _content_type(capture: Capture) -> str:
    first = capture.reads[0].data.lstrip()[:1] if capture.reads else b""
    if first in (b"{", b"["):
        return _JSON
    return "text/html" if first == b"<" else "text/event-stream"

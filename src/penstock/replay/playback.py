"""Playback: one answer to be played, made of a capture. Rendition: how that is done.

In this order, so that all of it combines: the body is written in another manner, sped up, broken on purpose, and split
into other pieces. So what a fault says of time is real time, whatever the speed; and whatever a fault leaves is split.
"""

import math
import random
import re

from msgspec import Struct, structs

from penstock.capture import Capture, How
from penstock.core.dialects.registry import DEFAULT_DIALECT, find_dialect
from penstock.core.failure import Failure
from penstock.replay.faults import (
    ERROR_CODE,
    ERROR_MESSAGE,
    ON_DEMAND,
    InjectedFault,
    Piece,
    ScriptedResponse,
    ScriptEnding,
    spoil,
)
from penstock.replay.pieces import Split, pieces_of, split_up
from penstock.replay.rewrite import rewrite
from penstock.replay.styles import ProviderStyle, mimic_error

AS_FAST_AS_POSSIBLE = math.inf
# Pieces leave at least this far apart, where time counts at all: nearer ones would reach the peer in one read.
APART_S = 0.001
MANNERS_OF = DEFAULT_DIALECT
"""The dialect that manners are written in."""
_OK = 200
# What may be sent as a header. A capture may come from anybody.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# What the server that plays decides for itself.
_FRAMING = frozenset(("connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding", "upgrade"))
# What an ending is to a script, and back.
_ENDINGS: dict[How, ScriptEnding] = {
    "complete": "end",
    "abandoned": "end",  # what came after that nobody knows; the body may well have ended as it should
    "closed": "closed",
    "cancelled": "closed",
    "limit": "closed",
    "invalid": "closed",
    "reset": "reset",
    "timed-out": "stall",
}
_HOWS: dict[ScriptEnding, How] = {"end": "complete", "closed": "closed", "reset": "reset", "stall": "timed-out"}


class Playback(Struct, frozen=True, kw_only=True):
    """One answer to be played. Without a status there is no head: only an ending, or silence.

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
    """Why nothing is played: no capture answers the request."""


class PlaybackOptions(Struct, frozen=True, kw_only=True):
    """How captures are played: how fast, in which pieces, in whose manner, and how broken.

    Manners, and faults in what events say, are of one dialect. Captures of another are played without them.
    """

    speed: float = 1.0
    split: Split = "reads"
    manner: ProviderStyle | None = None
    faults: tuple[InjectedFault, ...] = ()
    dialect: str = DEFAULT_DIALECT
    """That of the captures, and of errors in their place."""

    def of(self, dialect: str) -> "PlaybackOptions":
        """The same for captures of a dialect, without what does not apply to them."""
        return structs.replace(
            self,
            manner=self.manner if dialect == MANNERS_OF else None,
            faults=tuple(fault for fault in self.faults if ON_DEMAND[fault.name].of in ("", dialect)),
            dialect=dialect,
        )

    def not_for(self, dialect: str) -> list[str]:
        """What of it does not apply to captures of a dialect, in the words of the command's options."""
        left = self.of(dialect)
        manner = [f"--as {self.manner.name}"] if self.manner is not None and left.manner is None else []
        return manner + [f"--fault {fault.name}" for fault in self.faults if fault not in left.faults]


AS_RECORDED = PlaybackOptions()


def playback_of(
    capture: Capture,
    rendition: PlaybackOptions = AS_RECORDED,
    chance: random.Random | None = None,
    *,
    include_usage: bool = True,
) -> Playback:
    """The answer that a capture holds. What was cut off ends as a connection that is closed too early.

    `include_usage` is whether the request asks for the usage, which a manner may depend on.
    """
    header, closing = capture.header, capture.closing
    ended_s = closing.at_s if closing is not None else None
    last_s = max((read.at_s or 0.0 for read in capture.reads), default=0.0)
    pieces, headers = _body(capture, rendition.manner, include_usage=include_usage)
    playback = Playback(
        status=header.status,
        headers=headers,
        head_s=(header.head_s or 0.0) / rendition.speed,
        pieces=[Piece(piece.after_s / rendition.speed, piece.data) for piece in pieces],
        ending=closing.how if closing is not None else "closed",
        ending_after_s=max((ended_s or 0.0) - last_s, 0.0) / rendition.speed,
        apart_s=0.0 if rendition.speed == AS_FAST_AS_POSSIBLE else APART_S,
    )
    if rendition.faults:
        playback = _spoiled(playback, rendition)
    pieces = split_up(playback.pieces, rendition.split, chance or random.Random(0))
    return structs.replace(playback, pieces=pieces)


def parse_speed(text: str) -> float:
    """The factor that `recorded`, `10x` or `max` stands for; raises ValueError with what to write instead."""
    if text == "recorded":
        return 1.0
    if text == "max":
        return AS_FAST_AS_POSSIBLE
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)x?", text)
    if found is None or float(found[1]) <= 0:
        raise ValueError("must be `recorded`, a factor such as `10x` or `0.5x`, or `max`")
    return float(found[1])


def _body(capture: Capture, manner: ProviderStyle | None, *, include_usage: bool) -> tuple[list[Piece], dict[str, str]]:
    """The body and its headers. An error with a status of its own has no manner: it is played as it was."""
    pieces, headers = pieces_of(capture), _headers(capture)
    if manner is not None and capture.header.status == _OK:
        written = rewrite(pieces, manner, include_usage=include_usage)
        if written is not None:
            return written, headers | {"content-type": manner.content_type}
    return pieces, headers


def _spoiled(playback: Playback, rendition: PlaybackOptions) -> Playback:
    """The answer with the faults in it. Where no answer ever began there is nothing to break."""
    if playback.status is None:
        return playback
    script = ScriptedResponse(tuple(playback.pieces), _ENDINGS[playback.ending], playback.status, playback.headers)
    if rendition.manner is not None:
        script = structs.replace(script, error=mimic_error(ERROR_MESSAGE, ERROR_CODE, rendition.manner))
    surface = find_dialect(rendition.dialect).surface
    if rendition.dialect != MANNERS_OF and surface is not None:
        failure = Failure(code=ERROR_CODE, message=ERROR_MESSAGE)
        script = structs.replace(script, error_body=surface.write_error(failure, ""))
    spoiled = spoil(script, rendition.faults)
    return structs.replace(
        playback,
        status=spoiled.status,
        headers=spoiled.headers,
        pieces=list(spoiled.pieces),
        ending=_HOWS[spoiled.ending],
    )


def _headers(capture: Capture) -> dict[str, str]:
    """The recorded headers, as far as they can be sent again; with a content type, where none was recorded."""
    kept = {
        name.lower(): value
        for name, value in capture.header.headers.items()
        if _HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value) and name.lower() not in _FRAMING
    }
    return {"content-type": _content_type(capture)} | kept


def _content_type(capture: Capture) -> str:
    first = capture.reads[0].data.lstrip()[:1] if capture.reads else b""
    if first in (b"{", b"["):
        return "application/json"
    return "text/html" if first == b"<" else "text/event-stream"

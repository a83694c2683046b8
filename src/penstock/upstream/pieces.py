"""Pieces: what a player sends, and when. Pure: a list of them can be made, changed and looked at without a clock.

`playback_of` makes one answer of a capture; `pieces_of` makes its body. Whoever wants another one gives a `Manner` that
rewrites the list of pieces, or spoils the whole answer.
"""

import math
import random
import re
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.capture import Capture, How

Split: TypeAlias = Literal["reads", "bytes", "random", "events"]

AS_FAST_AS_POSSIBLE = math.inf
# Pieces leave at least this far apart, where time counts at all: nearer ones would reach the peer in one read.
APART_S = 0.001
_LONGEST_RANDOM_PIECE = 80
_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE_END = re.compile(rb"\r\n|\n|\r")
# What may be sent as a header. A capture may come from anybody.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# What the server that plays decides for itself.
_FRAMING = frozenset(("connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding", "upgrade"))


class Piece(Struct, frozen=True):
    """Bytes that leave together, and how many seconds after the piece before; the first, after the request."""

    after_s: float
    data: bytes


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


Rewrite: TypeAlias = Callable[[list[Piece]], list[Piece]]
"""Makes another body of a body, at recorded speed and in recorded pieces: both are changed behind it."""

Spoil: TypeAlias = Callable[[Playback], Playback]
"""Makes another answer of an answer, last of all: its pieces are those that would be sent, with their real waits."""


class Manner(Struct, frozen=True, kw_only=True):
    """How captures are played: how fast, in which pieces, and what is changed on the way."""

    speed: float = 1.0
    split: Split = "reads"
    rewrite: Rewrite | None = None
    spoil: Spoil | None = None


AS_RECORDED = Manner()


def playback_of(capture: Capture, manner: Manner = AS_RECORDED, chance: random.Random | None = None) -> Playback:
    """The answer that a capture holds. What was cut off ends as a connection that is closed too early."""
    header, closing = capture.header, capture.closing
    ended_s = closing.at_s if closing is not None else None
    last_s = max((read.at_s or 0.0 for read in capture.reads), default=0.0)
    playback = Playback(
        status=header.status,
        headers=_headers(capture),
        head_s=(header.head_s or 0.0) / manner.speed,
        pieces=pieces_of(capture, manner, chance),
        ending=closing.how if closing is not None else "closed",
        ending_after_s=max((ended_s or 0.0) - last_s, 0.0) / manner.speed,
        apart_s=0.0 if manner.speed == AS_FAST_AS_POSSIBLE else APART_S,
    )
    return playback if manner.spoil is None else manner.spoil(playback)


def pieces_of(capture: Capture, manner: Manner = AS_RECORDED, chance: random.Random | None = None) -> list[Piece]:
    """The body of a capture in pieces: as it was read, rewritten, split anew, and sped up."""
    pieces: list[Piece] = []
    before_s = 0.0
    for read in capture.reads:
        if read.data:
            at_s = before_s if read.at_s is None else read.at_s
            pieces.append(Piece(at_s - before_s, read.data))
            before_s = at_s
    if manner.rewrite is not None:
        pieces = manner.rewrite(pieces)
    pieces = split_up(pieces, manner.split, chance or random.Random(0))
    return [Piece(piece.after_s / manner.speed, piece.data) for piece in pieces]


def split_up(pieces: list[Piece], split: Split, chance: random.Random) -> list[Piece]:
    """The same bytes in other pieces. Each leaves when its last byte would have left."""
    if split == "reads":
        return pieces
    data = b"".join(piece.data for piece in pieces)
    ends = list(accumulate(len(piece.data) for piece in pieces))
    times = list(accumulate(piece.after_s for piece in pieces))
    made: list[Piece] = []
    before_s, number = 0.0, 0
    for start, end in pairwise([0, *_SPLITS[split](data, chance), len(data)]):
        if end == start:
            continue
        while ends[number] < end:
            number += 1
        made.append(Piece(times[number] - before_s, data[start:end]))
        before_s = times[number]
    return made


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


def _every_byte(data: bytes, _chance: random.Random) -> list[int]:
    return list(range(1, len(data)))


def _anywhere(data: bytes, chance: random.Random) -> list[int]:
    cuts: list[int] = []
    at = chance.randint(1, _LONGEST_RANDOM_PIECE)
    while at < len(data):
        cuts.append(at)
        at += chance.randint(1, _LONGEST_RANDOM_PIECE)
    return cuts


def _behind_events(data: bytes, _chance: random.Random) -> list[int]:
    """Behind each blank line; behind each line, in a stream that has no blank ones."""
    ends = _BLANK_LINE if _BLANK_LINE.search(data) else _LINE_END
    return [found.end() for found in ends.finditer(data) if found.end() < len(data)]


_SPLITS: dict[str, Callable[[bytes, random.Random], list[int]]] = {
    "bytes": _every_byte,
    "random": _anywhere,
    "events": _behind_events,
}


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

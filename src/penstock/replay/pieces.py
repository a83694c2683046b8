"""Pieces: the body of a capture, as bytes that are sent together and the times between them. No I/O, no clock."""

import random
import re
from collections.abc import Callable
from itertools import accumulate
from typing import Literal, TypeAlias

from penstock.capture import Capture
from penstock.replay.faults import Piece
from penstock.replay.faults.script import events_in, split_at

Split: TypeAlias = Literal["reads", "bytes", "random", "events"]

_LONGEST_RANDOM_PIECE = 80
_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE_END = re.compile(rb"\r\n|\n|\r")


def pieces_of(capture: Capture) -> list[Piece]:
    """The body of a capture, one piece per recorded read."""
    pieces: list[Piece] = []
    before_s = 0.0
    for read in capture.reads:
        if read.data:
            at_s = before_s if read.at_s is None else read.at_s
            pieces.append(Piece(at_s - before_s, read.data))
            before_s = at_s
    return pieces


def split_up(pieces: list[Piece], split: Split, chance: random.Random) -> list[Piece]:
    """Split the same bytes into other pieces. Each is sent when its last byte would have been sent."""
    if split == "reads":
        return pieces
    return split_at(pieces, _SPLITS[split](b"".join(piece.data for piece in pieces), chance))


def _anywhere(data: bytes, chance: random.Random) -> list[int]:
    cuts: list[int] = []
    at = chance.randint(1, _LONGEST_RANDOM_PIECE)
    while at < len(data):
        cuts.append(at)
        at += chance.randint(1, _LONGEST_RANDOM_PIECE)
    return cuts


def _behind_events(data: bytes, _chance: random.Random) -> list[int]:
    """After each message of an AWS event stream; after each blank line of a text, or each line if there are none."""
    if data[:1] == b"\0":
        return list(accumulate(map(len, events_in(data))))[:-1]
    ends = _BLANK_LINE if _BLANK_LINE.search(data) else _LINE_END
    return [match.end() for match in ends.finditer(data) if match.end() < len(data)]


_SPLITS: dict[str, Callable[[bytes, random.Random], list[int]]] = {
    "bytes": lambda data, _chance: list(range(1, len(data))),
    "random": _anywhere,
    "events": _behind_events,
}

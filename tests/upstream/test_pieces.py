"""What a player sends, and when: as it was read, faster, or in other pieces; and nothing of it is lost."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from penstock.capture import Capture, CaptureHeader, Closing, Read
from penstock.upstream.pieces import (
    APART_S,
    AS_FAST_AS_POSSIBLE,
    Manner,
    Piece,
    Playback,
    Split,
    parse_speed,
    pieces_of,
    playback_of,
)

HEADER = CaptureHeader(status=200, head_s=0.25, headers={"content-type": "text/event-stream", "x-request-id": "r1"})
CAPTURE = Capture(
    HEADER,
    (Read(0.5, b"data: 1\n\ndata"), Read(1.5, b": 2\n\n"), Read(1.75, b"data: 3\n\n")),
    Closing(2.0, "complete"),
)
SPLITS: tuple[Split, ...] = ("reads", "bytes", "random", "events")


def test_pieces_are_the_reads_and_their_distances() -> None:
    assert pieces_of(CAPTURE) == [Piece(0.5, b"data: 1\n\ndata"), Piece(1.0, b": 2\n\n"), Piece(0.25, b"data: 3\n\n")]


def test_a_factor_shortens_every_wait() -> None:
    assert [piece.after_s for piece in pieces_of(CAPTURE, Manner(speed=10.0))] == pytest.approx([0.05, 0.1, 0.025])
    playback = playback_of(CAPTURE, Manner(speed=10.0))
    assert (playback.head_s, playback.ending_after_s) == pytest.approx((0.025, 0.025))
    assert playback.apart_s == APART_S


def test_as_fast_as_possible_waits_for_nothing() -> None:
    playback = playback_of(CAPTURE, Manner(speed=AS_FAST_AS_POSSIBLE))
    waits = [piece.after_s for piece in playback.pieces]
    assert {playback.head_s, playback.ending_after_s, playback.apart_s, *waits} == {0.0}


def test_an_event_leaves_when_its_last_byte_had_come() -> None:
    assert pieces_of(CAPTURE, Manner(split="events")) == [
        Piece(0.5, b"data: 1\n\n"),
        Piece(1.0, b"data: 2\n\n"),
        Piece(0.25, b"data: 3\n\n"),
    ]


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (b"data: 1\ndata: 2\ndata: 3", [b"data: 1\n", b"data: 2\n", b"data: 3"]),
        (b"data: 1\r\n\r\ndata: 2\r\n\r\n", [b"data: 1\r\n\r\n", b"data: 2\r\n\r\n"]),
        (b"data: 1\r\rdata: 2\r\r", [b"data: 1\r\r", b"data: 2\r\r"]),
        (b'{"error": {}}', [b'{"error": {}}']),
        (b"", []),
    ],
    ids=["no blank lines", "CRLF", "CR", "one body", "nothing"],
)
def test_events_end_where_lines_or_blank_lines_do(wire: bytes, expected: list[bytes]) -> None:
    capture = Capture(HEADER, (Read(None, wire),))
    assert [piece.data for piece in pieces_of(capture, Manner(split="events"))] == expected


def test_every_byte_may_be_a_piece() -> None:
    pieces = pieces_of(CAPTURE, Manner(split="bytes"))
    assert {len(piece.data) for piece in pieces} == {1}
    assert sum(piece.after_s for piece in pieces[:13]) == 0.5


def test_random_pieces_are_the_same_for_the_same_chance() -> None:
    first, again, other = (pieces_of(CAPTURE, Manner(split="random"), random.Random(seed)) for seed in (1, 1, 2))
    assert first == again != other


@given(
    st.lists(st.tuples(st.floats(0, 10), st.binary(max_size=30)), max_size=6),
    st.sampled_from(SPLITS),
    st.sampled_from([1.0, 0.5, 10.0, AS_FAST_AS_POSSIBLE]),
)
def test_nothing_is_lost_and_nothing_comes_early(reads: list[tuple[float, bytes]], split: Split, speed: float) -> None:
    times = sorted(at_s for at_s, _ in reads)
    recorded = [Read(at_s, data) for at_s, (_, data) in zip(times, reads, strict=True)]
    pieces = pieces_of(Capture(HEADER, tuple(recorded)), Manner(speed=speed, split=split))
    assert b"".join(piece.data for piece in pieces) == b"".join(read.data for read in recorded)
    assert all(piece.data and piece.after_s >= 0 for piece in pieces)
    bytes_at = [(read.at_s or 0.0) / speed for read in recorded for _ in read.data]
    now, sent = 0.0, 0
    for piece in pieces:
        now, sent = now + piece.after_s, sent + len(piece.data)
        assert now == pytest.approx(bytes_at[sent - 1])


def test_a_capture_without_an_end_ends_too_early() -> None:
    assert playback_of(Capture(HEADER, CAPTURE.reads)).ending == "closed"


def shouted(pieces: list[Piece]) -> list[Piece]:
    return [Piece(piece.after_s, piece.data.upper()) for piece in pieces]


def cut(playback: Playback) -> Playback:
    return structs.replace(playback, pieces=playback.pieces[:1], ending="reset")


def test_a_body_may_be_rewritten_before_it_is_split_and_an_answer_spoiled_behind_that() -> None:
    playback = playback_of(CAPTURE, Manner(speed=2.0, split="events", rewrite=shouted, spoil=cut))
    assert playback.pieces == [Piece(0.25, b"DATA: 1\n\n")]
    assert playback.ending == "reset"


CONTENT_TYPES = {
    b"data: {}\n\n": "text/event-stream",
    b' {"error": 1}': "application/json",
    b"[{}]": "application/json",
    b"<html>": "text/html",
    b"": "text/event-stream",
}


@pytest.mark.parametrize(("wire", "kind"), CONTENT_TYPES.items())
def test_a_bare_stream_has_the_content_type_of_what_it_is(wire: bytes, kind: str) -> None:
    capture = Capture(CaptureHeader(status=200), (Read(None, wire),) if wire else ())
    assert playback_of(capture).headers == {"content-type": kind}


def test_only_headers_that_can_be_sent_are_sent() -> None:
    headers = {"X-Ok": "yes", "transfer-encoding": "chunked", "bad name": "x", "x-split": "a\r\nset-cookie: b", "": "x"}
    capture = Capture(CaptureHeader(status=200, headers=headers), ())
    assert playback_of(capture).headers == {"content-type": "text/event-stream", "x-ok": "yes"}


@pytest.mark.parametrize(
    ("text", "speed"), [("recorded", 1.0), ("10x", 10.0), ("0.5x", 0.5), ("2", 2.0), ("max", AS_FAST_AS_POSSIBLE)]
)
def test_a_speed_is_a_word_or_a_factor(text: str, speed: float) -> None:
    assert parse_speed(text) == speed


@pytest.mark.parametrize("text", ["", "fast", "0x", "-1x", "x", "1e9x", "nan"])
def test_other_speeds_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be `recorded`, a factor such as `10x`"):
        parse_speed(text)

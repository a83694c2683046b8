"""What a player sends, and when: as it was recorded, faster, in other pieces, in another style, or broken."""

import json
import random
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Completion, StreamReader
from penstock.capture import Capture, CaptureEnd, CaptureHeader, How, Read
from penstock.core.dialects.registry import DEFAULT_DIALECT, DIALECTS
from penstock.replay.faults import Piece, ScriptEnding, parse_fault
from penstock.replay.pieces import Split, pieces_of
from penstock.replay.playback import APART_S, AS_FAST_AS_POSSIBLE, Playback, PlaybackOptions, parse_speed, playback_of
from penstock.replay.styles.catalog import load_style, style_names
from tests.streams import DONE, begins, bill, calls, counts, finishes, fold, piece, read, says, sse

HEADER = CaptureHeader(status=200, head_s=0.25, headers={"content-type": "text/event-stream", "x-request-id": "r1"})
CAPTURE = Capture(
    HEADER,
    (Read(0.5, b"data: 1\n\ndata"), Read(1.5, b": 2\n\n"), Read(1.75, b"data: 3\n\n")),
    CaptureEnd(2.0, "complete"),
)
SPLITS: tuple[Split, ...] = ("reads", "bytes", "random", "events")


def test_pieces_are_the_reads_and_their_distances() -> None:
    assert pieces_of(CAPTURE) == [Piece(0.5, b"data: 1\n\ndata"), Piece(1.0, b": 2\n\n"), Piece(0.25, b"data: 3\n\n")]


def test_a_factor_shortens_every_wait() -> None:
    assert [piece.after_s for piece in playback_of(CAPTURE, PlaybackOptions(speed=10.0)).pieces] == pytest.approx(
        [0.05, 0.1, 0.025]
    )
    playback = playback_of(CAPTURE, PlaybackOptions(speed=10.0))
    assert (playback.head_s, playback.ending_after_s) == pytest.approx((0.025, 0.025))
    assert playback.apart_s == APART_S


def test_as_fast_as_possible_waits_for_nothing() -> None:
    playback = playback_of(CAPTURE, PlaybackOptions(speed=AS_FAST_AS_POSSIBLE))
    waits = [piece.after_s for piece in playback.pieces]
    assert {playback.head_s, playback.ending_after_s, playback.apart_s, *waits} == {0.0}


def test_an_event_leaves_when_its_last_byte_had_come() -> None:
    assert playback_of(CAPTURE, PlaybackOptions(split="events")).pieces == [
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
    assert [piece.data for piece in playback_of(capture, PlaybackOptions(split="events")).pieces] == expected


def test_every_byte_may_be_a_piece() -> None:
    pieces = playback_of(CAPTURE, PlaybackOptions(split="bytes")).pieces
    assert {len(piece.data) for piece in pieces} == {1}
    assert sum(piece.after_s for piece in pieces[:13]) == 0.5


def test_random_pieces_are_the_same_for_the_same_chance() -> None:
    apart = PlaybackOptions(split="random")
    first, again, other = (playback_of(CAPTURE, apart, random.Random(seed)).pieces for seed in (1, 1, 2))
    assert first == again != other


@given(
    st.lists(st.tuples(st.floats(0, 10), st.binary(max_size=30)), max_size=6),
    st.sampled_from(SPLITS),
    st.sampled_from([1.0, 0.5, 10.0, AS_FAST_AS_POSSIBLE]),
)
def test_nothing_is_lost_and_nothing_comes_early(reads: list[tuple[float, bytes]], split: Split, speed: float) -> None:
    times = sorted(at_s for at_s, _ in reads)
    recorded = [Read(at_s, data) for at_s, (_, data) in zip(times, reads, strict=True)]
    pieces = playback_of(Capture(HEADER, tuple(recorded)), PlaybackOptions(speed=speed, split=split)).pieces
    assert b"".join(piece.data for piece in pieces) == b"".join(read.data for read in recorded)
    assert all(piece.data and piece.after_s >= 0 for piece in pieces)
    bytes_at = [(read.at_s or 0.0) / speed for read in recorded for _ in read.data]
    now, sent = 0.0, 0
    for sent_together in pieces:
        now, sent = now + sent_together.after_s, sent + len(sent_together.data)
        assert now == pytest.approx(bytes_at[sent - 1])


def test_a_capture_without_an_end_ends_too_early() -> None:
    assert playback_of(Capture(HEADER, CAPTURE.reads)).ending == "closed"


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


# In another style, and broken.

CALL = [
    sse(begins(), says("Let me")),
    sse(says(" see.")),
    sse(calls(piece(0, "c1", "look", '{"at"'))),
    sse(calls(piece(0, arguments=': "the sea"}'))),
    sse(finishes("tool_calls"), bill(**counts(5, 3))) + sse(DONE),
]
SPOKEN = Capture(
    HEADER, tuple(Read(float(number + 1), data) for number, data in enumerate(CALL)), CaptureEnd(5.5, "reset")
)


def played(options: PlaybackOptions, capture: Capture = SPOKEN, *, include_usage: bool = True) -> Playback:
    return playback_of(capture, options, include_usage=include_usage)


def text_in(playback: Playback, dialect: str = DEFAULT_DIALECT) -> Completion:
    return fold(read(*(piece.data for piece in playback.pieces), reader=StreamReader(dialect)))


def times(playback: Playback) -> list[float]:
    """When each piece leaves."""
    return list(accumulate(piece.after_s for piece in playback.pieces))


@pytest.mark.parametrize("name", style_names())
def test_a_capture_says_the_same_in_any_style(name: str) -> None:
    playback = played(PlaybackOptions(style=load_style(name)))
    recorded, written = text_in(played(PlaybackOptions())), text_in(playback, load_style(name).dialect)
    assert (written.text, written.ending) == (recorded.text, "completed")
    assert written.choices[0].finish_reason == "tool_calls"
    (call,), (before,) = written.choices[0].tool_calls, recorded.choices[0].tool_calls
    # Not every API has arguments as text, with their white space.
    same = json.loads if load_style(name).dialect in ("gemini", "ollama") else str
    assert (call.id, call.name, same(call.arguments)) == (before.id, before.name, same(before.arguments))
    assert written.usage is not None
    assert (written.usage.input, written.usage.output) == (5, 3)
    assert playback.headers == {"content-type": load_style(name).content_type, "x-request-id": "r1"}
    assert (playback.status, playback.ending, playback.ending_after_s) == (200, "reset", 0.5)


LEAVING = {
    b"assistant": 1.0,
    b"Let me": 1.0,
    b" see.": 2.0,
    b"look": 3.0,
    b'{\\"at': 3.0,
    b"the sea": 4.0,
    b'finish_reason":"': 5.0,
    b"total": 5.0,
    b"[DONE]": 5.0,
}


@pytest.mark.parametrize(("words", "expected"), LEAVING.items())
def test_an_event_leaves_when_as_much_had_been_sent(words: bytes, expected: float) -> None:
    playback = played(PlaybackOptions(style=load_style("openai")))
    leaving = zip(times(playback), playback.pieces, strict=True)
    assert next(at_s for at_s, piece in leaving if words in piece.data) == expected


def test_a_whole_call_leaves_when_its_last_argument_had_come() -> None:
    playback = played(PlaybackOptions(style=load_style("groq"), speed=2.0))
    (at_s,) = [at_s for at_s, piece in zip(times(playback), playback.pieces, strict=True) if b"look" in piece.data]
    assert at_s == 2.0


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.sampled_from(style_names()),
    st.integers(1, 400),
    st.sampled_from([1.0, 10.0, AS_FAST_AS_POSSIBLE]),
)
def test_however_it_was_read_it_is_written_alike_and_in_time(name: str, size: int, speed: float) -> None:
    wire = b"".join(CALL)
    reads = tuple(Read(at / 100, wire[at : at + size]) for at in range(0, len(wire), size))
    playback = played(
        PlaybackOptions(style=load_style(name), speed=speed), Capture(HEADER, reads, CaptureEnd(50.0, "complete"))
    )
    assert [piece.data for piece in playback.pieces] == [
        piece.data for piece in played(PlaybackOptions(style=load_style(name))).pieces
    ]
    assert all(piece.after_s >= 0 for piece in playback.pieces)
    assert times(playback)[-1] == pytest.approx((reads[-1].at_s or 0.0) / speed)


def test_usage_is_reported_to_clients_that_ask_for_it() -> None:
    asked, unasked = (
        text_in(played(PlaybackOptions(style=load_style("openai")), include_usage=asks)) for asks in (True, False)
    )
    assert asked.usage is not None
    assert unasked.usage is None


# What is no answer of a model has no style.
AS_THEY_ARE = {
    "a page": (200, b"<html>busy</html>"),
    "nothing": (200, b""),
    "a status": (429, b'{"error": {"message": "slow down"}}'),
    "no JSON": (200, b"data: {nothing\n\n"),
}


@pytest.mark.parametrize(("status", "wire"), AS_THEY_ARE.values(), ids=AS_THEY_ARE)
def test_what_is_no_answer_is_played_as_it_is(status: int, wire: bytes) -> None:
    capture = Capture(CaptureHeader(status=status), (Read(1.0, wire),), CaptureEnd(1.0, "complete"))
    assert played(PlaybackOptions(style=load_style("groq")), capture) == played(PlaybackOptions(), capture)


def test_an_error_in_a_stream_is_written_in_the_style_too() -> None:
    wire = sse(begins(), says("Hi"), {"error": {"message": "overloaded", "code": 529}})
    playback = played(
        PlaybackOptions(style=load_style("groq")), Capture(HEADER, (Read(1.0, wire),), CaptureEnd(1.0, "complete"))
    )
    assert playback.pieces[-1].data.startswith(b"event: error\ndata: ")
    answer = text_in(playback)
    assert (answer.text, answer.ending) == ("Hi", "failed")
    assert answer.fault is not None
    assert "overloaded" in answer.fault.message


def test_what_we_could_not_read_is_not_sent_by_a_provider() -> None:
    wire = sse(begins(), says("Hi")) + b'data: {"choices": [{"delta"\n\n' + sse(says("?"), DONE)
    playback = played(
        PlaybackOptions(style=load_style("groq")), Capture(HEADER, (Read(1.0, wire),), CaptureEnd(1.0, "complete"))
    )
    answer = text_in(playback)
    assert (answer.text, answer.ending, answer.fault) == ("Hi", "truncated", None)


def faulty(*faults: str, **others: Any) -> PlaybackOptions:
    return PlaybackOptions(faults=tuple(map(parse_fault, faults)), **others)


ERRORS = {
    "openai": b'data: {"error":{"message":"The server failed while it was answering. Try again.","type":"server_error"',
    "groq": b'event: error\ndata: {"error":{"message":"The server failed',
    "xai": b'data: {"code":"internal_error","error":"The server failed',
    "mistral": b'data: {"object":"error","message":"The server failed',
    "anthropic": b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"The server failed',
}


@pytest.mark.parametrize("name", style_names())
def test_an_error_on_demand_is_in_the_style_too(name: str) -> None:
    style = load_style(name)
    playback = played(faulty("error-event=3", style=style).of(style.dialect))
    assert playback.pieces[-1].data.startswith(ERRORS.get(name, b""))
    answer = text_in(playback, style.dialect)
    assert answer.fault is not None
    assert (answer.ending, answer.fault.code) == ("failed", "provider-error")
    assert answer.fault.message.startswith("The server failed while it was answering. Try again.")


@pytest.mark.parametrize("fault", ["html", "empty"])
def test_a_page_in_place_of_a_recorded_error_has_status_200(fault: str) -> None:
    capture = Capture(CaptureHeader(status=503), (Read(1.0, b"{}"),), CaptureEnd(1.0, "complete"))
    assert played(faulty(fault), capture).status == 200


# The ending that a capture had stays, unless a fault says how it ends.
DAMAGED_ENDINGS: dict[str, dict[How, ScriptEnding]] = {
    "no-done": {"complete": "end", "limit": "closed", "reset": "reset", "timed-out": "stall"},
    "cut-after=2": {"complete": "end", "reset": "end", "timed-out": "end"},
    "html": {"closed": "end", "timed-out": "end"},
    "error-event": {"reset": "end"},
    "reset": {"complete": "reset", "timed-out": "reset"},
    "stall": {"complete": "stall", "reset": "stall"},
}


@pytest.mark.parametrize(
    ("fault", "before", "behind"),
    [(fault, before, behind) for fault, endings in DAMAGED_ENDINGS.items() for before, behind in endings.items()],
)
def test_a_fault_may_change_the_ending(fault: str, before: How, behind: ScriptEnding) -> None:
    capture = Capture(HEADER, SPOKEN.reads, CaptureEnd(5.0, before))
    assert played(faulty(fault), capture).ending == behind


def test_an_answer_that_never_began_stays_so() -> None:
    capture = Capture(CaptureHeader(), (), CaptureEnd(1.0, "reset"))
    assert played(faulty("html", "stall=3s", style=load_style("xai")), capture) == played(PlaybackOptions(), capture)


def test_a_fault_has_real_time_whatever_the_speed() -> None:
    assert times(played(faulty("stall=3s@1", speed=10.0)))[:3] == pytest.approx([0.1, 3.1, 3.2])
    assert sum(piece.after_s for piece in played(faulty("stall=3s", speed=AS_FAST_AS_POSSIBLE)).pieces) == 3.0


@pytest.mark.parametrize("name", style_names())
@pytest.mark.parametrize("split", SPLITS)
def test_all_of_it_combines(name: str, split: Split) -> None:
    style = load_style(name)
    playback = played(faulty("crlf", "stall=3s@2", speed=10.0, split=split, style=style).of(style.dialect))
    answer = text_in(playback, style.dialect)
    assert answer.text == "Let me see."
    lines = DIALECTS[style.dialect].framing != "event-stream"
    assert (b"\r\n" in b"".join(piece.data for piece in playback.pieces)) == lines
    assert sum(piece.after_s for piece in playback.pieces) == pytest.approx(3.5)
    if split == "bytes":
        assert {len(piece.data) for piece in playback.pieces} == {1}

"""Limits: the size of an event and the memory of a stream are bounded, whatever is sent."""

import tracemalloc
from collections.abc import Callable

import pytest

from penstock import StreamReader
from penstock.core.wire.complexity import may_be_costly
from tests.streams import (
    DONE,
    begins,
    bill,
    bytewise,
    calls,
    chunk,
    completion,
    counts,
    delta,
    dumps,
    finishes,
    piece,
    read,
    says,
    sse,
)

CAP = 500
LONG = "x" * CAP

TOO_LARGE: dict[str, bytes] = {
    "one line": sse(says(LONG)),
    "a line without end": b"data: " + LONG.encode(),
    "many data lines": b"data: {\n" + b'data: "x":0,\n' * 100,
    "many unprefixed lines": b"data: {\n" + b'"x":0,\n' * 100,
    "bare JSON without end": b'{"x":"' + LONG.encode(),
    "bare lines without end": b"{\n" + b'"x":0,\n' * 100,
    "bytes without a line end": LONG.encode() * 2,
    "a comment": b": " + LONG.encode() + b"\n\n",
    "an event's name": b"event: " + LONG.encode() + b"\n\n",
    "an unknown field": b"latency: " + LONG.encode() + b"\n\n",
    "blank space": b" " * (CAP + 1) + b"\n",
}


@pytest.mark.parametrize("event", TOO_LARGE.values(), ids=TOO_LARGE)
def test_an_event_past_the_cap_is_a_fault(event: bytes) -> None:
    wire = sse(begins(), says("Hi")) + event + sse(says("!"), finishes(), bill(**counts(1, 1)), DONE)
    answer = completion(wire, max_event=CAP)
    assert answer.fault is not None
    assert (answer.ending, answer.fault.code, answer.text) == ("failed", "event-too-large", "Hi")
    assert answer.usage is None
    assert read(*bytewise(wire), max_event=CAP) == read(wire, max_event=CAP)


def test_an_element_of_an_array_past_the_cap_is_a_fault() -> None:
    wire = f"[{dumps(begins())},{dumps(says('Hi'))},{dumps(says(LONG))},{dumps(finishes())}]".encode()
    answer = completion(wire, max_event=CAP)
    assert answer.fault is not None
    assert (answer.fault.code, answer.text) == ("event-too-large", "Hi")
    assert read(*bytewise(wire), max_event=CAP) == read(wire, max_event=CAP)


@pytest.mark.slow
def test_the_cap_does_not_depend_on_how_the_bytes_are_split() -> None:
    framings = {
        "SSE": sse(begins(), says("Hi"), finishes(), DONE),
        "SSE with CRLF": sse(begins(), says("Hi"), finishes(), DONE, end="\r\n\r\n"),
        "JSON lines": sse(begins(), says("Hi"), finishes(), prefix="", end="\n"),
        "an array": f"[{dumps(begins())},{dumps(finishes())}]".encode(),
    }
    for name, wire in framings.items():
        for cap in range(len(dumps(begins())) - 20, len(dumps(begins())) + 20):
            whole = read(wire, max_event=cap)
            assert read(*bytewise(wire), max_event=cap) == whole, f"{name}, a cap of {cap}"
            assert read(*(wire[i : i + 7] for i in range(0, len(wire), 7)), max_event=cap) == whole, f"{name}, {cap}"


def test_an_event_below_the_cap_of_a_megabyte_is_read() -> None:
    text = "x" * 990_000
    assert completion(sse(begins(), says(text), finishes(), DONE)).text == text


# Streams without end, in pieces of about ten kilobytes.
ENDLESS: dict[str, Callable[[int], bytes]] = {
    "a line": lambda _: b"x" * 10_000,
    "spaces": lambda _: b" " * 10_000,
    "comments": lambda _: b": PROCESSING".ljust(1_000) + b"\n\n",
    "heartbeats": lambda _: sse(*['{"type":"ping"}'.ljust(1_000)] * 10),
    "data lines": lambda _: (b"data: x".ljust(1_000) + b"\n") * 10,
    "text": lambda _: sse(says("x" * 10_000)),
    "reasoning": lambda _: sse(delta({"reasoning": "x" * 10_000})),
    "audio": lambda _: sse(delta({"audio": {"id": "audio_1", "data": "x" * 10_000}})),
    "an array": lambda i: b"[" if i == 0 else dumps(says("x" * 10_000)).encode() + b",",
    "arguments of a call": lambda i: sse(calls(piece(0, None if i else "a", None if i else "tide", "x" * 10_000))),
    "arguments of a call without an id": lambda i: sse(calls(piece(0, None, None if i else "tide", "x" * 10_000))),
    "arguments of a call without a name": lambda _: sse(calls(piece(0, "a", None, "x" * 10_000))),
    "extras of a call without a name": lambda i: sse(calls(piece(0, "a") | {f"key{i}": "x" * 10_000})),
    "extras before the answer": lambda i: sse(chunk(**{f"key{i}": "x" * 10_000})),
    "new extras in every chunk": lambda i: sse(says("x") | {f"key{i}": "x" * 10_000}),
    "new figures in every usage": lambda i: sse(bill(prompt_tokens=1, **{f"key{i}": "x" * 10_000})),
    "empty data behind an event": lambda i: sse(says("x"), end="\n") if i == 0 else b"data: \n" * 1_500,
    "halves of characters of ever new calls": lambda i: sse(
        *(dumps(calls(piece(f"{'x' * 900}{i}-{n}", None, None, "HALF"))).replace("HALF", "\\ud83c") for n in range(10))
    ),
    "a page": lambda i: b"<html>" if i == 0 else b"<p>x</p>" * 1_000,
    "bytes after a fault": lambda i: b"not a stream\n" if i == 0 else b"x" * 10_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("make", ENDLESS.values(), ids=ENDLESS)
def test_a_stream_without_end_is_not_buffered(make: Callable[[int], bytes]) -> None:
    """A megabyte is read; the memory that remains in use is that of a few events."""
    reader = StreamReader(max_event=20_000)
    tracemalloc.start()
    try:
        for i in range(100):
            reader.feed(make(i))
        buffered, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert buffered < 300_000


@pytest.mark.parametrize("before", [0, 3_999_800, 3_999_999, 4_000_000])
def test_a_long_number_is_found_wherever_a_large_body_is_cut(before: int) -> None:
    assert may_be_costly(b"[" + b" " * before + b"1" * 400 + b"]", 10**12)
    assert not may_be_costly(b"[" + b" " * before + b"1" * 399 + b"]", 10**12)

"""The bytes of a stream, divided into events."""

import pytest

from penstock.core.wire.event_blocks import EventBlocks

CASES: dict[str, tuple[bytes, list[bytes]]] = {
    "two events": (b"data: 1\n\ndata: 2\n\n", [b"data: 1\n\n", b"data: 2\n\n"]),
    "a heartbeat is no event": (b": penstock\n\ndata: 1\n\n: x\n\n", [b"data: 1\n\n"]),
    "a comment in an event stays": (b": cost\ndata: 1\n\n", [b": cost\ndata: 1\n\n"]),
    "CRLF": (b"data: 1\r\n\r\ndata: 2\r\n\r\n", [b"data: 1\r\n\r\n", b"data: 2\r\n\r\n"]),
    "CR": (b"data: 1\r\rdata: 2\r\rdata: 3\n\n", [b"data: 1\r\r", b"data: 2\r\r", b"data: 3\n\n"]),
    "mixed line ends": (b"event: a\r\ndata: 1\n\r\ndata: 2\n\n", [b"event: a\r\ndata: 1\n\r\n", b"data: 2\n\n"]),
    "more blank lines": (b"\n\ndata: 1\n\n\n\ndata: 2\n\n", [b"data: 1\n\n", b"data: 2\n\n"]),
    "no blank line at the end": (b"data: 1\n\ndata: [DONE]", [b"data: 1\n\n", b"data: [DONE]\n\n"]),
    "one line end at the end": (b"data: 1\n\ndata: [DONE]\n", [b"data: 1\n\n", b"data: [DONE]\n\n"]),
    "an unfinished comment": (b"data: 1\n\n: pen", [b"data: 1\n\n"]),
    "nothing": (b"", []),
}


def events(data: bytes, size: int) -> list[bytes]:
    blocks = EventBlocks()
    found = [event for start in range(0, len(data), size) for event in blocks.feed(data[start : start + size])]
    return found + blocks.close()


@pytest.mark.parametrize(("data", "expected"), CASES.values(), ids=CASES)
def test_bytes_are_divided_into_events_however_they_are_split(data: bytes, expected: list[bytes]) -> None:
    for size in range(1, len(data) + 2):
        assert events(data, size) == expected, size

"""The stream of a model on this machine has one creation time, however its bytes are cut into reads."""

import asyncio
import os

import pytest

from penstock.upstream.local.stream import CreatedTimeFilter

EVENT = b'2d\r\ndata: {"created":%d,"model":"m","x":"%b"}\n\n\r\n'
# Text in which the field is quoted keeps its figures: there its quotation marks are escaped.
QUOTED = b'\\"created\\":1700000009'
SENT = b"".join(EVENT % (1700000000 + second, text) for second, text in enumerate([b"", QUOTED, b'cr\\"', b""]))
WANTED = b"".join(EVENT % (1700000000, text) for text in [b"", QUOTED, b'cr\\"', b""])


class Received(asyncio.Protocol):
    """Keeps what it is given, and notes that the connection is over."""

    def __init__(self) -> None:
        self.data = b""
        self.reads: list[bytes] = []
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.reads.append(data)
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        assert exc is None
        self.lost = True


@pytest.mark.parametrize("size", [1, 2, 3, 7, 11, 20, 21, 64, len(SENT)])
def test_the_first_creation_time_stands_for_all(size: int) -> None:
    received = Received()
    stream = CreatedTimeFilter(received)
    for start in range(0, len(SENT), size):
        stream.data_received(SENT[start : start + size])
    stream.connection_lost(None)
    assert received.data == WANTED
    assert received.lost


def test_what_cannot_be_a_creation_time_is_not_buffered() -> None:
    received = Received()
    stream = CreatedTimeFilter(received)
    stream.data_received(SENT[:60])
    stream.data_received(b'{"error":{"code":400}}')
    assert b"".join(received.reads).endswith(b'{"error":{"code":400}}')


def test_bytes_that_are_buffered_come_before_the_end() -> None:
    received = Received()
    stream = CreatedTimeFilter(received)
    stream.data_received(b'data: {"created":17')
    stream.connection_lost(None)
    assert received.data == b'data: {"created":17'
    assert received.lost


def test_any_bytes_pass_unchanged_where_there_is_no_creation_time() -> None:
    received = Received()
    stream = CreatedTimeFilter(received)
    sent = os.urandom(50_000).replace(b'"created":', b"")
    for start in range(0, len(sent), 977):
        stream.data_received(sent[start : start + 977])
    stream.connection_lost(None)
    assert received.data == sent

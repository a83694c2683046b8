"""Upstreams with defects that can be repaired: the script of each, and what the client gets."""

import gzip
import zlib
from dataclasses import dataclass

from tests.faults.scripts import HELLO, REST, TEXT, WORLD, plain, stream, unstreamed, whole
from tests.faults.upstream import (
    EVENT_STREAM,
    JSON,
    Script,
    chunk,
    fin,
    half_close,
    hang,
    head,
    last_chunk,
    rst,
    send,
    status,
)
from tests.streams import DONE, bill, bytewise, counts, finishes, says, sse

WIRE = HELLO + WORLD + REST


@dataclass(frozen=True)
class Tolerated:
    """The script, and the text that the client gets all the same."""

    script: Script
    repairs: tuple[str, ...] = ()
    text: str = TEXT
    usage: tuple[int, int] | None = (5, 3)


def framed(old: bytes, new: bytes) -> Script:
    return stream(WIRE.replace(old, new))


def encoded(data: bytes, coding: str, size: int = 7) -> Script:
    pieces = [chunk(data[i : i + size]) for i in range(0, len(data), size)]
    return [head(headers=EVENT_STREAM | {"content-encoding": coding}), *pieces, last_chunk()]


def members(*data: bytes) -> bytes:
    return b"".join(map(gzip.compress, data))


RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
TOLERATED: dict[str, Tolerated] = {
    "as it should be": Tolerated(whole()),
    "until the connection closes": Tolerated([head(framing=""), send(WIRE), fin()]),
    "HTTP/1.0": Tolerated([send(b"HTTP/1.0 200 OK\r\n\r\n" + WIRE), fin()]),
    "U17 no [DONE]": Tolerated(stream(WIRE.replace(sse(DONE), b"")), ("no-done",)),
    "U17 no [DONE], and cut": Tolerated([head(), chunk(WIRE.replace(sse(DONE), b"")), fin()], ("no-done",)),
    "U15 cut after [DONE]": Tolerated([head(), chunk(WIRE), fin()]),
    "U19 reset after [DONE]": Tolerated([head(), chunk(WIRE), rst()]),
    "U22 hangs after [DONE]": Tolerated([head(), chunk(WIRE), hang()]),
    "half closed after [DONE]": Tolerated([head(), chunk(WIRE), half_close(), hang()]),
    "U21 longer than its length": Tolerated(
        [head(framing=f"content-length: {len(WIRE)}"), send(WIRE + b"and then some"), hang()]
    ),
    "U21 a second response behind it": Tolerated(
        [head(framing=f"content-length: {len(WIRE)}"), send(WIRE + RESPONSE % (len(plain("x")), plain("x"))), hang()]
    ),
    "U21 a second response behind the last chunk": Tolerated(
        [head(), chunk(WIRE), send(b"0\r\n\r\n" + RESPONSE % (len(plain("x")), plain("x"))), hang()]
    ),
    "U30 all in one": Tolerated(stream(WIRE)),
    "U30 byte by byte": Tolerated(stream(*bytewise(WIRE))),
    "U31 CRLF": Tolerated(framed(b"\n", b"\r\n")),
    "U31 CR": Tolerated(framed(b"\n", b"\r")),
    "U31 a byte order mark": Tolerated(stream(b"\xef\xbb\xbf" + WIRE), ("bom",)),
    "U31 no space": Tolerated(framed(b"data: ", b"data:")),
    "U31 several lines in an event": Tolerated(framed(b',"choices"', b',\ndata: "choices"')),
    "U31 comments, ids and retries": Tolerated(framed(b"data: ", b": hi\nid: 7\nretry: 10\ndata: ")),
    "U32 no blank line at the end": Tolerated(stream(WIRE.removesuffix(b"\n")), ("no-final-blank-line",)),
    "U33 invalid UTF-8": Tolerated(stream(WIRE.replace(b", world", b", \xff\xfe")), ("invalid-utf8",), "Hello, ��"),
    "U34 a character in two pieces": Tolerated(
        stream(HELLO, *bytewise(sse(says(" 👩‍👩‍👧"))), REST), text="Hello 👩‍👩‍👧"
    ),
    "U36 choices are null in one": Tolerated(
        stream(HELLO, sse({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": None}), WORLD, REST),
        ("choices-missing",),
    ),
    "U41 another content type": Tolerated([status(200, {"content-type": "text/plain"}, WIRE)]),
    "U41 no content type": Tolerated([status(200, {}, WIRE)]),
    "U42 an unstreamed answer": Tolerated(unstreamed()),
    "U42 an unstreamed answer, labelled as a stream": Tolerated([status(200, EVENT_STREAM, plain())]),
    "U42 an unstreamed answer in pieces": Tolerated([head(headers=JSON), *map(chunk, bytewise(plain())), last_chunk()]),
    "U43 gzip": Tolerated(encoded(gzip.compress(WIRE), "gzip")),
    "U43 gzip, at once": Tolerated(encoded(gzip.compress(WIRE), "gzip", 1 << 20)),
    "U43 gzip of two members": Tolerated(encoded(members(HELLO, WORLD + REST), "gzip")),
    "U43 deflate": Tolerated(encoded(zlib.compress(WIRE), "deflate")),
    "U43 gzip in capitals": Tolerated(encoded(gzip.compress(WIRE), "GZIP")),
    "U43 gzip of an unstreamed answer": Tolerated(
        [status(200, JSON | {"content-encoding": "gzip"}, gzip.compress(plain()))]
    ),
    "U45 finished twice": Tolerated(stream(HELLO, WORLD, sse(finishes(), finishes()), REST), ("finish-repeated",)),
    "U45 content after the finish": Tolerated(
        stream(HELLO, sse(finishes()), WORLD, REST), ("content-after-finish", "finish-repeated")
    ),
    "U46 usage twice": Tolerated(stream(HELLO, WORLD, sse(bill(**counts(5, 1))), REST)),
    "U47 no usage": Tolerated(stream(HELLO, WORLD, sse(finishes(), DONE)), usage=None),
    "U52 forerunners": Tolerated(
        [
            send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>; rel=preload\r\n\r\n"),
            *whole(),
        ]
    ),
    "more than one header of a name": Tolerated(
        [head(framing="x-a: 1\r\nx-a: 2\r\ntransfer-encoding: chunked"), *whole()[1:]]
    ),
    "U53 a head of 40 KB": Tolerated(
        [head(headers=EVENT_STREAM | {f"x-{n}": "y" * 1000 for n in range(40)}), *whole()[1:]]
    ),
    "a trailer": Tolerated([head(), chunk(WIRE), send(b"0\r\nx-checksum: 1\r\n\r\n")]),
}

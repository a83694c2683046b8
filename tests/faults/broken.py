"""Upstreams that break (U9 to U54): the script of each, and how the gateway must report it."""

import asyncio
import gzip
import zlib
from dataclasses import dataclass, field

from tests.faults.gateway import PROVIDER_KEY
from tests.faults.scripts import ERROR, ERROR_BODY, HELLO, REST, TEXT, WORLD, plain, stream
from tests.faults.upstream import (
    EVENT_STREAM,
    JSON,
    Connection,
    Op,
    Script,
    chunk,
    drip,
    fin,
    for_ever,
    half_close,
    hang,
    head,
    last_chunk,
    rst,
    send,
    sleep,
    status,
)
from tests.streams import DONE, begins, bill, counts, finishes, says, sse

HTML = {"content-type": "text/html; charset=utf-8"}
PAGE = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Sign in to the network</body></html>"


@dataclass(frozen=True)
class Broken:
    """One way to break: the script, and how the gateway must report it."""

    script: Script
    code: str
    status: int = 502
    sent_text: str = ""
    """The text before the break. If there is any, the stream has begun."""
    ending: str = "failed"
    """How a stream that had begun ended."""
    words: str = ""
    """What the message must quote."""
    hasty: bool = False
    headers: dict[str, str] = field(default_factory=dict)


def error(code: int, headers: dict[str, str] | None = None, body: bytes = ERROR_BODY) -> Script:
    return [status(code, JSON | (headers or {}), body)]


def busy(retry_after: str) -> Broken:
    return Broken(
        error(429, {"retry-after": retry_after}), "upstream_rate_limited", 429, headers={"retry-after": retry_after}
    )


def truncated(script: Script, sent_text: str = "Hello") -> Broken:
    return Broken(script, "upstream_truncated", sent_text=sent_text, ending="truncated")


def idle(script: Script, sent_text: str = "", code: str = "upstream_timeout_idle") -> Broken:
    return Broken(script, code, 504, sent_text=sent_text, ending="timed_out", hasty=True)


def bad(script: Script, sent_text: str = "", code: str = "upstream_bad_response") -> Broken:
    return Broken(script, code, sent_text=sent_text)


def body(data: bytes, headers: dict[str, str] | None = None) -> Script:
    return [status(200, headers or EVENT_STREAM, data)]


def zipped(data: bytes) -> bytes:
    """Data at the beginning of a gzip stream that has no end."""
    compressor = zlib.compressobj(wbits=31)
    return compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)


def flood(data: bytes) -> Op:
    """Bytes without end."""

    async def op(connection: Connection) -> None:
        while not connection.closed_at:
            await connection.send(data)

    return op


def drip_head() -> Op:
    """A header that never ends."""

    async def op(connection: Connection) -> None:
        while not connection.closed_at:
            await connection.send(b"y")
            await asyncio.sleep(0.05)

    return op


BILL = sse(bill(**counts(5, 3)))
# A body that ends here ends as HTTP wants it, but inside an event.
BEHIND_THE_FINISH = sse(finishes()) + BILL[:40]
ENDLESS = [send(b"y" * 16_384)] * 8
MANY_HEADERS = b"".join(b"x-%d: y\r\n" % number for number in range(300))
BROKEN: dict[str, Broken] = {
    "U9 429": busy("2"),
    "U10 429 without headers": Broken(error(429), "upstream_rate_limited", 429),
    "U11 429 for a day": busy("86400"),
    "U11 429 until a date": busy("Wed, 21 Oct 2037 07:28:00 GMT"),
    "U11 429, negative": busy("-5"),
    "U12 500": Broken(error(500), "upstream_error", 502, words="the engine is overloaded"),
    "U12 502": Broken(error(502), "upstream_error", 502),
    "U12 503": Broken(error(503), "upstream_error", 503),
    "U12 504": Broken(error(504), "upstream_error", 504, ending="timed_out"),
    "U12 529": Broken(error(529), "upstream_error", 503),
    "U12 408": Broken(error(408), "upstream_error", 502),
    "U12 500 with a page": Broken([status(500, HTML, PAGE)], "upstream_error", 502),
    "U12 500 without a body": Broken([status(500, {})], "upstream_error", 502),
    "U12 500, cut": Broken([head(500, JSON), chunk(b'{"err'), fin()], "upstream_error", 502),
    "U14 401": Broken(error(401), "upstream_auth", 502),
    "U14 403": Broken(error(403), "upstream_auth", 502),
    "U14 401 that quotes our key": Broken(
        error(401, body=b'{"error": {"message": "Incorrect API key: %b"}}' % PROVIDER_KEY.encode()), "upstream_auth"
    ),
    "U14 500 that quotes our key": Broken(
        error(500, body=b'{"error": {"message": "unexpected header %b"}}' % PROVIDER_KEY.encode()), "upstream_error"
    ),
    "U15 closed before the head": truncated([fin()], ""),
    "U15 closed in the head": truncated([send(b"HTTP/1.1 200 OK\r\ncontent-ty"), fin()], ""),
    "U15 closed before the first event": truncated([head(), fin()], ""),
    "U15 closed after the role": truncated([head(), chunk(sse(begins())), fin()], ""),
    "U15 closed between events": truncated([head(), chunk(HELLO), fin()]),
    "U15 closed in an event": truncated([head(), chunk(HELLO + WORLD[:30]), fin()]),
    "U15 closed in a chunk": truncated([head(), chunk(HELLO), send(b"ff\r\n" + WORLD), fin()], TEXT),
    "U15 half closed": truncated([head(), chunk(HELLO), half_close(), hang()]),
    "U16 no finish, no [DONE]": truncated(stream(HELLO)),
    "U16 the same, until the connection closes": truncated([head(framing=""), send(HELLO), fin()]),
    "U16 the same, of known length": truncated(body(HELLO)),
    "U16 nothing at all": bad(stream(), code="upstream_empty"),
    "U16 only comments": bad(stream(b": hello\n\n"), code="upstream_empty"),
    "U16 only [DONE]": bad(stream(sse(DONE)), code="upstream_empty"),
    "U18 [DONE] without a finish": truncated(stream(HELLO, sse(DONE))),
    "U19 reset before the head": Broken([rst()], "upstream_reset", ending="truncated"),
    "U19 reset after the head": Broken([head(), rst()], "upstream_reset", ending="truncated"),
    "U19 reset between events": Broken(
        [head(), chunk(HELLO), rst()], "upstream_reset", sent_text="Hello", ending="truncated"
    ),
    "U19 reset in an event": Broken(
        [head(), chunk(HELLO + WORLD[:30]), rst()], "upstream_reset", sent_text="Hello", ending="truncated"
    ),
    "U20 a chunk size that is none": bad([head(), chunk(HELLO), send(b"zz\r\n"), hang()], "Hello"),
    "U20 a chunk size that is too large": bad([head(), chunk(HELLO), send(b"f" * 17 + b"\r\n"), hang()], "Hello"),
    "U20 a chunk without its line end": bad([head(), chunk(HELLO), send(b"1\r\nxyz\r\n"), hang()], "Hello"),
    "U20 headers without number": bad([send(b"HTTP/1.1 200 OK\r\n" + MANY_HEADERS + b"\r\n"), send(HELLO), hang()]),
    "U20 trailers without number": bad([head(), chunk(HELLO), send(b"0\r\n" + MANY_HEADERS), hang()], "Hello"),
    "U20 a trailer without end": bad([head(), chunk(HELLO), sleep(0.05), send(b"0\r\nx: "), *ENDLESS, hang()], "Hello"),
    "U16 ends in an event behind the finish": truncated(stream(HELLO, BEHIND_THE_FINISH)),
    "U16 ends in an event behind the finish, until the connection closes": truncated(
        [head(framing=""), send(HELLO + BEHIND_THE_FINISH), fin()]
    ),
    "U16 ends in an event behind the finish, in HTTP/1.0": truncated(
        [send(b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + HELLO + BEHIND_THE_FINISH), fin()]
    ),
    "U16 ends in an event behind the finish, of known length": truncated(body(HELLO + BEHIND_THE_FINISH)),
    "U16 ends in an event behind the finish, of a length that is too short": truncated(
        [head(framing=f"content-length: {len(HELLO + BEHIND_THE_FINISH)}"), send(HELLO + sse(finishes()) + BILL), fin()]
    ),
    "U16 ends in an event behind the finish, steady before": truncated(
        stream(HELLO, *[sse(says(".")) for _ in range(9)], BEHIND_THE_FINISH), "Hello" + "." * 9
    ),
    "U16 ends in an event behind the finish, with a comment before": truncated(
        stream(HELLO, b": a comment\n\n" + BEHIND_THE_FINISH)
    ),
    "U43 gzip, cut behind the finish": truncated(
        [status(200, EVENT_STREAM | {"content-encoding": "gzip"}, zipped(HELLO + BEHIND_THE_FINISH))]
    ),
    "U43 gzip that ends in an event behind the finish": truncated(
        [status(200, EVENT_STREAM | {"content-encoding": "gzip"}, gzip.compress(HELLO + BEHIND_THE_FINISH))]
    ),
    "U21 shorter than its length": truncated([head(framing="content-length: 9999"), send(HELLO), fin()]),
    "U21 a length that is none": bad([head(framing="content-length: -1"), send(HELLO), fin()]),
    "U22 hangs before the head": idle([hang()], code="upstream_timeout_headers"),
    "U22 hangs in the head": idle([send(b"HTTP/1.1 200 OK\r\ncontent-ty"), hang()], code="upstream_timeout_headers"),
    "U23 hangs before the first event": idle([head(), hang()]),
    "U23 hangs after the role": idle([head(), chunk(sse(begins())), hang()]),
    "U24 hangs between events": idle([head(), chunk(HELLO), hang()], "Hello"),
    "U24 hangs in an event": idle([head(), chunk(HELLO + WORLD[:30]), hang()], "Hello"),
    "U25 drips the first event": idle([head(), drip(HELLO, 0.05)]),
    "U25 drips an event": idle([head(), chunk(HELLO), drip(WORLD, 0.05)], "Hello"),
    "U25 drips the head": idle([send(b"HTTP/1.1 200 OK\r\nx: "), drip_head()], code="upstream_timeout_headers"),
    "U26 comments before the first event": idle([head(), for_ever(b": processing\n\n", 0.05)]),
    "U26 comments between events": idle([head(), chunk(HELLO), for_ever(b": processing\n\n", 0.05)], "Hello"),
    "U26 empty events": idle([head(), chunk(HELLO), for_ever(b"data: \n\n", 0.05)], "Hello"),
    "U27 empty deltas for ever": Broken(
        [head(), chunk(HELLO), for_ever(sse(says("")) + b": and so on\n\n", 0.05)],
        "upstream_timeout_idle",
        504,
        sent_text="Hello",
        ending="timed_out",
        hasty=True,
    ),
    "U33 bytes of no encoding": bad(stream(b"\x00\xff\xfe\x01" * 100), code="upstream_bad_response"),
    "U35 an event that is no JSON": bad(stream(HELLO, b"data: {nonsense\n\n", REST), "Hello"),
    "U35 the first event is no JSON": bad(stream(b"data: {nonsense\n\n", REST)),
    "U36 choices of strings": bad(stream(HELLO, sse({"choices": ["no", "such"]}), REST), "Hello"),
    "U36 content that is a number": bad(stream(HELLO, sse(says(42)), REST), "Hello"),
    "U37 an error after content": Broken(
        stream(HELLO, sse(ERROR)), "upstream_error", sent_text="Hello", words="the engine is overloaded"
    ),
    "U37 event: error": Broken(
        stream(HELLO, b"event: error\n" + sse(ERROR)),
        "upstream_error",
        sent_text="Hello",
        words="the engine is overloaded",
    ),
    "U37 an error, then [DONE]": Broken(
        stream(HELLO, sse(ERROR, DONE)), "upstream_error", sent_text="Hello", words="the engine is overloaded"
    ),
    "U37 an error after content that quotes our key": Broken(
        stream(HELLO, sse({"error": {"message": f"bad key {PROVIDER_KEY}"}})), "upstream_error", sent_text="Hello"
    ),
    "U38 an error first": Broken(stream(sse(ERROR)), "upstream_error", words="the engine is overloaded"),
    "U38 an error after the role": Broken(
        stream(sse(begins()), sse(ERROR)), "upstream_error", words="the engine is overloaded"
    ),
    "U38 429 inside a 200": Broken(
        stream(sse({"error": {"message": "slow down", "code": 429}})), "upstream_rate_limited", 429, words="slow down"
    ),
    "U39 a JSON error": Broken(body(ERROR_BODY, JSON), "upstream_error", words="the engine is overloaded"),
    "U40 a page": bad([status(200, HTML, PAGE)], code="upstream_bad_content_type"),
    "U40 plain text": bad([status(200, {"content-type": "text/plain"}, b"upstream connect error")]),
    "U43 brotli": bad([status(200, EVENT_STREAM | {"content-encoding": "br"}, b"\x8b\x02\x80")]),
    "U43 zstd": bad([status(200, EVENT_STREAM | {"content-encoding": "zstd"}, b"(\xb5/\xfd")]),
    "U43 gzip that is none": bad([status(200, EVENT_STREAM | {"content-encoding": "gzip"}, b"not gzip at all")]),
    "U43 gzip, cut": truncated(
        [head(headers=EVENT_STREAM | {"content-encoding": "gzip"}), chunk(zipped(HELLO)), last_chunk()]
    ),
    "U43 gzip without asking, binary": bad(body(gzip.compress(HELLO + WORLD + REST))),
    "U43 deflate without its head": bad(
        [status(200, EVENT_STREAM | {"content-encoding": "deflate"}, zlib.compress(HELLO + WORLD + REST, wbits=-15))]
    ),
    "U50 one of two choices never finishes": Broken(
        stream(HELLO, sse(begins(1), says("Hi", index=1)), sse(finishes(), DONE)),
        "upstream_truncated",
        sent_text="Hello",
        ending="truncated",
    ),
    "U51 a redirect": Broken(
        [status(302, {"location": "http://169.254.169.254/latest/meta-data"})], "upstream_redirect"
    ),
    "U52 switching protocols": bad(
        [send(b"HTTP/1.1 101 Switching\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n"), hang()]
    ),
    "U53 a header of 200 KB": bad(
        [send(b"HTTP/1.1 200 OK\r\nx-huge: " + b"x" * 200_000 + b"\r\ncontent-length: 2\r\n\r\n{}"), hang()]
    ),
    "U53 200 KB of headers": bad(
        [
            send(
                b"HTTP/1.1 200 OK\r\n"
                + b"".join(b"x-%d: %b\r\n" % (n, b"y" * 2000) for n in range(100))
                + b"content-length: 2\r\n\r\n{}"
            ),
            hang(),
        ]
    ),
    "U53 a thousand headers": bad(
        [send(b"HTTP/1.1 200 OK\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(1000)) + b"\r\n"), hang()]
    ),
    "U53 a head that never ends": bad([send(b"HTTP/1.1 200 OK\r\nx: "), send(b"y" * 100_000), hang()]),
    "U54 garbage": bad([send(b"\x15\x03\x01\x00\x02\x02\x28 what?\r\n\r\n"), hang()]),
    "U54 HTTP/0.9": bad([send(b'{"choices": []}'), fin()]),
    "U54 another protocol": bad([send(b"SSH-2.0-OpenSSH_9.2\r\n"), hang()]),
    "U54 a status that is none": bad([send(b"HTTP/1.1 abc OK\r\n\r\n"), hang()]),
    "U54 CL and TE": bad([head(framing="content-length: 5\r\ntransfer-encoding: chunked"), chunk(HELLO), hang()]),
}
REFUSALS = {
    "U13 400": 400,
    "U13 404": 404,
    "U13 409": 409,
    "U13 413": 413,
    "U13 422": 422,
}
GIANTS: dict[str, Script] = {
    "U28 an event of 3 MB": [head(), chunk(HELLO), chunk(sse(says("x" * 3_000_000))), chunk(REST), last_chunk()],
    "U28 a line without end": [head(), chunk(HELLO), send(b"ffffffff\r\ndata: "), flood(b"x" * 65_536)],
    "U44 a bomb": [
        head(headers=EVENT_STREAM | {"content-encoding": "gzip"}),
        chunk(gzip.compress(HELLO + b"data: " + b"0" * 100_000_000)),
        hang(),
    ],
}
GIANT_BODIES: dict[str, Script] = {
    "U28 a body of 40 MB": [status(200, JSON, plain("x" * 40_000_000))],
    "U44 a body that is a bomb": [
        status(200, JSON | {"content-encoding": "gzip"}, zlib.compress(b'{"a": "' + b"0" * 200_000_000, wbits=31)),
        hang(),
    ],
}

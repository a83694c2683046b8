"""Upstreams that break (U9 to U54): the client hears the truth, and where nothing was released, from the next target.

Each row is played four times: alone and with a second target behind it, streamed and unstreamed. Streamed, what the
model said before the break has reached the client: so it gets one error frame and a clean end. In all other cases
nothing has been released: it gets a real status, or the answer of the second target.
"""

import asyncio
import base64
import codecs
import gzip
import json
import zlib
from dataclasses import dataclass, field
from urllib.parse import unquote

import pytest

from tests.faults.client import Response
from tests.faults.gateway import PROVIDER_KEY, Gateway
from tests.faults.scripts import ERROR, ERROR_BODY, HELLO, REST, SPARE_TEXT, TEXT, WORLD, plain, spare, stream
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
    """A break: what is played, and how it is to be told."""

    script: Script
    code: str
    status: int = 502
    said: str = ""
    """What the model said before it: where there is something, a stream has begun."""
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


def truncated(script: Script, said: str = "Hello") -> Broken:
    return Broken(script, "upstream_truncated", said=said, ending="truncated")


def idle(script: Script, said: str = "", code: str = "upstream_timeout_idle") -> Broken:
    return Broken(script, code, 504, said=said, ending="timed_out", hasty=True)


def bad(script: Script, said: str = "", code: str = "upstream_bad_response") -> Broken:
    return Broken(script, code, said=said)


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
        [head(), chunk(HELLO), rst()], "upstream_reset", said="Hello", ending="truncated"
    ),
    "U19 reset in an event": Broken(
        [head(), chunk(HELLO + WORLD[:30]), rst()], "upstream_reset", said="Hello", ending="truncated"
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
        said="Hello",
        ending="timed_out",
        hasty=True,
    ),
    "U33 bytes of no encoding": bad(stream(b"\x00\xff\xfe\x01" * 100), code="upstream_bad_response"),
    "U35 an event that is no JSON": bad(stream(HELLO, b"data: {nonsense\n\n", REST), "Hello"),
    "U35 the first event is no JSON": bad(stream(b"data: {nonsense\n\n", REST)),
    "U36 choices of strings": bad(stream(HELLO, sse({"choices": ["no", "such"]}), REST), "Hello"),
    "U36 content that is a number": bad(stream(HELLO, sse(says(42)), REST), "Hello"),
    "U37 an error after content": Broken(
        stream(HELLO, sse(ERROR)), "upstream_error", said="Hello", words="the engine is overloaded"
    ),
    "U37 event: error": Broken(
        stream(HELLO, b"event: error\n" + sse(ERROR)), "upstream_error", said="Hello", words="the engine is overloaded"
    ),
    "U37 an error, then [DONE]": Broken(
        stream(HELLO, sse(ERROR, DONE)), "upstream_error", said="Hello", words="the engine is overloaded"
    ),
    "U37 an error after content that quotes our key": Broken(
        stream(HELLO, sse({"error": {"message": f"bad key {PROVIDER_KEY}"}})), "upstream_error", said="Hello"
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
        said="Hello",
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
both = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])
every_break = pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)


@both
@every_break
def test_alone(gateway: Gateway, case: Broken, streamed: bool) -> None:
    provider = "hasty" if case.hasty else "main"
    response = gateway.ask(f"{provider}/{gateway.upstream.play(case.script)}", stream=streamed)
    if streamed and case.said:
        assert_told_in_the_stream(gateway, response, case)
    else:
        assert response.status == case.status
        assert response.complete
        assert response.error["code"] == case.code
        assert case.words in response.error["message"]
        assert response.error["request_id"] == response.request_id
        assert case.headers.items() <= response.headers.items()
        line = gateway.call(response)
        assert (line["status"], line["code"], len(line["attempts"])) == (case.status, case.code, 1)
        assert line["ending"] in ("failed", case.ending)


@both
@every_break
def test_with_a_second_target(gateway: Gateway, case: Broken, streamed: bool) -> None:
    route = gateway.pair(case.script, spare(), hasty=case.hasty)
    second = f"{route.removeprefix('hasty-')}-b"
    response = gateway.ask(route, stream=streamed)
    if streamed and case.said:
        assert_told_in_the_stream(gateway, response, case)
        assert not gateway.upstream.requests(second)
    else:
        assert (response.status, response.text, response.finish) == (200, SPARE_TEXT, "stop")
        assert response.complete
        assert response.headers["x-penstock-provider"] == "spare"
        assert response.headers["x-penstock-attempts"] == "2"
        line = gateway.call(response)
        assert (line["ending"], line["code"]) == ("completed", None)
        assert [attempt["code"] for attempt in line["attempts"]] == [case.code, ""]
        assert len(gateway.upstream.requests(second)) == 1


def assert_told_in_the_stream(gateway: Gateway, response: Response, case: Broken) -> None:
    assert (response.status, response.text) == (200, case.said)
    assert response.complete, "the body has no end"
    assert not response.done, "[DONE] after an error"
    assert response.finish is None, "a finish reason in an answer that is reported as broken"
    assert response.error is not None, "the client takes it for whole"
    assert response.error["code"] == case.code
    assert case.words in response.error["message"]
    line = gateway.call(response)
    assert (line["ending"], line["code"], len(line["attempts"])) == (case.ending, case.code, 1)


REFUSALS = {
    "U13 400": 400,
    "U13 404": 404,
    "U13 409": 409,
    "U13 413": 413,
    "U13 422": 422,
}


@both
@pytest.mark.parametrize("code", REFUSALS.values(), ids=REFUSALS)
def test_what_the_provider_refuses_is_passed_on_and_not_tried_elsewhere(
    gateway: Gateway, code: int, streamed: bool
) -> None:
    said = {"error": {"message": "n must be positive", "type": "invalid_request_error", "param": "n", "code": None}}
    route = gateway.pair([status(code, JSON, json.dumps(said).encode())], spare())
    response = gateway.ask(route, stream=streamed)
    assert (response.status, response.json) == (code, said)
    assert response.headers["x-should-retry"] == "false"
    assert not gateway.upstream.requests(f"{route}-b")
    assert gateway.call(response)["status"] == code


@both
def test_a_refusal_that_is_no_envelope_is_put_into_one(gateway: Gateway, streamed: bool) -> None:
    script = [status(422, {"content-type": "text/plain"}, b"temperature: out of range")]
    response = gateway.ask(f"main/{gateway.upstream.play(script)}", stream=streamed)
    assert response.status == 422
    assert response.error["type"] == "invalid_request_error"
    assert "temperature: out of range" in response.error["message"]


SAID = {"error": {"message": "bad temperature", "type": "invalid_request_error", "param": "temperature", "code": "bad"}}
SAID_BODY = json.dumps(SAID).encode()
PACKED: dict[str, tuple[str, bytes]] = {
    "gzip": ("gzip", gzip.compress(SAID_BODY)),
    "in capitals": ("X-GZIP", gzip.compress(SAID_BODY)),
    "deflate": ("deflate", zlib.compress(SAID_BODY)),
    "deflate without a head": ("deflate", zlib.compress(SAID_BODY, wbits=-15)),
    "not packed at all": ("gzip", SAID_BODY),
    "said to be plain": ("identity", SAID_BODY),
}


@both
@pytest.mark.parametrize(("coding", "data"), PACKED.values(), ids=PACKED)
def test_u44_a_packed_error_is_unpacked(gateway: Gateway, coding: str, data: bytes, streamed: bool) -> None:
    headers = {"content-encoding": coding}
    route = gateway.pair(error(400, headers, data), spare())
    response = gateway.ask(route, stream=streamed)
    assert (response.status, response.json) == (400, SAID)
    assert "content-encoding" not in response.headers
    assert not gateway.upstream.requests(f"{route}-b")
    response = gateway.ask(f"main/{gateway.upstream.play(error(503, headers, data))}", stream=streamed)
    assert (response.status, response.error["message"]) == (503, "bad temperature")


UNREADABLE: dict[str, tuple[str, bytes]] = {
    "an unknown coding": ("br", b"\x8b\x01"),
    "two codings": ("gzip, br", b"\x8b\x01"),
    "no gzip": ("gzip", b"\x8b\x01\x02\x03"),
    "gzip that is broken": ("gzip", gzip.compress(SAID_BODY)[:15] + b"\xff" * 40),
}


@both
@pytest.mark.parametrize(("coding", "data"), UNREADABLE.values(), ids=UNREADABLE)
def test_u44_an_error_that_cannot_be_unpacked_keeps_its_status(
    gateway: Gateway, coding: str, data: bytes, streamed: bool
) -> None:
    route = gateway.pair(error(400, {"content-encoding": coding}, data), spare())
    response = gateway.ask(route, stream=streamed)
    assert (response.status, response.error["code"]) == (400, "invalid_request")
    assert response.error["message"].startswith("the provider answered 400, with a body that cannot be read")
    assert coding in response.error["message"]
    assert not gateway.upstream.requests(f"{route}-b")
    assert gateway.call(response)["status"] == 400


def test_u44_an_error_that_is_a_bomb_does_not_go_off(gateway: Gateway) -> None:
    bomb = gzip.compress(b"out of range " + b"0" * 60_000_000)
    before = gateway.memory()
    response = gateway.ask(f"main/{gateway.upstream.play(error(400, {'content-encoding': 'gzip'}, bomb))}", stream=True)
    assert (response.status, len(response.error["message"])) == (400, 1000)
    assert response.error["message"].startswith("out of range 000")
    assert gateway.memory() - before < 12_000_000


LISTED = {"code": 400, "message": "tools[0]: bad schema", "status": "INVALID_ARGUMENT"}
LISTS: dict[str, tuple[object, object]] = {
    "as Gemini": (
        [{"error": LISTED}],
        {"type": "invalid_request_error", "param": None, **LISTED},
    ),
    "with all that OpenAI names": ([SAID], SAID["error"]),
    "of two": ([SAID, {"error": LISTED}], SAID["error"]),
}


@both
@pytest.mark.parametrize(("said", "told"), LISTS.values(), ids=LISTS)
def test_a_list_of_errors_is_told_as_its_first(gateway: Gateway, said: object, told: object, streamed: bool) -> None:
    data = json.dumps(said).encode()
    response = gateway.ask(f"main/{gateway.upstream.play(error(400, body=data))}", stream=streamed)
    assert (response.status, response.json) == (400, {"error": told})
    for code in (429, 503):
        response = gateway.ask(f"main/{gateway.upstream.play(error(code, body=data))}", stream=streamed)
        assert response.status == code
        assert response.error["message"] in ("tools[0]: bad schema", "bad temperature")


NO_ERRORS = {"nothing": b"[]", "a text": b'["no"]', "no error in it": b'[{"a": 1}]', "an empty one": b'[{"error": {}}]'}


@pytest.mark.parametrize("data", NO_ERRORS.values(), ids=NO_ERRORS)
def test_a_list_without_an_error_says_nothing(gateway: Gateway, data: bytes) -> None:
    response = gateway.ask(f"main/{gateway.upstream.play(error(400, body=data))}", stream=False)
    assert (response.status, response.error["message"]) == (400, "the provider answered 400")


KEY = PROVIDER_KEY.encode()
ESCAPED_KEY = b"".join(b"\\u%04x" % byte if byte == ord("-") else b"%c" % byte for byte in KEY)
URL_KEY = KEY.replace(b"-", b"%2d")
PLAIN = {"content-type": "text/plain"}
# Statuses and bodies that quote our key, or a part of it that gives it away.
QUOTES: dict[str, tuple[int, dict[str, str], bytes]] = {
    "in the clear": (400, JSON, b'{"error": {"message": "unexpected header %b"}}' % KEY),
    "escaped": (400, JSON, b'{"error": {"message": "no such key: %b"}}' % ESCAPED_KEY),
    "escaped, in a name": (400, JSON, b'{"error": {"message": "no", "%b": 1}}' % ESCAPED_KEY),
    "escaped, in a list": (404, JSON, b'{"error": {"message": "no", "keys": [{"a": "%b"}]}}' % ESCAPED_KEY),
    "escaped, beside the error": (400, JSON, b'{"error": {"message": "no"}, "asked": "%b"}' % ESCAPED_KEY),
    "escaped, and said again": (400, JSON, b'{"error": {"message": "%b", "message": "no"}}' % ESCAPED_KEY),
    "escaped, in JSON in JSON": (400, JSON, json.dumps({"error": {"message": ESCAPED_KEY.decode()}}).encode()),
    "escaped, in a text": (400, PLAIN, b"no such key: " + ESCAPED_KEY),
    "in a URL": (400, JSON, b'{"error": {"message": "at /v1?key=%b&a=1"}}' % URL_KEY),
    "in base64": (400, JSON, b'{"error": {"message": "Basic %b"}}' % base64.b64encode(b"us:" + KEY)),
    "escaped, to be tried again": (500, JSON, b'{"error": {"message": "no such key: %b"}}' % ESCAPED_KEY),
    "across the cut of a text": (500, PLAIN, b"x" * 985 + KEY),
    "escaped, across the cut of a text": (500, PLAIN, b"x" * 970 + ESCAPED_KEY),
    "across the cut of a refusal": (422, PLAIN, b"x" * 985 + KEY),
    "across the cut of a message": (503, JSON, b'{"error": {"message": "%b"}}' % (b"x" * 985 + KEY)),
    "across the cut of what is no JSON": (200, EVENT_STREAM, b"data: {" + b"x" * 480 + KEY + b"\n\n"),
    "across the cut of an event": (200, EVENT_STREAM, b"event: error\ndata: " + b"x" * 480 + KEY + b"\n\n"),
    "escaped, in a list of errors": (400, JSON, b'[{"error": {"message": "no such key: %b"}}]' % ESCAPED_KEY),
    "packed": (400, JSON | {"content-encoding": "gzip"}, gzip.compress(b'{"error": {"message": "%b"}}' % ESCAPED_KEY)),
    "when to come again": (429, JSON | {"retry-after": PROVIDER_KEY}, ERROR_BODY),
}


@both
@pytest.mark.parametrize(("code", "headers", "said"), QUOTES.values(), ids=QUOTES)
def test_an_error_that_quotes_our_key_does_not_give_it_away(
    gateway: Gateway, code: int, headers: dict[str, str], said: bytes, streamed: bool
) -> None:
    response = gateway.ask(f"main/{gateway.upstream.play([status(code, headers, said)])}", stream=streamed)
    assert response.status == (502 if code in (200, 500) else code)
    assert isinstance(response.error["message"], str)
    decoded = json.dumps(response.json, ensure_ascii=False) + str(response.headers)
    told = decoded + codecs.decode(decoded.replace('"', ""), "unicode_escape") + unquote(decoded)
    assert PROVIDER_KEY[:8] not in told
    assert base64.b64encode(KEY)[4:12].decode() not in told
    gateway.call(response)
    assert PROVIDER_KEY[:8] not in "".join(gateway.output)


@both
def test_an_error_without_our_key_is_passed_on_byte_by_byte(gateway: Gateway, streamed: bool) -> None:
    said = b'{ "error" : {"message": "50\\u0025 of a\\/b &amp; c", "n": 1.0, "n": 2}}'
    response = gateway.ask(f"main/{gateway.upstream.play(error(400, body=said))}", stream=streamed)
    assert (response.status, response.body) == (400, said)


GIANTS: dict[str, Script] = {
    "U28 an event of 3 MB": [head(), chunk(HELLO), chunk(sse(says("x" * 3_000_000))), chunk(REST), last_chunk()],
    "U28 a line without end": [head(), chunk(HELLO), send(b"ffffffff\r\ndata: "), flood(b"x" * 65_536)],
    "U44 a bomb": [
        head(headers=EVENT_STREAM | {"content-encoding": "gzip"}),
        chunk(gzip.compress(HELLO + b"data: " + b"0" * 100_000_000)),
        hang(),
    ],
}


@pytest.mark.parametrize("script", GIANTS.values(), ids=GIANTS)
def test_an_event_beyond_the_limit_is_cut(gateway: Gateway, script: Script) -> None:
    before = gateway.memory()
    response = gateway.ask(f"main/{gateway.upstream.play(script)}", stream=True)
    assert_told_in_the_stream(gateway, response, Broken(script, "upstream_event_too_large", said="Hello"))
    assert gateway.memory() - before < 12_000_000


GIANT_BODIES: dict[str, Script] = {
    "U28 a body of 40 MB": [status(200, JSON, plain("x" * 40_000_000))],
    "U44 a body that is a bomb": [
        status(200, JSON | {"content-encoding": "gzip"}, zlib.compress(b'{"a": "' + b"0" * 200_000_000, wbits=31)),
        hang(),
    ],
}


@pytest.mark.parametrize("script", GIANT_BODIES.values(), ids=GIANT_BODIES)
def test_a_body_beyond_the_limit_is_cut(gateway: Gateway, script: Script) -> None:
    response = gateway.ask(f"main/{gateway.upstream.play(script)}", stream=False)
    assert (response.status, response.error["code"]) == (502, "upstream_event_too_large")

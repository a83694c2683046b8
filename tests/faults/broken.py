"""Upstreams that break (U9 to U54): the script of each, and how the gateway must report and book it."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable
from functools import partial

from penstock.gateway.record.entry import Entry, Measure
from tests import messages, responses
from tests.event_streams import prelude
from tests.faults import provider_rows
from tests.faults.case import HTML, PAGE, Broken, bad, body, busy, error, idle, silent, truncated
from tests.faults.dialects import (
    BEDROCK,
    CHAT,
    CHAT_CLIENT,
    CHAT_ONLY,
    MESSAGES,
    OLLAMA,
    OVERLOADED,
    PAIRS,
    PROVIDERS,
    RESPONSES,
    TEXT,
    WITH_CHAT_CLIENTS,
    Pair,
    Provider,
    cut_gzip,
    stream,
)
from tests.faults.gateway import PROVIDER_KEY
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
from tests.streams import DONE, begins, finishes, says, sse


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


def _giant(pair: Pair) -> Script:
    each = pair.provider
    return stream(each.hello, each.says("x" * 3_000_000), each.rest)


ENDLESS = [send(b"y" * 16_384)] * 8
MANY_HEADERS = b"".join(b"x-%d: y\r\n" % number for number in range(300))


def _broken(each: Provider) -> dict[str, Broken]:
    """The breaks that every dialect has, of a provider that speaks this one."""

    def refuses(code: int, message: str = OVERLOADED) -> Script:
        return error(code, body=each.error(message))

    return {
        "U9 429": busy(each, "2"),
        "U10 429 without headers": Broken(refuses(429), "upstream_rate_limited", 429),
        "U11 429 for a day": busy(each, "86400"),
        "U11 429 until a date": busy(each, "Wed, 21 Oct 2037 07:28:00 GMT"),
        "U11 429, negative": busy(each, "-5"),
        "U12 500": Broken(refuses(500), "upstream_error", 502, words=OVERLOADED),
        "U12 502": Broken(refuses(502), "upstream_error", 502),
        "U12 503": Broken(refuses(503), "upstream_error", 503),
        "U12 504": Broken(refuses(504), "upstream_error", 504, ending="timed_out"),
        "U12 529": Broken(refuses(529), "upstream_error", 503, upstream_status=529),
        "U12 408": Broken(refuses(408), "upstream_error", 502),
        "U12 500 with a page": Broken([status(500, HTML, PAGE)], "upstream_error", 502),
        "U12 500 without a body": Broken([status(500, {})], "upstream_error", 502),
        "U12 500, cut": Broken([head(500, JSON), chunk(b'{"err'), fin()], "upstream_error", 502),
        "U14 401": Broken(refuses(401), "upstream_auth", 502),
        "U14 403": Broken(refuses(403), "upstream_auth", 502),
        "U14 401 that quotes our key": Broken(refuses(401, f"Incorrect API key: {PROVIDER_KEY}"), "upstream_auth"),
        "U14 500 that quotes our key": Broken(refuses(500, f"unexpected header {PROVIDER_KEY}"), "upstream_error"),
        "U15 closed before the head": truncated([fin()], ""),
        "U15 closed in the head": truncated([send(b"HTTP/1.1 200 OK\r\ncontent-ty"), fin()], ""),
        "U15 closed before the first event": truncated([head(), fin()], ""),
        "U15 closed after the role": truncated([head(), chunk(each.begin), fin()], ""),
        "U15 closed between events": truncated([head(), chunk(each.hello), fin()]),
        "U15 closed in an event": truncated([head(), chunk(each.hello + each.world[:30]), fin()]),
        "U15 closed in a chunk": truncated([head(), chunk(each.hello), send(b"ff\r\n" + each.world), fin()], TEXT),
        "U15 half closed": truncated([head(), chunk(each.hello), half_close(), hang()]),
        "U16 no finish, no end mark": truncated(stream(each.hello)),
        "U16 the same, until the connection closes": truncated([head(framing=""), send(each.hello), fin()]),
        "U16 the same, of known length": truncated(body(each.hello)),
        "U16 nothing at all": bad(stream(), code="upstream_empty"),
        **_unfinished(each),
        "U19 reset before the head": Broken([rst()], "upstream_reset", ending="truncated"),
        "U19 reset after the head": Broken([head(), rst()], "upstream_reset", ending="truncated"),
        "U19 reset between events": Broken(
            [head(), chunk(each.hello), rst()], "upstream_reset", sent_text="Hello", ending="truncated"
        ),
        "U19 reset in an event": Broken(
            [head(), chunk(each.hello + each.world[:30]), rst()],
            "upstream_reset",
            sent_text="Hello",
            ending="truncated",
        ),
        "U20 a chunk size that is none": bad([head(), chunk(each.hello), send(b"zz\r\n"), hang()], "Hello"),
        "U20 a chunk size that is too large": bad(
            [head(), chunk(each.hello), send(b"f" * 17 + b"\r\n"), hang()], "Hello"
        ),
        "U20 a chunk without its line end": bad([head(), chunk(each.hello), send(b"1\r\nxyz\r\n"), hang()], "Hello"),
        "U20 headers without number": bad(
            [send(b"HTTP/1.1 200 OK\r\n" + MANY_HEADERS + b"\r\n"), send(each.hello), hang()]
        ),
        "U20 trailers without number": bad([head(), chunk(each.hello), send(b"0\r\n" + MANY_HEADERS), hang()], "Hello"),
        "U20 a trailer without end": bad(
            [head(), chunk(each.hello), sleep(0.05), send(b"0\r\nx: "), *ENDLESS, hang()], "Hello"
        ),
        **{
            name: truncated(script, sent_text)
            for name, (script, sent_text) in each.cut_behind_the_finish().items()
            if not each.finish_is_last
        },
        "U21 shorter than its length": truncated([head(framing="content-length: 9999"), send(each.hello), fin()]),
        "U21 a length that is none": bad([head(framing="content-length: -1"), send(each.hello), fin()]),
        "U22 hangs before the head": silent([hang()], code="upstream_timeout_headers"),
        "U22 hangs in the head": silent(
            [send(b"HTTP/1.1 200 OK\r\ncontent-ty"), hang()], code="upstream_timeout_headers"
        ),
        "U23 hangs before the first event": silent([head(), hang()]),
        "U23 hangs after the role": idle([head(), chunk(each.begin), hang()], ""),
        "U24 hangs between events": idle([head(), chunk(each.hello), hang()]),
        "U24 hangs in an event": idle([head(), chunk(each.hello + each.world[:30]), hang()]),
        "U25 drips the first event": silent([head(), drip(each.hello, 0.05)]),
        "U25 drips an event": idle([head(), chunk(each.hello), drip(each.world, 0.05)]),
        "U25 drips the head": silent([send(b"HTTP/1.1 200 OK\r\nx: "), drip_head()], code="upstream_timeout_headers"),
        **_beating(each),
        "U27 empty deltas for ever": idle([head(), chunk(each.hello), for_ever(each.says("") + each.beat, 0.05)]),
        "U33 bytes of no encoding": bad(stream(b"\x00\xff\xfe\x01" * 100), code="upstream_bad_response"),
        "U35 an event that is no JSON": bad(stream(each.hello, each.junk, each.rest), "Hello"),
        "U35 the first event is no JSON": bad(stream(each.junk, each.rest)),
        "U36 content that is a number": bad(stream(each.hello, each.says(42), each.rest), "Hello"),
        "U37 an error after content": Broken(
            stream(each.hello, each.fails(OVERLOADED)), "upstream_error", sent_text="Hello", words=OVERLOADED
        ),
        "U37 an error, then end mark": Broken(
            stream(each.hello, each.fails(OVERLOADED), each.end), "upstream_error", sent_text="Hello", words=OVERLOADED
        ),
        "U37 an error after content that quotes our key": Broken(
            stream(each.hello, each.fails(f"bad key {PROVIDER_KEY}")), "upstream_error", sent_text="Hello"
        ),
        "U38 an error first": Broken(stream(each.fails(OVERLOADED)), "upstream_error", words=OVERLOADED),
        "U38 an error after the role": Broken(
            stream(each.begin, each.fails(OVERLOADED)), "upstream_error", words=OVERLOADED
        ),
        **(
            {"U38 429 inside a 200": Broken(stream(each.busy), "upstream_rate_limited", 429, words="slow down")}
            if each.busy
            else {}
        ),
        "U39 a JSON error": Broken(body(each.error(OVERLOADED), JSON), "upstream_error", words=OVERLOADED),
        "U40 a page": bad([status(200, HTML, PAGE)], code="upstream_bad_content_type"),
        "U40 plain text": bad([status(200, {"content-type": "text/plain"}, b"upstream connect error")]),
        "U43 brotli": bad([status(200, EVENT_STREAM | {"content-encoding": "br"}, b"\x8b\x02\x80")]),
        "U43 zstd": bad([status(200, EVENT_STREAM | {"content-encoding": "zstd"}, b"(\xb5/\xfd")]),
        "U43 gzip that is none": bad([status(200, EVENT_STREAM | {"content-encoding": "gzip"}, b"not gzip at all")]),
        "U43 gzip, cut": truncated(
            [head(headers=EVENT_STREAM | {"content-encoding": "gzip"}), chunk(cut_gzip(each.hello)), last_chunk()]
        ),
        "U43 gzip without asking, binary": bad(body(gzip.compress(each.hello + each.world + each.rest))),
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
        "U54 HTTP/0.9": bad([send(each.body(TEXT)), fin()]),
        "U54 another protocol": bad([send(b"SSH-2.0-OpenSSH_9.2\r\n"), hang()]),
        "U54 a status that is none": bad([send(b"HTTP/1.1 abc OK\r\n\r\n"), hang()]),
        "U54 CL and TE": bad(
            [head(framing="content-length: 5\r\ntransfer-encoding: chunked"), chunk(each.hello), hang()]
        ),
    }


def _unfinished(each: Provider) -> dict[str, Broken]:
    """Streams that say nothing, or do not say that they are over."""
    rows = {"U16 only heartbeats": bad(stream(each.beat), code="upstream_empty")} if each.beat else {}
    if each.end_is_whole:
        rows["U17 no end mark"] = truncated(stream(each.wire.removesuffix(each.end)), TEXT)
    elif each.end:
        rows["U16 only end mark"] = bad(stream(each.end), code="upstream_empty")
        rows["U18 end mark without a finish"] = truncated(stream(each.hello, each.end))
    return rows


def _beating(each: Provider) -> dict[str, Broken]:
    """Providers that are alive, and say nothing."""
    if not each.beat:
        return {}
    rows = {
        "U26 heartbeats before the first event": silent([head(), for_ever(each.beat, 0.05)]),
        "U26 heartbeats between events": idle([head(), chunk(each.hello), for_ever(each.beat, 0.05)]),
    }
    if each.framing == "sse":
        rows["U26 empty events"] = idle([head(), chunk(each.hello), for_ever(b"data: \n\n", 0.05)])
    return rows


# The breaks that only one dialect has.
_OF_DIALECTS: dict[str, dict[str, Broken]] = {
    CHAT.dialect: {
        "U36 choices of strings": bad(stream(CHAT.hello, sse({"choices": ["no", "such"]}), CHAT.rest), "Hello"),
        "U37 event: error": Broken(
            stream(CHAT.hello, b"event: error\n" + CHAT.fails(OVERLOADED)),
            "upstream_error",
            sent_text="Hello",
            words=OVERLOADED,
        ),
        "U50 one of two choices never finishes": Broken(
            stream(CHAT.hello, sse(begins(1), says("Hi", index=1)), sse(finishes(), DONE)),
            "upstream_truncated",
            sent_text="Hello",
            ending="truncated",
        ),
    },
    MESSAGES.dialect: {
        "U36 a block that is a text": bad(
            stream(
                MESSAGES.hello,
                messages.wire(messages.closes(), messages.opens(1) | {"content_block": "no"}),
                MESSAGES.rest,
            ),
            "Hello",
        ),
        "U36 a second message": bad(stream(MESSAGES.hello, messages.wire(messages.begins("msg_w2"))), "Hello"),
        "U38 529 inside a 200": Broken(
            stream(messages.wire(messages.error())), "upstream_error", 503, words="Overloaded", upstream_status=529
        ),
    },
    RESPONSES.dialect: {
        "U36 an item that is a text": bad(
            stream(RESPONSES.hello, responses.named(responses.added(1, {}) | {"item": "no"}), RESPONSES.rest), "Hello"
        ),
        "U36 a second response": bad(
            stream(RESPONSES.hello, responses.named(responses.begins(id="resp_w2")[0])), "Hello"
        ),
        "U37 the response fails": Broken(
            stream(RESPONSES.hello, responses.named(responses.fails(OVERLOADED))),
            "upstream_error",
            sent_text="Hello",
            words=OVERLOADED,
        ),
        "U38 the response fails at once": Broken(
            stream(responses.wire(*responses.begins(), responses.fails(OVERLOADED))), "upstream_error", words=OVERLOADED
        ),
        "U39 a failed response as a body": Broken(
            body(json.dumps(responses.fails(OVERLOADED)["response"]).encode(), JSON), "upstream_error", words=OVERLOADED
        ),
        "U38 503 inside a 200": Broken(
            stream(responses.named(responses.error())), "upstream_error", 503, words="Overloaded", upstream_status=503
        ),
    },
}
_OF_DIALECTS |= provider_rows.BROKEN
BROKEN: dict[str, dict[str, Broken]] = {
    dialect: _broken(provider) | _OF_DIALECTS[dialect] for dialect, provider in PROVIDERS.items()
}
# The breaks of which the report depends on the dialects: how the provider's bytes are read, or what the client is sent.
SAMPLE = frozenset(
    (
        *("U9 429", "U12 503", "U12 529", "U14 401", "U15 closed after the role", "U15 closed in an event"),
        *("U16 only heartbeats", "U16 only end mark", "U17 no end mark", "U18 end mark without a finish"),
        *("U19 reset between events", "U24 hangs between events", "U27 empty deltas for ever"),
        *("U35 an event that is no JSON", "U36 content that is a number", "U37 an error after content"),
        *("U38 an error after the role", "U38 429 inside a 200", "U39 a JSON error", "U40 a page"),
        *(name for rows in _OF_DIALECTS.values() for name in rows),
    )
)
REFUSALS = {
    "U13 400": 400,
    "U13 404": 404,
    "U13 409": 409,
    "U13 413": 413,
    "U13 422": 422,
}
# They are made when they are played: each takes many megabytes.
GIANTS: dict[str, tuple[Pair, Callable[[], Script]]] = {
    **{
        f"U28 an event of 3 MB, {pair.provider.dialect}": (pair, partial(_giant, pair))
        for pair in (*PAIRS, *WITH_CHAT_CLIENTS)
        if pair.same or pair in WITH_CHAT_CLIENTS
    },
    "U28 a line without end": (
        CHAT_ONLY,
        lambda: [head(), chunk(CHAT.hello), send(b"ffffffff\r\ndata: "), flood(b"x" * 65_536)],
    ),
    "U28 a line of JSON without end": (
        Pair(CHAT_CLIENT, OLLAMA),
        lambda: [head(), chunk(OLLAMA.hello), send(b'ffffffff\r\n{"message": "'), flood(b"x" * 65_536)],
    ),
    "U28 a message of 30 MB": (
        Pair(CHAT_CLIENT, BEDROCK),
        lambda: [head(), chunk(BEDROCK.hello), send(b"ffffffff\r\n" + prelude(30_000_000)), flood(b"x" * 65_536)],
    ),
    "U44 a bomb": (
        CHAT_ONLY,
        lambda: [
            head(headers=EVENT_STREAM | {"content-encoding": "gzip"}),
            chunk(gzip.compress(CHAT.hello + b"data: " + b"0" * 100_000_000, compresslevel=1)),
            hang(),
        ],
    ),
}
GIANT_BODIES: dict[str, Callable[[], Script]] = {
    "U28 a body of 40 MB": lambda: [status(200, JSON, CHAT.body("x" * 40_000_000))],
    "U44 a body that is a bomb": lambda: [
        status(200, JSON | {"content-encoding": "gzip"}, zlib.compress(b'{"a": "' + b"0" * 200_000_000, 1, wbits=31)),
        hang(),
    ],
}


# Without text, and with text.
_VOID: tuple[Measure, Measure] = ("void", "void")
_BROKE_OFF: tuple[Measure, Measure] = ("void", "estimated")
_ANSWERED: tuple[Measure, Measure] = ("estimated", "estimated")
# What is booked, by the numbers of the catalogue. What is tolerated (`tolerated.py`) is reported.
MEASURES: dict[str, tuple[Measure, Measure]] = {
    "U9": _VOID,
    "U10": _VOID,
    "U11": _VOID,
    "U12": _VOID,
    "U13": _VOID,
    "U14": _VOID,
    "U15": _BROKE_OFF,
    "U16": _BROKE_OFF,
    "U17": _BROKE_OFF,
    "U18": _BROKE_OFF,
    "U19": _BROKE_OFF,
    "U20": _BROKE_OFF,
    "U21": _BROKE_OFF,
    "U22": _VOID,
    "U23": _VOID,
    "U24": _BROKE_OFF,
    "U25": _BROKE_OFF,
    "U26": _BROKE_OFF,
    "U27": _BROKE_OFF,
    "U28": _ANSWERED,
    "U33": _BROKE_OFF,
    "U35": _BROKE_OFF,
    "U36": _BROKE_OFF,
    "U37": _BROKE_OFF,
    "U38": _VOID,
    "U39": _VOID,
    "U40": _VOID,
    "U43": _BROKE_OFF,
    "U44": _ANSWERED,
    "U50": _BROKE_OFF,
    "U51": _VOID,
    "U52": _VOID,
    "U53": _VOID,
    "U54": _VOID,
}
# Here the provider's figures follow behind the break. They count if they were there when it was noticed.
_BILLED = ("U35 an event", "U36")
# Here the provider has begun to work, and it is not known that it has stopped.
_AFTER_THE_ROLE = ("U15 closed after the role", "U23 hangs after the role")


def assert_measured(entry: Entry, name: str, provider: Provider, *, sent_text: bool) -> None:
    """The one attempt of a broken call is measured as its row says; `sent_text`: the model has said something.

    What the provider has reported by then counts. That a void attempt has neither tokens nor a cost, `Gateway.quiet`
    checks for all.
    """
    (attempt,) = entry.attempts
    measured = (attempt.measure, attempt.tokens.input, attempt.tokens.output)
    expected = MEASURES[name.split()[0]][sent_text]
    if name.startswith(_BILLED) and attempt.measure == "reported":
        assert measured == ("reported", 5, 3)
    elif name in _AFTER_THE_ROLE and provider.reports_input_first:
        assert measured == ("reported", 5, 0)
    elif expected == "estimated":
        assert measured[0] == "estimated", attempt
        assert measured[1] == 5 if provider.reports_input_first and sent_text else measured[1] > 0
        assert (measured[2] > 0) == sent_text
    else:
        assert measured[0] == expected, attempt

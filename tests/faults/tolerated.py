"""Upstreams with defects that can be repaired: the script of each, and what the client gets."""

import functools
import gzip
import re
import zlib

from tests import messages, responses
from tests.faults import provider_rows
from tests.faults.case import Tolerated
from tests.faults.dialects import CHAT, MESSAGES, PROVIDERS, RESPONSES, TEXT, Provider, stream
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
from tests.streams import bill, by_event, bytewise, counts, sse


def encoded(data: bytes, coding: str, size: int = 7) -> Script:
    pieces = [chunk(data[i : i + size]) for i in range(0, len(data), size)]
    return [head(headers=EVENT_STREAM | {"content-encoding": coding}), *pieces, last_chunk()]


def members(*data: bytes) -> bytes:
    return b"".join(map(gzip.compress, data))


RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


def _tolerated(each: Provider) -> dict[str, Tolerated]:
    """What every dialect tolerates, of a provider that speaks this one."""
    wire = each.wire
    return {
        "as it should be": Tolerated(each.whole()),
        "until the connection closes": Tolerated([head(framing=""), send(wire), fin()]),
        "HTTP/1.0": Tolerated([send(b"HTTP/1.0 200 OK\r\n\r\n" + wire), fin()]),
        **(
            {}
            if each.end_is_whole or not each.end
            else {
                "U17 no end mark": Tolerated(stream(wire.removesuffix(each.end)), each.unmarked),
                "U17 no end mark, and cut": Tolerated(
                    [head(), chunk(wire.removesuffix(each.end)), fin()], each.unmarked
                ),
            }
        ),
        "U15 cut after end mark": Tolerated([head(), chunk(wire), fin()]),
        "U19 reset after end mark": Tolerated([head(), chunk(wire), rst()]),
        "U22 hangs after end mark": Tolerated([head(), chunk(wire), hang()]),
        "half closed after end mark": Tolerated([head(), chunk(wire), half_close(), hang()]),
        **{
            name: Tolerated(script, each.unmarked, sent_text, None if each.bill else (5, 3))
            for name, (script, sent_text) in each.cut_behind_the_finish().items()
            if each.finish_is_last
        },
        "U21 longer than its length": Tolerated(
            [head(framing=f"content-length: {len(wire)}"), send(wire + b"and then some"), hang()]
        ),
        "U21 a second response behind it": Tolerated(
            [
                head(framing=f"content-length: {len(wire)}"),
                send(wire + RESPONSE % (len(each.body("x")), each.body("x"))),
                hang(),
            ]
        ),
        "U21 a second response behind the last chunk": Tolerated(
            [head(), chunk(wire), send(b"0\r\n\r\n" + RESPONSE % (len(each.body("x")), each.body("x"))), hang()]
        ),
        "U30 all in one": Tolerated(stream(wire)),
        "U30 byte by byte": Tolerated(stream(*bytewise(wire))),
        **_framed(each),
        "U34 a character in two pieces": Tolerated(
            stream(each.hello, *bytewise(each.says(" 👩‍👩‍👧")), each.rest), text="Hello 👩‍👩‍👧"
        ),
        "U41 another content type": Tolerated([status(200, {"content-type": "text/plain"}, wire)]),
        "U41 no content type": Tolerated([status(200, {}, wire)]),
        "U42 an unstreamed answer": Tolerated(each.unstreamed()),
        "U42 an unstreamed answer, labelled as a stream": Tolerated([status(200, EVENT_STREAM, each.body(TEXT))]),
        "U42 an unstreamed answer in pieces": Tolerated(
            [head(headers=JSON), *map(chunk, bytewise(each.body(TEXT))), last_chunk()]
        ),
        "U43 gzip": Tolerated(encoded(gzip.compress(wire), "gzip")),
        "U43 gzip, at once": Tolerated(encoded(gzip.compress(wire), "gzip", 1 << 20)),
        "U43 gzip of two members": Tolerated(encoded(members(each.hello, each.world + each.rest), "gzip")),
        "U43 deflate": Tolerated(encoded(zlib.compress(wire), "deflate")),
        "U43 deflate without its head": Tolerated(encoded(zlib.compress(wire, wbits=-15), "deflate")),
        "U43 gzip in capitals": Tolerated(encoded(gzip.compress(wire), "GZIP")),
        "U43 gzip of an unstreamed answer": Tolerated(
            [status(200, JSON | {"content-encoding": "gzip"}, gzip.compress(each.body(TEXT)))]
        ),
        "U52 forerunners": Tolerated(
            [
                send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>; rel=preload\r\n\r\n"),
                *each.whole(),
            ]
        ),
        "more than one header of a name": Tolerated(
            [head(framing="x-a: 1\r\nx-a: 2\r\ntransfer-encoding: chunked"), *each.whole()[1:]]
        ),
        "U53 a head of 40 KB": Tolerated(
            [head(headers=EVENT_STREAM | {f"x-{n}": "y" * 1000 for n in range(40)}), *each.whole()[1:]]
        ),
        "a trailer": Tolerated([head(), chunk(wire), send(b"0\r\nx-checksum: 1\r\n\r\n")]),
    }


def _framed(each: Provider) -> dict[str, Tolerated]:
    """Other ways to write the same text. A binary framing has none."""

    def framed(old: bytes, new: bytes) -> Script:
        return stream(each.wire.replace(old, new))

    wire, text = each.wire, ", world"
    lines = {
        "U31 CRLF": Tolerated(framed(b"\n", b"\r\n")),
        "U31 CR": Tolerated(framed(b"\n", b"\r")),
        "U31 a byte order mark": Tolerated(stream(b"\xef\xbb\xbf" + wire), ("bom",)),
        "U33 invalid UTF-8": Tolerated(framed(text.encode(), b", \xff\xfe"), ("invalid-utf8",), "Hello, \ufffd\ufffd"),
    }
    events = {
        "U31 no space": Tolerated(framed(b"data: ", b"data:")),
        "U31 comments, ids and retries": Tolerated(framed(b"data: ", b": hi\nid: 7\nretry: 10\ndata: ")),
        "U32 no blank line at the end": Tolerated(stream(wire.removesuffix(b"\n")), ("no-final-blank-line",)),
    }
    return {"sse": lines | events, "json-lines": lines, "event-stream": {}}[each.framing]


_USAGE_FIRST = sse(bill(**counts(5, 1)))
_NULL_CHOICES = sse({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": None})
_ONE_TOKEN = messages.wire(messages.finishes(None, {"output_tokens": 1}))
_NO_USAGE = (b',"usage":{"output_tokens":3}', b',"usage":{"input_tokens":5,"output_tokens":1}')
_NUMBERED = responses.answer(
    *responses.says_all("Hello", ", world"),
    finish=responses.completes(
        responses.message(responses.part(TEXT)), usage=responses.USAGE | {"input_tokens": 5, "output_tokens": 3}
    ),
)
_EMPTY_END = responses.completes(usage=responses.USAGE | {"input_tokens": 5, "output_tokens": 3})
_ADDED = responses.named(responses.added(0, responses.message(status="in_progress")))
# What only one dialect tolerates.
_OF_DIALECTS: dict[str, dict[str, Tolerated]] = {
    CHAT.dialect: {
        "U31 several lines in an event": Tolerated(stream(CHAT.wire.replace(b',"choices"', b',\ndata: "choices"'))),
        "U36 choices are null in one": Tolerated(
            stream(CHAT.hello, _NULL_CHOICES, CHAT.world, CHAT.rest), ("choices-missing",)
        ),
        "U45 finished twice": Tolerated(
            stream(CHAT.hello, CHAT.world, CHAT.finish + CHAT.finish, CHAT.rest), ("finish-repeated",)
        ),
        "U45 content after the finish": Tolerated(
            stream(CHAT.hello, CHAT.finish, CHAT.world, CHAT.rest), ("content-after-finish", "finish-repeated")
        ),
        "U46 usage twice": Tolerated(stream(CHAT.hello, CHAT.world, _USAGE_FIRST, CHAT.rest)),
        "U47 no usage": Tolerated(stream(CHAT.hello, CHAT.world, CHAT.finish + CHAT.end), usage=None),
    },
    MESSAGES.dialect: {
        "U31 several lines in an event": Tolerated(stream(MESSAGES.wire.replace(b',"delta"', b',\ndata: "delta"'))),
        "U31 no names of events": Tolerated(
            stream(re.sub(rb"event: \w+\n", b"", MESSAGES.wire)), ("event-name-missing",)
        ),
        "U36 a ping between events": Tolerated(
            stream(MESSAGES.hello, messages.wire(messages.PING), MESSAGES.world, MESSAGES.rest)
        ),
        "U36 a delta without its block": Tolerated(
            stream(MESSAGES.wire.replace(messages.wire(messages.opens()), b"")), ("block-start-missing",)
        ),
        "U36 a block without its stop": Tolerated(
            stream(MESSAGES.wire.replace(messages.wire(messages.closes()), b"")), ("block-unclosed",)
        ),
        "U45 finished twice": Tolerated(
            stream(MESSAGES.hello, MESSAGES.world, MESSAGES.finish, MESSAGES.rest), ("finish-repeated",)
        ),
        "U45 content after the finish": Tolerated(
            stream(MESSAGES.hello, MESSAGES.finish, MESSAGES.world, MESSAGES.rest), ("content-after-finish",)
        ),
        "U46 usage twice": Tolerated(stream(MESSAGES.hello, MESSAGES.world, _ONE_TOKEN, MESSAGES.rest)),
        "U47 no usage": Tolerated(
            stream(functools.reduce(lambda wire, usage: wire.replace(usage, b""), _NO_USAGE, MESSAGES.wire)), usage=None
        ),
    },
    RESPONSES.dialect: {
        "as it should be, with numbers": Tolerated(stream(*by_event(_NUMBERED))),
        "U30 byte by byte, with numbers": Tolerated(stream(*bytewise(_NUMBERED))),
        "U16 only end mark": Tolerated(stream(RESPONSES.end), ("message-start-missing",)),
        "U18 no item is done": Tolerated(stream(RESPONSES.hello, RESPONSES.world, RESPONSES.end), ("block-unclosed",)),
        "U18 the end has the rest": Tolerated(stream(RESPONSES.hello, RESPONSES.end), ("deltas-missing",)),
        "U18 the end has no output": Tolerated(
            stream(RESPONSES.wire.removesuffix(RESPONSES.end), responses.named(_EMPTY_END)), ("output-missing",)
        ),
        "U18 a sentinel behind the end": Tolerated(stream(RESPONSES.wire, b"data: [DONE]\n\n")),
        "U31 several lines in an event": Tolerated(stream(RESPONSES.wire.replace(b',"delta"', b',\ndata: "delta"'))),
        "U31 no names of events": Tolerated(
            stream(re.sub(rb"event: [\w.]+\n", b"", RESPONSES.wire)), ("event-name-missing",)
        ),
        "U36 a delta without its item": Tolerated(
            stream(RESPONSES.wire.replace(_ADDED, b"")), ("block-start-missing",)
        ),
        "U36 an unknown event": Tolerated(
            stream(RESPONSES.hello, responses.named({"type": "response.tide"}), RESPONSES.world, RESPONSES.rest),
            ("event-unknown",),
        ),
        "U36 the id of the item changes": Tolerated(
            stream(RESPONSES.hello, RESPONSES.world.replace(b"msg_1", b"msg_2"), RESPONSES.rest), ("item-id-changed",)
        ),
        "U45 finished twice": Tolerated(stream(RESPONSES.wire + RESPONSES.end), ("done-repeated",)),
        "U45 content after the end": Tolerated(
            stream(RESPONSES.wire + RESPONSES.says("?")), ("data-after-done",), TEXT + "?"
        ),
        "U47 no usage": Tolerated(
            stream(re.sub(rb'"usage":{.*?}.*?}[^}]*}', b'"usage":null', RESPONSES.wire)), usage=None
        ),
    },
}
_OF_DIALECTS |= provider_rows.TOLERATED
# What depends on the dialects: how the provider's bytes are read, or what the client is sent.
SAMPLE = frozenset(
    (
        *("as it should be", "U15 cut after end mark", "U16 ends in an event behind the finish", "U17 no end mark"),
        *("U30 byte by byte", "U31 CR", "U32 no blank line at the end", "U33 invalid UTF-8"),
        *("U34 a character in two pieces", "U41 no content type", "U42 an unstreamed answer"),
        *("U42 an unstreamed answer, labelled as a stream", "U43 gzip"),
        *(name for rows in _OF_DIALECTS.values() for name in rows),
    )
)
TOLERATED: dict[str, dict[str, Tolerated]] = {
    dialect: _tolerated(provider) | _OF_DIALECTS[dialect] for dialect, provider in PROVIDERS.items()
}

"""Upstreams that break (U9 to U54): the client gets the truth or, before the commit point, the next target's answer.

Each row is played alone and with a second target after it, streamed and unstreamed, for clients and providers of each
dialect. When streamed, the text before the break has reached the client, so it gets one error frame and a clean end. In
all other cases nothing has been sent: it gets the status of the error, or the answer of the second target. An attempt
is booked as void or, if it generated text, as an estimate.
"""

import base64
import codecs
import gzip
import json
import zlib
from urllib.parse import unquote

import pytest

from penstock.gateway.mask import MASK
from tests.faults.broken import BROKEN, GIANT_BODIES, GIANTS, MEASURES, REFUSALS, SAMPLE, assert_measured
from tests.faults.case import Broken, error
from tests.faults.dialects import (
    CHAT,
    CHAT_ONLY,
    MESSAGES_ONLY,
    PAIRS,
    PROVIDER_PAIRS,
    RESPONSES_ONLY,
    Pair,
    is_played,
)
from tests.faults.gateway import PROVIDER_KEY, Gateway
from tests.faults.scripts import ERROR_BODY, spare
from tests.faults.upstream import EVENT_STREAM, JSON, status
from tests.faults.verdicts import assert_reported, assert_reported_in_the_stream, assert_tried_elsewhere
from tests.promptness import prompt

both = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])
REFUSED = {
    f"{pair}-{name}": (pair, name)
    for pair in (*PAIRS, *PROVIDER_PAIRS)
    for name in REFUSALS
    if is_played(pair, sampled=name == "U13 400")
}


def every_break(*pairs: Pair) -> pytest.MarkDecorator:
    """Every row for each of the pairs, streamed and unstreamed.

    A time-out takes its time, and is the same one unstreamed: that is played for chat completions only.
    """
    rows = {
        f"{pair}-{name}-{'streamed' if streamed else 'unstreamed'}": (pair, name, streamed)
        for pair in pairs
        for name, case in BROKEN[pair.provider.dialect].items()
        for streamed in (True, False)
        if streamed or case.role == "main" or pair == CHAT_ONLY
        if is_played(pair, sampled=name in SAMPLE)
    }
    return pytest.mark.parametrize(("pair", "name", "streamed"), rows.values(), ids=rows)


def test_every_row_is_in_the_table_of_what_is_booked() -> None:
    rows = [*GIANTS, *GIANT_BODIES, *REFUSALS, *(name for rows in BROKEN.values() for name in rows)]
    assert {row.split()[0] for row in rows} == MEASURES.keys()


@prompt
@every_break(*PAIRS)
def test_alone(gateway: Gateway, pair: Pair, name: str, streamed: bool) -> None:
    assert_reported(gateway, pair, name, streamed=streamed)


# The second target speaks chat completions: for clients of other dialects its answer is translated.
@prompt
@every_break(CHAT_ONLY, MESSAGES_ONLY, RESPONSES_ONLY)
def test_with_a_second_target(gateway: Gateway, pair: Pair, name: str, streamed: bool) -> None:
    assert_tried_elsewhere(gateway, pair, name, streamed=streamed)


@both
@pytest.mark.parametrize(("pair", "name"), REFUSED.values(), ids=REFUSED)
def test_what_the_provider_refuses_is_passed_on_and_not_tried_elsewhere(
    gateway: Gateway, pair: Pair, name: str, streamed: bool
) -> None:
    """With the provider's own bytes, if the client speaks its dialect."""
    code, words = REFUSALS[name], "n must be positive"
    sent_body = pair.provider.error(words)
    route = gateway.pair([status(code, JSON, sent_body)], spare(), provider=pair.provider)
    response = gateway.ask(route, pair.client, stream=streamed)
    assert response.status == code
    if pair.same:
        assert response.body == sent_body
    else:
        assert response.error["message"].startswith(words)
        assert response.error["code"] == "invalid_request"
    assert response.headers["x-should-retry"] == "false"
    (entry,) = gateway.quiet()
    assert entry.status == code
    assert_measured(entry, name, pair.provider, sent_text=False)


@both
def test_a_refusal_that_is_no_envelope_is_put_into_one(gateway: Gateway, streamed: bool) -> None:
    script = [status(422, {"content-type": "text/plain"}, b"temperature: out of range")]
    response = gateway.ask(f"main/{gateway.upstream.play(script)}", stream=streamed)
    assert response.status == 422
    assert response.error["type"] == "invalid_request_error"
    assert "temperature: out of range" in response.error["message"]


SENT_TEXT = {
    "error": {"message": "bad temperature", "type": "invalid_request_error", "param": "temperature", "code": "bad"}
}
SENT_BODY = json.dumps(SENT_TEXT).encode()
PACKED: dict[str, tuple[str, bytes]] = {
    "gzip": ("gzip", gzip.compress(SENT_BODY)),
    "in capitals": ("X-GZIP", gzip.compress(SENT_BODY)),
    "deflate": ("deflate", zlib.compress(SENT_BODY)),
    "deflate without a head": ("deflate", zlib.compress(SENT_BODY, wbits=-15)),
    "not packed at all": ("gzip", SENT_BODY),
    "said to be plain": ("identity", SENT_BODY),
}


@both
@pytest.mark.parametrize(("coding", "data"), PACKED.values(), ids=PACKED)
def test_u44_a_packed_error_is_unpacked(gateway: Gateway, coding: str, data: bytes, streamed: bool) -> None:
    headers = {"content-encoding": coding}
    route = gateway.pair(error(400, headers, data), spare())
    response = gateway.ask(route, stream=streamed)
    assert (response.status, response.json) == (400, SENT_TEXT)
    assert "content-encoding" not in response.headers
    assert not gateway.upstream.requests(f"{route}-b")
    response = gateway.ask(f"main/{gateway.upstream.play(error(503, headers, data))}", stream=streamed)
    assert (response.status, response.error["message"]) == (503, "bad temperature")


UNREADABLE: dict[str, tuple[str, bytes]] = {
    "an unknown coding": ("br", b"\x8b\x01"),
    "two codings": ("gzip, br", b"\x8b\x01"),
    "no gzip": ("gzip", b"\x8b\x01\x02\x03"),
    "gzip that is broken": ("gzip", gzip.compress(SENT_BODY)[:15] + b"\xff" * 40),
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
    "with all that OpenAI names": ([SENT_TEXT], SENT_TEXT["error"]),
    "of two": ([SENT_TEXT, {"error": LISTED}], SENT_TEXT["error"]),
}


@both
@pytest.mark.parametrize(("sent_text", "reported"), LISTS.values(), ids=LISTS)
def test_a_list_of_errors_is_reported_as_its_first(
    gateway: Gateway, sent_text: object, reported: object, streamed: bool
) -> None:
    data = json.dumps(sent_text).encode()
    response = gateway.ask(f"main/{gateway.upstream.play(error(400, body=data))}", stream=streamed)
    assert (response.status, response.json) == (400, {"error": reported})
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
# Statuses and bodies that quote our key, or a revealing part of it.
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
@pytest.mark.parametrize(("code", "headers", "sent_text"), QUOTES.values(), ids=QUOTES)
def test_an_error_that_quotes_our_key_does_not_give_it_away(
    gateway: Gateway, code: int, headers: dict[str, str], sent_text: bytes, streamed: bool
) -> None:
    response = gateway.ask(f"main/{gateway.upstream.play([status(code, headers, sent_text)])}", stream=streamed)
    assert response.status == (502 if code in (200, 500) else code)
    assert isinstance(response.error["message"], str)
    decoded = json.dumps(response.json, ensure_ascii=False) + str(response.headers)
    reported = decoded + codecs.decode(decoded.replace('"', ""), "unicode_escape") + unquote(decoded)
    assert PROVIDER_KEY[:8] not in reported
    assert base64.b64encode(KEY)[4:12].decode() not in reported
    gateway.call(response)
    assert PROVIDER_KEY[:8] not in "".join(gateway.output)


@both
def test_an_error_without_our_key_is_passed_on_byte_by_byte(gateway: Gateway, streamed: bool) -> None:
    sent_text = b'{ "error" : {"message": "50\\u0025 of a\\/b &amp; c", "n": 1.0, "n": 2}}'
    response = gateway.ask(f"main/{gateway.upstream.play(error(400, body=sent_text))}", stream=streamed)
    assert (response.status, response.body) == (400, sent_text)


# The size of the largest error that is read completely.
LARGE_ERRORS = {
    "with a long text": b'{"error": {"message": "no", "input": "%b"}}' % (b"x\\n" * 21_000),
    "with escapes": b'{"error": {"message": "no", "input": "%b"}}' % (b'\\"\\u0025%41&amp;' * 4_000),
    "with many values": b'{"error": {"message": "no", "input": [%b0]}}' % (b'"a", 1.0, {}, ' * 4_000),
    "of 64 KB": b'{"error": {"message": "no"}}'.ljust(65_536),
}


@both
@pytest.mark.parametrize("sent_text", LARGE_ERRORS.values(), ids=LARGE_ERRORS)
def test_a_large_error_is_passed_on_byte_by_byte(gateway: Gateway, sent_text: bytes, streamed: bool) -> None:
    assert 55_000 < len(sent_text) <= 65_536
    response = gateway.ask(f"main/{gateway.upstream.play(error(400, body=sent_text))}", stream=streamed)
    assert (response.status, response.body) == (400, sent_text)
    packed = [status(422, JSON | {"content-encoding": "gzip"}, gzip.compress(sent_text))]
    response = gateway.ask(f"main/{gateway.upstream.play(packed)}", stream=streamed)
    assert (response.status, response.body) == (422, sent_text)


def test_a_large_error_that_quotes_our_key_is_passed_on_without_it(gateway: Gateway) -> None:
    sent_text = {"error": {"message": "no", "input": ["x" * 500] * 110, "header": f"Bearer {PROVIDER_KEY}"}}
    data = json.dumps(sent_text).replace(PROVIDER_KEY, ESCAPED_KEY.decode()).encode()
    response = gateway.ask(f"main/{gateway.upstream.play(error(400, body=data))}", stream=False)
    sent_text["error"]["header"] = f"Bearer {MASK}"
    assert (response.status, response.json) == (400, sent_text)


def test_of_an_error_that_takes_long_to_mask_the_message_is_passed_on(gateway: Gateway) -> None:
    sent_text = {"error": {"message": "bad input", "input": [*map(str, range(3_000)), PROVIDER_KEY]}}
    response = gateway.ask(
        f"main/{gateway.upstream.play(error(400, body=json.dumps(sent_text).encode()))}", stream=False
    )
    assert (response.status, response.error["message"]) == (400, "bad input")
    assert (response.error["code"], "input" in response.error) == ("invalid_request", False)


def test_of_an_error_beyond_64_kb_the_beginning_is_reported_as_a_text(gateway: Gateway) -> None:
    data = b'{"error": {"message": "bad input", "input": "%b"}}' % (b"x" * 65_536)
    response = gateway.ask(f"main/{gateway.upstream.play(error(400, body=data))}", stream=False)
    assert (response.status, response.error["code"]) == (400, "invalid_request")
    assert response.error["message"].startswith('{"error": {"message": "bad input"')


@pytest.mark.parametrize("name", GIANTS)
def test_an_event_beyond_the_limit_is_cut(gateway: Gateway, name: str) -> None:
    """The text before it was generated, and is billed."""
    pair, make = GIANTS[name]
    script = make()
    before = gateway.memory()
    model = f"main{pair.provider.suffix}/{gateway.upstream.play(script)}"
    response = gateway.ask(model, pair.client, stream=True)
    assert_reported_in_the_stream(gateway, response, Broken(script, "upstream_event_too_large", sent_text="Hello"))
    assert gateway.memory() - before < 12_000_000
    (entry,) = gateway.quiet()
    assert_measured(entry, name, pair.provider, sent_text=True)


@pytest.mark.parametrize("name", GIANT_BODIES)
def test_a_body_beyond_the_limit_is_cut(gateway: Gateway, name: str) -> None:
    """An answer was generated, and is billed, although the client cannot use it."""
    response = gateway.ask(f"main/{gateway.upstream.play(GIANT_BODIES[name]())}", stream=False)
    assert (response.status, response.error["code"]) == (502, "upstream_event_too_large")
    (entry,) = gateway.quiet()
    assert_measured(entry, name, CHAT, sent_text=False)

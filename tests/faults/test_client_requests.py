"""Requests that are refused (C13, C19 to C34, C40, C43): the right status, the API's envelope, and no call."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.faults.client import AUTHORIZED, CLIENT_KEY, body, get, post
from tests.faults.dialects import CLIENTS, MESSAGES_CLIENT, RESPONSES_CLIENT, Client
from tests.faults.gateway import PROVIDER_KEY, Gateway
from tests.faults.scripts import TEXT, whole

HEAD = "".join(f"{name}: {value}\r\n" for name, value in AUTHORIZED.items()).encode()
LINE = b"POST /v1/chat/completions HTTP/1.1\r\n"
CONTENT = body("main/never-asked", stream=True)
LENGTH = b"Content-Length: %d\r\n" % len(CONTENT)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
IN_CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(CONTENT), CONTENT)


def framed(*headers: bytes, body: bytes = CONTENT, head: bytes = HEAD, line: bytes = LINE) -> bytes:
    return line + head + b"".join(headers) + b"\r\n" + body


@pytest.fixture(autouse=True)
def no_provider_is_asked(gateway: Gateway) -> Iterator[None]:
    """The model of requests that must be refused; the upstream must never get a request for it."""
    before = len(gateway.upstream.requests("never-asked"))
    yield
    after = len(gateway.upstream.requests("never-asked"))
    gateway.expected += after - before
    assert after == before, "the request was not refused"


# The probes of section 1.3 of the reference, and similar ones.
HOSTILE: dict[str, tuple[bytes, set[int]]] = {
    "C23 CL and TE": (framed(LENGTH, CHUNKED, body=IN_CHUNKS), {400}),
    "C23 TE and CL": (framed(CHUNKED, LENGTH, body=IN_CHUNKS), {400}),
    "C23 two lengths": (framed(LENGTH, b"Content-Length: 5\r\n"), {400}),
    "C23 the same length twice": (framed(LENGTH, LENGTH), {400}),
    "C23 a list of lengths": (framed(b"Content-Length: 5, 5\r\n"), {400}),
    "C23 a length with a plus": (framed(b"Content-Length: +5\r\n"), {400}),
    "C23 a negative length": (framed(b"Content-Length: -5\r\n"), {400}),
    "C23 a length in hex": (framed(b"Content-Length: 0x50\r\n"), {400}),
    "C23 a length beyond 64 bits": (framed(b"Content-Length: 99999999999999999999\r\n"), {400, 413}),
    "C23 xchunked": (framed(b"Transfer-Encoding: xchunked\r\n", body=IN_CHUNKS), {400, 501}),
    "C23 chunked, then identity": (framed(b"Transfer-Encoding: chunked, identity\r\n", body=IN_CHUNKS), {400, 501}),
    "C23 chunked twice": (framed(CHUNKED, CHUNKED, body=IN_CHUNKS), {400, 501}),
    "C23 TE with a tab inside": (framed(b"Transfer-Encoding:\x0bchunked\r\n", body=IN_CHUNKS), {400, 501}),
    "C23 bare LF in the headers": (framed(LENGTH).replace(b"\r\n", b"\n"), {400}),
    "C23 bare LF after one header": (framed(LENGTH.replace(b"\r\n", b"\n")), {400}),
    "C23 bare CR in a header": (framed(LENGTH, b"X-A: a\rb\r\n"), {400}),
    "C23 bare LF after a chunk size": (framed(CHUNKED, body=IN_CHUNKS.replace(b"\r\n", b"\n", 1)), {400}),
    "C23 a chunk size that is none": (framed(CHUNKED, body=b"zz\r\n\r\n"), {400}),
    "C23 a chunk longer than it says": (framed(CHUNKED, body=b"1\r\nab\r\n0\r\n\r\n"), {400}),
    "C23 obs-fold": (framed(LENGTH, b"X-A: a\r\n b\r\n"), {400}),
    "C23 a space before the colon": (framed(LENGTH, b"X-A : a\r\n"), {400}),
    "C23 a header without a name": (framed(LENGTH, b": a\r\n"), {400}),
    "C23 a header without a colon": (framed(LENGTH, b"X-A\r\n"), {400}),
    "C23 NUL in a header": (framed(LENGTH, b"X-A: a\x00b\r\n"), {400}),
    "C23 NUL in a name": (framed(LENGTH, b"X\x00A: b\r\n"), {400}),
    "C20 a chunk extension of 1 MB": (
        framed(CHUNKED, body=b"5;" + b"x" * 1_000_000 + b"\r\nhello\r\n0\r\n\r\n"),
        {400, 431},
    ),
    "C20 a trailer of 1 MB": (
        framed(CHUNKED, body=IN_CHUNKS[:-2] + b"X-A: " + b"x" * 1_000_000 + b"\r\n\r\n"),
        {400, 431},
    ),
    "C21 a header of 64 KB": (framed(LENGTH, b"X-A: " + b"x" * 65_536 + b"\r\n"), {431}),
    "C21 a header of 17 KB": (framed(LENGTH, b"X-A: " + b"x" * 17_000 + b"\r\n"), {431}),
    "C21 a header of 1 MB": (framed(LENGTH, b"X-A: " + b"x" * 1_000_000 + b"\r\n"), {431}),
    "C21 80 KB of headers": (framed(LENGTH, *(b"X-%d: %b\r\n" % (n, b"y" * 1000) for n in range(80))), {431}),
    "C21 1,000 headers": (framed(LENGTH, *(b"X-%d: y\r\n" % n for n in range(1_000))), {431}),
    "C21 20,000 headers": (framed(LENGTH, *(b"X-%d: y\r\n" % n for n in range(20_000))), {431}),
    "C22 a URL of 9 KB": (framed(LENGTH, line=b"POST /v1/chat/completions?" + b"x" * 9_000 + b" HTTP/1.1\r\n"), {414}),
    "C22 a URL of 1 MB": (framed(LENGTH, line=b"POST /" + b"x" * 1_000_000 + b" HTTP/1.1\r\n"), {414, 431}),
    "C24 no Host": (framed(LENGTH, head=HEAD.replace(b"Host: localhost\r\n", b"")), {400}),
    "C24 two Hosts": (framed(LENGTH, b"Host: other\r\n"), {400}),
    "C24 an odd Host": (framed(LENGTH, head=HEAD.replace(b"localhost", b"a/#@b")), {400}),
    "C24 a Host with a space": (framed(LENGTH, head=HEAD.replace(b"localhost", b"a b")), {400}),
    "C19 a length of 10¹²": (framed(b"Content-Length: 1000000000000\r\n", body=b""), {413}),
    "C23 no HTTP at all": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200, {400}),
    "C23 HTTP/0.9": (b"GET /\r\n\r\n", {400}),
    "C23 HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 405, 505}),
    "C23 HTTP/3.7": (framed(LENGTH, line=LINE.replace(b"1.1", b"3.7")), {400, 505}),
    "C23 a method that is none": (framed(LENGTH, line=LINE.replace(b"POST", b"P(ST")), {400}),
    "C40 TRACE": (get("/v1/chat/completions", method="TRACE"), {405}),
    "C40 CONNECT": (b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", {400, 405}),
    "C40 a WebSocket": (
        get("/v1/chat/completions", {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}),
        {400, 405, 426},
    ),
}
KEEPS_OPEN = {"C40 TRACE", "C40 a WebSocket"}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_framing_is_refused_and_the_connection_closed(gateway: Gateway, name: str) -> None:
    request, statuses = HOSTILE[name]
    with gateway.client() as client:
        client.send(request)
        response = client.response()
        assert response.status in statuses
        assert response.complete
        assert response.error["message"]
        if name not in KEEPS_OPEN:
            assert response.headers["connection"] == "close"
            client.ends()


# Values of Transfer-Encoding other than `chunked` alone; each item is one header.
TRANSFER_ENCODINGS: dict[tuple[str, ...], int] = {
    ("xchunked", "chunked"): 501,
    ("identity", "chunked"): 501,
    ("gzip", "chunked"): 501,
    ("gzip, chunked",): 501,
    ("gzip,chunked",): 501,
    ("gzip ,\tchunked",): 501,
    ("GZIP, CHUNKED",): 501,
    ("x-gzip, chunked",): 501,
    ("deflate, chunked",): 501,
    ("compress, chunked",): 501,
    ("br, chunked",): 501,
    ("identity, chunked",): 501,
    ("trailers, chunked",): 501,
    ("xchunked, chunked",): 501,
    ("chunkedx, chunked",): 501,
    ("gzip, deflate, chunked",): 501,
    ("gzip;q=1, chunked",): 501,
    ('"chunked", chunked',): 501,
    ("chunked;a=b, chunked",): 501,
    (",chunked",): 400,
    (", chunked",): 400,
    (" , chunked",): 400,
    (",,chunked",): 400,
    ("gzip,,chunked",): 400,
    ("chunked,",): 400,
    ("chunked ,",): 400,
    ("chunked, chunked",): 400,
    ("chunked,chunked",): 400,
    ("chunked", "chunked"): 400,
    ("chunked", "CHUNKED"): 400,
    ("chunked, gzip",): 400,
    ("chunked", "gzip"): 400,
    ("chunked", "identity"): 400,
    ("chunked", "xchunked"): 400,
    ("chunked, identity",): 400,
    ("gzip",): 400,
    ("identity",): 400,
    ("xchunked",): 400,
    ("chunke",): 400,
    ("chunkedx",): 400,
    ("chunked chunked",): 400,
    ("gzip chunked",): 400,
    ("chunked;a=b",): 400,
    ("chunked; a=b",): 400,
    ("chunked;",): 400,
    ('"chunked"',): 400,
    ("'chunked'",): 400,
    ("(a) chunked",): 400,
    ("chunked\x0b",): 400,
    ("\x0bchunked",): 400,
    ("\x0cchunked",): 400,
    ("chunked\x00",): 400,
    ("chunked\x1f",): 400,
    ("\xa0chunked",): 400,
    ("chunked\xa0",): 400,
    ("\xefchunked",): 400,
    ("chunked\rgzip",): 400,
    ("chunked\r\n gzip",): 400,
    ("\r\n chunked",): 400,
    ("",): 400,
    (" ",): 400,
    ("", "chunked"): 400,
    ("chunked", ""): 400,
    (",",): 400,
}


@pytest.mark.parametrize("values", TRANSFER_ENCODINGS, ids=repr)
def test_only_chunked_alone_is_a_transfer_encoding(gateway: Gateway, values: tuple[str, ...]) -> None:
    """Two recipients may read a list differently, and one of them finds a second request in the body (smuggling)."""
    headers = "".join(f"Transfer-Encoding: {value}\r\n" for value in values).encode("latin-1")
    with gateway.client() as client:
        client.send(framed(headers, body=IN_CHUNKS))
        response = client.response()
        assert (response.status, response.headers["connection"]) == (TRANSFER_ENCODINGS[values], "close")
        assert response.error["code"] == {400: "bad_request", 501: "transfer_coding_not_supported"}[response.status]
        client.ends()


def test_an_http_1_0_request_has_no_transfer_encoding(gateway: Gateway) -> None:
    """RFC 9112 section 6.1: the framing is faulty, because HTTP/1.0 has no chunked coding."""
    with gateway.client() as client:
        client.send(framed(CHUNKED, body=IN_CHUNKS, line=LINE.replace(b"1.1", b"1.0")))
        response = client.response()
        assert (response.status, response.headers["connection"]) == (400, "close")
        client.ends()


@pytest.mark.parametrize("value", ["chunked", "Chunked", "CHUNKED", " chunked", "\tchunked", "chunked ", "chunked  "])
def test_chunked_is_read_in_any_spelling_of_its_own(gateway: Gateway, value: str) -> None:
    model = gateway.upstream.play(whole())
    content = body(f"main/{model}", stream=True)
    in_chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)
    response = gateway.send(framed(f"Transfer-Encoding:{value}\r\n".encode(), body=in_chunks), calls=1)
    assert (response.status, response.text) == (200, TEXT)


FRONT = ["C23 CL and TE", "C21 a header of 17 KB", "C22 a URL of 9 KB", "C19 a length of 10¹²", "C24 no Host"]


@pytest.mark.parametrize("name", FRONT)
def test_what_is_refused_at_the_front_has_a_request_id_too(gateway: Gateway, name: str) -> None:
    assert _headers(gateway, HOSTILE[name][0]).get("x-request-id")


def _headers(gateway: Gateway, request: bytes) -> dict[str, str]:
    with gateway.client() as client:
        client.send(request)
        return client.response().headers


@pytest.mark.parametrize("size", [1, 7, 64])
@pytest.mark.parametrize("name", ["C23 CL and TE", "C23 bare LF after one header", "C24 two Hosts", "C23 obs-fold"])
def test_hostile_framing_is_refused_in_pieces_too(gateway: Gateway, name: str, size: int) -> None:
    request, statuses = HOSTILE[name]
    with gateway.client() as client:
        for start in range(0, len(request), size):
            client.send(request[start : start + size])
        assert client.response().status in statuses


def test_a_second_request_cannot_be_smuggled_into_a_body(gateway: Gateway) -> None:
    hidden = post(CONTENT)
    with gateway.client() as client:
        client.send(framed(LENGTH, CHUNKED, body=b"0\r\n\r\n" + hidden))
        assert client.response().status == 400
        client.ends()


@dataclass(frozen=True)
class Refused:
    """A body that is refused, and the field at fault."""

    body: bytes
    param: str | None = None
    code: str | None = None


def refused_of_all(client: Client) -> dict[str, Refused]:
    """The bodies that are refused in every dialect."""
    content, prompt, limit = client.content("main/never-asked", stream=True), client.messages, LIMIT[client.dialect]

    def fields(**fields: object) -> bytes:
        return json.dumps(json.loads(content) | fields).encode()

    def without(name: str) -> bytes:
        return json.dumps({key: value for key, value in json.loads(content).items() if key != name}).encode()

    def raw(field: bytes) -> bytes:
        return content[:-1] + b", " + field + b"}"

    return {
        "C25 no JSON": Refused(b"{secret-of-the-client", code="invalid_json"),
        "C25 cut": Refused(content[:-1], code="invalid_json"),
        "C25 more behind it": Refused(content + b"{}", code="invalid_json"),
        "C25 empty": Refused(b"", code="invalid_json"),
        "C25 a list": Refused(b"[]", code="invalid_json"),
        "C25 null": Refused(b"null", code="invalid_json"),
        "C26 nested 100,000 deep": Refused(raw(b'"x": ' + b"[" * 100_000 + b"]" * 100_000)),
        "C26 nested 100,000 deep, objects": Refused(raw(b'"x": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000)),
        "C26 nested 100,000 deep, unclosed": Refused(raw(b'"x": ' + b"[" * 100_000)),
        "C27 two models": Refused(raw(b'"model": "main/another"'), "model", "duplicate_key"),
        "C27 two models, one escaped": Refused(raw(b'"mod\\u0065l": "main/another"'), "model", "duplicate_key"),
        "C27 two streams": Refused(raw(b'"stream": false'), "stream", "duplicate_key"),
        "C27 two lists of messages": Refused(raw(b'"%b": []' % prompt.encode()), prompt, "duplicate_key"),
        "C29 a lone surrogate": Refused(raw(b'"user": "\\ud800"')),
        "C29 a surrogate in raw bytes": Refused(raw(b'"user": "\xed\xa0\x80"')),
        "C29 invalid UTF-8": Refused(raw(b'"user": "\xff"')),
        "C29 NUL": Refused(raw(b'"user": "\x00"')),
        "C29 NaN": Refused(raw(b'"temperature": NaN')),
        "C29 Infinity": Refused(raw(b'"temperature": Infinity')),
        "C29 beyond a double": Refused(raw(b'"temperature": 1e400')),
        "C29 5,000 digits": Refused(raw(b'"seed": ' + b"9" * 5_000)),
        "C30 no model": Refused(without("model"), "model"),
        "C30 a model that is a number": Refused(fields(model=4), "model"),
        "C30 an empty model": Refused(fields(model=""), "model"),
        "C30 no messages": Refused(without(prompt), prompt),
        "C30 messages in an object": Refused(fields(**{prompt: {"content": "hello"}}), prompt),
        "C30 stream is a word": Refused(fields(stream="yes"), "stream"),
        "C30 max_tokens = -1": Refused(fields(**{limit: -1}), limit),
        "C30 max_tokens = 2⁶³": Refused(fields(**{limit: 2**63}), limit),
        "C30 10,000 tools": Refused(fields(tools=[{"name": "x", "type": "function"}] * 10_000), "tools"),
        "C30 100,000 values": Refused(fields(metadata=["x"] * 100_000), code="request_too_complex"),
    }


def changed(**fields: object) -> bytes:
    return json.dumps(json.loads(CONTENT) | fields).encode()


def stops(name: str, **more: object) -> dict[str, Refused]:
    """Stop sequences in a member of this name."""
    return {"C30 10,000 stops": Refused(changed(**{name: ["x"] * 10_000}, **more), name)}


LIMIT = {"openai_chat": "max_tokens", "anthropic_messages": "max_tokens", "openai_responses": "max_output_tokens"}
REFUSED: dict[str, dict[str, Refused]] = {dialect: refused_of_all(client) for dialect, client in CLIENTS.items()}
REFUSED["openai_chat"] |= stops("stop") | {
    "C30 messages in a string": Refused(changed(messages="hello"), "messages"),
    "C30 stream options in a list": Refused(changed(stream_options=[]), "stream_options"),
    "C30 n = 10⁶": Refused(changed(n=10**6), "n"),
    "C30 n = 0": Refused(changed(n=0), "n"),
    "C30 n = true": Refused(changed(n=True), "n"),
    "C30 n is a fraction": Refused(changed(n=1.5), "n"),
    "C30 max_completion_tokens = 10⁴⁰": Refused(changed(max_completion_tokens=10**40), "max_completion_tokens"),
    "C30 max_completion_tokens in words": Refused(changed(max_completion_tokens="many"), "max_completion_tokens"),
}
REFUSED["openai_responses"] |= {
    "C27 two that continue": Refused(
        RESPONSES_CLIENT.content("main/never-asked", stream=True, previous_response_id="resp_1")[:-1]
        + b', "previous_response_id": "resp_2"}',
        "previous_response_id",
        "duplicate_key",
    ),
    "C30 in the background, but not stored": Refused(
        RESPONSES_CLIENT.content("main/never-asked", stream=True, background=True, store=False), "background"
    ),
    "C30 another response, though none is kept": Refused(
        RESPONSES_CLIENT.content("main/never-asked", stream=True, previous_response_id="resp_1"),
        "previous_response_id",
    ),
}
REFUSED["anthropic_messages"] |= stops("stop_sequences", max_tokens=5) | {
    "C30 messages in a string": Refused(changed(messages="hello", max_tokens=5), "messages"),
    "C27 two limits": Refused(changed(max_tokens=5)[:-1] + b', "max_tokens": 7}', "max_tokens", "duplicate_key"),
    "C30 no max_tokens": Refused(CONTENT, "max_tokens"),
    "C30 max_tokens = 0": Refused(changed(max_tokens=0), "max_tokens"),
    "C30 max_tokens = true": Refused(changed(max_tokens=True), "max_tokens"),
}
ROWS = {
    f"{dialect}-{name}": (CLIENTS[dialect], case) for dialect, rows in REFUSED.items() for name, case in rows.items()
}


@pytest.mark.parametrize(("client", "case"), ROWS.values(), ids=ROWS)
def test_a_body_that_cannot_be_taken_is_refused(gateway: Gateway, client: Client, case: Refused) -> None:
    response = client.read(gateway.send(post(case.body, path=client.path)))
    assert response.status == 400
    error = response.error
    assert error["type"] == "invalid_request_error"
    if client != MESSAGES_CLIENT:
        assert error["param"] == case.param
    else:
        assert (case.param or "") in error["message"]
    assert case.code is None or error["code"] == case.code
    assert "secret-of-the-client" not in response.body.decode()
    assert response.headers["x-should-retry"] == "false"


LARGE_NUMBERS = {
    "C29 beyond 64 bits": b"123456789012345678901234567890",
    "C29 4,000 digits": b"9" * 4_000,
    "2⁶⁴": b"18446744073709551616",
    "a small fraction": b"1e-300",
}


@pytest.mark.parametrize("number", LARGE_NUMBERS.values(), ids=LARGE_NUMBERS)
def test_a_number_that_cannot_be_passed_on_as_it_is_is_refused(gateway: Gateway, number: bytes) -> None:
    """Either it reaches the provider unchanged, or it is the client's mistake; it is never a failure of the gateway."""
    model = gateway.upstream.play(whole())
    response = gateway.send(post(body(f"main/{model}", stream=False)[:-1] + b', "seed": ' + number + b"}"))
    if response.status == 200:
        gateway.expected += 1
        (asked,) = gateway.upstream.requests(model)
        assert json.loads(asked.partition(b"\r\n\r\n")[2])["seed"] == json.loads(number)
    else:
        assert response.status == 400


def test_c32_unknown_fields_reach_the_provider(gateway: Gateway) -> None:
    model = gateway.upstream.play(whole())
    more = {"top_k": 40, "some_vendor": {"nested": [1, 2.5, None, "é"]}, "metadata": {"a": "b"}}
    gateway.ask(f"main/{model}", stream=True, **more)
    (asked,) = gateway.upstream.requests(model)
    sent = json.loads(asked.partition(b"\r\n\r\n")[2])
    assert sent == {
        "model": model,
        "stream": True,
        "messages": [{"role": "user", "content": "Say hello."}],
        "stream_options": {"include_usage": True},
        **more,
    }


@pytest.mark.parametrize("name", ["api_base", "base_url", "api_key"])
def test_c33_a_body_cannot_name_another_upstream_or_key(gateway: Gateway, name: str) -> None:
    model = gateway.upstream.play(whole())
    response = gateway.send(post(body(f"main/{model}", stream=False, **{name: "http://127.0.0.1:9/v1"})))
    assert (response.status, response.json["error"]["param"]) == (400, name)
    assert not gateway.upstream.requests(model)


def test_c33_a_client_cannot_name_another_upstream_or_key(gateway: Gateway) -> None:
    model = gateway.upstream.play(whole())
    content = body(f"main/{model}", stream=False, custom_llm_provider="x")
    headers = {"X-Upstream-Host": "127.0.0.1:9", "X-Forwarded-Host": "evil", "OpenAI-Organization": "theirs"}
    response = gateway.send(post(content, headers), calls=1)
    assert response.text == TEXT
    (asked,) = gateway.upstream.requests(model)
    head = asked.partition(b"\r\n\r\n")[0].lower()
    assert f"authorization: bearer {PROVIDER_KEY}".encode() in head
    assert b"evil" not in head
    assert CLIENT_KEY.encode() not in asked


KEYS: dict[str, tuple[dict[str, str], int]] = {
    "none": ({}, 401),
    "a wrong one": ({"Authorization": "Bearer wrong-key-wrong-key"}, 401),
    "an empty one": ({"Authorization": "Bearer "}, 401),
    "a wrong scheme": ({"Authorization": f"Basic {CLIENT_KEY}"}, 401),
    "a longer one": ({"Authorization": f"Bearer {CLIENT_KEY}x"}, 401),
    "a shorter one": ({"Authorization": f"Bearer {CLIENT_KEY[:-1]}"}, 401),
    "bytes of no encoding": ({"Authorization": "Bearer \xff\xfe"}, 401),
    "the provider's": ({"Authorization": f"Bearer {PROVIDER_KEY}"}, 401),
    "the bearer's": ({"Authorization": f"Bearer {CLIENT_KEY}"}, 200),
    "in small letters": ({"authorization": f"bearer {CLIENT_KEY}"}, 200),
    "x-api-key": ({"X-Api-Key": CLIENT_KEY}, 200),
    "api-key": ({"Api-Key": CLIENT_KEY}, 200),
    "an empty bearer's, and x-api-key": ({"Authorization": "Bearer ", "X-Api-Key": CLIENT_KEY}, 200),
    "a bare scheme, and api-key": ({"Authorization": "Bearer", "Api-Key": CLIENT_KEY}, 200),
    "a wrong bearer's, and x-api-key": ({"Authorization": "Bearer wrong-key", "X-Api-Key": CLIENT_KEY}, 401),
}


@pytest.mark.parametrize(("headers", "status"), KEYS.values(), ids=KEYS)
def test_c34_keys(gateway: Gateway, headers: dict[str, str], status: int) -> None:
    model = gateway.upstream.play(whole())
    content = body(f"main/{model}", stream=True)
    lines = ["POST /v1/chat/completions HTTP/1.1", "Host: gateway", f"Content-Length: {len(content)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    request = "\r\n".join([*lines, "", ""]).encode("latin-1") + content
    response = gateway.send(request, calls=1 if status == 200 else 0)
    assert response.status == status
    if status == 401:
        assert response.error["code"] == "invalid_api_key"
        assert not gateway.upstream.requests(model)


def test_c31_a_body_that_is_compressed_is_refused_or_read(gateway: Gateway) -> None:
    model = gateway.upstream.play(whole())
    content = gzip.compress(body(f"main/{model}", stream=False))
    response = gateway.send(post(content, {"Content-Encoding": "gzip"}))
    gateway.expected += response.status == 200
    assert response.status in (200, 415)


def test_c31_a_body_from_a_web_page_is_refused(gateway: Gateway) -> None:
    """A web page may send `text/plain` to any host without a CORS preflight. It must not spend the gateway's money."""
    model = gateway.upstream.play(whole())
    headers = {
        "Content-Type": "text/plain;charset=UTF-8",
        "Origin": "https://evil.example",
        "Sec-Fetch-Site": "cross-site",
    }
    response = gateway.send(post(body(f"main/{model}", stream=False), headers))
    gateway.expected += response.status == 200
    assert response.status in (403, 415)


def test_c40_a_preflight_is_answered(gateway: Gateway) -> None:
    """Without a key, because browsers send none with a preflight."""
    request = get(
        "/v1/chat/completions", {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}, "OPTIONS"
    )
    response = gateway.send(request.replace(f"Authorization: Bearer {CLIENT_KEY}\r\n".encode(), b""))
    assert response.status == 204
    assert not {"content-length", "transfer-encoding"} & response.headers.keys()  # RFC 9110 section 8.6, RFC 9112 6.1


def test_c40_an_offer_of_http_2_is_ignored(gateway: Gateway) -> None:
    """Java's client and curl --http2 offer it with every first request on a plain connection."""
    model = gateway.upstream.play(whole())
    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQAAP__"}
    response = gateway.send(post(body(f"main/{model}", stream=True), offer), calls=1)
    assert (response.status, response.text) == (200, TEXT)


# The option, and whether the connection is closed after the answer.
OPTIONS = {
    "close, Upgrade": True,
    "Upgrade,CLOSE": True,
    "upgrade, close , HTTP2-Settings": True,
    "Upgrade, keep-alive": False,
    "Upgrade, closed, disclose": False,
}


@pytest.mark.parametrize("option", OPTIONS)
def test_c40_an_offer_beside_a_close_loses_only_the_offer(gateway: Gateway, option: str) -> None:
    model = gateway.upstream.play(whole())
    request = post(body(f"main/{model}", stream=True), {"Connection": option, "Upgrade": "h2c"})
    with gateway.client() as client:
        gateway.expected += 1
        client.send(request)
        response = gateway.keep(client.response())
        assert (response.status, response.text) == (200, TEXT)
        assert (response.headers.get("connection") == "close") is OPTIONS[option]
        if OPTIONS[option]:
            assert client.ends() == "closed"
        else:
            client.send(get("/health"))
            assert gateway.keep(client.response()).status == 200


@pytest.mark.parametrize("stream", [True, False])
def test_c40_an_offer_of_an_http_1_0_client_gets_no_chunks(gateway: Gateway, stream: bool) -> None:
    model = gateway.upstream.play(whole())
    request = post(body(f"main/{model}", stream=stream), {"Connection": "Upgrade", "Upgrade": "h2c"})
    with gateway.client() as client:
        gateway.expected += 1
        client.send(request.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        response = gateway.keep(client.response())
        assert "transfer-encoding" not in response.headers
        assert (response.status, response.text) == (200, TEXT)
        assert client.ends() == "closed"


INJECTIONS = {
    "CRLF": "a\r\nx-evil: 1",
    "LF": "a\nx-evil: 1",
    "NUL": "a\x00b",
    "escape": "\x1b[31mred",
    "long": "x" * 5_000,
}


@pytest.mark.parametrize("name", INJECTIONS.values(), ids=INJECTIONS)
def test_c43_a_model_name_injects_nothing(gateway: Gateway, name: str) -> None:
    response = gateway.send(post(body(f"main/{name}", stream=True)))
    gateway.expected += response.status != 400
    assert response.status in (400, 404)
    assert "x-evil" not in response.headers
    assert all(line.startswith(("{", "penstock ")) for line in gateway.output), "the log has a line that is none"


def test_c43_metadata_injects_nothing(gateway: Gateway) -> None:
    model = gateway.upstream.play(whole())
    response = gateway.ask(f"main/{model}", stream=True, metadata={"x\r\ny": "a\r\nx-evil: 1"}, user="a\r\nb")
    assert response.status == 200
    assert "x-evil" not in response.headers


PATHS = {
    "GET /v1/chat/completions": (get("/v1/chat/completions"), 405),
    "DELETE /v1/chat/completions": (get("/v1/chat/completions", method="DELETE"), 405),
    "POST /v1/models": (post(b"{}", path="/v1/models"), 405),
    "GET /v1/nothing": (get("/v1/nothing"), 404),
    "GET /": (get("/"), 404),
    "GET /../../etc/passwd": (get("/../../etc/passwd"), 404),
    "GET /v1/models/nothing": (get("/v1/models/nothing"), 404),
    "GET /v1/models": (get("/v1/models"), 200),
    "GET /models": (get("/models"), 200),
    "GET /health": (get("/health"), 200),
    "GET /readyz": (get("/readyz"), 200),
    "GET /livez": (get("/livez"), 200),
}


@pytest.mark.parametrize(("request_", "status"), PATHS.values(), ids=PATHS)
def test_paths(gateway: Gateway, request_: bytes, status: int) -> None:
    assert gateway.send(request_).status == status


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/openai/v1/"])
def test_a_path_without_an_endpoint_names_one(gateway: Gateway, path: str) -> None:
    message = gateway.send(get(path)).error["message"]
    assert message.startswith(f"there is nothing at {path}; the paths of the API begin with /v1, such as /v1/models")


NAMES: dict[str, tuple[bytes, str]] = {
    "as it is": (b"main/some", "main/some"),
    "a slash, escaped": (b"main%2Fsome", "main/some"),
    "slashes, in small letters": (b"main%2fmeta%2fllama%3afree", "main/meta/llama:free"),
    "not ASCII": (b"main%2F%C3%A9%F0%9F%8C%9E", "main/é🌞"),
    "a per cent sign": (b"main%2F100%25", "main/100%"),
    "a plus": (b"main/a+b", "main/a+b"),
    "escaped twice": (b"main%2Fa%252Fb", "main/a%2Fb"),
}


@pytest.mark.parametrize(("escaped", "name"), NAMES.values(), ids=NAMES)
def test_a_model_is_found_by_its_escaped_name(gateway: Gateway, escaped: bytes, name: str) -> None:
    response = gateway.send(get("/v1/models/NAME").replace(b"NAME", escaped, 1))
    assert (response.status, response.json["id"]) == (200, name)


@pytest.mark.parametrize("escaped", [b"main%2", b"main%2Fx%", b"main/%zz", b"main%2F%C3", b"main%2F%ED%A0%80", b"%FF"])
def test_a_name_with_malformed_percent_encoding_is_reported(gateway: Gateway, escaped: bytes) -> None:
    response = gateway.send(get("/v1/models/NAME").replace(b"NAME", escaped, 1))
    assert (response.status, response.error["code"]) == (404, "model_not_found")
    assert "percent-encoding" in response.error["message"]
    assert escaped.decode() in response.error["message"]


def test_a_model_that_is_not_there(gateway: Gateway) -> None:
    response = gateway.ask("nobody/nothing", stream=True)
    assert (response.status, response.error["code"], response.error["param"]) == (404, "model_not_found", "model")


# Pipelining.


def test_c13_requests_sent_ahead_are_answered_in_order(gateway: Gateway) -> None:
    models = [gateway.upstream.play(whole()) for _ in range(3)]
    with gateway.client() as client:
        gateway.expected += 3
        client.send(b"".join(post(body(f"main/{model}", stream=n != 1)) for n, model in enumerate(models)))
        for model in models:
            response = gateway.keep(client.response())
            assert (response.text, response.headers["x-penstock-model"]) == (TEXT, model)


def test_c13_a_hundred_requests_in_one_write(gateway: Gateway) -> None:
    with gateway.client() as client:
        client.send(get("/health") * 100)
        assert [gateway.keep(client.response()).status for _ in range(100)] == [200] * 100


def test_c13_rubbish_behind_a_request_does_not_break_its_answer(gateway: Gateway) -> None:
    model = gateway.upstream.play(whole())
    with gateway.client() as client:
        gateway.expected += 1
        client.send(post(body(f"main/{model}", stream=True)))
        gateway.upstream.asked(model)
        client.send(b"\x00\x01\x02 rubbish\r\n\r\n")
        response = gateway.keep(client.response())
        assert (response.text, response.complete) == (TEXT, True)


def test_an_http_1_0_client_gets_no_chunks(gateway: Gateway) -> None:
    """An HTTP/1.0 client does not know chunked bodies: it would take the chunk sizes for text."""
    model = gateway.upstream.play(whole())
    content = body(f"main/{model}", stream=True)
    request = post(content).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    response = gateway.send(request, calls=1)
    assert "transfer-encoding" not in response.headers
    assert (response.text, response.done) == (TEXT, True)


def test_a_client_that_expects_100_continue_gets_it(gateway: Gateway) -> None:
    model = gateway.upstream.play(whole())
    request = post(body(f"main/{model}", stream=True), {"Expect": "100-continue"})
    head, _, content = request.partition(b"\r\n\r\n")
    with gateway.client() as client:
        gateway.expected += 1
        client.send(head + b"\r\n\r\n")
        client.read_until(b"HTTP/1.1 100 Continue\r\n\r\n")
        client.send(content)
        assert gateway.keep(client.response()).text == TEXT


def test_c19_a_body_in_chunks_is_cut_at_the_limit(gateway: Gateway) -> None:
    """It is refused as soon as it is too long, not only at its end."""
    with gateway.client() as client:
        client.send(framed(CHUNKED, body=b""))
        piece = b"%x\r\n%b\r\n" % (1_000_000, b" " * 1_000_000)
        for _ in range(25):
            client.send(piece)
        assert client.response().status == 413


def test_c19_a_refusal_is_read_although_the_body_is_still_being_sent(gateway: Gateway) -> None:
    """A client that is still sending must get the response, not a reset: many send everything before they read."""
    with gateway.client() as client:
        client.send(framed(b"Content-Length: 30000000\r\n", body=b""))
        for _ in range(30):
            client.send(b" " * 1_000_000)
        assert client.response().status == 413


# A request that would take more than 15 ms per megabyte to read is refused. Neither it nor an accepted one delays
# others.
LARGE: dict[str, tuple[bytes, int]] = {
    "C28 long texts": (b'"x": ["' + b'", "'.join([b"word " * 200] * 4_000) + b'"]', 200),
    "C28 a million numbers": (b'"x": [' + b"1," * 1_000_000 + b"1]", 400),
    "C28 300,000 keys": (b'"x": {' + b",".join(b'"k%d":1' % n for n in range(300_000)) + b"}", 400),
}


@pytest.mark.parametrize(("field", "status"), LARGE.values(), ids=LARGE)
def test_c28_a_large_body_does_not_hold_up_others(gateway: Gateway, field: bytes, status: int) -> None:
    model = gateway.upstream.play(whole())
    content = body(f"main/{model}", stream=True)[:-1] + b", " + field + b"}"
    with gateway.client() as large, gateway.client() as other:
        gateway.expected += status == 200
        request = post(content)
        large.send(request[:-1])
        other.send(get("/health"))
        gateway.keep(other.response())
        large.send(request[-1:])
        for _ in range(20):
            other.send(get("/health"))
            gateway.keep(other.response())
        response = gateway.keep(large.response())
        assert response.status == status
        assert response.text == TEXT if status == 200 else response.error["code"] == "request_too_complex"


@pytest.mark.parametrize("stream", [True, False])
def test_headers_name_who_answered_and_by_which_name_the_client_knows_it(gateway: Gateway, stream: bool) -> None:
    model = gateway.upstream.play(whole())
    request = post(body(f"main/{model}", stream=stream), {"X-Client-Request-Id": "mine-1"})
    headers = gateway.send(request, calls=1).headers
    assert (headers["x-client-request-id"], headers["x-penstock-provider"]) == ("mine-1", "main")
    assert headers["x-penstock-attempts"] == "1"
    assert int(headers["openai-processing-ms"]) >= 0
    refused = gateway.send(post(b"{}", {"X-Client-Request-Id": "mine-2"}))
    assert (refused.status, refused.headers["x-client-request-id"]) == (400, "mine-2")
    gateway.quiet()

"""`/v1/embeddings`: request and response are forwarded unchanged; routes, fallback, keys, errors work as for chat."""

import gzip
import json
import time
import zlib
from collections.abc import Iterator

import pytest
from openai import DefaultHttpxClient, NotFoundError, OpenAI

from tests.faults.client import CLIENT_KEY, Response, get, post
from tests.faults.gateway import PROVIDER_KEY, Gateway, settings
from tests.faults.upstream import JSON, Script, Upstream, fin, hang, head, rst, send, status
from tests.promptness import in_time, prompt

BODY = b'{"input": ["a",  "\\u0062"], "dimensions": 2.0, "odd": {"x": 1e400}, "model": "MODEL"}'
ANSWER = (
    b'{"object":"list",  "data":[{"object":"embedding","index":0,"embedding":[0.10,-1e-3]}],'
    b'"model":"e-1","usage":{"prompt_tokens":7,"total_tokens":7},"extra":true}'
)
GZIP = JSON | {"content-encoding": "gzip"}
OK: Script = [status(200, JSON, ANSWER)]
DOWN: Script = [status(500, JSON, b'{"error": {"message": "down"}}')]


# A route for each case, so that no case makes a target of another one cool down.
ROUTE = '[routes."e-*"]\ntargets = ["none/x", "main/first-*", "spare/second-*"]\nset = { user = "u" }\n'


@pytest.fixture(scope="module")
def shared_embedding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    none = {"base_url": "http://127.0.0.1:9/v1", "api_key": "a-key-of-some-length"}
    with Upstream() as upstream:
        text = settings(upstream.url, 0, **{"providers.none": none})
        for name in ("main", "spare", "hasty"):
            text = text.replace(f"[providers.{name}]\n", f'[providers.{name}]\nembeddings = "/embed/{{model}}"\n')
        with Gateway(tmp_path_factory.mktemp("embedding"), upstream, text + ROUTE) as gateway:
            yield gateway


@pytest.fixture
def embedding(shared_embedding: Gateway) -> Iterator[Gateway]:
    """A gateway whose providers offer embeddings: two with long timeouts, and one with a short one."""
    yield shared_embedding
    try:
        shared_embedding.quiet()
    except BaseException:
        shared_embedding.forget()
        raise


def ask(gateway: Gateway, model: str, body: bytes = BODY) -> Response:
    return gateway.send(post(body.replace(b"MODEL", model.encode()), path="/v1/embeddings"), calls=1)


def test_body_and_answer_pass_as_they_are(embedding: Gateway) -> None:
    model = embedding.upstream.play(OK)
    response = ask(embedding, f"main/{model}")
    assert (response.status, response.body) == (200, ANSWER)
    assert response.headers["x-penstock-provider"] == "main"
    sent, _, body = embedding.upstream.requests(model)[-1].partition(b"\r\n\r\n")
    assert sent.startswith(b"POST /v1/embed/%b HTTP/1.1\r\n" % model.encode())
    assert f"authorization: Bearer {PROVIDER_KEY}".encode() in sent
    assert body == BODY.replace(b"MODEL", model.encode())
    call = embedding.call(response)
    assert (call["ending"], call["input"], call["output"], call["stream"]) == ("completed", 7, 0, False)
    embedding.quiet()


def test_the_official_client_reads_it(embedding: Gateway) -> None:
    model = embedding.upstream.play(OK)
    embedding.expected += 1
    with OpenAI(
        base_url=f"http://127.0.0.1:{embedding.port}/v1",
        api_key=CLIENT_KEY,
        http_client=DefaultHttpxClient(trust_env=False),
    ) as sdk:
        reported = sdk.embeddings.create(model=f"main/{model}", input=["a"], encoding_format="float")
        assert reported.data[0].embedding == [0.1, -0.001]
        assert reported.usage.prompt_tokens == 7
        embedding.expected += 1
        with pytest.raises(NotFoundError, match="no provider of 'none/x' offers embeddings"):
            sdk.embeddings.create(model="none/x", input="a")
    embedding.quiet()


FAILS: dict[str, Script] = {
    "an error": DOWN,
    "a reset": [rst()],
    "a page": [status(200, {"content-type": "text/html"}, b"<html>busy</html>")],
    "cut short": [head(200, JSON, framing="content-length: 999"), send(b'{"data": ['), fin()],
    "a packed error": [status(503, GZIP, gzip.compress(b'{"error": {"message": "down"}}'))],
}
# Bodies with a status of success that are no answers, and how they are reported.
NO_ANSWERS: dict[str, tuple[dict[str, str], bytes, str, str]] = {
    "an error": (JSON, b'{"error": {"message": "quota"}}', "upstream_error", "quota"),
    "an error in words": (JSON, b'{"detail": "no such model"}', "upstream_error", "no such model"),
    "an error beside data": (JSON, b'{"data": [1], "error": {"message": "quota"}}', "upstream_error", "quota"),
    "a packed error": (GZIP, gzip.compress(b'{"error": {"message": "quota"}}'), "upstream_error", "quota"),
    "an error that quotes our key": (
        JSON,
        b'{"error": {"message": "key: %b"}}' % PROVIDER_KEY.replace("-", "\\u002d").encode(),
        "upstream_error",
        "key: …",
    ),
    "cut": (JSON, ANSWER[:40], "upstream_truncated", "ended before"),
    "cut in a text": (JSON, ANSWER[:-5], "upstream_truncated", "ended before"),
    "cut, and packed": (GZIP, gzip.compress(ANSWER[:40]), "upstream_truncated", "ended before"),
    "packed, and cut": (GZIP, gzip.compress(ANSWER)[:-20], "upstream_truncated", "ended before"),
    "much, and cut": (JSON, ANSWER[:-1] + b',"more":[' + b"1," * 9_000_000, "upstream_truncated", "ended before"),
    "an object without anything": (JSON, b"{}", "upstream_empty", "nothing in it"),
    "nothing": (JSON, b"", "upstream_empty", "empty"),
    "no JSON": (JSON, b'{"data": x}', "upstream_bad_response", "not valid JSON"),
    "more than JSON": (JSON, ANSWER + b"x", "upstream_bad_response", "not valid JSON"),
    "a list": (JSON, b"[1]", "upstream_bad_response", "not a JSON object"),
    "a packed page": (GZIP, gzip.compress(b"<html>"), "upstream_bad_response", "not a JSON object"),
    "said to be packed": (GZIP, b"<html>busy</html>", "upstream_bad_response", "decompressed"),
}
FAILS |= {f"200, {name}": [status(200, row[0], row[1])] for name, row in NO_ANSWERS.items()}


@pytest.mark.parametrize("script", FAILS.values(), ids=FAILS)
def test_the_next_target_answers(embedding: Gateway, script: Script) -> None:
    number = len(embedding.upstream.scripts)
    embedding.upstream.play(script, f"first-{number}")
    embedding.upstream.play(OK, f"second-{number}")
    response = ask(embedding, f"e-{number}")
    assert (response.status, response.body) == (200, ANSWER)
    call = embedding.call(response)
    assert [tried["target"] for tried in call["attempts"]] == [f"main/first-{number}", f"spare/second-{number}"]
    sent = embedding.upstream.requests(f"second-{number}")[-1].partition(b"\r\n\r\n")[2]
    assert json.loads(sent.replace(b"1e400", b"0"))["user"] == "u"
    embedding.quiet()


@pytest.mark.parametrize(("headers", "data", "code", "words"), NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_what_is_no_answer_is_reported_as_a_failure(
    embedding: Gateway, headers: dict[str, str], data: bytes, code: str, words: str
) -> None:
    response = ask(embedding, f"main/{embedding.upstream.play([status(200, headers, data)])}")
    assert (response.status, response.error["code"]) == (502, code)
    assert words in response.error["message"]
    call = embedding.call(response)
    assert (call["code"], call["attempts"][0]["code"]) == (code, code)
    assert call["ending"] != "completed"
    embedding.quiet()


ANSWERS: dict[str, tuple[dict[str, str], bytes]] = {
    "packed": (GZIP, gzip.compress(ANSWER)),
    "packed twice over": (GZIP, gzip.compress(ANSWER[:50]) + gzip.compress(ANSWER[50:])),
    "deflated without a head": (JSON | {"content-encoding": "deflate"}, zlib.compress(ANSWER, wbits=-15)),
    "in an unknown coding": (JSON | {"content-encoding": "br"}, b"\x8b\x01"),
    "numbers that are none": (JSON, ANSWER.replace(b"0.10", b"NaN").replace(b"-1e-3", b"-Infinity")),
    "numbers that are too great": (JSON, ANSWER.replace(b"0.10", b"1e400")),
    "no error": (JSON, ANSWER.replace(b'"extra":true', b'"error":null,"message":"ok"')),
    "a message besides": (JSON, b'{"embeddings":[[1]],"message":"done"}'),
    "another shape": (JSON, b' {"vectors":[[1]]} \n'),
    "much": (JSON, ANSWER[:-1] + b',"more":[' + b"1," * 9_000_000 + b"1]}"),
}


@pytest.mark.parametrize(("headers", "data"), ANSWERS.values(), ids=ANSWERS)
def test_an_odd_answer_is_passed_on(embedding: Gateway, headers: dict[str, str], data: bytes) -> None:
    response = ask(embedding, f"main/{embedding.upstream.play([status(200, headers, data)])}")
    assert (response.status, response.body) == (200, data)
    assert response.headers.get("content-encoding") == headers.get("content-encoding")
    assert embedding.call(response)["ending"] == "completed"
    embedding.quiet()


def test_usage_is_read_from_a_packed_answer(embedding: Gateway) -> None:
    response = ask(embedding, f"main/{embedding.upstream.play([status(200, GZIP, gzip.compress(ANSWER))])}")
    assert embedding.call(response)["input"] == 7
    embedding.quiet()


def test_a_refusal_is_unpacked(embedding: Gateway) -> None:
    sent_text = b'{"error": {"message": "too many inputs", "code": "many"}}'
    response = ask(embedding, f"main/{embedding.upstream.play([status(400, GZIP, gzip.compress(sent_text))])}")
    assert (response.status, response.body) == (400, sent_text)
    unreadable = status(400, JSON | {"content-encoding": "br"}, b"[\x01")
    response = ask(embedding, f"main/{embedding.upstream.play([unreadable])}")
    assert (response.status, response.error["code"]) == (400, "invalid_request")
    assert "cannot be read" in response.error["message"]
    embedding.quiet()


def test_when_no_one_answers_the_client_gets_an_error(embedding: Gateway) -> None:
    number = len(embedding.upstream.scripts)
    embedding.upstream.play(DOWN, f"first-{number}")
    embedding.upstream.play([status(400, JSON, b'{"error": {"message": "too many inputs"}}')], f"second-{number}")
    response = ask(embedding, f"e-{number}")
    assert (response.status, response.error["message"]) == (400, "too many inputs")
    embedding.quiet()


@prompt
def test_a_provider_that_is_silent_is_not_waited_for(embedding: Gateway) -> None:
    model = embedding.upstream.play([hang()])
    began = time.monotonic()
    response = ask(embedding, f"hasty/{model}")
    assert (response.status, response.error["code"]) == (504, "upstream_timeout_idle")
    in_time(time.monotonic() - began, 2.0)
    assert embedding.call(response)["ending"] == "timed_out"
    embedding.quiet()


def test_a_client_that_leaves_stops_the_provider(embedding: Gateway) -> None:
    model = embedding.upstream.play([hang()])
    with embedding.client() as client:
        client.send(post(BODY.replace(b"MODEL", f"main/{model}".encode()), path="/v1/embeddings"))
        embedding.upstream.asked(model)
    embedding.expected += 1
    assert embedding.last_call()["ending"] == "cancelled"
    embedding.quiet()


WRONG: dict[str, tuple[bytes, int, str]] = {
    "no JSON": (b"{", 400, "invalid_json"),
    "no object": (b"[]", 400, "invalid_json"),
    "no model": (b'{"input": "a"}', 400, "invalid_request"),
    "a model that is no name": (b'{"input": "a", "model": 5}', 400, "invalid_request"),
    "no input": (b'{"model": "main/x"}', 400, "invalid_request"),
    "a model that is no UTF-8": (b'{"input": "a", "model": "main/\xff"}', 400, "invalid_json"),
    "a model beyond all numbers": (b'{"input": "a", "model": 1e999}', 400, "invalid_json"),
    "a user that is no UTF-8": (b'{"input": "a", "model": "main/x", "user": "\xff"}', 400, "invalid_json"),
    "an input that is no UTF-8": (b'{"input": "\xff", "model": "main/x"}', 400, "invalid_json"),
    "a part of an input that is none": (b'{"input": ["a", "\xc3"], "model": "main/x"}', 400, "invalid_json"),
    "half a character in an input": (b'{"input": "\xed\xa0\x80", "model": "main/x"}', 400, "invalid_json"),
    "a field that is no UTF-8": (b'{"input": "a", "model": "main/x", "b": "\xff"}', 400, "invalid_json"),
    "a tag beyond all numbers": (b'{"input": "a", "model": "main/x", "metadata": {"a": 1e999}}', 400, "invalid_json"),
    "two models": (b'{"input": "a", "model": "main/x", "model": "main/y"}', 400, "duplicate_key"),
}


@pytest.mark.parametrize(("body", "code", "word"), WRONG.values(), ids=WRONG)
def test_a_wrong_request_is_reported(gateway: Gateway, body: bytes, code: int, word: str) -> None:
    response = gateway.send(post(body, path="/v1/embeddings"))
    assert (response.status, response.error["code"]) == (code, word)


def test_other_ways_in_are_as_for_chats(gateway: Gateway) -> None:
    assert gateway.send(get("/v1/embeddings")).status == 405
    request = post(BODY, {"Host": "gateway", "Authorization": "Bearer wrong"}, path="/v1/embeddings")
    assert gateway.send(request).status == 401
    assert ask(gateway, "nobody/x").error["code"] == "model_not_found"
    assert ask(gateway, "main/x").error["code"] == "model_without_embeddings"


def test_members_for_litellms_proxy_reach_no_provider(embedding: Gateway) -> None:
    model = embedding.upstream.play(OK)
    body = BODY[:-1] + b', "num_retries": 2, "tags": ["a"], "timeout": null, "no-log": true}'
    response = ask(embedding, f"main/{model}", body)
    assert (response.status, response.body) == (200, ANSWER)
    assert response.headers["x-penstock-losses"] == "proxy-option-dropped=2"
    sent = embedding.upstream.requests(model)[-1].partition(b"\r\n\r\n")[2]
    assert sent == BODY.replace(b"MODEL", model.encode())
    refused = embedding.send(
        post(BODY[:-1].replace(b"MODEL", b"main/x") + b', "api_key": "sk-own"}', path="/v1/embeddings")
    )
    assert (refused.status, refused.error["param"]) == (400, "api_key")
    embedding.quiet()

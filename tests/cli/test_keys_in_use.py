"""`penstock keys` while a gateway runs: the gateway applies every change."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, AuthenticationError, DefaultHttpxClient, OpenAI, RateLimitError

from penstock.gateway.keys.key_secret import PREFIX
from tests.faults.client import Response, body, get, post
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import HELLO, REST, TEXT, plain, unstreamed, whole
from tests.faults.upstream import JSON, Gate, Upstream, chunk, head, last_chunk, status
from tests.promptness import in_time, prompt
from tests.streams import counts

pytestmark = pytest.mark.slow

NOTICED_S = 1.5
EVENTUALLY_S = 10.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    models = '[providers.main]\nmodels = ["river-1", "lake-1"]\n'
    with Upstream() as upstream:
        configuration = settings(upstream.url, 0).replace("[providers.main]\n", models)
        configuration = configuration.replace("output = 2.0", "output = 1000.0")
        for model in ("river-1", "lake-1"):
            upstream.play(unstreamed(), model)
        with Gateway(tmp_path_factory.mktemp("keys"), upstream, configuration) as gateway:
            yield gateway


def keys(gateway: Gateway, *arguments: str, command: str = "keys") -> str:
    """Run the command on the gateway's own book."""
    finished = subprocess.run(
        [sys.executable, "-m", "penstock", command, *arguments, "--config", str(gateway.file)],
        env=os.environ | {"PENSTOCK_STATE": str(gateway.file.parent / "state")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return finished.stdout.strip()


def ask(gateway: Gateway, key: str, model: str = "main/river-1", **fields: object) -> Response:
    gateway.expected += 1
    with gateway.client() as client:
        client.send(post(body(model, stream=False, **fields), {"Authorization": f"Bearer {key}"}))
        return client.response()


def until(gateway: Gateway, key: str, wanted: int) -> Response:
    """Repeat a request until its answer is the expected one."""
    deadline = time.monotonic() + EVENTUALLY_S
    while (answer := ask(gateway, key)).status != wanted:
        assert time.monotonic() < deadline, (answer.status, answer.body)
        time.sleep(0.02)
    return answer


def sdk(gateway: Gateway, key: str) -> OpenAI:
    return OpenAI(
        api_key=key,
        base_url=f"http://127.0.0.1:{gateway.port}/v1",
        max_retries=0,
        http_client=DefaultHttpxClient(trust_env=False),
    )


def complete(client: OpenAI, **options: Any) -> Any:
    options = {"model": "main/river-1", "max_tokens": 20, **options}
    return client.chat.completions.create(messages=[{"role": "user", "content": "Say hello."}], **options)


@prompt
def test_a_key_opens_soon_after_it_is_made_and_not_after_it_is_revoked(gateway: Gateway) -> None:
    name = f"short-{time.monotonic_ns()}"
    key = keys(gateway, "create", "--name", name)
    made_at = time.monotonic()
    assert until(gateway, key, 200).text == TEXT
    opened_at = time.monotonic()
    keys(gateway, "revoke", name)
    revoked_at = time.monotonic()
    answer = until(gateway, key, 401)
    closed_at = time.monotonic()
    assert answer.error["code"] == "invalid_api_key"
    assert "was revoked" in answer.error["message"]
    assert key not in "".join(gateway.output)
    in_time(max(opened_at - made_at, closed_at - revoked_at), NOTICED_S)


def test_a_changed_key_is_applied(gateway: Gateway) -> None:
    key = keys(gateway, "create", "--name", "changing")
    until(gateway, key, 200)
    keys(gateway, "block", "changing")
    assert "is blocked" in until(gateway, key, 401).error["message"]
    keys(gateway, "unblock", "changing")
    until(gateway, key, 200)
    keys(gateway, "update", "changing", "--model", "main/lake-*")
    until(gateway, key, 403)
    # What was spent before counts: the account was without a budget so far.
    keys(gateway, "update", "changing", "--model", "none", "--budget", "0.001", "--per", "day")
    assert until(gateway, key, 429).error["code"] == "insufficient_quota"


def test_each_end_user_of_a_team_has_its_own_limit(gateway: Gateway) -> None:
    keys(
        gateway,
        "create",
        "crowd",
        "--user-rpm",
        "2",
        "--user-budget",
        "1000/day",
        "--budget",
        "1000/day",
        command="teams",
    )
    key = keys(gateway, "create", "--name", "crowd", "--team", "crowd")
    until(gateway, key, 200)
    answers = [ask(gateway, key, user=user, max_tokens=5) for user in ("eve", "eve", "eve", "bob")]
    assert [answer.status for answer in answers] == [200, 200, 429, 200]
    assert "this end user of the organisation crowd may make 2 requests per minute" in answers[2].error["message"]


def test_a_rotated_key_works_on_for_its_grace(gateway: Gateway) -> None:
    old = keys(gateway, "create", "--name", "turning")
    until(gateway, old, 200)
    began = time.monotonic()
    new = keys(gateway, "rotate", "turning", "--grace", "2s")
    until(gateway, new, 200)
    if time.monotonic() - began < 1.8:
        assert ask(gateway, old).status == 200
    ended = until(gateway, old, 401).error
    assert (ended["code"], "was rotated" in ended["message"]) == ("invalid_api_key", True)
    assert ask(gateway, new).status == 200


def test_both_secrets_of_a_rotated_key_count_against_one_limit(gateway: Gateway) -> None:
    old = keys(gateway, "create", "--name", "both", "--rpm", "4")
    until(gateway, old, 200)
    new = keys(gateway, "rotate", "both", "--grace", "1h")
    until(gateway, new, 200)
    answers = [ask(gateway, secret) for secret in (old, new, old, new)]
    assert [answer.status for answer in answers] == [200, 200, 429, 429]
    assert {answer.error["code"] for answer in answers[2:]} == {"rate_limit_exceeded"}
    keys(gateway, "revoke", "both")
    for secret in (old, new):
        assert "was revoked" in until(gateway, secret, 401).error["message"]


def test_a_budget_goes_on_over_a_rotation(gateway: Gateway) -> None:
    model = f"main/{gateway.upstream.play([status(200, JSON, plain(usage=counts(5, 20)))])}"
    old = keys(gateway, "create", "--name", "frugal", "--budget", "0.05")
    until(gateway, old, 200)  # a cent a call at most
    assert ask(gateway, old, model, max_tokens=20).status == 200
    new = keys(gateway, "rotate", "frugal")
    deadline = time.monotonic() + EVENTUALLY_S
    while gateway.send(get("/v1/models", {"Authorization": f"Bearer {new}"})).status != 200:  # which costs nothing
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert "was rotated" in ask(gateway, old).error["message"]
    assert ask(gateway, new, model, max_tokens=20).status == 200
    denied = ask(gateway, new, model, max_tokens=20)
    assert (denied.status, denied.error["code"]) == (429, "insufficient_quota")
    deadline = time.monotonic() + EVENTUALLY_S
    while (shown := json.loads(keys(gateway, "show", "frugal", "--json")))["spent"] != "0.043015":
        assert time.monotonic() < deadline, shown
    assert shown["left"] == "0.006985"


def test_a_key_expires(gateway: Gateway) -> None:
    key = keys(gateway, "create", "--expires", "4s")
    until(gateway, key, 200)
    assert "has expired" in until(gateway, key, 401).error["message"]


def test_a_key_is_for_the_models_that_it_names(gateway: Gateway) -> None:
    key = keys(gateway, "create", "--model", "main/r*")
    until(gateway, key, 200)
    denied = ask(gateway, key, "main/lake-1")
    assert (denied.status, denied.error["code"]) == (403, "model_not_allowed")
    listed = gateway.send(get("/v1/models", {"Authorization": f"Bearer {key}"})).json["data"]
    assert [model["id"] for model in listed] == ["main/river-1"]
    for name, wanted in (("river-1", 200), ("lake-1", 404)):
        for path in (f"/v1/models/main/{name}", f"/v1/models/{name}"):
            assert gateway.send(get(path, {"Authorization": f"Bearer {key}"})).status == wanted


def test_the_models_of_a_key_are_compared_with_the_full_name(gateway: Gateway) -> None:
    """A bare model name gives the same access as provider/model."""
    key = keys(gateway, "create", "--model", "main/r*", "--model", "lake*")
    until(gateway, key, 200)
    assert ask(gateway, key, "river-1").status == 200
    denied = ask(gateway, key, "lake-1")
    assert (denied.status, denied.error["code"]) == (403, "model_not_allowed")
    assert "'main/lake-1'" in denied.error["message"]


def test_no_model_is_suggested_that_the_key_is_not_for(gateway: Gateway) -> None:
    key = keys(gateway, "create", "--model", "main/r*", "--model", "*-11")
    until(gateway, key, 200)
    assert "did you mean 'main/river-1'?" in ask(gateway, key, "river-11").error["message"]
    assert "GET /v1/models" in ask(gateway, key, "lake-11").error["message"]


def test_requests_per_minute_are_limited_and_reported(gateway: Gateway) -> None:
    key = keys(gateway, "create", "--rpm", "3", "--tpm", "100000")
    until(gateway, key, 200)
    with sdk(gateway, key) as client:
        answer = client.chat.completions.with_raw_response.create(
            model="main/river-1", max_tokens=20, messages=[{"role": "user", "content": "Hi"}]
        )
        assert answer.headers["x-ratelimit-limit-requests"] == "3"
        assert answer.headers["x-ratelimit-remaining-requests"] == "1"
        assert answer.headers["x-ratelimit-limit-tokens"] == "100000"
        complete(client)
        with pytest.raises(RateLimitError) as caught:
            complete(client)
    assert caught.value.code == "rate_limit_exceeded"
    assert caught.value.response.headers["x-ratelimit-remaining-requests"] == "0"
    assert 0 < int(caught.value.response.headers["retry-after"]) <= 60


def test_calls_at_a_time_are_limited(gateway: Gateway) -> None:
    gate = Gate()
    model = gateway.upstream.play([head(), chunk(HELLO), gate, chunk(REST), last_chunk()])
    key = keys(gateway, "create", "--concurrent", "1")
    until(gateway, key, 200)
    with sdk(gateway, key) as client:
        with complete(client, model=f"main/{model}", stream=True) as stream:
            next(iter(stream))
            with pytest.raises(RateLimitError) as caught:
                complete(client)
            gate.open()
            assert [chunk.choices[0].finish_reason for chunk in stream if chunk.choices][-1] == "stop"
        assert caught.value.code == "too_many_concurrent_requests"
        complete(client)


def test_a_budget_holds_and_is_reported(gateway: Gateway) -> None:
    answer = status(200, JSON, plain(usage=counts(5, 20)))
    model = f"main/{gateway.upstream.play([answer])}"
    key = keys(gateway, "create", "--name", "poor", "--budget", "0.05")
    until(gateway, key, 200)  # a cent a call at most
    with sdk(gateway, key) as client:
        complete(client, model=model)
        complete(client, model=model)
        with pytest.raises(RateLimitError) as caught:
            complete(client, model=model)
        assert (caught.value.code, caught.value.type) == ("insufficient_quota", "insufficient_quota")
        assert "$0.05" in str(caught.value)
    deadline = time.monotonic() + EVENTUALLY_S
    while (shown := json.loads(keys(gateway, "show", "poor", "--json")))["spent"] != "0.043015":
        assert time.monotonic() < deadline, shown
    assert shown["left"] == "0.006985"
    with sdk(gateway, key + "x") as client, pytest.raises(AuthenticationError, match="mistyped"):
        complete(client)
    with sdk(gateway, PREFIX) as client, pytest.raises(APIStatusError) as refusal:
        complete(client)
    assert refusal.value.status_code == 401


def test_whole_streams_pass_with_a_stored_key(gateway: Gateway) -> None:
    model = gateway.upstream.play(whole())
    key = keys(gateway, "create", "--budget", "100", "--per", "total")
    until(gateway, key, 200)
    with sdk(gateway, key) as client, complete(client, model=f"main/{model}", stream=True) as stream:
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == TEXT


def test_no_one_is_let_in_while_the_keys_are_unknown(tmp_path: Path) -> None:
    """A book that cannot be reached may have keys. That no key is known does not mean that none is required."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with Upstream() as upstream:
        ledger = {"postgres": f"postgresql://127.0.0.1:{port}/nowhere"}
        configuration = settings(upstream.url, 0, server={"keys": []}, ledger=ledger)
        model = upstream.play(unstreamed())
        with Gateway(tmp_path, upstream, configuration) as gateway:
            answer = ask(gateway, "sk-anything", f"main/{model}")
            assert (answer.status, answer.error["code"]) == (503, "ledger_unavailable")
            assert upstream.requests(model) == []

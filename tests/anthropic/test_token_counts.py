"""`POST /v1/messages/count_tokens`: counted by the provider if possible, else estimated and marked; booked as free."""

import json
import threading
import time
from pathlib import Path

import pytest

from penstock.gateway.record.entry import Entry
from tests.anthropic.support import COUNT, HI, VERSION, MessagesGateway, answers, error, sent, start
from tests.faults.client import post
from tests.faults.gateway import PROVIDER_KEY
from tests.faults.upstream import Gate, Upstream, hang, rst

pytestmark = pytest.mark.slow

ESTIMATED = "x-penstock-estimated"
LIMITED = """
[providers.limited]
base_url = "{url}"
dialect = "anthropic_messages"
[[providers.limited.keys]]
name = "a"
api_key = "sk-1111111111111111"
rpm = 2
[prices."limited/*"]
input = 1
output = 1
"""


def test_a_provider_of_the_same_dialect_counts(gateway: MessagesGateway) -> None:
    model = gateway.upstream.play(answers(b'{"input_tokens": 123}'))
    response = gateway.count(f"claude/{model}", {"anthropic-beta": "of-tomorrow"}, system="Be brief.")
    assert (response.status, response.json) == (200, {"input_tokens": 123})
    assert ESTIMATED not in response.headers
    assert response.headers["request-id"] == response.request_id
    path, headers, body = sent(gateway, model)
    assert (path, headers["x-api-key"]) == ("/v1/messages/count_tokens", PROVIDER_KEY)
    assert headers["anthropic-beta"] == "of-tomorrow"
    assert json.loads(body) == {"model": model, "messages": HI, "system": "Be brief."}


def test_for_any_other_provider_the_count_is_an_estimate(gateway: MessagesGateway) -> None:
    model = gateway.upstream.play(answers(b"{}"))
    response = gateway.count(f"main/{model}", messages=[{"role": "user", "content": "word " * 400}])
    assert response.headers[ESTIMATED] == "true"
    assert 400 <= response.json["input_tokens"] <= 600
    assert gateway.upstream.requests(model) == []


FAILURES = {
    "an error": answers(b'{"type":"error"}', 500),
    "a limit": answers(b"{}", 429),
    "no count": answers(b'{"tokens": 5}'),
    "a count that is none": answers(b'{"input_tokens": "many"}'),
    "no JSON": answers(b"<html>"),
    "a reset": [rst()],
}


@pytest.mark.parametrize("script", FAILURES.values(), ids=FAILURES)
def test_a_count_that_fails_is_an_estimate(gateway: MessagesGateway, script: list) -> None:  # type: ignore[type-arg]
    response = gateway.count(f"claude/{gateway.upstream.play(script)}")
    assert (response.status, response.headers[ESTIMATED]) == (200, "true")
    assert response.json["input_tokens"] > 0


def test_a_provider_that_does_not_count_is_asked_once_for_a_model(gateway: MessagesGateway) -> None:
    model = gateway.upstream.play(answers(b"not found", 404))
    for _ in range(3):
        assert gateway.count(f"claude/{model}").headers[ESTIMATED] == "true"
    assert len(gateway.upstream.requests(model)) == 1
    other = gateway.upstream.play(answers(b'{"input_tokens": 5}'))
    assert gateway.count(f"claude/{other}").json == {"input_tokens": 5}


def test_many_counts_at_once(gateway: MessagesGateway) -> None:
    """Claude Code sends 25. Beyond the gateway's own limit they are estimated, and none is refused."""
    gate = Gate()
    model = gateway.upstream.play([gate, *answers(b'{"input_tokens": 123}')])
    responses = []
    threads = [threading.Thread(target=lambda: responses.append(gateway.count(f"claude/{model}"))) for _ in range(70)]
    for thread in threads:
        thread.start()
    gateway.upstream.until(lambda: len(gateway.upstream.requests(model)) == 64)
    deadline = time.monotonic() + 8.0
    while len(responses) < 6:  # the estimates, which wait for nothing
        assert time.monotonic() < deadline
        time.sleep(0.005)
    gate.open()
    for thread in threads:
        thread.join()
    assert [response.status for response in responses] == [200] * 70
    assert len([response for response in responses if ESTIMATED not in response.headers]) == 64


def test_a_large_input_is_counted_too(gateway: MessagesGateway) -> None:
    response = gateway.count("main/any", messages=[{"role": "user", "content": "x" * 280_000}])
    assert response.json["input_tokens"] >= 70_000


def test_a_client_that_leaves_while_the_provider_counts(gateway: MessagesGateway) -> None:
    model = gateway.upstream.play([hang()])
    with gateway.client() as client:
        client.send(post(json.dumps({"model": f"claude/{model}", "messages": HI}).encode(), VERSION, COUNT))
        gateway.upstream.asked(model)
    gateway.expected += 1
    gateway.upstream.drop()


REFUSED = {
    "no key": ({"Authorization": ""}, {}, (401, "authentication_error")),
    "no such model": ({}, {"model": "claude-nothing"}, (404, "not_found_error")),
    "no messages": ({}, {"messages": 7}, (400, "invalid_request_error")),
}


@pytest.mark.parametrize(("headers", "fields", "expected"), REFUSED.values(), ids=REFUSED)
def test_refused(
    gateway: MessagesGateway, headers: dict[str, str], fields: dict[str, object], expected: tuple[int, str]
) -> None:
    body = json.dumps({"model": "main/x", "messages": HI} | fields).encode()
    calls = int(expected[0] == 404)  # what is refused before it is a call has no line
    assert error(gateway.send(post(body, {**VERSION, **headers}, COUNT), calls=calls))[:2] == expected


def test_a_key_counts_only_for_its_models(tmp_path: Path) -> None:
    with Upstream() as upstream, start(tmp_path, upstream) as gateway:
        headers = {"Authorization": f"Bearer {gateway.create_key('--model', 'main/allowed-*')}"}
        assert gateway.count("main/allowed-1", headers).status == 200
        assert error(gateway.count("main/other", headers))[:2] == (403, "permission_error")
        counted, refused = booked(gateway, 2)
        assert (counted.surface, counted.outcome, counted.cost, counted.attempts) == (
            "count_tokens",
            "completed",
            0,
            (),
        )
        assert (refused.outcome, refused.code) == ("refused", "model_not_allowed")


def test_counts_obey_the_limits_of_keys(tmp_path: Path) -> None:
    """Also those of the provider's key: beyond them the count is an estimate."""
    with Upstream() as upstream, start(tmp_path, upstream, LIMITED.format(url=upstream.url)) as gateway:
        headers = {"Authorization": f"Bearer {gateway.create_key('--rpm', '3', '--budget', '0.000001')}"}
        model = upstream.play(answers(b'{"input_tokens": 5}'))
        responses = [gateway.count(f"limited/{model}", headers) for _ in range(4)]
        assert [response.status for response in responses] == [200, 200, 200, 429]
        assert [ESTIMATED in response.headers for response in responses[:3]] == [False, False, True]
        assert len(upstream.requests(model)) == 2
        gateway.until(lambda: [line["surface"] for line in gateway.calls] == ["count_tokens"] * 4)
        assert [entry.code for entry in booked(gateway, 4)] == ["", "", "", "rate_limit_exceeded"]


def booked(gateway: MessagesGateway, count: int) -> list[Entry]:
    """The entries, once there are so many."""
    gateway.until(lambda: len(gateway.book.entries()) >= count)
    return gateway.book.entries()

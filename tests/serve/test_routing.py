"""Routes of a gateway, over HTTP: which target answers, and what clients and the log learn of the reason."""

import json
from collections.abc import Iterator

import pytest

from tests.faults.client import AUTHORIZED, Response, post
from tests.faults.gateway import settings
from tests.faults.scripts import whole
from tests.faults.upstream import JSON, Script, Upstream, status
from tests.serve.in_process import InProcessGateway

TARGETS = 'targets = ["main/first-*", "spare/second-*"]\n'
ROUTES = f"""
[routes."either-*"]
strategy = "weights"
affinity = "header:x-session-id"
{TARGETS}
[routes."soon-*"]
strategy = "latency"
{TARGETS}
[routes."listed-*"]
{TARGETS}
"""
ANSWER = whole()
FAILS = [status(500, JSON, b"{}")]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessGateway]:
    with Upstream() as upstream:
        text = settings(upstream.url, 3) + ROUTES
        with InProcessGateway(tmp_path_factory.mktemp("gateway"), upstream, text) as gateway:
            yield gateway


def play(running: InProcessGateway, name: str, first: Script = ANSWER, second: Script = ANSWER) -> str:
    """Put on what the two targets of the routes answer; returns the end of the name to ask for."""
    running.upstream.play(first, f"first-{name}")
    running.upstream.play(second, f"second-{name}")
    return name


def ask(running: InProcessGateway, model: str, **headers: str) -> Response:
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    return running.send(post(json.dumps(body).encode(), AUTHORIZED | headers))


def test_a_session_stays_at_its_target(running: InProcessGateway) -> None:
    model = f"either-{play(running, 'session')}"
    targets: set[str] = set()
    for session in map(str, range(12)):
        used = {ask(running, model, **{"X-Session-Id": session}).headers["x-penstock-provider"] for _ in range(3)}
        assert len(used) == 1
        targets |= used
    assert targets == {"main", "spare"}


def test_client_and_log_learn_why_a_target_was_chosen(running: InProcessGateway) -> None:
    name = play(running, "broken", first=FAILS)
    response = ask(running, f"listed-{name}")
    assert response.headers["x-penstock-route"] == f"after main/first-{name}: upstream_error"
    line = running.call(response)
    assert [attempt["chosen"] for attempt in line["attempts"]] == ["order: 1", response.headers["x-penstock-route"]]


def test_the_targets_of_a_route_by_latency_are_measured(running: InProcessGateway) -> None:
    model = f"soon-{play(running, 'quick')}"
    reasons = [ask(running, model).headers["x-penstock-route"] for _ in range(4)]
    assert reasons[:2] == ["latency: measured now"] * 2
    assert all(reason.startswith("latency: first event 0.0") for reason in reasons[2:])


def test_a_route_with_one_target_has_no_reason(running: InProcessGateway) -> None:
    response = ask(running, f"main/{running.upstream.play(ANSWER)}")
    assert "x-penstock-route" not in response.headers
    assert running.call(response)["attempts"][0]["chosen"] == ""

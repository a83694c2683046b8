"""Shadow traffic: some calls are repeated at another target after their clients were served, and compared."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.gateway.calls.comparison import SHADOW_COMPARED, SHADOW_KEY, SHADOW_OF, AnswerComparison
from penstock.gateway.record.entry import Entry
from tests.anthropic.support import ANSWER, CHAT_ANSWER, MESSAGE, MessagesGateway, answers, start, streams
from tests.faults.client import Response, body, post
from tests.faults.scripts import unstreamed
from tests.faults.upstream import Gate, Upstream, chunk, head, last_chunk

pytestmark = pytest.mark.slow

ROUTES = """
[routes.repeated]
targets = ["main/{chat}"]
[routes.repeated.shadow]
target = "claude/{messages}"
share = 1.0
concurrent = 1
[routes.whole]
targets = ["main/{body}"]
shadow = {{ target = "claude/{message}", share = 1.0 }}
[routes.failing]
targets = ["main/{chat}"]
shadow = {{ target = "claude/{broken}", share = 1.0 }}
[routes.held]
targets = ["main/{chat}"]
shadow = {{ target = "claude/{held}", share = 1.0, concurrent = 1 }}
[routes.plain]
targets = ["main/{chat}"]
[prices."claude/*"]
input = 5.0
output = 25.0
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream, gate: Gate) -> Iterator[MessagesGateway]:
    models = {
        "chat": upstream.play(streams(CHAT_ANSWER)),
        "messages": upstream.play(streams(ANSWER)),
        "held": upstream.play([head(), gate, chunk(ANSWER), last_chunk()]),
        "body": upstream.play(unstreamed()),
        "message": upstream.play(answers(MESSAGE)),
        "broken": upstream.play(answers(b'{"type":"error","error":{"type":"api_error","message":"no"}}', 500)),
    }
    with start(tmp_path_factory.mktemp("shadow"), upstream, ROUTES.format(**models)) as gateway:
        yield gateway


def ask(gateway: MessagesGateway, route: str, **fields: object) -> Response:
    return gateway.send(post(body(route, stream=True, **fields), {}), calls=1)


def repeated(gateway: MessagesGateway, response: Response, timeout_s: float = 5.0) -> Entry:
    """The call that repeats another one, once it is booked."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = [entry for entry in gateway.book.entries() if entry.tags.get(SHADOW_OF) == response.request_id]
        if found:
            return found[0]
        time.sleep(0.05)
    raise AssertionError("the call was not repeated")


def test_a_call_is_repeated_and_compared(gateway: MessagesGateway) -> None:
    response = ask(gateway, "repeated")
    assert response.status == 200
    entry = repeated(gateway, response)
    assert (entry.key, entry.model, entry.outcome) == (SHADOW_KEY, "repeated (shadow)", "completed")
    assert entry.attempts[0].provider == "claude"
    assert (entry.cost or 0) > 0
    assert entry.tags[SHADOW_COMPARED] == "finish=same tools=same similarity=1.00 length=1.00"
    original = gateway.book.entry(response.request_id)
    assert original.key != SHADOW_KEY
    assert len(original.attempts) == 1


def test_an_answer_that_is_not_streamed_is_compared_too(gateway: MessagesGateway) -> None:
    response = gateway.send(post(body("whole", stream=False), {}), calls=1)
    assert response.status == 200
    entry = repeated(gateway, response)
    assert (entry.outcome, entry.stream) == ("completed", False)
    compared = AnswerComparison.parse(entry.tags[SHADOW_COMPARED])
    assert compared is not None
    assert (compared.finish, compared.tools) == (True, "same")


def test_a_failing_shadow_harms_no_client(gateway: MessagesGateway) -> None:
    response = ask(gateway, "failing")
    assert (response.status, response.done) == (200, True)
    entry = repeated(gateway, response)
    assert entry.outcome == "failed"
    assert SHADOW_COMPARED not in entry.tags


def test_other_routes_are_not_repeated(gateway: MessagesGateway) -> None:
    response = ask(gateway, "plain")
    assert response.status == 200
    with pytest.raises(AssertionError, match="not repeated"):
        repeated(gateway, response, timeout_s=0.5)


def test_no_client_waits_and_only_so_many_are_repeated_at_a_time(gateway: MessagesGateway, gate: Gate) -> None:
    first = ask(gateway, "held")
    assert (first.status, first.done) == (200, True)  # although its shadow has not answered
    others = [ask(gateway, "held") for _ in range(3)]
    assert [other.status for other in others] == [200] * 3
    gate.open()
    entry = repeated(gateway, first)
    assert entry.outcome == "completed"
    found = [each.tags.get(SHADOW_OF) for each in gateway.book.entries() if each.model == "held (shadow)"]
    assert found == [first.request_id]


def test_a_shadow_is_booked_when_the_gateway_ends(tmp_path: Path) -> None:
    with Upstream() as upstream:
        chat = upstream.play(streams(CHAT_ANSWER))
        waiting = upstream.play([head(), Gate(), chunk(ANSWER), last_chunk()])
        route = f'[routes.held]\ntargets = ["main/{chat}"]\nshadow = {{ target = "claude/{waiting}", share = 1.0 }}\n'
        with start(tmp_path, upstream, route) as gateway:
            response = ask(gateway, "held")
            deadline = time.monotonic() + 5.0
            while not upstream.requests(waiting) and time.monotonic() < deadline:
                time.sleep(0.02)
            gateway.stop()
            entry = repeated(gateway, response)
    assert (entry.outcome, entry.model) == ("cancelled", "held (shadow)")

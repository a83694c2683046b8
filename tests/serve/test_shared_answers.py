"""Calls that share answers: identical requests at the same time, and the cache."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.gateway.record.entry import Entry
from tests.faults.client import CLIENT_KEY, RawClient, Response, body, get, post
from tests.faults.dialects import CHAT, CLIENTS, MESSAGES, TEXT, Client
from tests.faults.gateway import settings
from tests.faults.scripts import HELLO, REST, WORLD, unstreamed, whole
from tests.faults.upstream import Gate, Op, Upstream, chunk, fin, head, last_chunk, rst
from tests.serve.in_process import InProcessGateway
from tests.serve.support import AdminClient

OTHER_KEY = "sk-another-client-of-the-gateway"
OTHER = {"Authorization": f"Bearer {OTHER_KEY}"}
ROUTES: dict[str, dict[str, object]] = {
    "joined": {"coalesce": "key"},
    "open": {"coalesce": "route", "cache_answers": "route"},
    "kept": {"cache_answers": "key"},
    "team": {"cache_answers": "team", "coalesce": "team"},
    "paced": {"cache_answers": "key", "cache_pace": "original"},
    "tools": {"cache_answers": "key", "cache_tools": True},
    "brief": {"cache_answers": "key", "cache_answers_s": 0.3},
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessGateway]:
    with Upstream() as upstream:
        server = {"keys": [CLIENT_KEY, OTHER_KEY], "heartbeat_s": 0.3}
        routes: dict[str, dict[str, object]] = {
            f'routes."{name}-*"': {"targets": ["main/*"]} | table for name, table in ROUTES.items()
        }
        text = settings(upstream.url, 1, (CHAT, MESSAGES), server=server, **routes)
        with InProcessGateway(tmp_path_factory.mktemp("gateway"), upstream, text) as gateway:
            yield gateway


def play(running: InProcessGateway, route: str, script: list[Op]) -> tuple[str, str]:
    """The model of the upstream, and that of clients."""
    model = f"{route}-{running.upstream.play(script)}"
    running.upstream.play(script, model)
    return model, model


def gated() -> tuple[Gate, list[Op]]:
    gate = Gate()
    return gate, [head(), chunk(HELLO), gate, chunk(WORLD), chunk(REST), last_chunk(), fin()]


def ask(running: InProcessGateway, client: RawClient, content: bytes, **headers: str) -> None:
    running.expected += 1
    client.send(post(content, headers))


def of_call(entries: list[Entry], response: Response) -> Entry:
    (entry,) = [entry for entry in entries if entry.id == response.request_id]
    return entry


def test_identical_requests_share_one_call(running: InProcessGateway) -> None:
    gate, script = gated()
    model, name = play(running, "joined", script)
    content = body(name, stream=True)
    with running.client() as first, running.client() as second, running.client() as third:
        ask(running, first, content)
        first.read_until(b"Hel")
        ask(running, second, content)
        second.read_until(b"Hel")
        ask(running, third, content.replace(b'"messages"', b'"user": "me", "metadata": {"a": "b"}, "messages"'))
        third.read_until(b"Hel")
        gate.open()
        answers = [running.keep(client.response()) for client in (first, second, third)]
    assert len(running.upstream.requests(model)) == 1
    assert [answer.text for answer in answers] == [TEXT] * 3
    assert answers[0].body == answers[1].body == answers[2].body
    assert len({answer.request_id for answer in answers}) == 3
    assert [answer.headers.get("x-penstock-answer-of") for answer in answers] == [None] + [answers[0].request_id] * 2
    entries = running.quiet()
    leader, *others = [of_call(entries, answer) for answer in answers]
    assert leader.cost
    for other in others:
        assert (other.outcome, other.cost, other.saved, other.measure) == ("completed", 0, leader.cost, "void")
        assert (other.attempts[0].price, other.tags["answer_of"]) == ("shared", leader.id)


def test_the_call_goes_on_while_one_client_is_left(running: InProcessGateway) -> None:
    gate, script = gated()
    model, name = play(running, "joined", script)
    content = body(name, stream=True)
    with running.client() as first, running.client() as second:
        ask(running, first, content)
        first.read_until(b"Hel")
        ask(running, second, content)
        second.read_until(b"Hel")
        first.rst()
        second.read_until(b": penstock")
        gate.open()
        assert running.keep(second.response()).text == TEXT
    assert len(running.upstream.requests(model)) == 1
    assert [entry.outcome for entry in running.quiet()] == ["completed"] * 2


def test_a_call_that_all_clients_have_left_is_cancelled(running: InProcessGateway) -> None:
    _, script = gated()
    _, name = play(running, "joined", script)
    with running.client() as first, running.client() as second:
        for client in (first, second):
            ask(running, client, body(name, stream=True))
            client.read_until(b"Hel")
        second.rst()
        first.rst()
        entries = running.quiet()
    assert [(entry.outcome, entry.code) for entry in entries] == [("cancelled", "client_gone")] * 2
    assert sorted(entry.attempts[0].price for entry in entries)[1] == "shared"


def test_whole_answers_are_shared_too(running: InProcessGateway) -> None:
    gate = Gate()
    model, name = play(running, "joined", [gate, *unstreamed()])
    content = body(name, stream=False)
    with running.client() as first, running.client() as second:
        ask(running, first, content)
        running.until(lambda: running.upstream.requests(model))
        ask(running, second, content)
        running.send(get("/v1/models"))
        gate.open()
        answers = [running.keep(client.response()) for client in (first, second)]
    assert answers[0].body == answers[1].body
    assert len(running.quiet()) == 2


def test_all_get_the_error_of_a_broken_answer_and_nothing_is_kept(running: InProcessGateway) -> None:
    gate = Gate()
    model, name = play(running, "open", [head(), chunk(HELLO), gate, rst()])
    content = body(name, stream=True)
    with running.client() as first, running.client() as second:
        for client, headers in ((first, {}), (second, OTHER)):
            ask(running, client, content, **headers)
            client.read_until(b"Hel")
        gate.open()
        answers = [running.keep(client.response()) for client in (first, second)]
    assert len(running.upstream.requests(model)) == 1
    assert answers[0].body == answers[1].body
    assert answers[0].error["code"] == "upstream_reset"
    assert [entry.outcome for entry in running.quiet()] == ["truncated"] * 2
    running.upstream.play(whole(), model)
    assert running.send(post(content), calls=1).text == TEXT
    running.quiet()


def test_all_get_the_error_of_a_failed_call(running: InProcessGateway) -> None:
    gate = Gate()
    model, name = play(running, "joined", [gate, rst()])
    content = body(name, stream=True)
    with running.client() as first, running.client() as second:
        ask(running, first, content)
        running.until(lambda: running.upstream.requests(model))
        ask(running, second, content)
        running.send(get("/v1/models"))
        gate.open()
        answers = [running.keep(client.response()) for client in (first, second)]
    assert [answer.status for answer in answers] == [502, 502]
    running.quiet()


@pytest.mark.parametrize(("route", "calls"), [("joined", 2), ("open", 1), ("team", 2)])
def test_calls_of_other_keys_share_only_if_the_operator_says_so(
    running: InProcessGateway, route: str, calls: int
) -> None:
    gate, script = gated()
    model, name = play(running, route, script)
    with running.client() as first, running.client() as second:
        ask(running, first, body(name, stream=True))
        first.read_until(b"Hel")
        ask(running, second, body(name, stream=True), **OTHER)
        second.read_until(b"Hel")
        gate.open()
        for client in (first, second):
            assert running.keep(client.response()).text == TEXT
    assert len(running.upstream.requests(model)) == calls
    running.quiet()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_an_answer_in_the_cache_is_replayed(running: InProcessGateway, client: Client, stream: bool) -> None:
    model, name = play(running, "kept", whole() if stream else unstreamed())
    content = client.content(name, stream=stream)
    first = running.send(post(content, path=client.path), calls=1)
    again = running.send(post(content, path=client.path), calls=1)
    if "age" not in again.headers:  # kept for another purpose, or no server-sent events
        assert len(running.upstream.requests(model)) == 2
        assert "responses" in client.path or not first.headers["content-type"].startswith("text/event-stream")
        running.quiet()
        return
    assert (again.status, again.body) == (200, first.body)
    assert again.headers["x-penstock-answer-of"] == first.request_id
    assert len(running.upstream.requests(model)) == 1
    entries = running.quiet()
    leader, hit = of_call(entries, first), of_call(entries, again)
    assert (hit.outcome, hit.cost, hit.saved, hit.attempts[0].price) == ("completed", 0, leader.cost, "cache")
    other = running.send(post(content, OTHER, client.path), calls=1)
    assert "age" not in other.headers
    running.quiet()


def test_requests_say_whether_they_want_the_cache(running: InProcessGateway) -> None:
    model, name = play(running, "kept", whole())
    content = body(name, stream=True)

    def hit(**headers: str) -> bool:
        return "age" in running.send(post(content, headers), calls=1).headers

    asked = [
        hit(**{"cache-control": "no-store"}),
        hit(),
        hit(),
        hit(**{"cache-control": "No-Cache"}),
        hit(**{"cache-control": "max-age=60"}),
        hit(**{"cache-control": "max-age=0"}),
        hit(**{"x-penstock-store": "0"}),
    ]
    assert asked == [False, False, True, False, True, False, False]
    assert len(running.upstream.requests(model)) == 5
    running.quiet()


def test_answers_to_requests_with_tools_are_kept_only_if_the_operator_says_so(running: InProcessGateway) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    for route, hits in (("kept", False), ("tools", True)):
        _, name = play(running, route, whole())
        answers = [running.send(post(body(name, stream=True, tools=[tool])), calls=1) for _ in range(2)]
        assert ("age" in answers[1].headers) is hits
    running.quiet()


def test_answers_are_kept_for_their_time(running: InProcessGateway) -> None:
    model, name = play(running, "brief", whole())
    running.send(post(body(name, stream=True)), calls=1)

    def asked_anew() -> bool:
        return "age" not in running.send(post(body(name, stream=True)), calls=1).headers

    running.until(asked_anew)
    assert len(running.upstream.requests(model)) == 2
    running.quiet()


@pytest.mark.slow
def test_a_hit_has_the_original_pace_if_wanted(running: InProcessGateway) -> None:
    gate, script = gated()
    _, name = play(running, "paced", script)
    with running.client() as first:
        ask(running, first, body(name, stream=True))
        first.read_until(b": penstock")
        gate.open()
        answer = running.keep(first.response())
    with running.client() as second:
        ask(running, second, body(name, stream=True))
        begun = second.read_until(b"Hel")
        assert b"world" not in begun
        again = running.keep(second.response())
    assert (again.text, "age" in again.headers) == (answer.text, True)
    running.quiet()


def test_hits_are_served_while_the_provider_cools_down(tmp_path: Path) -> None:
    with Upstream() as upstream:
        routes = {"routes.kept": {"targets": ["main/a"], "cache_answers": "key"}}
        upstream.play(whole(), "a")
        with InProcessGateway(tmp_path, upstream, settings(upstream.url, 1, **routes)) as running:
            first = running.send(post(body("kept", stream=True)), calls=1)
            upstream.play([rst()], "a")
            statuses = [running.send(post(body("kept", stream=True, n=1, seed=n)), calls=1).status for n in range(12)]
            again = running.send(post(body("kept", stream=True)), calls=1)
            assert 503 in statuses
            assert (again.status, again.body) == (200, first.body)
            running.quiet()


def test_calls_that_copy_an_answer_count_against_limits_and_budgets(running: InProcessGateway) -> None:
    admin = AdminClient(running)
    limited, _ = admin.make(name="limited", requests_per_minute=2)
    poor, _ = admin.make(name="poor", budget="0.00001")
    gate, script = gated()
    model, name = play(running, "open", script)
    content = body(name, stream=True, max_tokens=100_000)
    with running.client() as first, running.client() as second, running.client() as third:
        ask(running, first, content)
        first.read_until(b"Hel")
        for client in (second, third):
            ask(running, client, content, Authorization=f"Bearer {limited}")
            client.read_until(b"Hel")
        refused = running.send(post(content, {"Authorization": f"Bearer {limited}"}), calls=1)
        too_poor = running.send(post(content, {"Authorization": f"Bearer {poor}"}), calls=1)
        gate.open()
        for client in (first, second, third):
            assert running.keep(client.response()).text == TEXT
    assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
    assert (too_poor.status, too_poor.error["code"]) == (429, "insufficient_quota")
    assert len(running.upstream.requests(model)) == 1
    entries = running.quiet()
    assert [entry.outcome for entry in entries].count("refused") == 2
    assert sum(1 for entry in entries if entry.cost) == 1


def test_a_key_that_may_not_use_the_model_gets_no_kept_answer(running: InProcessGateway) -> None:
    admin = AdminClient(running)
    secret, _ = admin.make(name="narrow", models=["main/*"])
    _, name = play(running, "open", whole())
    content = body(name, stream=True)
    assert running.send(post(content), calls=1).text == TEXT
    assert running.send(post(content, OTHER), calls=1).headers["age"] == "0"
    refused = running.send(post(content, {"Authorization": f"Bearer {secret}"}), calls=1)
    assert (refused.status, "age" in refused.headers) == (403, False)
    running.quiet()


def test_what_a_request_requires_of_providers_makes_another_request(running: InProcessGateway) -> None:
    _, name = play(running, "kept", whole())
    content = body(name, stream=True)
    required = {"x-penstock-require": "max_price=100/100"}
    answers = [running.send(post(content, headers), calls=1) for headers in ({}, required, required, {})]
    assert [(answer.status, "age" in answer.headers) for answer in answers] == [
        (200, False),
        (200, False),
        (200, True),
        (200, True),
    ]
    running.quiet()


@pytest.mark.slow
def test_a_call_whose_leader_was_stopped_gets_an_error_that_says_nothing_of_it(running: InProcessGateway) -> None:
    admin = AdminClient(running)
    secret, made = admin.make(name="stopped")
    _, script = gated()
    _, name = play(running, "open", script)
    content = body(name, stream=True)
    with running.client() as first, running.client() as second:
        ask(running, first, content, Authorization=f"Bearer {secret}")
        first.read_until(b"Hel")
        ask(running, second, content)
        second.read_until(b"Hel")
        assert admin.ask("POST", f"/admin/keys/{made['id']}/stop")[0] == 200
        leader, copy = [running.keep(client.response()) for client in (first, second)]
    assert leader.error["code"] != copy.error["code"] == "upstream_truncated"
    assert not copy.done
    entries = running.quiet()
    assert sorted(entry.outcome for entry in entries) == ["cancelled", "truncated"]

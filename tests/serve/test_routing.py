"""Routes of a gateway, over HTTP: which target answers, and what clients and the log learn of the reason."""

import json
from collections.abc import Iterator

import pytest

from tests.faults.client import AUTHORIZED, Response, post
from tests.faults.gateway import SPARE_KEY, settings
from tests.faults.scripts import whole
from tests.faults.upstream import (
    JSON,
    Connection,
    Script,
    Upstream,
    abort,
    chunk,
    hang,
    head,
    last_chunk,
    sleep,
    status,
)
from tests.serve.in_process import InProcessGateway
from tests.streams import DONE, begins, finishes, says, sse
from tests.streams import chunk as chunk_of

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
[routes."careful-*"]
targets = ["main/first-*", "eu/second-*"]
[routes."strictly-*"]
require = "zdr"
targets = ["main/first-*", "eu/second-*"]
[routes."never-*"]
require = "region=us"
targets = ["main/first-*"]
fallbacks.overload = ["eu/second-*"]
[routes."repeated-*"]
targets = ["eu/second-*"]
shadow = {{ target = "main/first-required", share = 1.0 }}
[routes."swift-*"]
leave_late = true
{TARGETS}
[routes."paced-*"]
min_tokens_per_s = 20
pace_window_s = 0.3
{TARGETS}
"""
ANSWER = whole()
FAILS = [status(500, JSON, b"{}")]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessGateway]:
    with Upstream() as upstream:
        text = settings(upstream.url, 3) + ROUTES
        text += f'[providers.eu]\nbase_url = "{upstream.url}"\napi_key = "{SPARE_KEY}"\nzdr = true\nregion = "EU"\n'
        text += '[prices."eu/*"]\ninput = 5.0\noutput = 10.0\n'
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


# Retries at the same target, and targets for a cause.

USED = chunk_of(usage={"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12})
BUSY = [status(429, JSON | {"retry-after": "1"}, b"{}")]
TOO_LONG = [status(400, JSON, b'{"error":{"code":"context_length_exceeded","message":"maximum context length is 9"}}')]
MODERATED = [status(403, JSON, b'{"error":{"code":"flagged_input","message":"no"}}')]
LATER = [status(429, JSON | {"retry-after": "60"}, b"{}")]
FILTERED = [head(), chunk(sse(begins(), finishes("content_filter"), USED, DONE)), last_chunk()]
CUT = [head(), chunk(sse(begins(), USED)), abort()]
CAUSES: dict[str, Script] = {
    "too_long": TOO_LONG,
    "content_policy": MODERATED,
    "refusal": FILTERED,
    "rate_limit": BUSY,
    "overload": [status(529, JSON, b"{}")],
}


def in_turn(*scripts: Script) -> Script:
    """What a target answers that plays one script after the other, and the last one from then on."""
    left = list(scripts)

    async def op(connection: Connection) -> None:
        for each in left.pop(0) if len(left) > 1 else left[0]:
            await each(connection)

    return [op]


@pytest.fixture(scope="module")
def recovering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessGateway]:
    with Upstream() as upstream:
        text = settings(upstream.url, 0, retries={"same_target": 2, "backoff_s": 0.01, "max_wait_s": 2.0})
        text += '[routes."lone-*"]\ntargets = ["main/first-*"]\n'
        text += '[routes."billed-*"]\nretry_billed = true\ntargets = ["main/first-*"]\n'
        for cause in CAUSES:
            text += f'[routes."{cause}-*"]\ntargets = ["main/first-*"]\nfallbacks.{cause} = ["spare/second-*"]\n'
        with InProcessGateway(tmp_path_factory.mktemp("gateway"), upstream, text) as gateway:
            yield gateway


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scripts", "attempts", "code"),
    [
        ("passing", (FAILS, ANSWER), 2, 200),
        ("twice", (FAILS, FAILS, ANSWER), 3, 200),
        ("always", (FAILS,), 3, 502),
        ("busy", (BUSY, ANSWER), 2, 200),
        ("later", (LATER, ANSWER), 1, 429),
        ("wrong", (TOO_LONG, ANSWER), 1, 400),
        ("billed", (CUT, ANSWER), 1, 502),
    ],
)
def test_the_same_target_is_tried_again(
    recovering: InProcessGateway, name: str, scripts: tuple[Script, ...], attempts: int, code: int
) -> None:
    response = ask(recovering, f"lone-{play(recovering, name, first=in_turn(*scripts))}")
    assert (response.status, response.headers["x-penstock-attempts"]) == (code, str(attempts))


def test_what_is_billed_is_tried_again_only_if_the_route_says_so(recovering: InProcessGateway) -> None:
    response = ask(recovering, f"billed-{play(recovering, 'paid', first=in_turn(CUT, ANSWER))}")
    assert (response.status, response.headers["x-penstock-attempts"]) == (200, "2")


@pytest.mark.parametrize("cause", CAUSES)
def test_a_cause_leads_to_the_target_that_the_route_names_for_it(recovering: InProcessGateway, cause: str) -> None:
    name = play(recovering, cause, first=CAUSES[cause])
    response = ask(recovering, f"{cause}-{name}")
    assert (response.status, response.headers["x-penstock-provider"]) == (200, "spare")
    other = next(each for each in ("too_long", "refusal") if each != cause)
    assert ask(recovering, f"{other}-{name}").headers.get("x-penstock-provider") != "spare"


def test_the_attempts_of_a_call_are_its_bill(recovering: InProcessGateway) -> None:
    response = ask(recovering, f"refusal-{play(recovering, 'bill', first=FILTERED)}")
    entry = recovering.book.entry(response.request_id)
    refused, answered = entry.attempts
    assert (refused.code, refused.tokens.input, refused.tokens.output) == ("upstream_refusal", 9, 3)
    assert entry.cost == (refused.cost or 0) + (answered.cost or 0) > (answered.cost or 0) > 0


def test_a_provider_gets_no_name_of_a_cache_as_a_client_wrote_it(running: InProcessGateway) -> None:
    model = f"first-{play(running, 'named')}"
    body = {"model": f"main/{model}", "messages": [{"role": "user", "content": "Hello"}], "prompt_cache_key": "mine"}
    for _ in range(2):
        assert running.send(post(json.dumps(body).encode(), AUTHORIZED)).status == 200
    names = [
        json.loads(sent.partition(b"\r\n\r\n")[2])["prompt_cache_key"] for sent in running.upstream.requests(model)
    ]
    assert len(names) == 2
    assert names[0] == names[1] != "mine"


def test_a_target_that_is_too_slow_before_the_client_has_anything_is_left(running: InProcessGateway) -> None:
    name = play(running, "silent", first=[head(), chunk(sse(begins())), hang()])
    response = ask(running, f"paced-{name}")
    assert (response.status, response.headers["x-penstock-provider"]) == (200, "spare")
    assert response.headers["x-penstock-route"] == f"after main/first-{name}: upstream_too_slow"


def test_a_stream_that_becomes_too_slow_ends_truthfully(running: InProcessGateway) -> None:
    name = play(running, "dripping", first=[head(), chunk(sse(begins(), says("Hello and then"))), hang()])
    response = ask(running, f"paced-{name}")
    assert (response.status, response.headers["x-penstock-provider"], response.complete) == (200, "main", True)
    assert b"upstream_too_slow" in response.body
    assert DONE.encode() not in response.body
    line = running.call(response)
    assert (line["ending"], line["code"]) == ("timed_out", "upstream_too_slow")


@pytest.mark.slow
def test_a_stream_at_its_pace_is_left_alone(running: InProcessGateway) -> None:
    text = chunk(sse(says("twenty-four characters. " * 4)))
    name = play(running, "steady", first=[head(), chunk(sse(begins())), *[text, sleep(0.1)] * 8, *ANSWER[1:]])
    response = ask(running, f"paced-{name}")
    assert (response.headers["x-penstock-provider"], running.call(response)["ending"]) == ("main", "completed")


# By name: the route, what the client requires, and the provider that answers; or the code of the refusal.
REQUIRED = {
    "nothing": ("careful", "", "main"),
    "no retention": ("careful", "zdr", "eu"),
    "no collection, which follows from it": ("careful", "data_collection=deny", "eu"),
    "a region": ("careful", "region=eu, region=ch", "eu"),
    "a price": ("careful", "max_price=1/2", "main"),
    "both": ("careful", "zdr, max_price=1/2", "requirements_unmet"),
    "what the route does": ("strictly", "", "eu"),
    "more than the route": ("strictly", "max_price=1/2", "requirements_unmet"),
    "what no target has": ("never", "", "requirements_unmet"),
    "what is not known": ("careful", "zero-retention", "invalid_request"),
}


@pytest.mark.parametrize(("route", "required", "expected"), REQUIRED.values(), ids=REQUIRED)
def test_only_providers_that_meet_what_is_required_are_called(
    running: InProcessGateway, route: str, required: str, expected: str
) -> None:
    name = play(running, f"required-{route}-{required}".translate(str.maketrans("=,/ ", "....")))
    for path in ("/v1/chat/completions", "/v1/messages/count_tokens"):
        before = len(running.upstream.asked_for)
        body = {"model": f"{route}-{name}", "messages": [{"role": "user", "content": "Hello"}]}
        headers = AUTHORIZED | ({"X-Penstock-Require": required} if required else {})
        response = running.send(post(json.dumps(body).encode(), headers, path))
        asked = {model.partition("-")[0] for model, _ in list(running.upstream.asked_for)[before:]}
        assert asked <= {{"main": "first", "eu": "second"}.get(expected, "")}
        if path == "/v1/chat/completions":
            assert expected in (response.headers.get("x-penstock-provider"), response.json.get("error", {}).get("code"))


def test_a_refusal_names_what_each_target_lacks(running: InProcessGateway) -> None:
    name = play(running, "lacking")
    response = ask(running, f"careful-{name}", **{"X-Penstock-Require": "zdr, max_price=1/2"})
    message = response.json["error"]["message"]
    assert f"main/first-{name} is not known to retain nothing (zdr)" in message
    assert f"eu/second-{name} is too expensive (max_price)" in message
    assert response.status == 403


def test_a_shadow_must_meet_what_a_call_requires(running: InProcessGateway) -> None:
    name = play(running, "required")
    assert ask(running, f"repeated-{name}", **{"X-Penstock-Require": "zdr"}).status == 200
    body = {"model": f"repeated-{name}", "messages": [{"role": "user", "content": "Not confidential"}]}
    assert running.send(post(json.dumps(body).encode(), AUTHORIZED)).status == 200
    running.until(lambda: running.upstream.requests("first-required"))
    assert all(b"Not confidential" in request for request in running.upstream.requests("first-required"))


def test_a_target_that_begins_later_than_usual_is_left_and_booked(running: InProcessGateway) -> None:
    late = [hang()]
    name = play(running, "late", first=in_turn(*[ANSWER] * 20, late))
    for _ in range(20):
        assert ask(running, f"swift-{name}").headers["x-penstock-provider"] == "main"
    response = ask(running, f"swift-{name}")
    assert (response.status, response.headers["x-penstock-provider"]) == (200, "spare")
    assert response.headers["x-penstock-route"] == f"after main/first-{name}: upstream_too_slow"
    entry = running.book.entry(response.request_id)
    left, answered = entry.attempts
    assert (left.outcome, left.measure, left.tokens.input > 0) == ("cancelled", "estimated", True)
    assert entry.cost == (left.cost or 0) + (answered.cost or 0) > (answered.cost or 0)


def test_no_target_is_left_that_executes_tools(running: InProcessGateway) -> None:
    name = play(running, "acting", first=in_turn(*[ANSWER] * 20, [sleep(0.5), *ANSWER]))
    for _ in range(20):
        ask(running, f"swift-{name}")
    body = {"model": f"swift-{name}", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    tools = [{"type": "web_search"}]
    response = running.send(post(json.dumps(body | {"tools": tools}).encode(), AUTHORIZED))
    assert (response.status, response.headers["x-penstock-provider"]) == (200, "main")

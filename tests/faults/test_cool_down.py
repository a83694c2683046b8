"""Circuit breakers of real processes: which failures of a target count, and which workers know of a cool-down."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests import bedrock
from tests.faults.client import body, post
from tests.faults.conftest import Starter
from tests.faults.dialects import BEDROCK
from tests.faults.gateway import PROVIDER_KEY, Gateway, settings
from tests.faults.scripts import ERROR_BODY, HELLO, SPARE_TEXT, TEXT, spare, stream, whole
from tests.faults.support import begin_probe
from tests.faults.upstream import JSON, Script, Upstream, chunk, fin, hang, head, last_chunk, rst, status
from tests.streams import Json, finishes, sse

FAILS = [status(500, JSON, ERROR_BODY)]
TO_COOL = 5
ERROR_FRAME = sse({"error": {"message": "the engine broke", "code": 500}})
BREAKS: dict[str, Script] = {
    "reset": [head(), chunk(HELLO), rst()],
    "closed": [head(), chunk(HELLO), fin()],
    "ended too early": [head(), chunk(HELLO), last_chunk()],
    "an error frame": [head(), chunk(HELLO), chunk(ERROR_FRAME), last_chunk()],
    "silent": [head(), chunk(HELLO), hang()],
}


@pytest.mark.parametrize("script", BREAKS.values(), ids=BREAKS)
def test_a_target_whose_streams_break_is_left_alone(start: Starter, script: Script) -> None:
    gateway = start(retries={"cooldown_s": 60.0})
    route = gateway.pair(script, spare(), prefix="hasty-gap-")
    broken = [gateway.ask(route, stream=True) for _ in range(TO_COOL)]
    assert [(response.text, response.done) for response in broken] == [("Hello", False)] * TO_COOL
    assert gateway.ask(route, stream=True).text == SPARE_TEXT
    assert len(gateway.upstream.requests(f"{route.removeprefix('hasty-gap-')}-a")) == TO_COOL
    gateway.quiet()


def test_a_whole_answer_between_broken_ones_begins_the_count_anew(gateway: Gateway) -> None:
    route = gateway.pair(BREAKS["closed"], spare())
    for script in (*[BREAKS["closed"]] * (TO_COOL - 1), whole(), *[BREAKS["closed"]] * (TO_COOL - 1), whole()):
        gateway.upstream.play(script, f"{route}-a")
        assert gateway.ask(route, stream=True).text in ("Hello", TEXT)
    assert not gateway.upstream.requests(f"{route}-b")


def test_a_client_that_leaves_is_no_failure_of_the_target(gateway: Gateway) -> None:
    model = gateway.upstream.play([head(), chunk(HELLO), hang()])
    for _ in range(TO_COOL + 2):
        with gateway.begin(f"main/{model}", stream=True) as client:
            client.read_until(b"Hello")
        gateway.last_call()
    gateway.upstream.play(whole(), model)
    assert gateway.ask(f"main/{model}", stream=True).text == TEXT


def test_the_total_time_is_our_limit_and_no_failure_of_the_target(start: Starter) -> None:
    gateway = start(timeouts={"total_s": 0.2})
    model = gateway.upstream.play([head(), chunk(HELLO), hang()])
    codes = [gateway.ask(f"main/{model}", stream=True).error["code"] for _ in range(TO_COOL + 2)]
    assert codes == ["upstream_timeout_total"] * (TO_COOL + 2)
    gateway.quiet()


FLAGGED = f'm requires moderation on Azure. Your input was flagged for "violence". ({PROVIDER_KEY})'
MODERATED: Json = {"error": {"code": 403, "message": FLAGGED, "metadata": {"reasons": ["violence"]}}}
# What a request and a model bring about: the provider, its answer, and the client's status and code.
OF_REQUESTS: dict[str, tuple[str, Script, int, object]] = {
    "a malformed call": (
        "main-bedrock",
        stream(BEDROCK.begin, bedrock.stops("malformed_tool_use"), BEDROCK.bill),
        502,
        "upstream_bad_finish",
    ),
    "a malformed call after text": (
        "main",
        stream(HELLO, sse(finishes("MALFORMED_FUNCTION_CALL"))),
        200,
        "upstream_bad_finish",
    ),
    "moderation": ("main", [status(403, JSON, json.dumps(MODERATED).encode())], 403, 403),
    "moderation in a stream": ("main", stream(sse(MODERATED)), 403, "invalid_request"),
}


@pytest.mark.parametrize(("provider", "script", "sent", "code"), OF_REQUESTS.values(), ids=OF_REQUESTS)
def test_what_a_request_brings_about_cools_no_target_for_others(
    gateway: Gateway, provider: str, script: Script, sent: int, code: object
) -> None:
    model = gateway.upstream.play(script)
    responses = [gateway.ask(f"{provider}/{model}", stream=True) for _ in range(TO_COOL + 2)]
    assert {(response.status, response.error["code"]) for response in responses} == {(sent, code)}
    for response in responses if sent == 403 else []:
        assert "flagged for" in response.error["message"]
        assert response.error.get("metadata", {"reasons": ["violence"]}) == {"reasons": ["violence"]}
        assert PROVIDER_KEY.encode() not in response.body
    assert len(gateway.upstream.requests(model)) == TO_COOL + 2


def test_after_broken_streams_the_probe_has_to_be_complete(start: Starter) -> None:
    """The start of the probe's answer proves nothing: other calls wait until the answer has ended."""
    gateway = start(retries={"cooldown_s": 0.3})
    route = gateway.pair(BREAKS["closed"], spare())
    for _ in range(TO_COOL):
        gateway.ask(route, stream=True)
    gateway.upstream.play([head(), chunk(HELLO), hang()], f"{route}-a")
    with begin_probe(gateway, route, f"{route}-a") as probe:
        probe.read_until(b"Hello")
        assert [gateway.ask(route, stream=True).text for _ in range(3)] == [SPARE_TEXT] * 3
    gateway.upstream.until(lambda: not any(connection.busy for connection in gateway.upstream.open))
    gateway.upstream.play(whole(), f"{route}-a")  # the probe has disconnected: the next call becomes the probe
    assert [gateway.ask(route, stream=True).text for _ in range(3)] == [TEXT] * 3
    gateway.quiet()


def fail_on_one_connection(gateway: Gateway, model: str) -> None:
    """Let a target fail until it cools down, by calls that one worker handles."""
    with gateway.client() as client:
        for _ in range(TO_COOL):
            gateway.expected += 1
            client.send(post(body(model, stream=False)))
            assert gateway.keep(client.response()).status == 502


def test_what_one_worker_learns_all_know(start: Starter) -> None:
    gateway = start("--workers", "2", retries={"cooldown_s": 60.0})
    model = gateway.upstream.play(FAILS)
    fail_on_one_connection(gateway, f"main/{model}")
    codes = {gateway.ask(f"main/{model}", stream=False).error["code"] for _ in range(30)}  # on as many connections
    assert codes == {"no_healthy_target"}
    assert len(gateway.upstream.requests(model)) == TO_COOL


def test_a_worker_that_takes_the_place_of_another_knows_too(start: Starter) -> None:
    gateway = start("--workers", "2", retries={"cooldown_s": 60.0})
    model = gateway.upstream.play(FAILS)
    fail_on_one_connection(gateway, f"main/{model}")
    for pid in gateway.workers():
        os.kill(pid, signal.SIGKILL)
        gateway.says(f"worker {pid} died")
    wait_until_it_listens(gateway)
    assert {gateway.ask(f"main/{model}", stream=False).error["code"] for _ in range(10)} == {"no_healthy_target"}
    assert len(gateway.upstream.requests(model)) == TO_COOL


def wait_until_it_listens(gateway: Gateway) -> None:
    deadline = time.monotonic() + 20.0
    while time.monotonic() < deadline:
        with suppress(ConnectionRefusedError), gateway.client():
            return
        time.sleep(0.05)  # there is no notification that the new workers listen
    raise AssertionError("no worker listens")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_reload_keeps_cool_downs_but_for_providers_that_change(start: Starter, workers: str) -> None:
    gateway = start("--workers", workers, retries={"cooldown_s": 60.0})
    model = gateway.upstream.play(FAILS)
    for provider in ("main", "spare"):
        fail_on_one_connection(gateway, f"{provider}/{model}")
    settings = gateway.file.read_text()
    reload(gateway, settings.replace("drain_s = 1.0", "drain_s = 1.5"), int(workers))
    for provider in ("main", "spare"):
        assert gateway.ask(f"{provider}/{model}", stream=False).error["code"] == "no_healthy_target"
    assert len(gateway.upstream.requests(model)) == 2 * TO_COOL
    gateway.upstream.play(whole(), model)
    reload(gateway, settings.replace(PROVIDER_KEY, f"{PROVIDER_KEY}-renewed"), 2 * int(workers))
    assert gateway.ask(f"main/{model}", stream=False).text == TEXT
    assert gateway.ask(f"spare/{model}", stream=False).error["code"] == "no_healthy_target"


def reload(gateway: Gateway, settings: str, times: int) -> None:
    """Make all workers reload these settings; returns when the log has this many reloads in total."""
    gateway.file.write_text(settings)
    gateway.signal(signal.SIGHUP)
    gateway.until(lambda: sum("was reloaded" in line for line in gateway.output) == times)


ACCOUNT_ERRORS = {
    "no credit": (402, {"error": {"message": "Insufficient credits", "code": "insufficient_credits"}}),
    "no credit, in a 400": (400, {"error": {"message": "Your credit balance is too low.", "type": "x"}}),
    "no deployment": (404, {"error": {"message": "It does not exist.", "code": "DeploymentNotFound"}}),
}


@pytest.mark.parametrize(("code", "error"), ACCOUNT_ERRORS.values(), ids=ACCOUNT_ERRORS)
def test_a_problem_of_the_providers_account_is_tried_elsewhere(gateway: Gateway, code: int, error: object) -> None:
    refuses = [status(code, JSON, json.dumps(error).encode())]
    route = gateway.pair(refuses, spare())
    answers = [gateway.ask(route, stream=True) for _ in range(3)]
    assert [answer.text for answer in answers] == [SPARE_TEXT] * 3
    assert len(gateway.upstream.requests(f"{route}-a")) == 1  # then it cools down
    alone = f"main/{gateway.upstream.play(refuses)}"
    for _ in range(TO_COOL + 1):
        response = gateway.ask(alone, stream=False)
        assert (response.status, json.loads(response.body)) == (code, error)


def test_a_mistake_of_the_client_is_tried_nowhere_else(gateway: Gateway) -> None:
    route = gateway.pair([status(404, JSON, b'{"error": {"message": "no such file"}}')], spare())
    assert [gateway.ask(route, stream=False).status for _ in range(TO_COOL + 1)] == [404] * (TO_COOL + 1)
    assert not gateway.upstream.requests(f"{route}-b")


def test_a_model_that_the_client_made_up_does_not_cool_down(tmp_path: Path) -> None:
    """The client chose its name by a pattern, so the table of breakers must not fill up with such names."""
    unknown = [status(404, JSON, b'{"error": {"message": "no", "code": "model_not_found"}}')]
    with Upstream() as upstream:
        text = settings(upstream.url, 0) + '[routes."any/*"]\ntargets = ["main/*", "spare/*"]\n'
        with Gateway(tmp_path, upstream, text) as gateway:
            upstream.play(unknown, "made-up")
            assert [gateway.ask("any/made-up", stream=False).status for _ in range(3)] == [404] * 3
            assert len(upstream.requests("made-up")) == 6

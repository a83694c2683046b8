"""What a translation loses is reported everywhere; for a strict call, a loss that changes the meaning is a failure."""

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import invoke
from tests.dialects.support import CHAT, HELLO, OPEN, OVER, Tick, TickerGateway, folded, frames, ticks
from tests.faults.client import Response, body, get, post
from tests.faults.gateway import Table, settings
from tests.faults.scripts import stream
from tests.faults.upstream import JSON, Gate, Op, Upstream, chunk, head, last_chunk, status, until_read
from tests.serve.collectors import Collector, attributes

pytestmark = pytest.mark.slow

TOKEN = "the-token-of-these-tests-5c1e"
STRICT = {"x-penstock-strict": "1"}
PICTURE: tuple[Tick, ...] = (
    ("block", {"n": 1, "is": "picture"}),
    ("more", {"n": 1, "s": "iVBO"}),
    ("more", {"n": 1, "s": "Rw0K"}),
    ("shut", {"n": 1}),
)
PICTURE_BODY = json.dumps(
    {
        "ref": "t1",
        "by": "ticker-1",
        "blocks": [{"is": "text", "s": "Look:"}, {"is": "picture", "s": "iVBORw0K"}],
        "why": "done",
        "bill": {"read": 5, "wrote": 3},
    }
).encode()
# What stands in the configuration, by route. The ticker has no stop sequences, and chat no pictures.
ROUTES = {
    "either": '["tape/either-a", "main/either-b"]',
    "three": '["tape/three-a", "tape/three-b", "main/three-c"]',
    "lossy": '["tape/lossy-a", "heard-tape/lossy-b"]',
    "failing": '["main/failing-a", "tape/failing-b"]',
    "cooling": '["main/cooling-a", "tape/cooling-b"]',
}


@contextmanager
def started(folder: Path, **tables: Table) -> Iterator[TickerGateway]:
    with Upstream() as upstream:
        ticker = [f'base_url = "{upstream.url}"', 'dialect = "ticker"', 'path = "/ticker"', 'api_key = "canary-1234"']
        captured = ["[providers.tape]", *ticker, "[providers.heard-tape]", *ticker, 'abort = "drain"']
        routes = [line for name, targets in ROUTES.items() for line in (f"[routes.{name}]", f"targets = {targets}")]
        strict = ["[routes.careful]", 'targets = ["tape/careful"]', "strict = true"]
        retries = {"max_attempts": 2}
        configuration = settings(upstream.url, retries=retries, **tables) + "\n".join([*captured, *routes, *strict, ""])
        root = str(Path(__file__).resolve().parents[2])
        with TickerGateway(folder, upstream, configuration, environment={"PYTHONPATH": root}) as gateway:
            yield gateway


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TickerGateway]:
    with started(tmp_path_factory.mktemp("losses")) as gateway:
        yield gateway


@pytest.fixture
def gateway(shared: TickerGateway) -> Iterator[TickerGateway]:
    yield shared
    shared.quiet()


def ask(gateway: TickerGateway, model: str, headers: dict[str, str], *, live: bool = True, **fields: Any) -> Response:
    """Ask as a client that speaks chat."""
    return gateway.send(post(body(model, stream=live, **fields), headers), calls=1)


def reported(gateway: TickerGateway, path: str) -> str:
    """What the admin listener says."""
    (url,) = {word for line in gateway.output for word in line.split() if word.endswith("/admin")}
    request = urllib.request.Request(url.removesuffix("/admin") + path, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request) as answer:
        text: str = answer.read().decode()
    return text


def pictured(*, live: bool) -> list[Op]:
    """What a ticker sends that answers with a picture."""
    if not live:
        return [status(200, JSON, PICTURE_BODY)]
    return [head(), chunk(frames(OPEN, *PICTURE, OVER)), last_chunk()]


# Declared.


def test_losses_of_the_request_are_in_the_header_the_ledger_and_the_log(gateway: TickerGateway) -> None:
    model = gateway.upstream.play([head(), chunk(frames(OPEN, *HELLO, OVER)), last_chunk()])
    response = ask(gateway, f"tape/{model}", {}, stop=["x"], temperature=0.5, seed=7)
    assert folded("openai_chat", response.body).text == "Hello, world"
    assert response.headers["x-penstock-losses"] == "stop-dropped=1,sampling-dropped=2"
    lost = {"stop-dropped": 1, "sampling-dropped": 2}
    assert gateway.call(response)["losses"] == lost
    assert gateway.book.entry(response.request_id).losses == lost


def test_a_loss_of_the_answer_is_counted_after_the_header_has_left(gateway: TickerGateway) -> None:
    script = [head(), chunk(frames(OPEN, *HELLO)), until_read(), chunk(frames(*PICTURE, OVER)), last_chunk()]
    model = gateway.upstream.play(script)
    response = ask(gateway, f"tape/{model}", {})
    assert response.done
    assert "x-penstock-losses" not in response.headers
    assert gateway.book.entry(response.request_id).losses == {"media-dropped": 1}
    assert gateway.call(response)["ending"] == "completed"


def test_a_loss_of_an_unstreamed_answer_is_in_the_header(gateway: TickerGateway) -> None:
    model = gateway.upstream.play(pictured(live=False))
    response = ask(gateway, f"tape/{model}", {}, live=False, stop=["x"])
    assert response.headers["x-penstock-losses"] == "stop-dropped=1,media-dropped=1"
    assert gateway.call(response)["losses"] == {"stop-dropped": 1, "media-dropped": 1}


def test_a_second_target_s_losses_replace_those_of_the_first(gateway: TickerGateway) -> None:
    gateway.upstream.play([status(500, JSON, b'{"error":{"message":"no"}}')], "either-a")
    gateway.upstream.play(stream(CHAT), "either-b")
    response = ask(gateway, "either", {}, stop=["x"])
    assert response.headers["x-penstock-attempts"] == "2"
    assert "x-penstock-losses" not in response.headers
    assert gateway.call(response)["losses"] == {}


def test_the_header_names_the_losses_of_the_target_that_answered(gateway: TickerGateway) -> None:
    """The first target loses a picture as well, and is left for that."""
    gateway.upstream.play(pictured(live=True), "lossy-a")
    gateway.upstream.play([head(), chunk(frames(OPEN, *HELLO, OVER)), last_chunk()], "lossy-b")
    response = ask(gateway, "lossy", STRICT, temperature=0.5)
    assert (response.status, response.headers["x-penstock-attempts"]) == (200, "2")
    assert response.headers["x-penstock-losses"] == "sampling-dropped=1"
    assert gateway.call(response)["losses"] == {"sampling-dropped": 1}
    gateway.upstream.play([status(500, JSON, b'{"error":{"message":"no"}}')], "failing-a")
    gateway.upstream.play([head(), chunk(frames(OPEN, *HELLO, OVER)), last_chunk()], "failing-b")
    response = ask(gateway, "failing", {}, stop=["x"], temperature=0.5)
    assert response.headers["x-penstock-attempts"] == "2"
    assert response.headers["x-penstock-losses"] == "stop-dropped=1,sampling-dropped=1"


def test_what_is_forwarded_has_no_losses(gateway: TickerGateway) -> None:
    model = gateway.upstream.play([head(), chunk(frames(OPEN, *HELLO, *PICTURE, OVER)), last_chunk()])
    response = gateway.tick(f"tape/{model}", live=True, mood="dry")
    assert ("more", {"n": 1, "s": "Rw0K"}) in ticks(response)
    assert gateway.call(response)["losses"] == {}


def test_losses_are_in_the_metrics_and_the_admin_api(tmp_path: Path) -> None:
    with started(tmp_path, admin={"token": TOKEN}) as gateway:
        model = gateway.upstream.play([head(), chunk(frames(OPEN, *HELLO, OVER)), last_chunk()])
        ask(gateway, f"tape/{model}", {}, stop=["x"])
        response = ask(gateway, f"tape/{model}", {}, stop=["x"])
        gateway.book.entry(response.request_id)
        assert json.loads(reported(gateway, f"/admin/entries/{response.request_id}"))["losses"] == {"stop-dropped": 1}
        (line,) = [
            line for line in reported(gateway, "/metrics").splitlines() if line.startswith("penstock_losses_total")
        ]
        assert line == 'penstock_losses_total{code="stop-dropped",provider="tape",surface="chat"} 2.0'


def test_a_trace_names_the_losses_of_a_call_on_any_surface(tmp_path: Path) -> None:
    with Collector() as collector:
        with started(tmp_path, telemetry={"otlp": collector.url, "interval_s": 0.2}) as gateway:
            model = gateway.upstream.play(stream(CHAT))
            assert gateway.tick(f"main/{model}", live=True, mood="dry").status == 200
            collector.until(lambda: len(collector.spans) >= 2)
        own, attempt = collector.spans
    assert (own.name, attempt.name) == ("POST /v1/ticker", f"chat {model}")
    assert attributes(own.attributes)["penstock.losses"] == ["field-dropped"]
    assert attributes(attempt.attributes)["gen_ai.request.stream"] is True


def test_inspect_shows_what_clients_of_another_dialect_would_lose(tmp_path: Path) -> None:
    file = tmp_path / "answer"
    file.write_bytes(frames(OPEN, *HELLO, *PICTURE, OVER))
    lost = {"code": "media-dropped", "count": 1, "details": ["image/png"], "changes_meaning": True}
    result = invoke("inspect", "--json", "--dialect", "ticker", "--for", "openai_chat", str(file))
    assert json.loads(result.stdout)["losses"] == [lost]
    result = invoke("inspect", "--dialect", "ticker", "--for", "openai_chat", str(file))
    assert "losses    1, for clients of openai_chat\n          media-dropped ×1: The model sent" in result.stdout
    result = invoke("inspect", "--dialect", "ticker", "--for", "ticker", str(file))
    assert "losses    none, for clients of ticker\n" in result.stdout
    assert "losses" not in json.loads(invoke("inspect", "--json", "--dialect", "ticker", str(file)).stdout)
    result = invoke("inspect", "--for", "tickr", str(file))
    assert (result.exit_code, "tickr" in result.stderr) == (2, True)


# Strict.


@pytest.mark.parametrize("value", ["1", "true", "yes"])
@pytest.mark.parametrize("live", [True, False])
def test_a_strict_request_is_refused_rather_than_changed(gateway: TickerGateway, value: str, live: bool) -> None:
    model = gateway.upstream.play([head(), chunk(frames(OPEN, *HELLO, OVER)), last_chunk()])
    response = ask(gateway, f"tape/{model}", {"x-penstock-strict": value}, live=live, stop=["x"], temperature=0.5)
    assert (response.status, response.error["code"]) == (400, "translation_loss")
    assert "stop-dropped (x)" in response.error["message"]
    assert "sampling" not in response.error["message"]
    assert response.headers["x-should-retry"] == "false"
    assert gateway.upstream.requests(model) == []
    line = gateway.call(response)
    assert (line["ending"], line["code"], line["attempts"]) == ("refused", "translation_loss", [])


@pytest.mark.parametrize("value", ["0", "false", ""])
def test_a_header_that_says_no_is_not_strict(gateway: TickerGateway, value: str) -> None:
    model = gateway.upstream.play([head(), chunk(frames(OPEN, *HELLO, OVER)), last_chunk()])
    assert ask(gateway, f"tape/{model}", {"x-penstock-strict": value}, stop=["x"]).status == 200


def test_a_loss_that_keeps_the_meaning_is_no_matter_for_strict_mode(gateway: TickerGateway) -> None:
    model = gateway.upstream.play([head(), chunk(frames(OPEN, *HELLO, OVER)), last_chunk()])
    response = ask(gateway, f"tape/{model}", STRICT, temperature=0.5)
    assert (response.status, response.headers["x-penstock-losses"]) == (200, "sampling-dropped=1")


def test_a_strict_request_skips_to_a_target_that_can_take_it(gateway: TickerGateway) -> None:
    gateway.upstream.play([head(), chunk(frames(OPEN, *HELLO, OVER)), last_chunk()], "either-a")
    gateway.upstream.play(stream(CHAT), "either-b")
    asked = len(gateway.upstream.requests("either-a"))
    response = ask(gateway, "either", STRICT, stop=["x"])
    assert folded("openai_chat", response.body).text == "Hello, world"
    assert response.headers["x-penstock-attempts"] == "1"
    assert len(gateway.upstream.requests("either-a")) == asked
    assert gateway.call(response)["losses"] == {}


def test_a_strict_request_that_no_target_can_take_names_the_losses_of_each(gateway: TickerGateway) -> None:
    response = ask(gateway, "lossy", STRICT, stop=["x", "y"])
    assert (response.status, response.error["code"]) == (400, "translation_loss")
    losses = "tape/lossy-a: stop-dropped (x, y); heard-tape/lossy-b: stop-dropped (x, y)"
    assert response.error["message"].endswith(losses)
    line = gateway.call(response)
    assert (line["attempts"], line["losses"]) == ([], {"stop-dropped": 4})


def test_targets_that_are_skipped_are_no_attempts(gateway: TickerGateway) -> None:
    """The route has three targets, of which the last can take the request, and two attempts are allowed."""
    gateway.upstream.play(stream(CHAT), "three-c")
    response = ask(gateway, "three", STRICT, stop=["x"])
    assert (response.status, response.headers["x-penstock-attempts"]) == (200, "1")


def test_attempts_of_strict_calls_are_limited_too(gateway: TickerGateway) -> None:
    for name in ("three-a", "three-b", "three-c"):
        gateway.upstream.play([status(503, JSON, b'{"error":{"message":"no"}}')], name)
    response = ask(gateway, "three", STRICT)
    assert (response.status, response.headers["x-penstock-attempts"]) == (503, "2")


def test_a_target_that_failed_is_reported_rather_than_one_that_was_skipped(gateway: TickerGateway) -> None:
    gateway.upstream.play([status(503, JSON, b'{"error":{"message":"busy"}}')], "failing-a")
    response = ask(gateway, "failing", STRICT, stop=["x"])
    assert (response.status, response.error["code"]) == (503, "upstream_error")
    assert gateway.call(response)["losses"] == {}


def test_a_strict_request_may_come_again_when_the_target_that_can_take_it_has_cooled_down(
    gateway: TickerGateway,
) -> None:
    gateway.upstream.play(
        [status(429, JSON | {"retry-after": "60"}, b'{"error":{"message":"slow down"}}')], "cooling-a"
    )
    gateway.upstream.play([head(), chunk(frames(OPEN, *HELLO, OVER)), last_chunk()], "cooling-b")
    assert ask(gateway, "cooling", STRICT, stop=["x"]).status == 429
    response = ask(gateway, "cooling", STRICT, stop=["x"])
    assert (response.status, response.error["code"]) == (429, "upstream_rate_limited")
    assert 50 <= int(response.headers["retry-after"]) <= 60
    assert ask(gateway, "cooling", STRICT).status == 200


def test_a_route_may_be_strict(gateway: TickerGateway) -> None:
    gateway.upstream.play([head(), chunk(frames(OPEN, *HELLO, OVER)), last_chunk()], "careful")
    refused = ask(gateway, "careful", {"x-penstock-strict": "0"}, stop=["x"])
    assert (refused.status, refused.error["code"]) == (400, "translation_loss")
    assert ask(gateway, "careful", {}).status == 200


def test_a_key_may_be_strict(gateway: TickerGateway) -> None:
    environment = {"PATH": "", "PENSTOCK_STATE": str(gateway.book.folder)}
    options = ("--name", "careful", "--strict", "--config", str(gateway.file))
    made = subprocess.run(
        [*gateway.command, "keys", "create", *options],
        check=True,
        capture_output=True,
        text=True,
        env=environment | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
    deadline = time.monotonic() + 30.0
    while gateway.send(get("/v1/models", headers)).status == 401:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    model = gateway.upstream.play([head(), chunk(frames(OPEN, *HELLO, OVER)), last_chunk()])
    refused = ask(gateway, f"tape/{model}", headers, stop=["x"])
    assert (refused.status, refused.error["code"]) == (400, "translation_loss")
    assert ask(gateway, f"tape/{model}", headers).status == 200


@pytest.mark.parametrize("live", [True, False])
def test_an_answer_that_loses_its_meaning_fails_the_attempt(gateway: TickerGateway, live: bool) -> None:
    gateway.upstream.play(pictured(live=live), "either-a")
    gateway.upstream.play(stream(CHAT), "either-b")
    response = ask(gateway, "either", STRICT, live=live)
    assert folded("openai_chat", response.body).text == "Hello, world"
    assert response.headers["x-penstock-attempts"] == "2"
    line = gateway.call(response)
    assert [attempt["code"] for attempt in line["attempts"]] == ["translation_loss", ""]
    assert (line["ending"], line["losses"]) == ("completed", {})
    first, _ = gateway.book.entry(response.request_id).attempts
    assert (first.outcome, first.measure) == ("failed", "estimated" if live else "reported")


@pytest.mark.parametrize("live", [True, False])
def test_an_answer_that_loses_its_meaning_is_an_error_if_no_one_else_answers(
    gateway: TickerGateway, live: bool
) -> None:
    model = gateway.upstream.play(pictured(live=live))
    response = ask(gateway, f"tape/{model}", STRICT, live=live)
    assert (response.status, response.error["code"]) == (502, "translation_loss")
    assert "media-dropped" in response.error["message"]
    line = gateway.call(response)
    assert (line["ending"], line["losses"]) == ("failed", {"media-dropped": 1})


def test_after_the_commit_point_the_stream_ends_with_an_error(gateway: TickerGateway) -> None:
    script = [head(), chunk(frames(OPEN, *HELLO)), until_read(), chunk(frames(*PICTURE, OVER)), last_chunk()]
    gateway.upstream.play(script, "either-a")
    response = ask(gateway, "either", STRICT)
    assert (response.status, response.text, response.done) == (200, "Hello, world", False)
    assert response.error["code"] == "translation_loss"
    assert response.finish is None
    entry = gateway.book.entry(response.request_id)
    assert (entry.outcome, entry.code, entry.losses) == ("failed", "translation_loss", {"media-dropped": 1})
    assert len(entry.attempts) == 1


def test_losses_do_not_count_against_a_provider(gateway: TickerGateway) -> None:
    """Five failures in a row would have the target cool down."""
    model = gateway.upstream.play(pictured(live=True))
    for _ in range(7):
        assert ask(gateway, f"tape/{model}", STRICT).error["code"] == "translation_loss"
    assert ask(gateway, f"tape/{model}", {}).status == 200


def test_a_provider_that_is_read_to_its_end_without_its_client_may_lose_something(gateway: TickerGateway) -> None:
    gate = Gate()
    rest = [chunk(frames(*PICTURE)), until_read(), chunk(frames(OVER)), last_chunk()]
    model = gateway.upstream.play([head(), chunk(frames(OPEN, *HELLO)), gate, *rest])
    with gateway.client() as client:
        gateway.expected += 1
        client.send(post(body(f"heard-tape/{model}", stream=True), STRICT))
        client.read_until(b"world")
        end = gateway.end_of(client)
    gateway.closes(end)
    gate.open()
    entry = gateway.book.entry(gateway.last_call()["request_id"])
    assert (entry.outcome, entry.losses) == ("cancelled", {"media-dropped": 1})
    assert (entry.measure, entry.tokens.output) == ("reported", 3)

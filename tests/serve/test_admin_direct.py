"""The routes of the page that query the gateway itself: inspection, the playground, models, health of providers."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.gateway.keys.key_secret import new_secret
from penstock.gateway.people.tokens import TOKEN_PREFIX
from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.stores.book.sqlite import SqliteBook
from tests.cli.support import invoke
from tests.faults.client import RawClient, body, post
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import unstreamed, whole
from tests.faults.upstream import Upstream
from tests.serve.in_process import InProcessGateway
from tests.serve.support import AdminClient

SEEDS = sorted((Path(__file__).parent.parent / "seeds").iterdir())
CAPTURES = Path(__file__).parent.parent / "captures"


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        upstream.play(whole(), "river-1")
        upstream.play(unstreamed(), "river-2")
        yield upstream


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[AdminClient]:
    models = '[routes.fast]\ntargets = ["main/river-1"]\n'
    with InProcessGateway(tmp_path_factory.mktemp("direct"), upstream, settings(upstream.url, 0) + models) as gateway:
        yield AdminClient(gateway)


# Inspection


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name)
@pytest.mark.slow  # a process inspects
def test_a_stream_is_inspected_as_the_command_does(seed: Path, admin: AdminClient) -> None:
    data = seed.read_bytes()
    status, reported = admin.ask("POST", "/admin/inspect", data)
    assert status == 200
    printed = invoke("inspect", "--json", "-", stdin=data)
    findings, left_off, text = reported.pop("findings"), reported.pop("findings_left_off"), reported.pop("text")
    assert reported == json.loads(printed.stdout)
    assert text.encode("latin-1") == data
    assert left_off == 0
    counts: dict[str, int] = {}
    for found in findings:
        counts[found["code"]] = counts.get(found["code"], 0) + 1
        assert found["meaning"]
        assert found["what_is_done"]
        before = data[: found["offset"]]
        if before == data:
            before = data.removesuffix(b"\n")  # there is no line behind the last line end
        assert before.count(b"\n") + 1 == found["line"]
        assert b"\n" not in data[found["offset"] : found["offset"] + found["length"]]
    assert counts == {repair["code"]: repair["count"] for repair in reported["repairs"]}


@pytest.mark.slow  # a process inspects
def test_a_capture_and_a_fault_are_inspected(admin: AdminClient) -> None:
    _, reported = admin.ask("POST", "/admin/inspect", (CAPTURES / "bad-json.sse").read_bytes())
    assert reported["fault"]["code"] == "bad-json"
    assert [found["code"] for found in reported["findings"] if found["code"] == "bad-json"] == ["bad-json"]
    capture = b"penstock capture 1\n{}\n\n--- 0.1 s, 6 bytes\ndata: \n--- 0.2 s, closed\n"
    status, reported = admin.ask("POST", "/admin/inspect", capture)
    assert status == 200
    assert reported["capture"]["closing"] == "closed"
    assert reported["text"] == "data: "  # places are in the stream, not in the file


@pytest.mark.slow  # a process inspects
def test_what_cannot_be_inspected_is_reported(admin: AdminClient) -> None:
    status, reported = admin.ask("POST", "/admin/inspect", b"penstock capture 9\n{}\n\n")
    assert (status, reported["error"]["code"]) == (400, "unreadable")
    assert "Traceback" not in reported["error"]["message"]
    assert admin.ask("POST", "/admin/inspect", b"")[0] == 400
    assert admin.ask("POST", "/admin/inspect", bytes(range(256)) * 100)[0] == 200  # no text at all, which is said
    assert admin.ask("GET", "/admin/inspect")[0] == 405


@pytest.mark.slow  # a process inspects
def test_large_bodies_are_taken_only_from_whoever_is_let_in(admin: AdminClient) -> None:
    large = SEEDS[0].read_bytes() * 400
    assert 70_000 < len(large) < 5_000_000
    assert admin.ask("POST", "/admin/inspect", large)[0] == 200
    with RawClient(admin.port) as client:  # which is known before the body is sent
        client.send(b"POST /admin/inspect HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
        assert client.response().status == 413
    with RawClient(admin.port) as client:
        token = f"Authorization: Bearer {admin.token}".encode()
        client.send(
            b"POST /admin/inspect HTTP/1.1\r\nHost: localhost\r\n" + token + b"\r\nContent-Length: 5000001\r\n\r\n"
        )
        assert client.response().status == 413


@pytest.mark.slow  # a process inspects
def test_the_first_request_with_an_api_token_may_be_large(admin: AdminClient) -> None:
    large = SEEDS[0].read_bytes() * 400
    head = b"POST /admin/inspect HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\nContent-Length: %d\r\n\r\n"
    admin.ask("POST", "/admin/tokens", {"name": "uploader", "role": "operator"})
    with RawClient(admin.port) as client:
        client.send(head % (admin.secrets[-1].encode(), len(large)) + large)
        assert client.response().status == 200
    # Tokens that look right, and that the ledger does not have: few of them may send much before they are looked up.
    with ExitStack() as stack:
        waiting = [stack.enter_context(RawClient(admin.port)) for _ in range(5)]
        for client in waiting:
            client.send(head % (new_secret(TOKEN_PREFIX).encode(), len(large)))
        assert waiting[-1].response().status == 413
        waiting[0].send(large)
        assert waiting[0].response().status == 401


# The playground


@pytest.mark.parametrize("stream", [True, False])
def test_the_playground_is_the_gateway_itself(stream: bool, admin: AdminClient) -> None:
    model = "fast" if stream else "main/river-2"
    content = body(model, stream=stream, metadata={"via": "somewhere", "mine": "1"})
    headers = {"Host": admin.place, "Authorization": f"Bearer {admin.token}"}
    with RawClient(admin.port) as client:
        client.send(post(content, headers, "/admin/playground"))
        response = client.response()
    assert (response.status, response.complete, response.text) == (200, True, "Hello, world")
    assert response.headers["x-penstock-provider"] == "main"
    entry = admin.gateway.book.entry(response.request_id)
    assert (entry.key, entry.surface, entry.model) == ("", "chat", model)
    assert entry.tags == {"via": "playground", "mine": "1"}
    assert entry.tokens.output == 3
    assert b'"playground"' not in admin.gateway.upstream.requests("river-1" if stream else "river-2")[-1]
    found = admin.get("/admin/entries?tag=via%3Dplayground")["entries"]
    assert response.request_id in [reported["id"] for reported in found]


def test_the_playground_is_for_no_one_else(admin: AdminClient) -> None:
    content = body("fast", stream=False)
    with RawClient(admin.port) as client:
        client.send(post(content, {"Host": admin.place}, "/admin/playground"))  # with a client's key
        assert client.response().status == 401
    status, reported = admin.ask("POST", "/admin/playground", {"model": "none/at-all", "messages": [{}]})
    assert (status, reported["error"]["code"]) == (404, "model_not_found")
    assert admin.ask("GET", "/admin/playground")[0] == 405


def test_models_are_reported_with_whether_they_answer(admin: AdminClient) -> None:
    models = {model["id"]: model for model in admin.get("/admin/models")["models"]}
    assert models["fast"]["available"] is True
    assert models["fast"]["owned_by"] == "main"


# Health
@pytest.mark.slow
def test_the_health_of_providers_is_reported(tmp_path: Path, upstream: Upstream) -> None:
    now = time.time_ns() // 1_000_000
    attempt: Any = {"provider": "main", "model": "river-1", "first_event_ms": 10, "events": 5, "cost": 0}
    book = SqliteBook.open(_folder(tmp_path) / "ledger.db")
    book.append(
        [
            Entry(
                id=f"req_{number}",
                at_ms=now - 3_600_000 + number * 1_000,
                model="fast",
                outcome="completed" if number else "truncated",
                repairs={"no-done": 1},
                attempts=(AttemptEntry(outcome="completed" if number else "truncated", longest_gap_ms=4, **attempt),),
            )
            for number in range(10)
        ]
    )
    book.close()
    with Gateway(tmp_path, upstream, settings(upstream.url, 0)) as gateway:
        served = AdminClient(gateway)
        reported = served.get("/admin/health?since=24h&bucket=5m")
        assert reported["bucket_ms"] == 300_000
        assert abs(reported["since"] - (now - 86_400_000)) < 60_000
        (row,) = reported["rows"]
        buckets = row.pop("buckets")
        assert 10 <= row["first_event_ms"].pop("p50") <= 12
        assert row == {
            "provider": "main",
            "model": "river-1",
            "attempts": 10,
            "outcomes": {"completed": 9, "truncated": 1},
            "first_event_ms": {"p95": row["first_event_ms"]["p95"]},
            "longest_gap_ms": {"p50": 4, "p95": 4},
            "repairs": {"no-done": 10},
            "usage_missing": 0,
        }
        assert sum(bucket["attempts"] for bucket in buckets) == 10
        assert set(buckets[0]) == {"at_ms", "attempts", "outcomes", "p50", "p95", "repairs", "usage_missing"}
        assert served.get("/admin/health?since=10m")["rows"] == []
        for wrong in ("bucket=0", "bucket=1s&since=7d", "bucket=x", "since=x", "model=m"):
            assert served.ask("GET", f"/admin/health?{wrong}")[0] == 400, wrong


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder

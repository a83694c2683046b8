"""Durable streams of a gateway with several workers: each request reaches any of them."""

import re
from collections.abc import Iterator

import pytest

from tests.faults.client import CLIENT_KEY, Response, body, get, post
from tests.faults.gateway import settings
from tests.faults.scripts import HELLO, REST, TEXT, WORLD, whole
from tests.faults.upstream import Gate, Upstream, chunk, fin, head, last_chunk
from tests.kept.support import OTHER_KEY, PATH, KeepingGateway, authorized, response_body

pytestmark = pytest.mark.slow

DURABLE = {"x-penstock-durable": "1"}
# Connections, so that each worker gets some of them.
TRIES = 12
_ID = re.compile(rb"^id: (req_[0-9a-f]{24})-\d+$", re.MULTILINE)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeepingGateway]:
    with Upstream() as upstream:
        server = {"workers": 3, "keys": [CLIENT_KEY, OTHER_KEY]}
        text = settings(upstream.url, 1, server=server, streams={"max_readers": 100})
        with KeepingGateway(tmp_path_factory.mktemp("gateway"), upstream, text) as gateway:
            yield gateway


def read(workers: KeepingGateway, path: str, method: str = "GET", **headers: str) -> Response:
    return workers.send(get(f"/v1/streams/{path}", headers, method))


def test_a_reader_finds_a_running_stream_on_every_worker(workers: KeepingGateway) -> None:
    gate = Gate()
    model = workers.upstream.play([head(), chunk(HELLO), gate, chunk(WORLD), chunk(REST), last_chunk(), fin()])
    content = body(f"main/{model}", stream=True)
    first = workers.client()
    workers.expected += 1
    first.send(post(content, DURABLE))
    id = _ID.findall(first.read_until(b"Hello"))[0].decode()
    readers = [workers.client() for _ in range(TRIES)]
    for number, reader in enumerate(readers):
        again = post(content, {"last-event-id": f"{id}-0"})
        reader.send(again if number % 2 else get(f"/v1/streams/{id}"))
        reader.read_until(b"Hello")
    seen = [read(workers, id, accept="application/json").json for _ in range(TRIES)]
    assert {(each["status"], each["readers"]) for each in seen} == {("in_progress", TRIES + 1)}
    gate.open()
    answers = [workers.keep(reader.response()) for reader in (first, *readers)]
    for reader in (first, *readers):
        reader.close()
    whole_stream = read(workers, id).body
    assert {answer.status for answer in answers} == {200}
    assert all(whole_stream.endswith(answer.body) for answer in answers)
    assert whole_stream.count(b"[DONE]") == 1
    assert len(workers.quiet()) == 1
    assert len(workers.upstream.requests(model)) == 1


def test_a_retry_is_the_same_call_on_every_worker(workers: KeepingGateway) -> None:
    model = workers.upstream.play(whole())
    content, headers = body(f"main/{model}", stream=True), {"idempotency-key": "once"}
    bodies = {workers.send(post(content, headers), calls=int(not number)).body for number in range(TRIES)}
    assert len(bodies) == 1
    assert len(workers.upstream.requests(model)) == 1
    assert len(workers.quiet()) == 1


def test_what_is_cancelled_or_unknown_is_so_on_every_worker(workers: KeepingGateway) -> None:
    gate = Gate()
    model = workers.upstream.play([head(), chunk(HELLO), gate, fin()])
    with workers.client() as client:
        workers.expected += 1
        client.send(post(body(f"main/{model}", stream=True), DURABLE))
        id = _ID.findall(client.read_until(b"Hello"))[0].decode()
        for _ in range(TRIES):
            assert read(workers, f"{id}/cancel", "POST").json["status"] == "cancelled"
    gate.open()
    (entry,) = workers.quiet()
    assert entry.outcome == "cancelled"
    for _ in range(TRIES):
        other = read(workers, id, Authorization=f"Bearer {OTHER_KEY}")
        assert (other.status, other.json["error"]["code"]) == (404, "stream_not_found")
        assert read(workers, "a-name-of-the-client").status == 204
    assert read(workers, id, "DELETE").status == 204
    assert {read(workers, id).json["error"]["code"] for _ in range(TRIES)} == {"stream_expired"}


def test_a_response_in_the_background_is_polled_on_every_worker(workers: KeepingGateway) -> None:
    gate = Gate()
    model = workers.upstream.play([head(), chunk(HELLO), gate, chunk(WORLD), chunk(REST), last_chunk(), fin()])
    content = response_body(f"main/{model}", "Say hello.", background=True)
    queued = workers.send(post(content, authorized(CLIENT_KEY), PATH), calls=1).json
    seen = {workers.ask_for(queued["id"]).json["status"] for _ in range(TRIES)}
    assert seen <= {"queued", "in_progress"}
    gate.open()
    workers.until(lambda: workers.ask_for(queued["id"]).json["status"] == "completed")
    for _ in range(TRIES):
        got = workers.ask_for(queued["id"]).json
        assert got["output"][0]["content"][0]["text"] == TEXT
    assert len(workers.quiet()) == 1

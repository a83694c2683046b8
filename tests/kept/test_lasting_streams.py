"""Durable streams in files: after `kill -9` a reader gets the text so far and the truth, after a restart everything."""

import re
import signal
from pathlib import Path

import pytest

from tests.faults.client import CLIENT_KEY, Response, body, get, post
from tests.faults.gateway import settings
from tests.faults.scripts import HELLO, REST, TEXT, WORLD, whole
from tests.faults.upstream import Gate, Upstream, chunk, fin, hang, head, last_chunk
from tests.kept.support import PATH, KeepingGateway, authorized, response_body

pytestmark = pytest.mark.slow

DURABLE = {"x-penstock-durable": "1"}
_ID = re.compile(rb"^id: (req_[0-9a-f]{24})-(\d+)$", re.MULTILINE)


def start(folder: Path, upstream: Upstream, **server: object) -> KeepingGateway:
    return KeepingGateway(folder, upstream, settings(upstream.url, 1, streams={"store": "file"}, server=server))


def read(gateway: KeepingGateway, path: str, method: str = "GET", **headers: str) -> Response:
    return gateway.send(get(f"/v1/streams/{path}", headers, method))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stream_whose_process_is_killed_ends_truthfully(tmp_path: Path, upstream: Upstream, workers: int) -> None:
    model = upstream.play([head(), chunk(HELLO), hang()])
    with start(tmp_path, upstream, workers=workers) as gateway:
        content = body(f"main/{model}", stream=True)
        with gateway.client() as client:
            client.send(post(content, DURABLE))
            begun = client.read_until(b"Hello")
            id = _ID.findall(begun)[0][0].decode()
            gateway.stop(signal.SIGKILL) if workers == 1 else gateway.signal(signal.SIGKILL, group=True)
            if workers > 1:
                gateway.stop(signal.SIGKILL)
        gateway.output.clear()
        gateway.start()
        everything = read(gateway, id)
        assert everything.body.startswith(begun[begun.index(b"id: ") :].split(b"\r\n")[0])
        assert b"gateway_died" in everything.body
        assert b"[DONE]" not in everything.body
        numbers = [int(number) for _, number in _ID.findall(everything.body)]
        assert numbers == list(range(1, len(numbers) + 1))
        rest = gateway.send(post(content, {"last-event-id": f"{id}-1"}))
        assert everything.body.endswith(rest.body)
        assert read(gateway, id, accept="application/json").json["status"] == "failed"
        assert len(upstream.requests(model)) == 1


def test_a_stream_that_has_ended_is_read_after_a_restart(tmp_path: Path, upstream: Upstream) -> None:
    model = upstream.play(whole())
    with start(tmp_path, upstream) as gateway:
        headers = {"idempotency-key": "once"}
        answer = gateway.send(post(body(f"main/{model}", stream=True), headers))
        id = answer.headers["location"].removeprefix("/v1/streams/")
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
            gateway.restart(number)
            assert read(gateway, id).body == answer.body
            again = gateway.send(post(body(f"main/{model}", stream=True), headers))
            assert again.body == answer.body
        described = read(gateway, id, accept="application/json").json
        assert (described["status"], described["survives"]) == ("completed", True)
        assert read(gateway, id, "DELETE").status == 204
        gateway.restart()
        assert read(gateway, id).status == 404
        assert len(upstream.requests(model)) == 1
        assert not list(tmp_path.rglob("*.stream"))


def test_a_response_in_the_background_fails_with_its_process(tmp_path: Path, upstream: Upstream) -> None:
    gate = Gate()
    model = upstream.play([head(), chunk(HELLO), gate, chunk(WORLD), chunk(REST), last_chunk(), fin()])
    with start(tmp_path, upstream) as gateway:
        content = response_body(f"main/{model}", "Say hello.", background=True)
        queued = gateway.send(post(content, authorized(CLIENT_KEY), PATH)).json
        gateway.until(lambda: gateway.ask_for(queued["id"]).json["status"] == "in_progress")
        gateway.restart(signal.SIGKILL)
        failed = gateway.ask_for(queued["id"]).json
        assert (failed["id"], failed["status"]) == (queued["id"], "failed")
        assert "gateway stopped" in failed["error"]["message"]
        gate.open()
        queued = gateway.send(post(content, authorized(CLIENT_KEY), PATH)).json
        gateway.until(lambda: gateway.ask_for(queued["id"]).json["status"] == "completed")
        whole_answer = gateway.ask_for(queued["id"]).json
        assert whole_answer["output"][0]["content"][0]["text"] == TEXT


def test_a_full_disk_costs_no_answer(tmp_path: Path, upstream: Upstream) -> None:
    text = settings(upstream.url, 1, streams={"store": "file"}, ledger={"enabled": False})
    model = upstream.play(whole())
    with KeepingGateway(tmp_path, upstream, text, max_file_size=300) as gateway:
        answer = gateway.send(post(body(f"main/{model}", stream=True), DURABLE))
        assert b"[DONE]" in answer.body
        id = answer.headers["location"].removeprefix("/v1/streams/")
        assert read(gateway, id).body == answer.body
        assert read(gateway, id, accept="application/json").json["survives"] is False

"""How long responses are kept: over restarts and kills, until their time, within limits, and not at all by default."""

import json
import re
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.faults.client import CLIENT_KEY, Response
from tests.faults.gateway import CANARIES
from tests.faults.scripts import ERROR_BODY, HELLO, REST, WORLD
from tests.faults.upstream import JSON, Gate, Upstream, chunk, hang, head, last_chunk, status
from tests.kept.support import TEXT, KeepingGateway, code, final, says, start, streams
from tests.promptness import in_time, prompt
from tests.stores.postgres import PostgresServer
from tests.tables import FULL

pytestmark = pytest.mark.slow

DAY_S = 86_400
OFF = "its operator can set `memory` or `store` in [responses]"


# Restarts and kills.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_response_is_there_after_the_gateway_ends(tmp_path: Path, upstream: Upstream, number: signal.Signals) -> None:
    with start(tmp_path, upstream) as gateway:
        model = upstream.play(streams())
        got = final(gateway.respond(f"main/{model}", "I am Ada.", stream=True))
        gateway.restart(number)
        assert gateway.ask_for(got["id"]).json == got
        second = final(gateway.respond(f"main/{model}", "Who am I?", stream=True, previous_response_id=got["id"]))
        assert second["previous_response_id"] == got["id"]
        assert [message["content"] for message in gateway.asked(model)["messages"]] == ["I am Ada.", TEXT, "Who am I?"]


def test_a_client_that_has_seen_the_end_finds_its_response_after_a_kill(tmp_path: Path, upstream: Upstream) -> None:
    """The process is killed in the moment in which the client has the end, several times."""
    with start(tmp_path, upstream) as gateway:
        model = upstream.play(streams())
        for _ in range(10 if FULL else 4):
            with gateway.begin_response(f"main/{model}") as client:
                seen = client.read_until(b"event: response.completed\n")
                gateway.restart(signal.SIGKILL)
            id = json.loads(seen.partition(b"data: ")[2].partition(b"\n")[0])["response"]["id"]
            assert gateway.ask_for(id).json["output"][0]["content"][0]["text"] == TEXT


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program has the database's write lock."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_the_end_is_delayed_until_the_response_is_stored(tmp_path: Path, upstream: Upstream, stream: bool) -> None:
    with start(tmp_path, upstream) as gateway:
        model = upstream.play(streams() if stream else says(TEXT))
        with locked(gateway.store), gateway.begin_response(f"main/{model}", stream=stream) as client:
            upstream.asked(model)
            if stream:
                client.read_until(b"event: response.output_text.delta")
            seen = client.read_for(0.6)
            assert (b"event: response.output_text.delta" in seen) == stream
            assert b'"status":"completed"' not in seen
            assert gateway.stored() == []
        gateway.until_stored(1)


def test_a_client_that_leaves_before_a_delayed_end_has_completed_its_call(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream) as gateway:
        model = upstream.play(streams())
        with locked(gateway.store):
            client = gateway.begin_response(f"main/{model}")
            client.read_until(b"event: response.output_text.delta")
            connection = upstream.connection(model)
            gateway.until(lambda: not connection.busy and not connection.unread())
            client.close()
            line = gateway.last_call()
        assert line["ending"] == "completed"
        gateway.until_stored(1)
        gateway.quiet()


def test_a_database_that_does_not_answer_delays_the_end_only(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream) as gateway:
        model = upstream.play(says(TEXT))
        with locked(gateway.store):
            before = time.monotonic()
            with gateway.begin_response(f"main/{model}", stream=False) as client:
                client._socket.settimeout(60.0)
                got = gateway.keep(client.response())
            assert 4 < time.monotonic() - before < 30
            assert (got.status, final(got)["status"], final(got)["store"]) == (200, "completed", False)
            gateway.says("kept content cannot be written")
            degraded = gateway.respond(f"main/{model}")
            assert degraded.headers["x-penstock-degraded"] == "responses"
            assert final(degraded)["store"] is False
            assert code(gateway.ask_for(final(degraded)["id"])) == (404, "response_not_found")
        gateway.says("kept content is written again")
        healthy = gateway.respond(f"main/{model}")
        assert "x-penstock-degraded" not in healthy.headers
        assert gateway.ask_for(final(healthy)["id"]).status == 200


def test_a_gateway_that_ends_stores_what_it_holds(tmp_path: Path, upstream: Upstream) -> None:
    gate = Gate()
    with start(tmp_path, upstream) as gateway:
        model = upstream.play([head(), chunk(HELLO), gate, chunk(WORLD), chunk(REST), last_chunk()])
        with gateway.begin_response(f"main/{model}") as client:
            client.read_until(b"Hello")
            gateway.signal(signal.SIGTERM)
            gate.open()
            got = final(client.response())
        assert got["status"] == "completed"
        gateway.restart()
        assert gateway.ask_for(got["id"]).json == got


def test_a_stream_that_the_end_of_the_gateway_cuts_is_kept_as_failed(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream) as gateway:
        model = upstream.play([head(), chunk(HELLO), hang()])
        with gateway.begin_response(f"main/{model}") as client:
            client.read_until(b"Hello")
            gateway.signal(signal.SIGTERM)
            got = final(client.response())
        assert got["status"] == "failed"
        gateway.restart()
        assert gateway.ask_for(got["id"]).json == got


def after_a_heartbeat(gateway: KeepingGateway, model: str, gate: Gate) -> Response:
    """The answer of a provider that goes on when the client has got a heartbeat."""
    with gateway.begin_response(model) as client:
        client.read_until(b"event: response.in_progress\n", 2)
        gate.open()
        return gateway.keep(client.response())


def test_an_id_that_a_heartbeat_has_announced_stays(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, server={"heartbeat_s": 0.1}) as gateway:
        gate = Gate()
        got = after_a_heartbeat(gateway, gateway.pair([gate, status(500, JSON, ERROR_BODY)], streams()), gate)
        assert got.body.count(b"event: response.created\n") == 1
        assert got.body.count(b"event: response.in_progress\n") > 1, "there was no heartbeat"
        ids = set(re.findall(rb'"id":"(resp_[^"]*)"', got.body))
        assert ids == {final(got)["id"].encode()}
        assert gateway.ask_for(final(got)["id"]).json == final(got)


def test_a_call_that_fails_after_a_heartbeat_is_kept_as_failed(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, server={"heartbeat_s": 0.1}) as gateway:
        gate = Gate()
        model = upstream.play([gate, status(500, JSON, ERROR_BODY)])
        got = after_a_heartbeat(gateway, f"main/{model}", gate)
        assert set(re.findall(rb'"id":"(resp_[^"]*)"', got.body)) == {final(got)["id"].encode()}
        assert final(got)["status"] == "failed"
        assert gateway.ask_for(final(got)["id"]).json == final(got)


# Retention and sizes.


@prompt
def test_conversations_are_deleted_after_their_time(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, keep_days=3 / DAY_S) as gateway:
        model = upstream.play(says(TEXT))
        began = time.monotonic()
        first = final(gateway.respond(f"main/{model}"))["id"]
        time.sleep(1.5)
        continued = time.monotonic()
        answer = gateway.respond(f"main/{model}", previous_response_id=first)
        in_time(time.monotonic() - began, 2.9)  # else it may have expired
        second = final(answer)["id"]
        time.sleep(2.0)  # the first alone would have expired
        still_there = gateway.ask_for(first).status
        in_time(time.monotonic() - continued, 2.9)
        assert still_there == 200
        deadline = time.monotonic() + 30
        while gateway.ask_for(second).status == 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert gateway.ask_for(first).status == 404
        assert code(gateway.respond(f"main/{model}", previous_response_id=second)) == (
            400,
            "previous_response_not_found",
        )
        gateway.restart()  # a start looks for what has expired, and need not be waited for
        gateway.until_stored(0)


def test_a_response_that_is_too_large_is_not_kept(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, max_response=20_000) as gateway:
        long_answer = upstream.play(says("a" * 30_000))
        got = gateway.respond(f"main/{long_answer}")
        assert (got.status, final(got)["output"][0]["content"][0]["text"]) == (200, "a" * 30_000)
        assert final(got)["store"] is False
        assert code(gateway.ask_for(final(got)["id"])) == (404, "response_not_found")
        gateway.says("max_response or memory in [responses] is too small")
        assert final(gateway.respond(f"main/{long_answer}", stream=True))["store"] is False
        short = upstream.play(says("Yes."))
        got = gateway.respond(f"main/{short}", "a" * 30_000)
        assert final(got)["store"] is False, "known before the answer begins"
        assert gateway.stored() == []


def test_beyond_the_total_size_the_oldest_go_first(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, max_total=100_000) as gateway:
        model = upstream.play(says("Yes."))
        ids = [final(gateway.respond(f"main/{model}", "a" * 20_000))["id"] for _ in range(8)]
        gateway.restart()
        gateway.until_stored(4)
        assert gateway.stored() == ids[-4:]
        assert [gateway.ask_for(id).status for id in ids] == [404] * 4 + [200] * 4


def test_a_conversation_that_is_too_long_is_refused(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, limits={"max_body": 100_000}) as gateway:
        model = upstream.play(says("Yes."))
        previous = final(gateway.respond(f"main/{model}", "a" * 20_000))["id"]
        for _ in range(4):
            got = gateway.respond(f"main/{model}", "a" * 20_000, previous_response_id=previous)
            previous = final(got)["id"]
        got = gateway.respond(f"main/{model}", "a" * 20_000, previous_response_id=previous)
        assert code(got) == (413, "body_too_large")
        assert "start a new one" in got.json["error"]["message"]
        assert gateway.ask_for(previous).status == 200


def test_conversations_that_are_continued_at_the_same_time_have_a_limit(tmp_path: Path, upstream: Upstream) -> None:
    """Ten times `max_body`, so that small requests cannot fill the memory."""
    with start(tmp_path, upstream, limits={"max_body": 30_000}) as gateway:
        previous = final(gateway.respond(f"main/{upstream.play(says('Yes.'))}", "a" * 28_000))["id"]
        gate = Gate()
        model = upstream.play([head(), chunk(HELLO), gate, chunk(WORLD), chunk(REST), last_chunk()])
        clients = [gateway.begin_response(f"main/{model}", "Go on.", previous_response_id=previous) for _ in range(10)]
        for client in clients:
            client.read_until(b"Hello")
        refused = gateway.respond(f"main/{model}", previous_response_id=previous)
        assert code(refused) == (503, "content_unavailable")
        assert "too many long conversations" in refused.json["error"]["message"]
        assert refused.headers["retry-after"] == "2"
        assert code(gateway.ask_for(f"{previous}/input_items")) == (503, "content_unavailable")
        leaves = clients.pop()  # it gives its share back, as do those that get their answers
        end = gateway.end_of(leaves)
        leaves.close()
        gateway.closes(end)
        clients.append(gateway.begin_response(f"main/{model}", "Go on.", previous_response_id=previous))
        clients[-1].read_until(b"Hello")
        gate.open()
        for client in clients:
            assert final(client.response())["status"] == "completed"
            client.close()
        for _ in range(11):
            assert gateway.ask_for(f"{previous}/input_items").status == 200


# Off.


def test_nothing_is_kept_if_the_operator_does_not_want_it(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, store=False, memory=0) as gateway:
        model = upstream.play(says(TEXT))
        got = final(gateway.respond(f"main/{model}", store=True))
        assert got["store"] is False
        assert not gateway.store.exists()
        for path, method in ((got["id"], "GET"), (f"{got['id']}/input_items", "GET"), (got["id"], "DELETE")):
            refused = gateway.ask_for(path, method)
            assert code(refused) == (404, "response_not_found")
            assert OFF in refused.json["error"]["message"]
        refused = gateway.respond(f"main/{model}", previous_response_id=got["id"])
        assert code(refused) == (400, "previous_response_not_found")
        assert OFF in refused.json["error"]["message"]


def test_what_was_kept_is_deleted_in_its_time_after_keeping_is_turned_off(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, keep_days=2 / DAY_S) as gateway:
        id = final(gateway.respond(f"main/{upstream.play(says(TEXT))}"))["id"]
        expires = time.monotonic() + 2
        gateway.file.write_text(gateway.file.read_text().replace("store = true", "store = false\nmemory = 0"))
        gateway.restart()
        assert OFF in gateway.ask_for(id).json["error"]["message"]
        time.sleep(max(0.0, expires - time.monotonic()))
        gateway.restart()
        gateway.until_stored(0)


def test_whether_responses_are_kept_needs_a_restart_and_other_settings_do_not(
    tmp_path: Path, upstream: Upstream
) -> None:
    with start(tmp_path, upstream) as gateway:
        model = upstream.play(says(TEXT))
        conversation = {"conversation": "conv_1"}
        assert code(gateway.respond(f"main/{model}", **conversation)) == (400, "shared_state_not_allowed")
        changed = gateway.file.read_text().replace("store = true", "store = false")
        changed = changed.replace("[server]", "[server]\nshared_state = true")
        gateway.file.write_text(changed)
        gateway.signal(signal.SIGHUP)
        gateway.says("responses.store needs a restart")
        allowed = gateway.respond(f"main/{model}", **conversation)
        assert allowed.status == 200 or allowed.json["error"]["code"] != "shared_state_not_allowed"
        assert gateway.ask_for(final(gateway.respond(f"main/{model}"))["id"]).status == 200


# Several processes, and PostgreSQL.


def test_all_workers_have_the_responses_of_each(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, server={"workers": 2}) as gateway:
        model = upstream.play(says(TEXT))
        previous, chain = "", 0
        for _ in range(20):  # each on a connection of its own: both workers get some
            fields = {"previous_response_id": previous} if previous else {}
            got = final(gateway.respond(f"main/{model}", "Go on.", **fields))
            assert gateway.ask_for(got["id"]).json == got
            previous, chain = got["id"], chain + 1
        assert len(gateway.asked(model)["messages"]) == 2 * chain - 1
        listed = gateway.ask_for(f"{previous}/input_items?limit=100").json["data"]
        assert len(listed) == 2 * chain - 1


def test_machines_share_responses_in_postgres(tmp_path: Path, upstream: Upstream, postgres: PostgresServer) -> None:
    ledger = {"postgres": postgres.new_database()}
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    with start(folders[0], upstream, ledger=ledger) as first, start(folders[1], upstream, ledger=ledger) as second:
        model = upstream.play(streams())
        got = final(first.respond(f"main/{model}", "One.", stream=True))
        assert second.ask_for(got["id"]).json == got
        continued = final(second.respond(f"main/{model}", "Two.", stream=True, previous_response_id=got["id"]))
        first.restart(signal.SIGKILL)
        assert first.ask_for(continued["id"]).json == continued
        assert len(first.ask_for(f"{continued['id']}/input_items").json["data"]) == 3
        assert first.ask_for(got["id"], "DELETE").status == 200
        assert second.ask_for(got["id"]).status == 404
        assert not any((folder / "state" / "content.db").exists() for folder in folders)


def test_postgres_may_fail_and_come_back(tmp_path: Path, upstream: Upstream, postgres: PostgresServer) -> None:
    with start(tmp_path, upstream, ledger={"postgres": postgres.new_database()}) as gateway:
        model = upstream.play(says(TEXT))
        kept = final(gateway.respond(f"main/{model}"))["id"]
        postgres.stop()
        try:
            assert gateway.respond(f"main/{model}").status == 200
            unread = gateway.ask_for(kept)
            assert (code(unread), unread.headers["retry-after"]) == ((503, "content_unavailable"), "2")
            refused = gateway.respond(f"main/{model}", previous_response_id=kept)
            assert code(refused) == (503, "content_unavailable")
            assert code(gateway.ask_for(kept, "DELETE")) == (503, "content_unavailable")
        finally:
            postgres.start()
        gateway.says("kept content is written again")
        assert gateway.ask_for(kept).status == 200
        assert gateway.ask_for(final(gateway.respond(f"main/{model}"))["id"]).status == 200


# Who the clients are.


def test_without_keys_all_clients_are_one(tmp_path: Path, upstream: Upstream) -> None:
    gateway = start(tmp_path, upstream)
    gateway.file.write_text(gateway.file.read_text().replace("keys = [", "hosts = [", 1))
    with gateway:
        model = upstream.play(says(TEXT))
        got = final(gateway.respond(f"main/{model}", key="anything"))
        assert gateway.ask_for(got["id"], key="anything-else").json == got


def test_a_configured_key_keeps_its_responses_when_the_list_changes(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream) as gateway:
        got = final(gateway.respond(f"main/{upstream.play(says(TEXT))}"))["id"]
        text = gateway.file.read_text()
        keys = json.dumps([CLIENT_KEY, "canary-of-another-client-8d21"])
        assert keys in text
        gateway.file.write_text(text.replace(keys, json.dumps(["canary-of-another-client-8d21", CLIENT_KEY])))
        gateway.signal(signal.SIGHUP)
        gateway.says("the configuration was reloaded")
        assert gateway.ask_for(got).status == 200
        assert gateway.ask_for(got, key="canary-of-another-client-8d21").status == 404


def test_a_rotated_key_keeps_its_responses(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream) as gateway:
        key = gateway.create_key()
        got = final(gateway.respond(f"main/{upstream.play(says(TEXT))}", key=key))["id"]
        rotated = gateway.rotate_key()
        assert gateway.ask_for(got, key=rotated).status == 200
        assert gateway.ask_for(got, key=gateway.create_key()).status == 404


def test_no_secret_is_kept(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream) as gateway:
        assert gateway.respond(f"main/{upstream.play(says(TEXT))}").status == 200
        gateway.stop()
        kept = gateway.store.read_bytes()
        assert TEXT.encode() in kept
        assert not [key for key in CANARIES if key.encode() in kept]

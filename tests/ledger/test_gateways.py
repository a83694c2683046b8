"""Two gateways that use one ledger: each shows and stops the calls of both, and blocking a key can stop its calls."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.client import RawClient
from tests.faults.gateway import Gateway, Table, settings
from tests.faults.upstream import Upstream, chunk, for_ever, head
from tests.ledger.support import ask, wait_for_key
from tests.ledger.support import request as call_request
from tests.serve.support import AdminClient, events
from tests.stores.conftest import RedisServer
from tests.stores.postgres import PostgresServer
from tests.streams import says, sse

TOKEN = "the-admin-token-of-both"


@pytest.fixture(params=["PostgreSQL", "SQLite and Redis"])
def both(
    request: pytest.FixtureRequest, postgres: PostgresServer, redis_server: RedisServer, tmp_path: Path
) -> Iterator[tuple[AdminClient, AdminClient]]:
    """Two gateways, of which the second has two workers."""
    ledger: Table = {"postgres": postgres.new_database()}
    if request.param != "PostgreSQL":
        # With timeouts that a busy machine does not run into.
        redis = f"{redis_server.url}?socket_timeout=8&socket_connect_timeout=8"
        ledger = {"folder": str(tmp_path / "shared"), "redis": redis}
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream())
        configuration = settings(upstream.url, 0, ledger=ledger, admin={"listen": "127.0.0.1:0", "token": TOKEN})

        def start(name: str, *arguments: str) -> AdminClient:
            (tmp_path / name).mkdir()
            gateway = Gateway(tmp_path / name, upstream, configuration, arguments=arguments)
            return AdminClient(stack.enter_context(gateway), TOKEN)

        yield start("one"), start("two", "--workers", "2")


def begin(served: AdminClient, secret: str) -> tuple[RawClient, str]:
    """Begin a stream that ends only when it is stopped; the client, and the id of the call."""
    model = served.gateway.upstream.play([head(), chunk(sse(says("Hello"))), for_ever(sse(says("word ")), 0.05)])
    client = served.gateway.client()
    client.send(call_request(secret, f"main/{model}", stream=True))
    raw = client.read_until(b"Hello").partition(b"x-request-id: ")[2]
    return client, raw.partition(b"\r\n")[0].decode()


def is_stopped(client: RawClient) -> bool:
    with client:
        return bool(client.response().error["code"] == "stopped_by_operator")


def test_two_gateways_are_one(both: tuple[AdminClient, AdminClient], request: pytest.FixtureRequest) -> None:
    one, two = both
    secrets = {name: one.make(name=name)[0] for name in ("runaway", "innocent")}
    for served in both:
        wait_for_key(served.gateway, secrets["innocent"])  # the later one

    # Live shows the calls of both, and either stops them.
    calls = [begin(served, secrets["innocent"]) for served in both]
    ids = [id for _, id in calls]
    for served, (client, id) in zip(both, reversed(calls), strict=True):
        with events(served, "/admin/live") as live:
            shown = live.until(lambda data, ids=ids: {call["id"] for call in data["calls"]} == set(ids))
        assert (shown["gateways"], shown["answered"]) == (2, 2)
        assert [call["id"] for call in shown["calls"] if call.get("elsewhere")] == [id]
        assert served.ask("POST", f"/admin/calls/{id}/stop") == (200, {"stopped": True})
        assert is_stopped(client)
        ids.remove(id)

    # A key that is blocked with --stop-calls has no running calls any more, on neither.
    streams = [begin(served, secrets["runaway"])[0] for served in both]
    untouched, _ = begin(two, secrets["innocent"])
    command = [sys.executable, "-m", "penstock", "keys", "block", "runaway", "--stop-calls"]
    subprocess.run([*command, "--config", str(one.gateway.file)], check=True, capture_output=True, timeout=60)
    assert all(map(is_stopped, streams))
    untouched.read_until(b"word")
    for served in both:
        while ask(served.gateway, secrets["runaway"], "main/none", stream=False).status != 401:
            pass  # another worker learns within a second that the key is blocked

    # All calls of a key are stopped over the admin API of another gateway.
    assert one.ask("POST", "/admin/keys/innocent/stop")[0] == 200
    assert is_stopped(untouched)
    assert [each["action"] for each in two.get("/admin/audit")["entries"]].count("key.stop") == 2

    if "SQLite" in request.node.name:
        return  # the rest takes seconds, and does not depend on the database
    # A gateway that does not answer is not counted as seen.
    for pid in (two.gateway.pid, *two.gateway.workers()):
        os.kill(pid, signal.SIGKILL)
    with events(one, "/admin/live") as live:
        live.until(lambda data: (data["gateways"], data["answered"]) == (2, 1))

"""PostgreSQL is away, or slow: monitoring and authentication go on, and a new worker knows the keys."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.providers.secret import Secret
from penstock.stores.book.postgres import PostgresBook
from tests.faults.conftest import Starter
from tests.faults.gateway import Gateway
from tests.faults.scripts import whole
from tests.ledger.support import ask, wait_for_key
from tests.serve.support import AdminClient
from tests.stores.postgres import PostgresServer

pytestmark = pytest.mark.slow

WAIT_S = 30.0
# Connections, so that two workers each get some: that one gets none has a probability of 1 in 30,000.
TRIES = 16


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    """An empty database; the server runs after the test, whatever the test did to it."""
    yield postgres.new_database()
    postgres.start()


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def status(admin: AdminClient, token: str, path: str = "/metrics", method: str = "GET") -> int:
    return admin.send(method, path, headers={"Authorization": f"Bearer {token}"})[0]


def ready(gateway: Gateway) -> int:
    try:
        with gateway.client() as client:
            client.send(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            return client.response().status
    except ConnectionError:
        return 0  # its worker was killed


def workers(gateway: Gateway) -> list[int]:
    """The processes of the workers."""
    children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children")
    return [int(pid) for pid in children.read_text().split()]


def test_tokens_keys_and_new_workers_survive_the_database(start: Starter, postgres: PostgresServer, url: str) -> None:
    gateway = start(server={"keys": [], "workers": 2}, ledger={"postgres": url})
    admin, model = AdminClient(gateway), f"main/{gateway.upstream.play(whole())}"
    assert admin.ask("POST", "/admin/tokens", {"name": "grafana", "role": "operator"})[0] == 201
    assert admin.ask("POST", "/admin/tokens", {"name": "gone", "role": "viewer"})[0] == 201
    assert admin.ask("POST", "/admin/keys", {"name": "app", "budget": "5"})[0] == 201
    token, revoked, key = admin.secrets
    wait_for_key(gateway, key)
    assert ask(gateway, key, model, stream=True).status == 200
    assert admin.ask("POST", "/admin/tokens/gone/revoke")[0] == 200
    state = gateway.file.parent / "state"
    until(lambda: b"grafana" in (state / "known-users.json").read_bytes() and _is_revoked(state))
    for name in ("known-users.json", "known-keys.jsonl"):
        assert (state / name).stat().st_mode & 0o777 == 0o600
        assert not any(secret.encode() in (state / name).read_bytes() for secret in (token, revoked, key))
    postgres.stop()
    os.kill(workers(gateway)[0], signal.SIGKILL)
    until(lambda: ready(gateway) == 200 and any("local snapshot" in line for line in gateway.output))
    assert [ready(gateway) for _ in range(TRIES)] == [200] * TRIES
    assert [status(admin, token) for _ in range(TRIES)] == [200] * TRIES
    assert [status(admin, token, "/admin/state") for _ in range(TRIES)] == [200] * TRIES
    assert [ask(gateway, key, model, stream=True).status for _ in range(TRIES)] == [200] * TRIES
    # What is not known may be valid, so it is neither accepted nor called invalid. Acts need the audit log.
    assert status(admin, revoked) == 503
    assert status(admin, token, "/admin/calls/none/stop", "POST") == 503
    postgres.start()
    until(lambda: status(admin, revoked) == 401)
    gateway.expected += 1 + TRIES


def _is_revoked(state: Path) -> bool:
    return b'"revoked_ms":1' in (state / "known-users.json").read_bytes()


def test_a_slow_list_delays_neither_authentication_nor_acts(start: Starter, url: str) -> None:
    gateway = start(server={"keys": []}, ledger={"postgres": url})
    admin = AdminClient(gateway)
    assert admin.ask("POST", "/admin/tokens", {"name": "grafana", "role": "admin"})[0] == 201
    (token,) = admin.secrets
    listed: list[int] = []
    slow = threading.Thread(target=lambda: listed.append(status(admin, token, "/admin/entries")))
    with closing(PostgresBook.open(Secret(url))) as holder:
        asked = holder.database.read(lambda reader: _meanwhile(reader.fetch, slow, admin, token))
    slow.join(WAIT_S)
    assert asked == [200, 200, 200]
    assert listed == [200]


def _meanwhile(fetch: Callable[[str], object], slow: threading.Thread, admin: AdminClient, token: str) -> list[int]:
    """Ask while a list waits for a table that is locked."""
    fetch("LOCK TABLE calls IN ACCESS EXCLUSIVE MODE")
    slow.start()
    time.sleep(0.3)  # so that the list is asked for first
    assert slow.is_alive()
    return [
        status(admin, token, "/admin/me"),
        status(admin, token),
        status(admin, token, "/admin/tokens/grafana/revoke", "POST"),
    ]

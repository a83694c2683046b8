"""Backup and restore by the commands of docs/deploy.md: after a kill and a restore, the books balance."""

import shutil
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from penstock.gateway.billing.queries import Filter, Grouping
from penstock.gateway.config import LedgerSettings, Secret
from penstock.gateway.record.entry import Entry
from penstock.stores.book.open import open_book
from tests.deploy.documented import blocks, run
from tests.faults.gateway import Gateway, Table, settings
from tests.faults.scripts import HELLO, whole
from tests.faults.upstream import Upstream, chunk, hang, head
from tests.ledger.support import ask, request, wait_for_key
from tests.serve.scrapes import parse, value
from tests.serve.support import AdminClient
from tests.stores.conftest import SERVER, RedisServer
from tests.stores.postgres import PostgresServer

BUDGET = 1_000_000_000
_WAIT_S = 15.0
_GROUPINGS: tuple[tuple[Grouping, ...], ...] = ((), ("key",), ("model",), ("day",), ("outcome",))


class Deployment:
    """A gateway whose ledger is backed up and restored by the commands of the page."""

    def __init__(
        self, folder: Path, ledger: Table, heading: str, environment: dict[str, str], programs: tuple[Path, ...]
    ) -> None:
        self.folder = folder
        self.ledger = ledger
        self._back_up, self._restore = blocks(heading)
        self._environment = environment
        self._programs = programs

    def back_up(self) -> None:
        self.run(self._back_up)

    def restore(self) -> None:
        self.run(self._restore)

    def run(self, commands: list[str]) -> str:
        commands = [command.replace("/var/backups/penstock", str(self.folder / "backups")) for command in commands]
        state = {"PENSTOCK_STATE": str(self.folder / "state")}
        return run(commands, self.folder, state | self._environment, *self._programs)

    @contextmanager
    def gateway(self, upstream: Upstream) -> Iterator[Gateway]:
        # Two workers: they share accounts through a file, or through Redis.
        tables: dict[str, Table] = {"server": {"workers": 2}, "ledger": self.ledger}
        with Gateway(self.folder, upstream, settings(upstream.url, 0, **tables)) as gateway:
            yield gateway

    def entries(self, count: int) -> list[Entry]:
        """What is booked, as soon as it is so many calls. Its sums are checked."""
        deadline = time.monotonic() + _WAIT_S
        postgres = self.ledger.get("postgres")
        place = LedgerSettings(
            folder=str(self.folder / "state"), postgres=Secret(str(postgres), "a test") if postgres else None
        )
        with closing(open_book(place, {}, readonly=True)) as book:
            while len(found := [entry for _, entry in book.following(Filter(), 0, limit=1_000)]) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} calls are booked"
                time.sleep(0.02)
            for by in _GROUPINGS:
                rows = book.usage(Filter(), by)
                assert sum(row.calls for row in rows) == len(found)
                assert sum(row.cost for row in rows) == sum(entry.priced for entry in found)
        assert len({entry.id for entry in found}) == len(found) == count
        return found


@pytest.fixture(params=["sqlite", "postgres"])
def deployed(request: pytest.FixtureRequest, tmp_path: Path) -> Deployment:
    if request.param == "sqlite":
        (tmp_path / "backups").mkdir()
        return Deployment(tmp_path, {}, "### SQLite", {}, ())
    server: PostgresServer = request.getfixturevalue("postgres")
    redis: RedisServer = request.getfixturevalue("redis_server")
    url = server.new_database()
    # The Redis of the tests listens on a unix socket, for which redis-cli has another option.
    programs = tmp_path / "bin"
    programs.mkdir()
    client = programs / "redis-cli"
    client.write_text(f'#!/bin/sh\nshift 2\nexec {SERVER.with_name("redis-cli")} -s {redis.socket} "$@"\n')
    client.chmod(0o755)
    ledger = {"postgres": url, "redis": f"{redis.url}?socket_timeout=8&socket_connect_timeout=8"}
    environment = {"DATABASE_URL": url, "REDIS_URL": redis.url}
    return Deployment(tmp_path, ledger, "### PostgreSQL", environment, (programs, server.programs))


def remaining(gateway: Gateway) -> float:
    """The part of its budget that the key has left, according to its account."""
    admin = AdminClient(gateway)
    headers = {"Authorization": f"Bearer {admin.token}"}
    with urllib.request.urlopen(urllib.request.Request(f"http://{admin.place}/metrics", headers=headers)) as answer:
        samples = parse(answer.read().decode())
    return value(samples, "penstock_budget_remaining_ratio", kind="key", name="team", period="month")


@pytest.mark.slow
def test_books_balance_after_a_kill_and_a_restore(deployed: Deployment) -> None:
    """With PostgreSQL, the machine of the gateway is lost with its journal; with SQLite, only the database."""
    lost_machine = "postgres" in deployed.ledger
    with Upstream() as upstream:
        upstream.play(whole(), "talks")
        upstream.play([head(), chunk(HELLO), hang()], "runs")
        with deployed.gateway(upstream) as gateway:
            secret = deployed.run(["penstock keys create --name team --budget 1"]).strip()
            wait_for_key(gateway, secret)
            for _ in range(5):
                assert ask(gateway, secret, "main/talks", stream=True).status == 200
            before = deployed.entries(5)
            with gateway.client() as running:
                running.send(request(secret, "main/runs", stream=True))
                running.read_until(b"Hello")
                deployed.back_up()
                for _ in range(3):
                    assert ask(gateway, secret, "main/talks", stream=True).status == 200
                booked = deployed.entries(8)
                gateway.signal(signal.SIGKILL, group=True)
                gateway.wait()
        if lost_machine:
            shutil.rmtree(deployed.folder / "state")
        deployed.restore()
        with deployed.gateway(upstream) as gateway:
            wait_for_key(gateway, secret)
            # The journal of the killed gateway has its last calls: those that it had booked, and the one that ran.
            kept, orphaned = (before, []) if lost_machine else (booked, ["main/runs"])
            after = deployed.entries(len(kept) + len(orphaned))
            assert {entry.id: entry for entry in after if entry.outcome == "completed"} == {
                each.id: each for each in kept
            }
            assert [entry.model for entry in after if entry.outcome == "orphaned"] == orphaned
            assert ask(gateway, secret, "main/talks", stream=True).status == 200
            spent = sum(entry.priced for entry in deployed.entries(len(after) + 1))
            deadline = time.monotonic() + _WAIT_S
            while (left := remaining(gateway)) != pytest.approx(1 - spent / BUDGET, abs=1e-9):
                assert time.monotonic() < deadline, f"the account has {left} left, but {spent} are booked"
                time.sleep(0.1)

"""The same tests run on every store; and real processes share accounts through a real Redis, and a ledger in a file."""

import json
import os
import select
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest

from penstock.stores.book.sql_book import Book
from tests.stores.contents import ContentPlace
from tests.stores.places import Place, PostgresPlace, SqlitePlace
from tests.stores.postgres import PostgresServer

SERVER = Path(sys.executable).parent / "redis-server"
ROOT = Path(__file__).parent.parent.parent


class Peer:
    """A process that shares accounts."""

    def __init__(self, *arguments: str) -> None:
        environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        command = [sys.executable, "-m", "tests.stores.accounts_process", *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, cwd=ROOT, text=True)

    def tell(self, **sent_text: object) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(sent_text) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        assert select.select([self.process.stdout], [], [], 30)[0], "no answer"
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def do(self, **sent_text: object) -> dict[str, Any]:
        self.tell(**sent_text)
        return self.answer()

    def calm(self) -> None:
        """Wait until it has reached the storage again, and everything it did is done."""
        deadline = time.monotonic() + 15
        while self.do(do="sync")["degraded"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        self.do(do="sync")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()


class RedisServer:
    """A Redis on a unix socket."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self._command = [
            str(SERVER),
            "--port",
            "0",
            "--unixsocket",
            str(self.socket),
            "--save",
            "",
            "--dir",
            str(folder),
        ]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not self.socket.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.socket.unlink(missing_ok=True)


@pytest.fixture
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.kill()


class Books:
    """The ledger's file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as ledger:
            ledger.execute("PRAGMA journal_mode=WAL")
            ledger.execute("CREATE TABLE entries (id TEXT PRIMARY KEY, cost INTEGER, ended INTEGER)")

    @property
    def total(self) -> int:
        with closing(sqlite3.connect(self.path)) as ledger:
            return int(ledger.execute("SELECT coalesce(sum(cost), 0) FROM entries").fetchone()[0])


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path / "books.db")


@pytest.fixture
def peers(books: Books) -> Iterator[Callable[..., list[Peer]]]:
    started: list[Peer] = []

    def start(number: int, store: str, timeout_s: float = 8.0, **limits: int) -> list[Peer]:
        """With timeouts that a busy machine does not run into, unless the test is about them."""
        for _ in range(number):
            name = f"p{len(started)}"
            started.append(Peer(name, store, str(books.path), json.dumps(limits), str(timeout_s)))
        return started[-number:]

    yield start
    for peer in started:
        peer.end()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    # Not in pytest's folders, which only their owner may enter: the server of root runs as another user.
    with TemporaryDirectory(prefix="penstock-postgres-") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return SqlitePlace(tmp_path)
    return PostgresPlace(request.getfixturevalue("postgres"))


@pytest.fixture
def book(place: Place) -> Iterator[Book]:
    opened = place.open()
    yield opened
    opened.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def content_place(request: pytest.FixtureRequest, tmp_path: Path) -> ContentPlace:
    if request.param == "sqlite":
        return ContentPlace(tmp_path / "content.db")
    server = cast(PostgresServer, request.getfixturevalue("postgres"))
    return ContentPlace(None, server.new_database())

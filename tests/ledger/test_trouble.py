"""Trouble with the disk (G9 to G12, G37): calls continue while the journal has room, then they wait; nothing is lost.

The book is locked by a transaction, as another program could do it. A full disk is a small tmpfs, if one can be
mounted.
"""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.stores.book.schema import FIRST_SCHEMA, newest_schema
from tests.faults.client import Response, get
from tests.faults.conftest import Starter
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import TEXT, whole
from tests.faults.upstream import Upstream
from tests.stores.places import SqlitePlace

RECOVERS_S = 30.0
SMALL = {"journal": 65_536}
# More than a journal of that size has room for.
MANY = 400


@contextmanager
def locked(book: Path) -> Iterator[None]:
    """Lock the book as another program might."""
    connection = sqlite3.connect(book, isolation_level=None, timeout=30.0)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


def ask(gateway: Gateway, model: str) -> Response:
    """One call, which may be refused: `quiet` is not to count it yet."""
    response = gateway.ask(f"main/{model}", stream=True)
    gateway.expected -= 1
    return response


def ready(gateway: Gateway) -> int:
    return gateway.send(get("/readyz")).status


def until(true: Callable[[], object], seconds: float = RECOVERS_S) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


def assert_unavailable(response: Response) -> None:
    assert (response.status, response.error["code"]) == (503, "ledger_unavailable")
    assert response.headers["retry-after"]


def fill(gateway: Gateway, model: str) -> list[Response]:
    """Make calls until the journal has no more room. Returns the answers."""
    answers: list[Response] = []
    for _ in range(MANY):
        response = ask(gateway, model)
        if response.status != 200:
            assert_unavailable(response)
            return answers
        answers.append(response)
    raise AssertionError("the journal has room without end")


def assert_booked(gateway: Gateway, answers: list[Response]) -> None:
    """Within three seconds each call is in the book, once, with the provider's usage."""
    wanted = sorted(response.request_id for response in answers)
    until(lambda: len([entry for entry in gateway.book.entries() if entry.outcome == "completed"]) >= len(wanted))
    entries = [entry for entry in gateway.book.entries() if entry.outcome == "completed"]
    assert sorted(entry.id for entry in entries) == wanted
    assert {(entry.tokens.input, entry.tokens.output) for entry in entries} == {(5, 3)}
    gateway.book.check_sums()


def test_g11_while_the_book_is_locked_calls_go_on_until_the_journal_is_full(start: Starter) -> None:
    gateway = start(ledger=SMALL)
    model = gateway.upstream.play(whole())
    with locked(gateway.book.path):
        answers = fill(gateway, model)
        assert len(answers) > 50
        assert ready(gateway) == 503
        for _ in range(100):  # what is refused takes no room, and no memory
            assert_unavailable(ask(gateway, model))
        assert len(gateway.upstream.requests(model)) == len(answers)
        gateway.until(lambda: any("the ledger cannot be written" in line for line in gateway.output), 30.0)
    until(lambda: ready(gateway) == 200)
    assert_booked(gateway, answers)
    gateway.says("the ledger is written again")
    after = ask(gateway, model)
    assert (after.text, after.headers.get("x-penstock-degraded")) == (TEXT, None)
    assert_booked(gateway, [*answers, after])
    assert gateway.stop() == 0
    assert not gateway.book.journals()


def test_g11_clients_learn_that_the_ledger_is_late(start: Starter) -> None:
    gateway = start()
    model = gateway.upstream.play(whole())
    with locked(gateway.book.path):
        first = ask(gateway, model)
        gateway.until(lambda: any("the ledger cannot be written" in line for line in gateway.output), 30.0)
        late = ask(gateway, model)
        assert (late.text, late.headers["x-penstock-degraded"]) == (TEXT, "ledger")
        assert ready(gateway) == 200  # calls are taken, and accounted for
    assert_booked(gateway, [first, late])
    last = ask(gateway, model)
    assert "x-penstock-degraded" not in last.headers
    assert_booked(gateway, [first, late, last])


def test_g11_what_a_gateway_could_not_book_is_booked_by_the_next(start: Starter) -> None:
    """Killed while the book is locked and the journal is full: every call is booked after the next start."""
    gateway = start(ledger=SMALL)
    model = gateway.upstream.play(whole())
    with locked(gateway.book.path):
        answers = fill(gateway, model)
        gateway.stop(signal.SIGKILL)
    assert gateway.book.journals()
    assert not gateway.book.entries()
    gateway.output.clear()
    gateway.start()
    assert_booked(gateway, answers)
    assert gateway.stop() == 0
    assert not gateway.book.journals()


def test_g11_a_gateway_that_ends_while_the_book_is_locked_leaves_its_journal(start: Starter) -> None:
    gateway = start()
    model = gateway.upstream.play(whole())
    with locked(gateway.book.path):
        answers = [ask(gateway, model) for _ in range(5)]
        gateway.signal(signal.SIGTERM)
        assert gateway.wait(20.0) == 0
        gateway.stop()
    assert gateway.book.journals()
    gateway.output.clear()
    gateway.start()
    assert_booked(gateway, answers)


def test_g11_a_start_does_not_wait_for_a_locked_book_for_ever(start: Starter) -> None:
    gateway = start()
    model = gateway.upstream.play(whole())
    assert gateway.stop() == 0
    gateway.output.clear()
    with locked(gateway.book.path):
        gateway.start()
        answer = ask(gateway, model)
        assert answer.text == TEXT
    assert_booked(gateway, [answer])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    try:
        subprocess.run(mounting, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"no small disk can be mounted here: {error}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True, timeout=60)


def test_g10_when_the_disk_is_full_calls_wait_and_nothing_is_lost(small_disk: Path, tmp_path: Path) -> None:
    with Upstream() as upstream:
        configuration = settings(upstream.url, ledger=SMALL)
        (tmp_path / "gateway").mkdir()
        gateway = Gateway(
            tmp_path / "gateway", upstream, configuration, environment={"PENSTOCK_STATE": str(small_disk / "state")}
        )
        gateway.book.folder = small_disk / "state"
        with gateway:
            model = upstream.play(whole())
            first = ask(gateway, model)
            assert_booked(gateway, [first])
            filler = small_disk / "filler"
            fill_disk(filler)
            answers = [first, *fill(gateway, model)]
            gateway.says("free space on its disk")
            assert ready(gateway) == 503
            filler.unlink()
            until(lambda: ready(gateway) == 200)
            assert_booked(gateway, answers)
            assert_booked(gateway, [*answers, ask(gateway, model)])


def fill_disk(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            return


def test_g10_a_disk_without_room_for_a_journal_is_reported(small_disk: Path, tmp_path: Path) -> None:
    state = small_disk / "state"
    done = serve(tmp_path, {"PENSTOCK_STATE": str(state)})
    assert_reported(done, "no journal can be kept", str(state), "No space left")
    assert not list(state.rglob("*.journal"))
    assert not list(state.rglob("*.new"))


# G12: a book that cannot be used.


def serve(folder: Path, environment: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    file = folder / "penstock.toml"
    file.write_text('[providers.main]\nbase_url = "http://127.0.0.1:9/v1"\n')
    command = [sys.executable, "-m", "penstock", "serve", "--config", str(file), "--port", "0", *arguments]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False
    )


def assert_reported(done: "subprocess.CompletedProcess[str]", *words: str) -> None:
    """It does not start, and explains why in one line."""
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr


def broken(book: Path) -> None:
    book.write_bytes(b"what else may be in a file " * 1000)


def damaged(book: Path) -> None:
    """A book whose pages are not as its head says."""
    connection = sqlite3.connect(book)
    connection.execute("CREATE TABLE calls (id TEXT)")
    connection.executemany("INSERT INTO calls VALUES (?)", [("x" * 2000,)] * 50)
    connection.commit()
    connection.close()
    content = bytearray(book.read_bytes())
    content[100:4096] = b"\xff" * 3996
    book.write_bytes(content)


def newer(book: Path) -> None:
    place = SqlitePlace(book.parent)
    place.open().close()
    place.execute(f"UPDATE meta SET value = {newest_schema() + 1} WHERE name = 'schema'")


def unreleased(book: Path) -> None:
    place = SqlitePlace(book.parent)
    place.open().close()
    place.execute(f"UPDATE meta SET value = {FIRST_SCHEMA - 1} WHERE name = 'schema'")


def foreign(book: Path) -> None:
    connection = sqlite3.connect(book)
    connection.execute("CREATE TABLE somebody (elses TEXT)")
    connection.commit()
    connection.close()


UNUSABLE: dict[str, tuple[Callable[[Path], None], str]] = {
    "no database": (broken, "is not a SQLite database"),
    "damaged": (damaged, "is damaged"),
    "a newer version's": (newer, "newer version of Penstock"),
    "one from before the first release": (unreleased, "move it away to start a new one"),
    "somebody else's": (foreign, "holds something else"),
}


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(("make", "words"), UNUSABLE.values(), ids=UNUSABLE)
def test_g12_a_book_that_cannot_be_used_is_reported_in_a_line(
    tmp_path: Path, make: Callable[[Path], None], words: str, workers: str
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    make(state / "ledger.db")
    before = (state / "ledger.db").read_bytes()
    assert_reported(
        serve(tmp_path, {"PENSTOCK_STATE": str(state)}, "--workers", workers), words, str(state / "ledger.db")
    )
    assert (state / "ledger.db").read_bytes() == before
    assert not list(state.rglob("*.journal")), "each try would take more of the disk"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_g12_a_folder_that_cannot_be_made_is_reported_in_a_line(tmp_path: Path, workers: str) -> None:
    (tmp_path / "file").write_text("no folder")
    state = str(tmp_path / "file" / "state")
    assert_reported(serve(tmp_path, {"PENSTOCK_STATE": state}, "--workers", workers), state, "PENSTOCK_STATE")


# G37: the thread of the book writer dies.

# Runs the gateway; when a file exists, its book writer's thread is ended, as nothing that it does could end it.
DEADLY = """
import ctypes, pathlib, sys, threading, time
from penstock.cli.main import main

def end_it(file):
    while not pathlib.Path(file).exists():
        time.sleep(0.01)
    for thread in threading.enumerate():
        if thread.name == "penstock-ledger":
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))

threading.Thread(target=end_it, args=(sys.argv.pop(1),), daemon=True).start()
main()
"""


class Mortal(Gateway):
    """A gateway whose book writer's thread can be ended from outside."""

    @property
    def command(self) -> tuple[str, ...]:
        return (sys.executable, "-c", DEADLY, str(self.file.with_name("end-it")))


def test_g37_when_no_one_books_any_more_nothing_is_taken_and_nothing_lost(tmp_path: Path) -> None:
    with Upstream() as upstream:
        gateway = Mortal(tmp_path, upstream, settings(upstream.url))
        model = upstream.play(whole())
        with gateway:
            answers = [ask(gateway, model)]
            gateway.file.with_name("end-it").touch()
            until(lambda: ready(gateway) == 503)
            assert_unavailable(ask(gateway, model))
            gateway.stop(signal.SIGKILL)
        gateway.file.with_name("end-it").unlink()
        gateway.output.clear()
        with gateway:
            assert_booked(gateway, answers)
            assert ready(gateway) == 200


def test_without_a_key_that_is_known_it_is_not_ready(start: Starter) -> None:
    """No stored key is accepted then. Keys of the configuration are, and the log reports it."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # no server listens there
        url = f"postgresql://penstock@127.0.0.1:{unused.getsockname()[1]}/none"
        gateway = start(server={"keys": []}, ledger={"postgres": url})
        model = gateway.upstream.play(whole())
        assert_unavailable(ask(gateway, model))
        response = gateway.send(get("/readyz"))
        assert (response.status, response.json) == (503, {"status": "ledger_unavailable"})
        gateway.file.write_text(settings(gateway.upstream.url, 4, ledger={"postgres": url}))
        gateway.signal(signal.SIGHUP)
        gateway.says("the configuration was reloaded")
        assert ask(gateway, model).text == TEXT
        assert ready(gateway) == 200

"""Limits hold across the processes of one machine, through a file that may be damaged at any time."""

import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import mkdtemp
from threading import Barrier

import msgspec
import pytest

from penstock.gateway.limits.account import Account
from penstock.stores.accounts.sqlite import FILE, SqliteAccounts, remove_old
from penstock.stores.accounts.storage import StorageError
from tests.promptness import in_time, prompt
from tests.stores.conftest import Books, Peer

Peers = Callable[..., list[Peer]]


def account(folder: Path) -> Account:
    storage = SqliteAccounts(folder)
    found = storage.load("key_1")
    storage.close()
    assert found
    return msgspec.msgpack.decode(found[1], type=Account)


@pytest.mark.slow
def test_no_one_is_turned_away_who_begins_with_the_others(tmp_path: Path) -> None:
    """SQLite waits for those who write, but not for those who open the file at the same moment."""
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        meeting = Barrier(4)

        def open_it(folder: Path = folder, meeting: Barrier = meeting) -> None:
            storage = SqliteAccounts(folder)
            meeting.wait()
            storage.load("key_1")
            storage.close()

        with ThreadPoolExecutor(4) as threads:
            for done in [threads.submit(open_it) for _ in range(4)]:
                done.result()


@prompt
def test_no_one_is_turned_away_while_another_is_kept_waiting_in_its_midst(tmp_path: Path) -> None:
    """As happens on a busy machine: the system lets a process wait that holds the lock, and all others with it."""
    folder = Path(mkdtemp(dir=tmp_path))
    with ExitStack() as stack:
        begun, fresh = (stack.enter_context(closing(SqliteAccounts(folder))) for _ in range(2))
        begun.swap("key_1", None, b"1", b"one")
        other = stack.enter_context(closing(sqlite3.connect(folder / FILE, isolation_level=None)))
        other.execute("BEGIN IMMEDIATE")
        threads = stack.enter_context(ThreadPoolExecutor(2))
        began = time.monotonic()
        tried = [
            threads.submit(begun.swap, "key_1", b"1", b"2", b"two"),
            threads.submit(fresh.swap, "key_2", None, b"1", b"one"),
        ]
        time.sleep(0.2)
        other.execute("COMMIT")
        in_time(time.monotonic() - began, 0.8)  # they wait for a second
        assert [done.result() for done in tried] == [(True, None)] * 2


def test_who_is_kept_from_it_for_long_gets_an_error(tmp_path: Path) -> None:
    storage = SqliteAccounts(tmp_path, timeout_s=0.1)
    assert storage.load("key_1") is None
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="locked"):
            storage.swap("key_1", None, b"1", b"one")
        with pytest.raises(StorageError, match="locked"):
            storage.probe()
        other.execute("COMMIT")
    assert storage.swap("key_1", None, b"1", b"one") == (True, None)
    storage.close()


def test_four_processes_admit_no_more_than_the_budget(tmp_path: Path, peers: Peers, books: Books) -> None:
    four = peers(4, str(tmp_path), budget=100)
    for peer in four:
        peer.tell(do="reserve", count=25, cost=10)
    assert sum(peer.answer()["granted"] for peer in four) == 10
    for peer in four:
        peer.do(do="finish", cost=7)
        peer.calm()
    found = account(tmp_path)
    assert (found.spent, found.holds, books.total) == ({"total": 70}, {}, 70)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_others_go_on_when_a_process_is_killed(tmp_path: Path, peers: Peers, books: Books) -> None:
    victim, *others = peers(4, str(tmp_path), budget=10**9)
    for peer in (victim, *others):
        peer.do(do="sync")
    victim.do(do="reserve", count=3, cost=100)
    for peer in (victim, *others):
        peer.tell(do="work", seconds=1, cost=10)
    time.sleep(0.3)
    victim.process.kill()
    assert all(peer.answer()["done"] > 0 for peer in others)
    for peer in others:
        peer.calm()
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    found = account(tmp_path)
    left = {id: hold for id, hold in found.holds.items() if id.startswith("p0-")}
    assert found.holds == left, "what the victim held is held until it expires"
    assert sum(hold.cost == 100 for hold in left.values()) == 3
    reserved = sum(hold.cost for id, hold in left.items() if not hold.open)
    assert found.spent["total"] <= books.total <= found.spent["total"] + reserved + 4 * 7


def test_a_damaged_file_is_replaced(tmp_path: Path, peers: Peers, books: Books) -> None:
    two = peers(2, str(tmp_path), budget=10**9)
    for peer in two:
        peer.do(do="sync")
        peer.do(do="reserve", count=2, cost=100)
    for peer in two:
        peer.tell(do="work", seconds=1, cost=10)
    time.sleep(0.3)
    for path in (tmp_path / FILE, tmp_path / f"{FILE}-wal"):
        path.write_bytes(b"this is no database" * 1000)
    answers = [peer.answer() for peer in two]
    assert all(answer["done"] > 0 for answer in answers)
    assert any("accounts" in answer["outages"] for answer in answers)
    for peer in two:
        peer.calm()
    for peer in two:
        peer.calm()
    found = account(tmp_path)
    assert (found.spent, found.owed) == ({"total": books.total}, {"total": 400})


def test_a_file_that_cannot_be_opened_is_reported_as_out_of_order(tmp_path: Path) -> None:
    storage = SqliteAccounts(tmp_path / "nowhere")
    for fails in (storage.probe, lambda: storage.load("a"), lambda: storage.swap("a", None, b"1", b"")):
        with pytest.raises(StorageError, match="nowhere"):
            fails()
    os.mkdir(tmp_path / "nowhere")
    storage.probe()
    assert storage.load("a") is None
    storage.close()


def test_a_version_is_replaced_once(tmp_path: Path) -> None:
    storage, other = SqliteAccounts(tmp_path), SqliteAccounts(tmp_path)
    assert storage.swap("a", None, b"1", b"one") == (True, None)
    assert other.swap("a", None, b"2", b"two") == (False, (b"1", b"one"))
    assert other.swap("a", b"1", b"2", b"two") == (True, None)
    assert storage.swap("a", b"1", b"3", b"three") == (False, (b"2", b"two"))
    remove_old(tmp_path)
    assert storage.swap("a", b"2", b"3", b"three") == (False, None), "the file it had is another's no longer"
    assert storage.swap("a", None, b"3", b"three") == (True, None)
    assert other.load("a") == (b"3", b"three")
    storage.close()
    other.close()

"""Limits hold across processes through a real Redis, which may be killed, flushed or stopped at any time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import redis

from penstock.errors import ConfigError
from penstock.gateway.limits.account import Account
from penstock.installation import install_command
from penstock.providers.secret import Secret
from penstock.stores.accounts.redis import PREFIX, RedisAccounts
from penstock.stores.accounts.storage import StorageError
from tests.promptness import in_time, prompt
from tests.stores.conftest import Books, Peer, RedisServer

Peers = Callable[..., list[Peer]]


def account(server: RedisServer) -> Account:
    with redis.Redis(unix_socket_path=str(server.socket)) as client:
        found = client.get(PREFIX + "key_1")
        assert isinstance(found, bytes)
        assert 0 < client.pttl(PREFIX + "key_1") <= 86_400_000
    return msgspec.msgpack.decode(found[8:], type=Account)


def assert_exact(server: RedisServer, books: Books) -> None:
    found = account(server)
    assert (found.spent, found.holds, found.open) == ({"total": books.total}, {}, 0)
    assert books.total > 0


def test_two_processes_admit_no_more_than_the_budget(redis_server: RedisServer, peers: Peers, books: Books) -> None:
    both = peers(2, redis_server.url, budget=100)
    for peer in both:
        peer.tell(do="reserve", count=50, cost=10)
    assert sum(peer.answer()["granted"] for peer in both) == 10
    for peer in both:
        peer.do(do="finish", cost=7)
        peer.calm()
    assert_exact(redis_server, books)
    for peer in both:
        peer.tell(do="reserve", count=50, cost=10)
    assert sum(peer.answer()["granted"] for peer in both) == 3


@pytest.mark.parametrize("what", ["killed", "flushed"])
def test_sums_are_exact_whatever_redis_loses(redis_server: RedisServer, peers: Peers, books: Books, what: str) -> None:
    four = peers(4, redis_server.url, budget=10**9)
    for peer in four:
        peer.do(do="sync")
        peer.do(do="reserve", count=2, cost=100)
    for peer in four:
        peer.tell(do="work", seconds=1.2, cost=10)
    time.sleep(0.4)
    if what == "killed":
        redis_server.kill()
        time.sleep(0.3)
        redis_server.start()
    else:
        with redis.Redis(unix_socket_path=str(redis_server.socket)) as client:
            for _ in range(4):
                client.flushall()
                time.sleep(0.1)
    answers = [peer.answer() for peer in four]
    assert all(answer["done"] > 0 for answer in answers)
    assert any("redis" in answer["outages"] for answer in answers) == (what == "killed")
    for peer in four:
        peer.calm()
    found = account(redis_server)
    assert (found.spent, found.owed, found.open) == ({"total": books.total}, {"total": 800}, 8)
    for peer in four:
        peer.do(do="finish", cost=33)
        peer.calm()
    assert_exact(redis_server, books)


@prompt
def test_a_redis_that_hangs_costs_little_and_once(redis_server: RedisServer, peers: Peers, books: Books) -> None:
    (peer,) = peers(1, redis_server.url, 0.025, budget=10**9)
    peer.calm()
    peer.do(do="reserve", count=1, cost=10)
    os.kill(redis_server.process.pid, signal.SIGSTOP)
    try:
        first = peer.do(do="reserve", count=20, cost=10)
        assert (first["granted"], first["degraded"]) == (20, "redis")
        after = [peer.do(do="reserve", count=1, cost=10)["slowest"] for _ in range(20)]
        working = peer.do(do="work", seconds=1, cost=10)
    finally:
        os.kill(redis_server.process.pid, signal.SIGCONT)
    assert working["done"] > 0, "though Redis was tried meanwhile"
    peer.calm()
    peer.do(do="finish", cost=7)
    peer.calm()
    assert_exact(redis_server, books)
    assert first["slowest"] > 0.02
    in_time(first["slowest"], 0.25)
    in_time(sorted(after)[10], 0.01)


def test_a_redis_that_was_never_there_is_awaited(tmp_path: Path, peers: Peers, books: Books) -> None:
    (peer,) = peers(1, f"unix://{tmp_path}/redis.sock", budget=100)
    answer = peer.do(do="reserve", count=50, cost=5)
    assert (answer["granted"], answer["degraded"]) == (5, "redis"), "a quarter of the budget"
    server = RedisServer(tmp_path)
    try:
        peer.calm()
        peer.do(do="finish", cost=4)
        peer.calm()
        assert_exact(server, books)
    finally:
        server.kill()


def test_no_password_is_ever_printed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        RedisAccounts(Secret("radish://:hunter2@localhost/0"))
    assert "hunter2" not in str(raised.value)
    with pytest.raises(ConfigError) as raised:
        RedisAccounts(Secret("redis://:hunter2@localhost:port/0"))
    assert "hunter2" not in str(raised.value)
    gone = RedisAccounts(Secret(f"unix://:hunter2@{tmp_path}/gone.sock"))
    for fails in (gone.probe, lambda: gone.load("a"), lambda: gone.swap("a", None, b"1" * 8, b"")):
        with pytest.raises(StorageError) as failed:
            fails()
        assert "hunter2" not in str(failed.value)
        assert failed.value.__cause__ is None
    gone.close()


@pytest.mark.slow
def test_a_client_that_is_not_installed_is_named() -> None:
    script = """
import sys
sys.modules["redis"] = None
from penstock.errors import ConfigError
from penstock.providers.secret import Secret
from penstock.stores.accounts.redis import RedisAccounts
try:
    RedisAccounts(Secret("redis://:hunter2@localhost/0"))
except ConfigError as error:
    print(error)
"""
    sent_text = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    command = install_command("redis")
    assert sent_text.stdout == f"ledger.redis: needs the Python package redis, which is not installed: {command}\n"


def test_tls_is_asked_for_by_the_url() -> None:
    accounts = RedisAccounts(Secret("rediss://localhost:1/0"))
    with pytest.raises(StorageError):
        accounts.load("a")
    accounts.close()

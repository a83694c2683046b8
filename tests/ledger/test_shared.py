"""Two gateways that share a PostgreSQL book and a Redis: a budget applies to both together, and no call is missing."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import product
from pathlib import Path

import pytest

from penstock.amounts import dollars
from penstock.gateway.billing.queries import Filter
from penstock.gateway.config import LedgerSettings, Secret
from penstock.gateway.keys import changes as key_changes
from penstock.gateway.keys.key_secret import digest_of, new_secret
from penstock.gateway.keys.keys import Key, new_id
from penstock.gateway.keys.quota import Spender
from penstock.gateway.keys.terms import KeyTerms
from penstock.gateway.record.entry import Entry
from penstock.gateway.teams.changes import TeamTerms, TeamUpdate, create, update
from penstock.stores.book.open import open_book
from penstock.stores.book.sql_book import Book
from tests.faults.client import RawClient
from tests.faults.gateway import Gateway, Table, settings
from tests.faults.upstream import Gate, Upstream, chunk, head, last_chunk
from tests.ledger.support import COST, FEW, INPUT, OUTPUT, RESERVED, all_at_once, request, wait_for_key
from tests.stores.conftest import RedisServer
from tests.stores.postgres import PostgresServer
from tests.streams import DONE, bill, counts, finishes, says, sse

EACH = 50
_WAIT_S = 30.0


class Pair:
    """Two gateways, the upstream of both, and the book."""

    def __init__(self, gateways: list[Gateway], upstream: Upstream, book: Book) -> None:
        self.gateways = gateways
        self.upstream = upstream
        self.book = book

    def key(self, budget: int) -> tuple[Key, str]:
        secret = new_secret()
        name = new_id()
        now = int(time.time() * 1000)
        key = Key(
            id=name,
            name=name,
            digest=digest_of(secret),
            hint="",
            created_ms=now,
            budget=budget,
            period="total",
        )
        self.book.change_keys(lambda *_: [key])
        for gateway in self.gateways:
            wait_for_key(gateway, secret)
        return key, secret

    def race(self, secret: str) -> list[int]:
        """The statuses of many concurrent calls, half of them to each gateway."""
        gate = Gate()
        rest = sse(finishes(), bill(**counts(INPUT, OUTPUT)), DONE)
        model = self.upstream.play([head(), chunk(sse(says("Hello"))), gate, chunk(rest), last_chunk()])
        content = request(secret, f"main/{model}", stream=True, max_tokens=OUTPUT)
        first, second = self.gateways
        statuses: list[int] = []

        over = sum(len(gateway.calls) for gateway in self.gateways)

        def let_go() -> None:
            """When all calls are admitted or refused."""
            deadline = time.monotonic() + _WAIT_S
            while self._decided(model) < over + 2 * EACH:
                assert time.monotonic() < deadline, "calls are neither admitted nor refused"
                time.sleep(0.02)
            gate.open()

        def then() -> None:
            statuses.extend(response.status for response in all_at_once(second, [content] * EACH, let_go))

        statuses.extend(response.status for response in all_at_once(first, [content] * EACH, then))
        return statuses

    def _decided(self, model: str) -> int:
        return len(self.upstream.requests(model)) + sum(len(gateway.calls) for gateway in self.gateways)

    def booked(self, key: Key, count: int) -> list[Entry]:
        deadline = time.monotonic() + _WAIT_S
        while len(found := self.book.entries(Filter(keys=(key.id,)), limit=500)) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} are booked"
            time.sleep(0.02)
        return [entry for _, entry in found]


@pytest.fixture
def pair(postgres: PostgresServer, redis_server: RedisServer, tmp_path: Path) -> Iterator[Pair]:
    url = postgres.new_database()
    tables: dict[str, Table] = {
        # With timeouts that a busy machine does not run into.
        "ledger": {"postgres": url, "redis": f"{redis_server.url}?socket_timeout=8&socket_connect_timeout=8"},
        "admin": {"enabled": False},
    }
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream())
        gateways = []
        for name in ("one", "two"):
            folder = tmp_path / name
            folder.mkdir()
            gateways.append(stack.enter_context(Gateway(folder, upstream, settings(upstream.url, 0, **tables))))
        book = stack.enter_context(closing(open_book(LedgerSettings(postgres=Secret(url, "a test")), {})))
        yield Pair(gateways, upstream, book)


def test_a_hundred_calls_race_for_a_budget_of_ten_on_two_gateways(pair: Pair) -> None:
    key, secret = pair.key(FEW * RESERVED)
    statuses = pair.race(secret)
    assert sorted(statuses) == [200] * FEW + [429] * (2 * EACH - FEW)
    assert sum(entry.priced for entry in pair.booked(key, 2 * EACH)) == FEW * COST


def test_without_redis_each_has_a_share_and_says_so(pair: Pair, redis_server: RedisServer) -> None:
    key, secret = pair.key(FEW * RESERVED)
    pair.race(secret)  # so that both know the account
    pair.booked(key, 2 * EACH)
    left = FEW * RESERVED - FEW * COST
    redis_server.kill()
    pair.race(secret)
    spent = sum(entry.priced for entry in pair.booked(key, 4 * EACH))
    assert FEW * COST <= spent <= FEW * COST + left
    model = pair.upstream.play([head(), chunk(sse(says("Hi"), finishes(), bill(**counts(1, 1)), DONE)), last_chunk()])
    _, other = pair.key(1_000 * RESERVED)
    (response,) = all_at_once(pair.gateways[0], [request(other, f"main/{model}", stream=True, max_tokens=1)])
    assert response.status == 200
    assert response.headers["x-penstock-degraded"] == "redis"


def test_two_teams_race_for_their_organisation_and_a_gateway_is_killed(pair: Pair) -> None:
    """Never more than the organisation has, at any moment; and what a killed gateway had running is booked."""
    now = int(time.time() * 1000)
    create(pair.book, TeamTerms(path="acme", budgets={"total": dollars(FEW * RESERVED), "day": 100}), now)
    secrets = {}
    for name in ("search", "ads"):
        create(pair.book, TeamTerms(path=f"acme/{name}", budgets={"month": 50}, concurrent=1_000), now)
        terms = KeyTerms(name=name, team=f"acme/{name}", budget=50)
        secrets[name] = key_changes.create(pair.book, terms, now).secret
    for gateway, secret in product(pair.gateways, secrets.values()):
        wait_for_key(gateway, secret)
    gate, (first, second) = Gate(), pair.gateways
    rest = sse(finishes(), bill(**counts(INPUT, OUTPUT)), DONE)
    model = pair.upstream.play([head(), chunk(sse(says("Hello"))), gate, chunk(rest), last_chunk()])
    calls = [request(secret, f"main/{model}", stream=True, max_tokens=OUTPUT) for secret in secrets.values()] * EACH
    clients = [RawClient(gateway.port) for gateway in (first, second) for _ in range(EACH)]
    heads = []
    for begun in (slice(FEW // 2), slice(FEW // 2, None)):  # so that the first one has some
        for client, content in zip(clients[begun], calls[begun], strict=True):
            client.send(content)
        heads += [client.read_until(b"\r\n\r\n") for client in clients[begun]]
    assert [b" 200 " in each for each in heads].count(True) == FEW
    assert all(b" 200 " in each or b" 429 " in each for each in heads)
    first.stop(signal.SIGKILL)
    # What it had reserved stays reserved.
    (refused,) = all_at_once(second, [calls[0]])
    assert (refused.status, "the organisation acme" in refused.error["message"]) == (429, True)
    gate.open()
    for client in clients:
        client.close()
    first.start()
    deadline = time.monotonic() + 20.0
    wanted = Filter(teams=("acme/search", "acme/ads"))
    while len(found := pair.book.entries(wanted, limit=500)) < len(calls) + 1:
        assert time.monotonic() < deadline, f"{len(found)} are booked"
        time.sleep(0.05)
    spent = sum(entry.priced for _, entry in found)
    assert 0 < spent == pair.book.spent(Spender(team="acme"), 0).total <= FEW * RESERVED
    assert "orphaned" in {entry.outcome for _, entry in found if entry.priced}
    # What the killed gateway had reserved and did not need can be spent again.
    update(pair.book, "acme", TeamUpdate(budgets={"total": dollars(spent + RESERVED)}), now)
    while (answer := all_at_once(second, [calls[0]])[0]).status != 200:
        assert time.monotonic() < deadline, answer.error
        time.sleep(0.05)

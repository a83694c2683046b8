"""A process that shares accounts with others. Lines of JSON on its standard input are its commands:

{"do": "reserve", "count": 50, "cost": 10}      all at once
{"do": "finish", "cost": 7}                     settles, books and forgets what was granted
{"do": "work", "seconds": 1, "cost": 10}        calls one after another, four at a time, each costing 7
{"do": "sync"}                                  answers when everything before it is done
"""

import asyncio
import json
import sqlite3
import sys
import time
from contextlib import closing
from typing import Any

from penstock.amounts import clock_ms
from penstock.gateway.keys.quota import Quota, Spender
from penstock.gateway.keys.store import Spent
from penstock.gateway.limits.admission import Decision, Grant, Reservation
from penstock.providers.secret import Secret
from penstock.stores.accounts.redis import RedisAccounts
from penstock.stores.accounts.shared_accounts import SharedAccounts
from penstock.stores.accounts.sqlite import SqliteAccounts
from penstock.stores.accounts.storage import Storage

LASTS_MS = 3_600_000
PAID = 7


def append(path: str, ids: list[str], cost: int) -> None:
    """Book entries, durably."""
    with closing(sqlite3.connect(path, timeout=20, isolation_level=None)) as ledger:
        rows = [(id, cost, clock_ms()) for id in ids]
        ledger.execute("BEGIN IMMEDIATE")
        ledger.executemany("INSERT OR IGNORE INTO entries VALUES (?, ?, ?)", rows)
        ledger.execute("COMMIT")


class Worker:
    def __init__(self, name: str, store: str, ledger: str, quota: Quota, timeout_s: float) -> None:
        self.name, self.ledger, self.quota = name, ledger, quota
        storage: Storage = (
            RedisAccounts(Secret(store), timeout_s) if ":" in store else SqliteAccounts(store, max(timeout_s, 0.25))
        )
        self.accounts = SharedAccounts(storage, self.ask, 0.25, retry_s=0.3)
        self.granted: list[str] = []
        self.outages: set[str] = set()
        self.number = 0

    def ask(self, who: Spender, since: int, recent: int) -> Spent:  # noqa: ARG002 - there is but one
        with closing(sqlite3.connect(self.ledger, timeout=20)) as ledger:
            rows = ledger.execute("SELECT id, cost, ended FROM entries").fetchall()
        return Spent(total=sum(row[1] for row in rows), recent=frozenset(row[0] for row in rows if row[2] > recent))

    async def reserve(self, cost: int) -> tuple[str, Decision]:
        self.number += 1
        id = f"{self.name}-{self.number}"
        answered: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        now = clock_ms()
        self.accounts.reserve(self.quota, Reservation(id, cost, 10, now, now + LASTS_MS), answered.set_result)
        return id, await answered

    async def finish(self, ids: list[str], cost: int) -> None:
        for id in ids:
            self.accounts.settle(self.quota.id, id, cost, 5)
        await asyncio.to_thread(append, self.ledger, ids, cost)
        self.accounts.booked([(self.quota.id, id) for id in ids])

    async def variant(self, until: float, cost: int) -> tuple[int, float]:
        done, slowest = 0, 0.0
        while time.monotonic() < until:
            began = time.monotonic()
            id, answer = await self.reserve(cost)
            slowest = max(slowest, time.monotonic() - began)
            self.outages.add(self.accounts.degraded)
            if isinstance(answer, Grant):
                await asyncio.sleep(0.002)
                await self.finish([id], PAID)
                done += 1
            else:
                await asyncio.sleep(0.01)
        return done, slowest

    async def do(self, sent_text: dict[str, Any]) -> dict[str, object]:
        match sent_text["do"]:
            case "reserve":
                began = time.monotonic()
                answers = await asyncio.gather(*(self.reserve(sent_text["cost"]) for _ in range(sent_text["count"])))
                fresh = [id for id, answer in answers if isinstance(answer, Grant)]
                self.granted += fresh
                slowest = time.monotonic() - began
                return {"granted": len(fresh), "slowest": slowest, "degraded": self.accounts.degraded}
            case "finish":
                await self.finish(self.granted, sent_text["cost"])
                self.granted.clear()
            case "work":
                until = time.monotonic() + sent_text["seconds"]
                variants = await asyncio.gather(*(self.variant(until, sent_text["cost"]) for _ in range(4)))
                done, slowest = sum(variant[0] for variant in variants), max(variant[1] for variant in variants)
                return {"done": done, "slowest": slowest, "outages": sorted(self.outages)}
            case _:
                id, answer = await self.reserve(0)
                if isinstance(answer, Grant):
                    self.accounts.release(self.quota.id, id)
                    await self.reserve(10**18)
        return {"degraded": self.accounts.degraded}


async def main(name: str, store: str, ledger: str, limits: str, timeout_s: str) -> None:
    quota = Quota(id="key_1", **json.loads(limits))
    worker = Worker(name, store, ledger, quota, float(timeout_s))
    while line := await asyncio.to_thread(sys.stdin.readline):
        sys.stdout.write(json.dumps(await worker.do(json.loads(line))) + "\n")
        sys.stdout.flush()
    worker.accounts.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

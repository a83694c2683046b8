"""Measures how many calls per second one organisation can admit: `scripts/bench-teams`.

Every call has a key of its own process and reserves in that key, its team and their organisation, is settled, and is
booked. All processes share the account of the organisation, which is the hot one. No call is made: this is the cost
of the accounts alone.
"""

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from penstock.amounts import clock_ms
from penstock.gateway.keys.keys import Key
from penstock.gateway.keys.quota import Quota
from penstock.gateway.keys.store import Spent
from penstock.gateway.limits.accounts import Accounts, LocalAccounts
from penstock.gateway.limits.admission import Decision, Denial, Reservation
from penstock.gateway.limits.chained import ChainedAccounts
from penstock.gateway.teams.chain import Chain
from penstock.gateway.teams.team import Team
from penstock.providers.secret import Secret
from penstock.stores.accounts.redis import RedisAccounts
from penstock.stores.accounts.shared_accounts import SharedAccounts
from penstock.stores.accounts.sqlite import SqliteAccounts
from penstock.stores.accounts.storage import Storage

_BUDGET = 10**18
_LASTS_MS = 600_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench-teams", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each store (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="that share the accounts (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=50, help="concurrent in each process (default: %(default)s)")
    parser.add_argument("--redis", default="", help="the URL of a Redis server to measure too")
    options = parser.parse_args()
    report = partial(_report, options.seconds, options.calls)
    report("in memory, one process", 1, LocalAccounts)
    with tempfile.TemporaryDirectory() as folder:
        report("SQLite", options.processes, partial(_shared, partial(SqliteAccounts, Path(folder))))
    if options.redis:
        url = Secret(options.redis, "the command line")
        report("Redis", options.processes, partial(_shared, partial(RedisAccounts, url, 1.0)))


def _report(seconds: float, calls: int, name: str, processes: int, accounts: Callable[[], Accounts]) -> None:
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        done = sum(pool.starmap(_measure, [(accounts, number, seconds, calls) for number in range(processes)]))
    print(f"{name}, {processes} x {calls} concurrent calls: {done / seconds:,.0f} calls/s")


def _shared(storage: Callable[[], Storage]) -> Accounts:
    return SharedAccounts(storage(), lambda _who, _since, _recent: Spent(total=0, recent=frozenset()), 1.0)


def _measure(accounts: Callable[[], Accounts], number: int, seconds: float, calls: int) -> int:
    teams = [
        Team(path="acme", created_ms=1, budgets={"month": _BUDGET}),
        Team(path=f"acme/team-{number}", created_ms=1, budgets={"month": _BUDGET}),
    ]
    bare = Key(id=f"key_{number}", name="a", digest=b"", hint="", created_ms=1, budget=_BUDGET, team=teams[1].path)
    chain = Chain(teams).client_key(bare).quotas

    async def run() -> int:
        store = accounts()
        until = time.monotonic() + seconds
        done = await asyncio.gather(*(_client(store, chain, f"{number}-{each}", until) for each in range(calls)))
        if store.degraded:
            raise RuntimeError(f"the store does not respond: {store.degraded}")
        store.close()
        return sum(done)

    return asyncio.run(run())


async def _client(store: Accounts, chain: tuple[Quota, ...], name: str, until: float) -> int:
    done = 0
    while time.monotonic() < until:
        id, now = f"{name}-{done}", clock_ms()
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        reservation = Reservation(id, 1_000, 10, now, now + _LASTS_MS)
        ChainedAccounts(store).reserve(chain, reservation, answer.set_result)
        if isinstance(found := await answer, Denial):
            raise RuntimeError(f"a call was denied: {found.message}")
        for account in chain:
            store.settle(account.id, id, 500, 5)
        store.booked([(account.id, id) for account in chain])
        done += 1
        await asyncio.sleep(0)
    return done


if __name__ == "__main__":
    main()

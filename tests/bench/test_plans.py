"""Queries of the page on a large ledger in PostgreSQL, by their plans."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bench.page.bulk import make_bulk
from penstock.gateway.billing.queries import Filter
from penstock.gateway.config import LedgerSettings
from penstock.providers.secret import Secret
from penstock.stores.book.database import Row, Value
from penstock.stores.book.listing import newest
from penstock.stores.book.postgres import PostgresBook
from penstock.stores.book.sums import sums
from tests.stores.postgres import PostgresServer

# Reads for which PostgreSQL would put a whole table into a hash table, or start further processes.
LISTS = {
    "a failed attempt": Filter(attempts=("timed_out",)),
    "an error": Filter(text="overloaded"),
    "very many keys": Filter(text="client", text_keys=tuple(f"key_{number:012d}" for number in range(600))),
}


@pytest.mark.slow
def test_no_list_of_very_many_calls_hashes_a_table_or_starts_processes() -> None:
    with TemporaryDirectory(prefix="penstock-postgres-") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        try:
            _check_plans(server, server.new_database())
        finally:
            server.stop()


def _check_plans(postgres: PostgresServer, url: str) -> None:
    make_bulk(LedgerSettings(postgres=Secret(url)), 6_000, 100)
    # As if there were far more calls, for which the server considers further processes.
    database = url.rpartition("/")[2]
    costs = (
        "parallel_setup_cost",
        "parallel_tuple_cost",
        "min_parallel_table_scan_size",
        "min_parallel_index_scan_size",
    )
    postgres.execute(url, "ANALYZE", *(f"ALTER DATABASE {database} SET {cost} TO 0" for cost in costs))
    book = PostgresBook.open(Secret(url))
    plans: list[str] = []

    class Reader:
        def fetch(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
            plans.extend(str(line) for (line,) in book.database.fetch(f"EXPLAIN {sql}", parameters))
            return book.database.fetch(sql, parameters)

    for wanted in LISTS.values():
        assert newest(Reader(), wanted, None, 50)
    sums(Reader(), Filter(since_ms=1), ["key"], "", 501)
    assert not [line for line in plans if "Gather" in line or "hashed" in line]
    book.close()

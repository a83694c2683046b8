"""PostgreSQL stops and comes back, and its password is never disclosed."""

import json
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli import doctor
from penstock.errors import BookError, SlowQueryError
from penstock.gateway.billing.queries import Filter
from penstock.providers.secret import Secret
from penstock.stores.book.database import SqlDialect
from penstock.stores.book.postgres import PostgresBook
from penstock.stores.book.schema import MIGRATIONS
from tests.stores.entries import FULL, entry
from tests.stores.postgres import PASSWORD, PostgresServer


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    """An empty database; the server runs behind the test, whatever that did to it."""
    yield postgres.new_database()
    postgres.start()


def ids(book: PostgresBook) -> list[str]:
    return [found.id for _, found in book.following(Filter(), 0, limit=100)]


def test_a_restart_between_two_appends_is_not_noticed(postgres: PostgresServer, url: str) -> None:
    book = PostgresBook.open(Secret(url))
    book.append([FULL])
    postgres.stop()
    postgres.start()
    book.append([FULL, entry("b")])
    assert ids(book) == ["call_1", "b"]
    book.close()


def test_while_it_is_away_it_is_reported_and_then_the_same_can_be_appended(postgres: PostgresServer, url: str) -> None:
    book = PostgresBook.open(Secret(url))
    book.append([entry("a")])
    postgres.stop()
    for _ in range(2):
        with pytest.raises(BookError, match=r"PostgreSQL at 127.0.0.1:\d+/test_\d+: does not answer") as caught:
            book.append([entry("a"), entry("b")])
        assert PASSWORD not in reported(caught.value)
    postgres.start()
    book.append([entry("a"), entry("b")])
    assert ids(book) == ["a", "b"]
    book.close()


def test_a_connection_that_is_cut_in_a_transaction_is_made_anew(postgres: PostgresServer, url: str) -> None:
    book = PostgresBook.open(Secret(url))
    cut: list[bool] = []

    def work(transaction: object) -> int:
        if not cut:
            cut.append(True)
            postgres.execute(
                url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            )
        assert hasattr(transaction, "fetch")
        return int(transaction.fetch("SELECT 41 + 1")[0][0])

    assert book.database.write(work) == 42
    book.close()


def test_who_is_locked_out_gets_an_error_and_goes_on_later(url: str) -> None:
    book = PostgresBook.open(Secret(url), timeout_s=0.3)
    holder = PostgresBook.open(Secret(url))
    locked, release = threading.Event(), threading.Event()

    def hold(_transaction: object) -> None:
        locked.set()
        release.wait(10)

    thread = threading.Thread(target=lambda: holder.database.write(hold))
    thread.start()
    locked.wait(10)
    with pytest.raises(BookError, match="statement timeout"):
        book.append([FULL])
    release.set()
    thread.join()
    for _ in range(20):  # a busy machine may need longer than the short timeout, too
        with suppress(BookError):
            book.append([FULL])
            break
    assert ids(book) == ["call_1"]
    book.close()
    holder.close()


def test_a_slow_query_is_interrupted_with_advice(url: str) -> None:
    book = PostgresBook.open(Secret(url), timeout_s=0.3)
    with pytest.raises(SlowQueryError, match=r"longer than 0.3 s: ask for a shorter time range"):
        book.database.fetch("SELECT pg_sleep(5)::text")
    book.append([FULL])
    assert ids(book) == ["call_1"]
    book.close()


def test_a_migration_may_take_longer_than_a_query(url: str) -> None:
    def slow(_dialect: SqlDialect) -> Sequence[str]:
        return ("SELECT pg_sleep(1.5)::text",)

    book = PostgresBook.open(Secret(url), timeout_s=0.3, migrations=(*MIGRATIONS, slow))
    with pytest.raises(BookError, match="statement timeout"):
        book.database.write(lambda transaction: transaction.fetch("SELECT pg_sleep(5)::text"))
    book.close()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://penstock:hunter2@127.0.0.1:{port}/postgres", "password authentication failed"),
        ("postgresql://penstock@127.0.0.1:{port}/postgres?password=hunter2", "password authentication failed"),
        ("postgresql://penstock:hunter2@127.0.0.1:1/postgres", "does not answer"),
        ("postgresql://penstock:hunter2@127.0.0.1:hunter2/postgres", "its URL cannot be read"),
        ("postgresql://penstock:ab/hunter2@127.0.0.1/postgres", "its URL cannot be read"),
        ("postgresql://penstock:1#hunter2@127.0.0.1/postgres", "PostgreSQL: does not answer"),
        ("hunter2", "its URL cannot be read"),
        ("postgresql://[hunter2", "its URL cannot be read"),
    ],
)
def test_no_password_is_in_what_is_reported(postgres: PostgresServer, url: str, reason: str) -> None:
    with pytest.raises(BookError, match=reason) as caught:
        PostgresBook.open(Secret(url.format(port=postgres.port)))
    assert "hunter2" not in reported(caught.value)
    assert "\n" not in str(caught.value)


def test_a_database_that_is_missing_is_named(postgres: PostgresServer) -> None:
    with pytest.raises(BookError, match='database "nowhere" does not exist'):
        PostgresBook.open(Secret(postgres.url("nowhere")))


def test_who_may_not_make_a_schema_may_use_one(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    name = url.rpartition("/")[2]
    postgres.execute(url, f"CREATE USER {name} PASSWORD 'x'")
    theirs = postgres.url(name, user=name, password="x")
    with pytest.raises(BookError, match="permission denied"):
        PostgresBook.open(Secret(theirs))
    postgres.execute(url, f"CREATE SCHEMA penstock AUTHORIZATION {name}")
    book = PostgresBook.open(Secret(theirs))
    book.append([FULL])
    assert ids(book) == ["call_1"]
    book.close()


def test_without_its_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(BookError, match=r"pip install .*\[postgres\]"):
        PostgresBook.open(Secret("postgresql://localhost/x"))


def reported(error: BaseException) -> str:
    """All that a traceback would show."""
    return "".join(traceback.format_exception(error))


def test_the_doctor_finds_an_empty_database_fit_for_the_first_start(postgres: PostgresServer, tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(f'[server]\nlisten = "127.0.0.1:0"\n[ledger]\npostgres = "{postgres.new_database()}"\n')
    env = {"PENSTOCK_STATE": str(tmp_path / "state")}
    done = CliRunner(env=env).invoke(doctor.command, ["--config", str(file), "--offline", "--json"])
    (ledger,) = [each for each in json.loads(done.stdout)["findings"] if each["check"] == "ledger"]
    assert (done.exit_code, ledger["level"]) == (0, "ok")
    assert ledger["message"] == "PostgreSQL is empty: the ledger is created at the first start"

"""PostgresBook: the ledger in PostgreSQL, for gateways on several machines. Its tables are in the schema `penstock`.

Writers are serialised by an advisory lock in each transaction, so that places become visible in their order and a
reader that follows the book misses no entry. The next use reconnects after a lost connection. If the connection is lost
during a use, that use is retried at once on a new connection: all writes are idempotent.

The driver, asyncpg, is asynchronous, and the interface of a book is blocking: the book has its own event loop, which
runs only during a call.

Ctrl-C raises no exception inside asyncio or asyncpg, which cannot recover from one at every line. It cancels the task
that is running, and KeyboardInterrupt is raised once the loop has stopped. `asyncio.Runner.run` is not enough: it loses
a SIGINT that arrives while it starts, and then raises CancelledError.
"""

import asyncio
import contextlib
import re
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from decimal import Decimal
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from penstock.errors import BookError
from penstock.installation import install_command
from penstock.providers.secret import Secret
from penstock.stores.book.database import (
    QUERY_S,
    Queryable,
    Row,
    SqlDialect,
    T,
    Transaction,
    Value,
    insertion,
    slow_query,
)
from penstock.stores.book.schema import MIGRATIONS, Migration, migrate
from penstock.stores.book.sql_book import Book

SCHEMA = "penstock"
# An arbitrary number, the same in every version of Penstock.
_LEDGER_LOCK = 0x70656E73746F636B
_READ_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_TRIES = 3
# The driver has no other word for no limit.
_UNLIMITED_S = 30 * 86_400.0
# Hosts with their ports, and the name of a database: an address that cannot hold a part of a password.
_PLAIN_ADDRESS = re.compile(r"(?:(?:[\w.-]+|\[[0-9a-f:]+\])(?::\d+)?,?)+(?:/[\w.-]*)?", re.IGNORECASE | re.ASCII)
R = TypeVar("R")


class _CanceledError(BookError):
    """The server canceled a statement, because it took too long."""


class PostgresDialect:
    """The SQL that is specific to PostgreSQL."""

    serial = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    clustered = ""
    # Leaves room in each page, so that an updated row stays in it and its entry in the index stays valid.
    clustered_updated = "WITH (fillfactor = 70)"
    unlogged = "UNLOGGED"
    now_ms = "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::BIGINT"

    # Another than the server's function of that name, which takes no text. Queries inline it.
    functions: Sequence[str] = (
        """
        CREATE FUNCTION json_each(members TEXT) RETURNS TABLE (key TEXT, value TEXT) LANGUAGE sql IMMUTABLE
        AS 'SELECT * FROM json_each_text(members::json)'
        """,
    )

    def __init__(self, schema: str) -> None:
        self.tables = f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'"

    def protect(self, table: str, *, unless: str) -> tuple[str, ...]:
        """Two triggers, and the function that both call."""
        return (
            f"""
            CREATE FUNCTION {table}_refuse() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
            BEGIN
                IF TG_OP = 'DELETE' THEN
                    IF {unless} THEN
                        RETURN OLD;
                    END IF;
                END IF;
                RAISE EXCEPTION 'entries are neither changed nor removed';
            END
            $$
            """,
            f"""
            CREATE TRIGGER {table}_stay BEFORE UPDATE OR DELETE ON {table}
            FOR EACH ROW EXECUTE FUNCTION {table}_refuse()
            """,
            f"""
            CREATE TRIGGER {table}_remain BEFORE TRUNCATE ON {table}
            FOR EACH STATEMENT EXECUTE FUNCTION {table}_refuse()
            """,
        )


class PostgresDatabase:
    """A database with one connection at a time, opened when it is needed. Its tables are in one schema.

    `lock` is the number of the advisory lock that serialises the writers of this schema.
    """

    def __init__(
        self,
        url: Secret,
        *,
        readonly: bool = False,
        timeout_s: float = QUERY_S,
        schema: str = SCHEMA,
        lock: int = _LEDGER_LOCK,
    ) -> None:
        self.name, self._passwords = _describe(url.reveal())
        self.dialect: SqlDialect = PostgresDialect(schema)
        self.readonly = readonly
        self.schema = schema
        self._writer_lock = f"SELECT pg_advisory_xact_lock({lock})"
        self._url = url
        self._timeout_s = timeout_s
        self._driver = _driver()
        # ValueError: the URL cannot be parsed. EOFError: the server closed the connection in the middle of a message.
        self._failures: tuple[type[Exception], ...] = (
            self._driver.PostgresError,
            self._driver.InterfaceError,
            self._driver.InternalClientError,
            OSError,
            ValueError,
            EOFError,
        )
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._task: asyncio.Task[Any] | None = None  # the running task
        self._interrupted = False
        self._connection: Any = None
        self._unlimited = False

    def fetch(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """Run one statement."""
        with self._slow_queries():
            return self._use(lambda link: _PostgresTransaction(link, self._run, None).fetch(sql, parameters))

    def read(self, work: Callable[[Queryable], T]) -> T:
        """Run read-only work in one snapshot."""
        with self._slow_queries():
            return self._use(lambda connection: self._transact(connection, work, _READ_SNAPSHOT))

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run work in a transaction."""
        return self._use(lambda connection: self._transact(connection, work, "BEGIN", self._writer_lock))

    @contextlib.contextmanager
    def unlimited(self) -> Iterator[None]:
        """Lift the time limits, of the server and of the driver, for the transactions in this context."""
        self._unlimited = True
        try:
            yield
        finally:
            self._unlimited = False

    @contextlib.contextmanager
    def _slow_queries(self) -> Iterator[None]:
        """Say what to do about a query that takes too long. A transaction that writes may wait for another writer."""
        try:
            yield
        except _CanceledError:
            raise slow_query(self._timeout_s) from None

    def make_schema(self) -> None:
        """Create the schema if it is missing: a user with rights on the schema may have no right to create one."""

        def make(transaction: Transaction) -> None:
            if transaction.fetch(f"SELECT to_regnamespace('{self.schema}')::text") == [(None,)]:
                transaction.fetch(f"CREATE SCHEMA {self.schema}")

        self.write(make)

    def close(self) -> None:
        """Close the connection and the event loop."""
        with self._deferred_interrupts():
            try:
                self._drop()
            finally:
                self._runner.close()

    def _transact(self, connection: Any, work: "Callable[[_PostgresTransaction], T]", begin: str, *first: str) -> T:
        limit_s = _UNLIMITED_S if self._unlimited else None
        self._run(connection.execute(begin))
        try:
            for statement in (*(["SET LOCAL statement_timeout TO 0"] if self._unlimited else []), *first):
                self._run(connection.execute(statement, timeout=limit_s))
            done = work(_PostgresTransaction(connection, self._run, limit_s))
            self._run(connection.execute("COMMIT"))
        except BaseException:
            try:
                self._run(connection.execute("ROLLBACK"))
            except self._failures:
                self._drop()  # the original error is raised, not this one
            raise
        return done

    def _use(self, use: Callable[[Any], R]) -> R:
        """Use the connection; retry if a reused connection was lost, or after a conflict with another writer."""
        with self._deferred_interrupts():
            return self._try(use)

    def _try(self, use: Callable[[Any], R]) -> R:
        for tries_left in reversed(range(_TRIES)):
            reused = self._connection is not None and not self._connection.is_closed()
            try:
                return use(self._connected())
            except self._failures as error:
                lost = self._is_lost(error)
                if lost:
                    self._drop()
                if tries_left and ((lost and reused) or self._is_conflict(error)):
                    continue
                # Without its cause, which may contain the URL.
                kind = _CanceledError if isinstance(error, self._driver.QueryCanceledError) else BookError
                raise kind(f"{self.name}: {self._reason(error)}") from None
        raise AssertionError("the last try returns or raises")

    def _connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            self._connection = self._run(self._connect())
        return self._connection

    async def _connect(self) -> Any:
        connection = await self._driver.connect(
            self._url.reveal(), timeout=self._timeout_s, command_timeout=self._timeout_s + 1
        )
        try:
            await connection.execute(f"SET search_path TO {self.schema}")
            await connection.execute(f"SET statement_timeout TO {round(self._timeout_s * 1000)}")
            # Every query reads little, by an index. But the planner cannot know how few calls are not summed up yet: it
            # would start processes and compile expressions for them, which takes ten times as long as the query.
            await connection.execute("SET max_parallel_workers_per_gather TO 0")
            await connection.execute("SET jit TO off")
            # A commit returns only when it is durable on the server.
            await connection.execute("SET synchronous_commit TO on")
            if self.readonly:
                await connection.execute("SET default_transaction_read_only TO on")
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _drop(self) -> None:
        """Close the connection, whatever its state."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*self._failures):
                self._run(connection.close(timeout=1))
            connection.terminate()

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        self._task = task = self._loop.create_task(work)
        if self._interrupted:
            task.cancel()
        try:
            return self._loop.run_until_complete(task)
        finally:
            self._task = None

    @contextlib.contextmanager
    def _deferred_interrupts(self) -> Iterator[None]:
        """Make Ctrl-C cancel the running task, and raise KeyboardInterrupt at the end, whatever the task's result.

        Only where Ctrl-C would raise it: in the main thread, unless the program has its own handler for SIGINT.
        """
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        self._interrupted = False
        signal.signal(signal.SIGINT, self._on_interrupt)
        try:
            yield
        finally:
            if self._interrupted:
                self._abandon()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if self._interrupted:
                raise KeyboardInterrupt

    def _on_interrupt(self, *_: object) -> None:
        self._interrupted = True
        if self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)  # threadsafe, so that the loop wakes up

    def _abandon(self) -> None:
        """Close the connection without waiting; the server rolls back.

        A connection that was being opened may leave a failed future, which asyncio would log.
        """
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
        self._loop.set_exception_handler(lambda *_: None)

    def _is_lost(self, error: Exception) -> bool:
        """Whether the connection cannot be used any more."""
        driver = self._driver
        gone = (
            driver.PostgresConnectionError,
            driver.OperatorInterventionError,
            driver.InterfaceError,
            OSError,
            EOFError,
        )
        # Canceled by the statement timeout: the connection is still good.
        return isinstance(error, gone) and not isinstance(error, driver.QueryCanceledError)

    def _is_conflict(self, error: Exception) -> bool:
        driver = self._driver
        rolled_back = driver.TransactionRollbackError  # serialization, deadlock
        return isinstance(error, (rolled_back, driver.UniqueViolationError, driver.InvalidCachedStatementError))

    def _reason(self, error: Exception) -> str:
        """The error in one line, without a password."""
        if isinstance(error, self._driver.PostgresError):
            reason = str(error.args[0] if error.args else error)
        elif isinstance(error, TimeoutError):
            reason = f"does not answer within {self._timeout_s:g} s"
        elif isinstance(error, OSError):
            reason = f"does not answer ({error.strerror or type(error).__name__})"
        elif isinstance(error, ValueError):
            reason = "its URL cannot be read; write it as postgresql://user:password@host:port/database"
        else:
            reason = str(error) or type(error).__name__
        for password in self._passwords:
            reason = reason.replace(password, "***")
        return " ".join(reason.split())


class _PostgresTransaction:
    """Runs statements on one connection, each within `limit_s`; None for the limit of the connection."""

    def __init__(self, connection: Any, run: Callable[[Coroutine[Any, Any, Any]], Any], limit_s: float | None) -> None:
        self._connection = connection
        self._run = run
        self._limit_s = limit_s

    def fetch(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        query = self._connection.fetch(_numbered_parameters(sql), *parameters, timeout=self._limit_s)
        return [_row(record) for record in self._run(query)]

    def fetch_each(self, sql: str, rows: Sequence[Row]) -> list[Row]:
        queries = self._connection.fetchmany(_numbered_parameters(sql), rows, timeout=self._limit_s)
        return [_row(record) for record in self._run(queries)]

    def insert_new(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> list[Row]:
        return self.fetch_each(f"{insertion(table, columns)} RETURNING id, place", rows)

    def execute_each(self, sql: str, rows: Sequence[Row]) -> None:
        if rows:
            self._run(self._connection.executemany(_numbered_parameters(sql), rows, timeout=self._limit_s))


class PostgresBook(Book):
    """The ledger in PostgreSQL."""

    @classmethod
    def open(
        cls,
        url: Secret,
        *,
        readonly: bool = False,
        timeout_s: float = QUERY_S,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> "PostgresBook":
        """Connect, and create missing tables unless `readonly`."""
        database = PostgresDatabase(url, readonly=readonly, timeout_s=timeout_s)
        try:
            if not readonly:
                database.make_schema()
            migrate(database, migrations)
        except BaseException:
            database.close()
            raise
        return cls(database)


def _driver() -> Any:
    try:
        return import_module("asyncpg")
    except ImportError:
        command = install_command("postgres")
        raise BookError(f"a ledger in PostgreSQL needs the Python package asyncpg: {command}") from None


def _describe(url: str) -> tuple[str, tuple[str, ...]]:
    """A description of a URL for people, and the passwords in it, decoded and percent-encoded.

    The description has the host and the database only if they cannot contain a part of an unescaped password.
    """
    try:
        parts = urlsplit(url)
        user, _, hosts = parts.netloc.rpartition("@")
        passwords_in_url = [user.partition(":")[2], *parse_qs(parts.query).get("password", [])]
    except ValueError:
        return "PostgreSQL", ()
    passwords = {password for each in passwords_in_url for password in (each, unquote(each)) if password}
    address = f"{hosts}{parts.path}"
    plain = hosts and _PLAIN_ADDRESS.fullmatch(address) and url.count("@") == parts.netloc.count("@")
    return f"PostgreSQL at {address}" if plain else "PostgreSQL", tuple(passwords)


def _numbered_parameters(sql: str) -> str:
    """The SQL with `$1`, `$2` … in place of its `?`."""
    first, *rest = sql.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))


def _row(record: Sequence[Value | Decimal]) -> Row:
    """Convert a record to a row: PostgreSQL returns sums of integers as decimals."""
    return tuple(int(value) if isinstance(value, Decimal) else value for value in record)

"""PostgresBook: the ledger in PostgreSQL, for gateways on several machines. Its tables lie in the schema `penstock`.

Writers take turns: an advisory lock goes with each transaction, so that places are visible in their order, and whoever
follows the book misses nothing. A connection that is lost is made anew by the next use. If it turns out lost in the
middle of one, that is tried again at once on a new one: everything that is written may be written twice.

The driver, asyncpg, is asynchronous, and a book blocks: it has an event loop that runs only while it is asked.

Ctrl-C raises no exception inside asyncio or asyncpg, which cannot recover from one at every line. It cancels what is
waited for, and KeyboardInterrupt is raised once the loop has stopped. `asyncio.Runner.run` does not suffice: it forgets
a SIGINT that comes while it starts, and then raises CancelledError.
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
from penstock.providers.secret import Secret
from penstock.stores.book.database import Queryable, Row, SqlDialect, T, Transaction, Value, insertion
from penstock.stores.book.schema import MIGRATIONS, Migration, migrate
from penstock.stores.book.sql_book import SqlBook

SCHEMA = "penstock"
# Any number will do, as long as every version of Penstock takes the same.
_TURN = f"SELECT pg_advisory_xact_lock({0x70656E73746F636B})"
_LOOK = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_TRIES = 3
# Hosts with their ports, and the name of a database.
_CLEAR = re.compile(r"(?:(?:[\w.-]+|\[[0-9a-f:]+\])(?::\d+)?,?)+(?:/[\w.-]*)?", re.IGNORECASE | re.ASCII)
R = TypeVar("R")


class PostgresDialect:
    """PostgreSQL's own words."""

    serial = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    clustered = ""
    tables = f"SELECT tablename FROM pg_tables WHERE schemaname = '{SCHEMA}'"

    def refuse(self, table: str, *, but: str) -> tuple[str, ...]:
        """Two triggers, and the function that both call."""
        return (
            f"""
            CREATE FUNCTION {table}_refuse() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
            BEGIN
                IF TG_OP = 'DELETE' THEN
                    IF {but} THEN
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

    def removed(self, table: str, statements: Sequence[str]) -> tuple[str, ...]:
        """A trigger, and the function that it calls."""
        return (
            f"""
            CREATE FUNCTION {table}_removed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
            BEGIN
                {"; ".join(statements)};
                RETURN NULL;
            END
            $$
            """,
            f"""
            CREATE TRIGGER {table}_removed AFTER DELETE ON {table}
            FOR EACH STATEMENT EXECUTE FUNCTION {table}_removed()
            """,
        )


class PostgresDatabase:
    """One connection at a time, made when it is needed."""

    def __init__(self, url: Secret, *, readonly: bool = False, timeout_s: float = 15.0) -> None:
        self.name, self._passwords = _described(url.reveal())
        self.words: SqlDialect = PostgresDialect()
        self.readonly = readonly
        self._url = url
        self._timeout_s = timeout_s
        self._driver = _driver()
        # The last two: its URL cannot be read, or the server hung up in the middle of a word.
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
        self._task: asyncio.Task[Any] | None = None  # what is waited for
        self._interrupted = False
        self._connection: Any = None

    def fetch(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """Run one statement."""
        return self._use(lambda connection: _PostgresTransaction(connection, self._run).fetch(sql, parameters))

    def look(self, work: Callable[[Queryable], T]) -> T:
        """Do work in one snapshot."""
        return self._use(lambda connection: self._transact(connection, work, _LOOK))

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Do work in a transaction."""
        return self._use(lambda connection: self._transact(connection, work, "BEGIN", _TURN))

    def close(self) -> None:
        """Let go of it."""
        with self._holding_interrupts():
            try:
                self._drop()
            finally:
                self._runner.close()

    def _transact(self, connection: Any, work: "Callable[[_PostgresTransaction], T]", begin: str, *first: str) -> T:
        self._run(connection.execute(begin))
        try:
            for statement in first:
                self._run(connection.execute(statement))
            done = work(_PostgresTransaction(connection, self._run))
            self._run(connection.execute("COMMIT"))
        except BaseException:
            try:
                self._run(connection.execute("ROLLBACK"))
            except self._failures:
                self._drop()  # the reason why it came to this is what counts
            raise
        return done

    def _use(self, use: Callable[[Any], R]) -> R:
        """Use the connection, and again if it was lost since it was last used, or if another writer got in the way."""
        with self._holding_interrupts():
            return self._try(use)

    def _try(self, use: Callable[[Any], R]) -> R:
        for tries_left in reversed(range(_TRIES)):
            known = self._connection is not None and not self._connection.is_closed()
            try:
                return use(self._connected())
            except self._failures as error:
                lost = self._lost(error)
                if lost:
                    self._drop()
                if tries_left and ((lost and known) or self._in_the_way(error)):
                    continue
                # Without its cause, which may know the URL.
                raise BookError(f"{self.name}: {self._reason(error)}") from None
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
            await connection.execute(f"SET search_path TO {SCHEMA}")
            await connection.execute(f"SET statement_timeout TO {round(self._timeout_s * 1000)}")
            # Whoever books an entry is told so once it would outlive the server.
            await connection.execute("SET synchronous_commit TO on")
            if self.readonly:
                await connection.execute("SET default_transaction_read_only TO on")
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _drop(self) -> None:
        """Let go of the connection, whatever state it is in."""
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
    def _holding_interrupts(self) -> Iterator[None]:
        """Have Ctrl-C cancel what is waited for, and raise KeyboardInterrupt at the end, whatever came of it.

        Only where Ctrl-C would raise one: in the main thread, unless the program handles SIGINT in a way of its own.
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
            self._loop.call_soon_threadsafe(self._task.cancel)  # from outside, so that the loop wakes up

    def _abandon(self) -> None:
        """Close the connection without waiting; the server rolls back.

        A connection that was being made may leave a future that has failed. asyncio would log that.
        """
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
        self._loop.set_exception_handler(lambda *_: None)

    def _lost(self, error: Exception) -> bool:
        """Whether the connection is of no use any more."""
        driver = self._driver
        gone = (
            driver.PostgresConnectionError,
            driver.OperatorInterventionError,
            driver.InterfaceError,
            OSError,
            EOFError,
        )
        canceled = isinstance(error, driver.QueryCanceledError)  # by the statement's time-out: nothing is lost
        return not canceled and isinstance(error, gone)

    def _in_the_way(self, error: Exception) -> bool:
        driver = self._driver
        return isinstance(
            error,
            (
                driver.TransactionRollbackError,  # serialization, deadlock
                driver.UniqueViolationError,
                driver.InvalidCachedStatementError,
            ),
        )

    def _reason(self, error: Exception) -> str:
        """One line, without a password."""
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
    """Statements on one connection."""

    def __init__(self, connection: Any, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._connection = connection
        self._run = run

    def fetch(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        return [_row(record) for record in self._run(self._connection.fetch(_numbered(sql), *parameters))]

    def fetch_each(self, sql: str, rows: Sequence[Row]) -> list[Row]:
        return [_row(record) for record in self._run(self._connection.fetchmany(_numbered(sql), rows))]

    def insert_new(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> list[Row]:
        return self.fetch_each(f"{insertion(table, columns)} RETURNING id, place", rows)

    def execute_each(self, sql: str, rows: Sequence[Row]) -> None:
        if rows:
            self._run(self._connection.executemany(_numbered(sql), rows))


class PostgresBook(SqlBook):
    """The ledger in PostgreSQL."""

    @classmethod
    def open(
        cls,
        url: Secret,
        *,
        readonly: bool = False,
        timeout_s: float = 15.0,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> "PostgresBook":
        """Connect, and make the tables where they are missing, unless `readonly`."""
        database = PostgresDatabase(url, readonly=readonly, timeout_s=timeout_s)
        try:
            if not readonly:
                database.write(_make_schema)
            migrate(database, migrations)
        except BaseException:
            database.close()
            raise
        return cls(database)


def _make_schema(transaction: Transaction) -> None:
    """Only where it is missing: who may use a schema may not always make one."""
    if transaction.fetch(f"SELECT to_regnamespace('{SCHEMA}')::text") == [(None,)]:
        transaction.fetch(f"CREATE SCHEMA {SCHEMA}")


def _driver() -> Any:
    try:
        return import_module("asyncpg")
    except ImportError:
        raise BookError("a ledger in PostgreSQL needs its driver: pip install 'penstock[postgres]'") from None


def _described(url: str) -> tuple[str, tuple[str, ...]]:
    """What people are told of a URL, and the passwords in it, as they are and as they are written.

    Its host and database are told only where nothing of them can be a part of a password that was not escaped.
    """
    try:
        parts = urlsplit(url)
        user, _, hosts = parts.netloc.rpartition("@")
        written = [user.partition(":")[2], *parse_qs(parts.query).get("password", [])]
    except ValueError:
        return "PostgreSQL", ()
    passwords = {password for each in written for password in (each, unquote(each)) if password}
    place = f"{hosts}{parts.path}"
    clear = hosts and _CLEAR.fullmatch(place) and url.count("@") == parts.netloc.count("@")
    return f"PostgreSQL at {place}" if clear else "PostgreSQL", tuple(passwords)


def _numbered(sql: str) -> str:
    """The SQL with `$1`, `$2` … for its marks."""
    first, *rest = sql.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))


def _row(record: Sequence[Value | Decimal]) -> Row:
    """Sums of whole numbers come as decimals."""
    return tuple(int(value) if isinstance(value, Decimal) else value for value in record)

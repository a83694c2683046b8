"""Models of PostgreSQL and Redis behind their ports, `Database` and `Storage`: what each may do to its users.

PostgreSQL is a SQLite file that all gateways of a world share, behind a network: it is away, it answers late, and it
loses a connection before or after a commit, so that it is unknown whether the commit took effect.

Redis keeps versioned values in memory. It is away, it times out before or after a change, its failover forgets the last
changes, as an asynchronous replica does, and a stale replica may be read.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import BookError
from penstock.stores.accounts.storage import StorageError, StoredValue
from penstock.stores.book.database import QUERY_S, Queryable, Row, T, Transaction, Value
from penstock.stores.book.sqlite import SqliteDatabase
from tests.simulation.world import EPOCH_S, World

SCHEMA = "penstock"


class DatabaseServer:
    """The state of the PostgreSQL server of a world."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self._folder = folder
        self.away = False
        self.trouble = 0.0
        """The share of uses in which the connection is lost."""

    def path_of(self, schema: str) -> Path:
        """The file with the tables of a schema."""
        return self._folder / f"{schema}.db"

    def database_class(self) -> type:
        """The class in place of `PostgresDatabase`."""
        server = self

        class ServedDatabase(SqliteDatabase):
            """A connection to the server."""

            def __init__(
                self,
                url: object,
                *,
                readonly: bool = False,
                timeout_s: float = QUERY_S,
                schema: str = SCHEMA,
                lock: int = 0,
            ) -> None:
                del url, lock
                self._limit_s = timeout_s
                self._within = False
                server.ask(timeout_s)
                super().__init__(server.path_of(schema), readonly=readonly, timeout_s=timeout_s)
                self.name = "PostgreSQL at database"
                self.dialect.now_ms = "now_ms()"
                self._connection.create_function("now_ms", 0, lambda: int((EPOCH_S + server.world.now) * 1000))

            def make_schema(self) -> None:
                """There is one."""

            def fetch(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
                if self._within:
                    return super().fetch(sql, parameters)
                return self._use(lambda: super(ServedDatabase, self).fetch(sql, parameters))

            def read(self, work: Callable[[Queryable], T]) -> T:
                return self._use(lambda: super(ServedDatabase, self).read(work))

            def write(self, work: Callable[[Transaction], T]) -> T:
                return self._use(lambda: super(ServedDatabase, self).write(work))

            def _use(self, work: Callable[[], T]) -> T:
                server.ask(self._limit_s)
                self._within = True
                try:
                    done = work()
                finally:
                    self._within = False
                server.lose()
                return done

        return ServedDatabase

    def ask(self, limit_s: float) -> None:
        """A request travels to the server."""
        world = self.world
        if self.away:
            if world.random.random() < 0.5:
                world.sleep(limit_s)
            raise BookError("PostgreSQL at database: does not answer")
        world.sleep(0.000_3 + world.random.random() * 0.001)
        self.lose()

    def lose(self) -> None:
        """The connection may be lost now."""
        if self.trouble and self.world.random.random() < self.trouble:
            raise BookError("PostgreSQL at database: the connection was lost")


class Store:
    """The state of the Redis server of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.away = False
        self.trouble = 0.0
        """The share of commands that time out, before or after they take effect."""
        self.stale = 0.0
        """The share of reads from a replica that lags behind."""
        self._values: dict[str, list[tuple[bytes, bytes]]] = {}

    def fail_over(self) -> None:
        """A replica takes over, which has not got the last changes."""
        for values in self._values.values():
            del values[max(1, len(values) - self.world.random.randrange(3)) :]

    def accounts_class(self) -> Any:
        """The class in place of `RedisAccounts`."""
        store = self

        class StoredAccounts:
            """A connection to the server."""

            name = "redis"

            def __init__(self, url: object, timeout_s: float = 1.0) -> None:
                del url
                self._timeout_s = timeout_s

            def load(self, account_id: str) -> StoredValue:
                self._ask()
                values = store._values.get(account_id)
                if values and len(values) > 1 and store.world.random.random() < store.stale:
                    return values[-2]
                return values[-1] if values else None

            def swap(
                self, account_id: str, expected: bytes | None, version: bytes, data: bytes
            ) -> tuple[bool, StoredValue]:
                self._ask()
                values = store._values.setdefault(account_id, [])
                current = values[-1] if values else None
                if (current[0] if current is not None else None) != expected:
                    return False, current
                values.append((version, data))
                del values[:-4]
                self._lose()
                return True, None

            def probe(self) -> None:
                self._ask()

            def close(self) -> None:
                """There is nothing to close."""

            def _ask(self) -> None:
                world = store.world
                if store.away:
                    world.sleep(self._timeout_s if world.random.random() < 0.5 else 0.001)
                    raise StorageError("Redis failed: ConnectionError")
                world.sleep(0.000_1 + world.random.random() * 0.000_4)
                self._lose()

            def _lose(self) -> None:
                if store.trouble and store.world.random.random() < store.trouble:
                    store.world.sleep(self._timeout_s)
                    raise StorageError("Redis failed: TimeoutError")

        return StoredAccounts

"""Schema: the ledger's tables, and the migrations from the schemas of earlier releases.

    calls         one row per call, with the sums of its attempts; `place` is the order of booking. Tags, repairs and
                  losses are JSON, which `json_each` reads
    attempts      one row per attempt
    keys          the clients' keys
    teams         the teams of keys: organisations, teams, projects
    meta          numbers: the versions of the `schema`, of the `keys` and of `people`; the time since which calls are
                  `kept`, and since which sums are (`kept_sums`); the place up to which calls are `summed`; until when
                  a process is `pruning`; when the calls of a key were stopped (`stop:` and its id)
    summed_…      sums of calls, and `call_traits`, an index of calls: only `summary.py` writes them
    spending      what keys, teams and end users have spent per day: only `spending.py` writes it
    archive…      the files to which old calls were moved, and what remains of these calls: only `retention.py` writes
                  them
    api_tokens, admin_sessions, audit   of the users of the admin API: only `people.py` writes them
    member_limits limits of single members of teams: only `team_rows.py` writes them
    people, people_…  the directory of an identity provider: only `directory.py` writes them
    reports           months that were reported, and what waits to be: only `report_rows.py` writes them
    budget_warnings   budgets that were warned of, and what waits for the webhook: only `budget_warnings.py` writes them

Rules:

1. Calls and their rows in other tables are append-only. Triggers in the database reject updates from any program. Calls
   can be deleted only if they ended before `kept`; their other rows are deleted with them. Only `retention.py` deletes
   calls, because sums and budgets must not change by that.
2. A released migration is never changed; a change is a new migration. A new column has a default: older processes that
   still run do not know it.
3. Each migration runs in one transaction together with the update of the schema version, so a process that dies in the
   middle changes nothing. Writers are serialised, and read the version inside the transaction.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from penstock.errors import BookUnusableError, EmptyBookError, OldBookError
from penstock.stores.book.budget_warnings import warning_tables
from penstock.stores.book.database import Database, Queryable, SqlDialect, Transaction, numbers, texts
from penstock.stores.book.directory import directory_tables
from penstock.stores.book.limit_requests import limit_request_notices, limit_request_tables
from penstock.stores.book.people import people_tables
from penstock.stores.book.report_rows import report_tables
from penstock.stores.book.spending import spending_tables
from penstock.stores.book.summary import USED
from penstock.stores.book.team_rows import member_tables
from penstock.stores.book.time_histogram import COLUMNS

Migration: TypeAlias = Callable[[SqlDialect], Sequence[str]]
# The number of the first schema. Smaller numbers are of versions before the first release: those cannot be migrated.
FIRST_SCHEMA = 19
# The columns of a usage in the first schema.
_FIRST_USED = [column for column in USED if column != "saved"]
_TOKENS = "input output cached cache_write reasoning"


def _first(dialect: SqlDialect) -> Sequence[str]:
    return (
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value BIGINT NOT NULL)",
        *(
            f"INSERT INTO meta (name, value) VALUES ('{name}', 0)"
            for name in ("schema", "keys", "people", "kept", "kept_sums", "kept_audit", "summed", "pruning")
        ),
        *dialect.functions,
        *_calls(dialect),
        *_keys_and_teams(),
        *_sums(dialect),
        *spending_tables(dialect),
        *_archives(dialect),
        *people_tables(dialect),
        *directory_tables(),
        *warning_tables(dialect),
    )


def _calls(dialect: SqlDialect) -> Sequence[str]:
    """Calls and their attempts. Each index is for one filter, in the order in which entries are listed.

    Calls without a team or an end user are not in the indexes of these.
    """
    return (
        f"""
        CREATE TABLE calls (
            place {dialect.serial},
            id TEXT NOT NULL UNIQUE,
            {numbers("at_ms settled_ms")},
            {texts("key team end_user surface model outcome code error measure")},
            {numbers(f"stream status duration_ms {_TOKENS} cost unpriced approximate")},
            first_event_ms BIGINT,
            {texts("repairs losses tags")}
        )
        """,
        "CREATE INDEX calls_by_time ON calls (at_ms, place)",
        "CREATE INDEX calls_by_key ON calls (key, at_ms, place, cost)",
        "CREATE INDEX calls_by_model ON calls (model, at_ms, place)",
        "CREATE INDEX calls_by_outcome ON calls (outcome, at_ms, place)",
        "CREATE INDEX calls_by_settling ON calls (key, settled_ms, id)",
        "CREATE INDEX calls_by_team ON calls (team, at_ms, place, cost) WHERE team <> ''",
        "CREATE INDEX calls_by_team_settling ON calls (team, settled_ms, id) WHERE team <> ''",
        "CREATE INDEX calls_by_user ON calls (end_user, at_ms, place) WHERE end_user <> ''",
        f"""
        CREATE TABLE attempts (
            call BIGINT NOT NULL REFERENCES calls (place) ON DELETE CASCADE,
            {numbers("number status began_ms duration_ms events longest_gap_ms approximate")},
            {texts("provider model outcome code measure price tier stalls")},
            {numbers(f"{_TOKENS} audio_input audio_output cache_write_1h")},
            cost BIGINT,
            first_event_ms BIGINT,
            PRIMARY KEY (call, number)
        ) {dialect.clustered}
        """,
        *dialect.protect("calls", unless="OLD.settled_ms < (SELECT value FROM meta WHERE name = 'kept')"),
        *dialect.protect("attempts", unless="NOT EXISTS (SELECT 1 FROM calls WHERE place = OLD.call)"),
    )


def _keys_and_teams() -> Sequence[str]:
    limits = "requests_per_minute BIGINT, tokens_per_minute BIGINT, concurrent BIGINT"
    return (
        f"""
        CREATE TABLE keys (
            id TEXT PRIMARY KEY,
            {texts("name team owner digest hint period budgets models client_credentials tags end_users previous")},
            {numbers("created_ms strict")},
            budget BIGINT,
            {limits},
            expires_ms BIGINT,
            revoked_ms BIGINT,
            rotated_ms BIGINT,
            previous_until_ms BIGINT,
            blocked_ms BIGINT
        )
        """,
        f"""
        CREATE TABLE teams (
            path TEXT PRIMARY KEY,
            {texts("budgets models end_users")},
            created_ms BIGINT NOT NULL,
            {limits},
            blocked_ms BIGINT,
            deleted_ms BIGINT
        )
        """,
    )


def _sums(dialect: SqlDialect) -> Sequence[str]:
    # Keys come first, in their order: else SQLite 3.40 says in an integrity check that the other columns were NULL.
    slots, key = numbers("width slot name"), "PRIMARY KEY (width, slot, name)"
    times = numbers(" ".join(("least", "most", *COLUMNS)))
    return (
        f"CREATE TABLE summed_names (number {dialect.serial}, {texts('provider model what')})",
        # Not by all three: together they may be longer than PostgreSQL's indexes take.
        "CREATE INDEX summed_names_by_model ON summed_names (model)",
        f"CREATE TABLE summed_answers ({slots}, {numbers('count estimated')}, {key}) {dialect.clustered}",
        f"CREATE TABLE summed_times ({slots}, {times}, {key}) {dialect.clustered}",
        f"""
        CREATE TABLE summed_usage (
            kind TEXT NOT NULL,
            {numbers("width slot")},
            name TEXT NOT NULL,
            {numbers(" ".join(_FIRST_USED))},
            PRIMARY KEY (kind, width, slot, name)
        ) {dialect.clustered_updated}
        """,
        f"""
        CREATE TABLE call_traits (
            {texts("kind name")}, {numbers("at_ms call")}, PRIMARY KEY (kind, name, at_ms, call)
        ) {dialect.clustered}
        """,
    )


def _archives(dialect: SqlDialect) -> Sequence[str]:
    return (
        f"CREATE TABLE archives (name TEXT PRIMARY KEY, {numbers('day bytes calls')})",
        f"""
        CREATE TABLE archived_ids (
            {numbers("day place")}, ids TEXT NOT NULL, PRIMARY KEY (day, place)
        ) {dialect.clustered}
        """,
        # `id` is a digest of the texts: together they may be longer than PostgreSQL's indexes take.
        f"""
        CREATE TABLE archived_usage (
            hour BIGINT NOT NULL,
            {texts("id part key team model outcome provider tags")},
            {numbers(" ".join(_FIRST_USED))},
            PRIMARY KEY (hour, id)
        ) {dialect.clustered}
        """,
    )


def _managed(_dialect: SqlDialect) -> Sequence[str]:
    return [f"ALTER TABLE {table} ADD COLUMN managed_by TEXT NOT NULL DEFAULT ''" for table in ("keys", "teams")]


def _members(_dialect: SqlDialect) -> Sequence[str]:
    added = [f"ALTER TABLE teams ADD COLUMN {name} TEXT NOT NULL DEFAULT '{{}}'" for name in ("members", "member_keys")]
    return [*added, *member_tables()]


def _saved(_dialect: SqlDialect) -> Sequence[str]:
    tables = ("calls", "attempts", "summed_usage", "archived_usage")
    return [f"ALTER TABLE {table} ADD COLUMN saved BIGINT NOT NULL DEFAULT 0" for table in tables]


# The first one makes `FIRST_SCHEMA`, and each further one the next number.
MIGRATIONS: tuple[Migration, ...] = (
    _first,
    _managed,
    _members,
    limit_request_tables,
    report_tables,
    _saved,
    limit_request_notices,
)


def newest_schema(migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """The number of the schema to which migrations lead."""
    return FIRST_SCHEMA - 1 + len(migrations)


def migrate(database: Database, migrations: Sequence[Migration] = MIGRATIONS, *, table: str = "calls") -> None:
    """Migrate a database to the current version; raises `BookUnusableError` if that is not possible.

    `table` is a table of the first version, besides `meta`. A database that has other tables but not this one belongs
    to another program.
    """
    current, newest = _version(database, database, table), newest_schema(migrations)
    while current < newest:
        if database.readonly and not current:
            raise EmptyBookError(f"{database.name} is empty: no gateway has kept a ledger here yet")
        if database.readonly:
            raise OldBookError(
                f"{database.name} was made by an earlier version (its schema is {current}, this one has "
                f"{newest}): let the gateway run on it once"
            )
        with database.unlimited():
            current = database.write(lambda transaction: _step(transaction, database, migrations, table))
    if current > newest:
        raise BookUnusableError(
            f"{database.name} was made by a newer version of Penstock (its schema is {current}, this one knows "
            f"{newest}): use that version, or restore a backup from before the upgrade"
        )


def _step(transaction: Transaction, database: Database, migrations: Sequence[Migration], table: str) -> int:
    """Run the next migration, unless another process just did; returns the version."""
    current = _version(transaction, database, table)
    if current >= newest_schema(migrations):
        return current
    following = max(current + 1, FIRST_SCHEMA)
    for statement in migrations[following - FIRST_SCHEMA](database.dialect):
        transaction.fetch(statement)
    transaction.fetch("UPDATE meta SET value = ? WHERE name = 'schema'", (following,))
    return following


def _version(reader: Queryable, database: Database, table: str) -> int:
    """The schema version; 0 for an empty database."""
    tables = {name for (name,) in reader.fetch(database.dialect.tables)}
    if not tables:
        return 0
    rows = reader.fetch("SELECT value FROM meta WHERE name = 'schema'") if {"meta", table} <= tables else []
    if not rows:
        raise BookUnusableError(f"{database.name} holds something else: choose another place for the ledger")
    found = cast(int, rows[0][0])
    if found < FIRST_SCHEMA:
        raise BookUnusableError(
            f"{database.name} was made before the first release of Penstock (its schema is {found}, this one knows "
            f"those from {FIRST_SCHEMA} on): move it away to start a new one, or use the version that made it"
        )
    return found

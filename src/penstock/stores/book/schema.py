"""Schema: the ledger's tables, and the migrations from earlier versions.

    calls         one row per call, with the sums of its attempts; `place` is the order of booking
    attempts      one row per attempt
    call_tags     the tags of calls again, one row each, for filters
    call_repairs  the repairs of calls again, one row each
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
    budget_warnings   budgets that were warned of, and what waits for the webhook: only `budget_warnings.py` writes them

Rules:

1. Calls and their rows in other tables are append-only. Triggers in the database reject updates from any program. Calls
   can be deleted only if they ended before `kept`; their other rows are deleted with them. Only `retention.py` deletes
   calls, because sums and budgets must not change by that.
2. A released migration is never changed; a change is a new migration.
3. Each migration runs in one transaction together with the update of the schema version, so a process that dies in the
   middle changes nothing. Writers are serialised, and read the version inside the transaction.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from penstock.errors import BookUnusableError, EmptyBookError, OldBookError
from penstock.stores.book.budget_warnings import delivery_columns, warning_tables
from penstock.stores.book.database import SUMMED, Database, Queryable, SqlDialect, Transaction
from penstock.stores.book.people import people_tables
from penstock.stores.book.spending import spending_tables, take_over_spending
from penstock.stores.book.summary import NOTE_FAILURES, SUM_TEAMS, USED, note_losses, sum_hours

# SQL, or what SQL cannot do for both databases.
Statement: TypeAlias = str | Callable[[Transaction], None]
Migration: TypeAlias = Callable[[SqlDialect], Sequence[Statement]]


def _first(dialect: SqlDialect) -> Sequence[str]:
    return (
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value BIGINT NOT NULL)",
        "INSERT INTO meta (name, value) VALUES ('schema', 0), ('keys', 0), ('kept', 0)",
        f"""
        CREATE TABLE calls (
            place {dialect.serial},
            id TEXT NOT NULL UNIQUE,
            at_ms BIGINT NOT NULL,
            settled_ms BIGINT NOT NULL,
            key TEXT NOT NULL,
            surface TEXT NOT NULL,
            model TEXT NOT NULL,
            stream BIGINT NOT NULL,
            outcome TEXT NOT NULL,
            status BIGINT NOT NULL,
            code TEXT NOT NULL,
            first_event_ms BIGINT,
            duration_ms BIGINT NOT NULL,
            input BIGINT NOT NULL,
            output BIGINT NOT NULL,
            cached BIGINT NOT NULL,
            cache_write BIGINT NOT NULL,
            reasoning BIGINT NOT NULL,
            cost BIGINT NOT NULL,
            unpriced BIGINT NOT NULL,
            measure TEXT NOT NULL,
            repairs TEXT NOT NULL,
            tags TEXT NOT NULL,
            end_user TEXT NOT NULL
        )
        """,
        # Each index is for one filter, in the order in which entries are listed.
        "CREATE INDEX calls_by_time ON calls (at_ms, place)",
        "CREATE INDEX calls_by_key ON calls (key, at_ms, place, cost)",
        "CREATE INDEX calls_by_model ON calls (model, at_ms, place)",
        "CREATE INDEX calls_by_outcome ON calls (outcome, at_ms, place)",
        "CREATE INDEX calls_by_settling ON calls (key, settled_ms, id)",
        f"""
        CREATE TABLE attempts (
            call BIGINT NOT NULL REFERENCES calls (place) ON DELETE CASCADE,
            number BIGINT NOT NULL,
            provider TEXT NOT NULL,
            model TEXT NOT NULL,
            outcome TEXT NOT NULL,
            status BIGINT NOT NULL,
            code TEXT NOT NULL,
            measure TEXT NOT NULL,
            input BIGINT NOT NULL,
            output BIGINT NOT NULL,
            cached BIGINT NOT NULL,
            cache_write BIGINT NOT NULL,
            reasoning BIGINT NOT NULL,
            cost BIGINT,
            price TEXT NOT NULL,
            began_ms BIGINT NOT NULL,
            first_event_ms BIGINT,
            duration_ms BIGINT NOT NULL,
            events BIGINT NOT NULL,
            PRIMARY KEY (call, number)
        ) {dialect.clustered}
        """,
        "CREATE INDEX attempts_by_provider ON attempts (provider, call)",
        f"""
        CREATE TABLE call_tags (
            call BIGINT NOT NULL REFERENCES calls (place) ON DELETE CASCADE,
            name TEXT NOT NULL,
            value TEXT NOT NULL,
            PRIMARY KEY (call, name)
        ) {dialect.clustered}
        """,
        "CREATE INDEX call_tags_by_name ON call_tags (name, value, call)",
        f"""
        CREATE TABLE call_repairs (
            call BIGINT NOT NULL REFERENCES calls (place) ON DELETE CASCADE,
            code TEXT NOT NULL,
            count BIGINT NOT NULL,
            PRIMARY KEY (call, code)
        ) {dialect.clustered}
        """,
        "CREATE INDEX call_repairs_by_code ON call_repairs (code, call)",
        """
        CREATE TABLE keys (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            digest TEXT NOT NULL,
            hint TEXT NOT NULL,
            created_ms BIGINT NOT NULL,
            budget BIGINT,
            period TEXT NOT NULL,
            requests_per_minute BIGINT,
            tokens_per_minute BIGINT,
            concurrent BIGINT,
            models TEXT NOT NULL,
            tags TEXT NOT NULL,
            expires_ms BIGINT,
            revoked_ms BIGINT,
            replaced_by TEXT NOT NULL
        )
        """,
        *dialect.protect("calls", unless="OLD.settled_ms < (SELECT value FROM meta WHERE name = 'kept')"),
        *(
            statement
            for table in ("attempts", "call_tags", "call_repairs")
            for statement in dialect.protect(table, unless="NOT EXISTS (SELECT 1 FROM calls WHERE place = OLD.call)")
        ),
    )


def _second(_dialect: SqlDialect) -> Sequence[str]:
    """Add the gaps between consecutive events of an attempt."""
    return (
        "ALTER TABLE attempts ADD COLUMN longest_gap_ms BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE attempts ADD COLUMN stalls TEXT NOT NULL DEFAULT '[]'",
    )


def _third(_dialect: SqlDialect) -> Sequence[str]:
    """Make rotation keep the key and change its secret. `replaced_by` remains for keys that were rotated before."""
    return (
        "ALTER TABLE keys ADD COLUMN rotated_ms BIGINT",
        "ALTER TABLE keys ADD COLUMN previous TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE keys ADD COLUMN previous_until_ms BIGINT",
    )


def _fourth(dialect: SqlDialect) -> Sequence[str]:
    """Add sums, and traits in the order of time, in place of three indexes. `BookWriter` fills the empty tables."""
    bins = ", ".join(f"b{number} BIGINT NOT NULL" for number in range(83))  # as many as `time_histogram.py` has
    return (
        "INSERT INTO meta (name, value) VALUES ('summed', 0)",
        f"""
        CREATE TABLE summed_names (
            number {dialect.serial},
            provider TEXT NOT NULL,
            model TEXT NOT NULL,
            what TEXT NOT NULL
        )
        """,
        # Not by all three: together they may be longer than PostgreSQL's indexes take.
        "CREATE INDEX summed_names_by_model ON summed_names (model)",
        f"""
        CREATE TABLE summed_answers (
            width BIGINT NOT NULL,
            slot BIGINT NOT NULL,
            name BIGINT NOT NULL,
            count BIGINT NOT NULL,
            estimated BIGINT NOT NULL,
            PRIMARY KEY (width, slot, name)
        ) {dialect.clustered}
        """,
        f"""
        CREATE TABLE summed_times (
            width BIGINT NOT NULL,
            slot BIGINT NOT NULL,
            name BIGINT NOT NULL,
            least BIGINT NOT NULL,
            most BIGINT NOT NULL,
            {bins},
            PRIMARY KEY (width, slot, name)
        ) {dialect.clustered}
        """,
        f"""
        CREATE TABLE summed_usage (
            kind TEXT NOT NULL,
            hour BIGINT NOT NULL,
            name TEXT NOT NULL,
            calls BIGINT NOT NULL,
            input BIGINT NOT NULL,
            output BIGINT NOT NULL,
            cached BIGINT NOT NULL,
            cache_write BIGINT NOT NULL,
            reasoning BIGINT NOT NULL,
            cost BIGINT NOT NULL,
            unpriced BIGINT NOT NULL,
            estimated BIGINT NOT NULL,
            PRIMARY KEY (kind, hour, name)
        ) {dialect.clustered}
        """,
        f"""
        CREATE TABLE call_traits (
            kind TEXT NOT NULL,
            name TEXT NOT NULL,
            at_ms BIGINT NOT NULL,
            call BIGINT NOT NULL,
            PRIMARY KEY (kind, name, at_ms, call)
        ) {dialect.clustered}
        """,
        "DROP INDEX IF EXISTS attempts_by_provider",
        "DROP INDEX IF EXISTS call_tags_by_name",
        "DROP INDEX IF EXISTS call_repairs_by_code",
        *dialect.on_delete(
            "calls",
            (
                "UPDATE meta SET value = 0 WHERE name = 'summed'",  # first: `sum_up` locks this row
                "DELETE FROM summed_answers",
                "DELETE FROM summed_times",
                "DELETE FROM summed_names",
                "DELETE FROM summed_usage",
                "DELETE FROM call_traits",
            ),
        ),
    )


def _fifth(_dialect: SqlDialect) -> Sequence[str]:
    """Add further factors of a cost: audio, one-hour cache writes, the service tier; and whether it is approximate.

    For calls that were booked before, these are unknown, and 0.
    """
    counts = ("audio_input", "audio_output", "cache_write_1h", "approximate")
    return (
        *(f"ALTER TABLE attempts ADD COLUMN {name} BIGINT NOT NULL DEFAULT 0" for name in counts),
        "ALTER TABLE attempts ADD COLUMN tier TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE calls ADD COLUMN approximate BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE summed_usage ADD COLUMN approximate BIGINT NOT NULL DEFAULT 0",
    )


def _sixth(_dialect: SqlDialect) -> Sequence[str]:
    """Add what translations between dialects lose, and whether a key is strict about it."""
    return (
        "ALTER TABLE calls ADD COLUMN losses TEXT NOT NULL DEFAULT '{}'",
        "ALTER TABLE keys ADD COLUMN strict BIGINT NOT NULL DEFAULT 0",
    )


def _seventh(_dialect: SqlDialect) -> Sequence[str]:
    """Index the calls that are already summed up by their losses."""
    return (note_losses(f"c.place <= {SUMMED}"),)


def _eighth(dialect: SqlDialect) -> Sequence[str]:
    """Add what remains of calls that are archived. Deleting calls does not empty the sums any more."""
    return (
        *dialect.no_on_delete("calls"),
        "INSERT INTO meta (name, value) VALUES ('kept_sums', 0), ('pruning', 0)",
        """
        CREATE TABLE archives (
            name TEXT PRIMARY KEY,
            day BIGINT NOT NULL,
            bytes BIGINT NOT NULL,
            calls BIGINT NOT NULL
        )
        """,
        f"""
        CREATE TABLE archived_ids (
            day BIGINT NOT NULL,
            place BIGINT NOT NULL,
            ids TEXT NOT NULL,
            PRIMARY KEY (day, place)
        ) {dialect.clustered}
        """,
        f"""
        CREATE TABLE archived_spending (
            key TEXT NOT NULL,
            day BIGINT NOT NULL,
            cost BIGINT NOT NULL,
            PRIMARY KEY (key, day)
        ) {dialect.clustered}
        """,
        # `id` is a digest of the texts: together they may be longer than PostgreSQL's indexes take.
        f"""
        CREATE TABLE archived_usage (
            hour BIGINT NOT NULL,
            id TEXT NOT NULL,
            part TEXT NOT NULL,
            key TEXT NOT NULL,
            model TEXT NOT NULL,
            outcome TEXT NOT NULL,
            provider TEXT NOT NULL,
            tags TEXT NOT NULL,
            calls BIGINT NOT NULL,
            input BIGINT NOT NULL,
            output BIGINT NOT NULL,
            cached BIGINT NOT NULL,
            cache_write BIGINT NOT NULL,
            reasoning BIGINT NOT NULL,
            cost BIGINT NOT NULL,
            unpriced BIGINT NOT NULL,
            estimated BIGINT NOT NULL,
            approximate BIGINT NOT NULL,
            PRIMARY KEY (hour, id)
        ) {dialect.clustered}
        """,
    )


def _ninth(_dialect: SqlDialect) -> Sequence[str]:
    """Add teams, with the keys and calls that belong to them, and block keys.

    The indexes are partial: calls without a team are not in them.
    """
    return (
        "ALTER TABLE keys ADD COLUMN blocked_ms BIGINT",
        "ALTER TABLE keys ADD COLUMN team TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE keys ADD COLUMN budgets TEXT NOT NULL DEFAULT '{}'",
        "ALTER TABLE keys ADD COLUMN end_users TEXT NOT NULL DEFAULT '{}'",
        "ALTER TABLE calls ADD COLUMN team TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE archived_usage ADD COLUMN team TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX calls_by_team ON calls (team, at_ms, place, cost) WHERE team <> ''",
        "CREATE INDEX calls_by_team_settling ON calls (team, settled_ms, id) WHERE team <> ''",
        """
        CREATE TABLE teams (
            path TEXT PRIMARY KEY,
            created_ms BIGINT NOT NULL,
            budgets TEXT NOT NULL,
            requests_per_minute BIGINT,
            tokens_per_minute BIGINT,
            concurrent BIGINT,
            models TEXT NOT NULL,
            end_users TEXT NOT NULL,
            blocked_ms BIGINT,
            deleted_ms BIGINT
        )
        """,
    )


def _tenth(_dialect: SqlDialect) -> Sequence[str]:
    """Add the sentence of the error that the client got. It is unknown for calls that were booked before."""
    return ("ALTER TABLE calls ADD COLUMN error TEXT NOT NULL DEFAULT ''",)


def _eleventh(dialect: SqlDialect) -> Sequence[str]:
    """Add API tokens, sessions and the audit log, and the owner of keys."""
    return (
        "ALTER TABLE keys ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
        *people_tables(dialect),
    )


def _twelfth(dialect: SqlDialect) -> Sequence[str]:
    """Add budget warnings."""
    return warning_tables(dialect)


def _thirteenth(_dialect: SqlDialect) -> Sequence[str]:
    """Add the delivery of budget warnings to the webhook."""
    return delivery_columns()


def _fourteenth(dialect: SqlDialect) -> Sequence[Statement]:
    """Add the spending per day, and the index of end users, error codes, errors and failed attempts."""
    return (*spending_tables(dialect), take_over_spending, *map(_of_summed, NOTE_FAILURES))


def _fifteenth(_dialect: SqlDialect) -> Sequence[Statement]:
    """Number the changes of API tokens and sessions."""
    return ("INSERT INTO meta (name, value) VALUES ('people', 0)",)


def _sixteenth(dialect: SqlDialect) -> Sequence[Statement]:
    """Sum up the usage per hour for wider slots too, and by team. Of archived calls, the sums by team are those that
    are kept of them."""
    return (
        "ALTER TABLE summed_usage RENAME TO usage_per_hour",
        f"""
        CREATE TABLE summed_usage (
            kind TEXT NOT NULL,
            width BIGINT NOT NULL,
            slot BIGINT NOT NULL,
            name TEXT NOT NULL,
            {", ".join(f"{column} BIGINT NOT NULL" for column in USED)},
            CONSTRAINT usage_slots PRIMARY KEY (kind, width, slot, name)
        ) {dialect.clustered_updated}
        """,
        sum_hours("kind", "name", "usage_per_hour", "kind <> 'team'"),
        "DROP TABLE usage_per_hour",
        _of_summed(SUM_TEAMS),
        sum_hours("'team'", "team", "archived_usage", "part = 'call'"),
    )


def _of_summed(statement: str) -> str:
    """A statement of the summary, for the calls that are already summed up."""
    return statement.replace("c.place > ? AND c.place <= ?", f"c.place <= {SUMMED}")


# The n-th migration leads to version n.
MIGRATIONS: tuple[Migration, ...] = (
    _first,
    _second,
    _third,
    _fourth,
    _fifth,
    _sixth,
    _seventh,
    _eighth,
    _ninth,
    _tenth,
    _eleventh,
    _twelfth,
    _thirteenth,
    _fourteenth,
    _fifteenth,
    _sixteenth,
)


def migrate(database: Database, migrations: Sequence[Migration] = MIGRATIONS, *, table: str = "calls") -> None:
    """Migrate a database to the current version; raises `BookUnusableError` if that is not possible.

    `table` is a table of the first version, besides `meta`. A database that has other tables but not this one belongs
    to another program.
    """
    current = _version(database, database, table)
    while current < len(migrations):
        if database.readonly and not current:
            raise EmptyBookError(f"{database.name} is empty: no gateway has kept a ledger here yet")
        if database.readonly:
            raise OldBookError(
                f"{database.name} was made by an earlier version (its schema is {current}, this one has "
                f"{len(migrations)}): let the gateway run on it once"
            )
        with database.unlimited():
            current = database.write(lambda transaction: _step(transaction, database, migrations, table))
    if current > len(migrations):
        raise BookUnusableError(
            f"{database.name} was made by a newer version of Penstock (its schema is {current}, this one knows "
            f"{len(migrations)}): use that version, or restore a backup from before the upgrade"
        )


def _step(transaction: Transaction, database: Database, migrations: Sequence[Migration], table: str) -> int:
    """Run the next migration, unless another process just did; returns the version."""
    current = _version(transaction, database, table)
    if current >= len(migrations):
        return current
    for statement in migrations[current](database.dialect):
        if isinstance(statement, str):
            transaction.fetch(statement)
        else:
            statement(transaction)
    transaction.fetch("UPDATE meta SET value = ? WHERE name = 'schema'", (current + 1,))
    return current + 1


def _version(reader: Queryable, database: Database, table: str) -> int:
    """The schema version; 0 for an empty database."""
    tables = {name for (name,) in reader.fetch(database.dialect.tables)}
    if not tables:
        return 0
    rows = reader.fetch("SELECT value FROM meta WHERE name = 'schema'") if {"meta", table} <= tables else []
    if not rows:
        raise BookUnusableError(f"{database.name} holds something else: choose another place for the ledger")
    return cast(int, rows[0][0])

"""Schema: the ledger's tables, and how a book of an earlier version becomes one of this.

    calls         one row for each call, with the sums of its attempts; `place` is the order of booking
    attempts      one row for each attempt
    call_tags     the tags of calls once more, to look calls up by
    call_repairs  and their repairs
    keys          the clients' keys
    meta          numbers: the version of the `schema`, of the `keys`, from when on calls are `kept`, and up to which
                  place they are `summed`
    summed_…      sums of calls, and `call_traits`, by which they are found: `summary.py`, and nothing else, writes them

Rules:

1. Calls, and what belongs to them, are never changed. The database itself refuses it, whoever asks. They are removed
   only where they are older than `kept`, which is 0 until somebody decides otherwise; what belongs to them goes along.
2. A migration that was released is never changed; another one follows it.
3. Each runs in a transaction of its own, together with the version that it leads to: a process that dies in the middle
   has done nothing. Writers wait for each other, and look at the version once they are alone.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from penstock.errors import BookUnusableError
from penstock.stores.book.database import Database, Queryable, SqlDialect, Transaction
from penstock.stores.book.summary import SUMMED, note_losses

Migration: TypeAlias = Callable[[SqlDialect], Sequence[str]]


def _first(words: SqlDialect) -> Sequence[str]:
    return (
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value BIGINT NOT NULL)",
        "INSERT INTO meta (name, value) VALUES ('schema', 0), ('keys', 0), ('kept', 0)",
        f"""
        CREATE TABLE calls (
            place {words.serial},
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
        # Each is in the order in which entries are listed, within what they may be filtered by.
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
        ) {words.clustered}
        """,
        "CREATE INDEX attempts_by_provider ON attempts (provider, call)",
        f"""
        CREATE TABLE call_tags (
            call BIGINT NOT NULL REFERENCES calls (place) ON DELETE CASCADE,
            name TEXT NOT NULL,
            value TEXT NOT NULL,
            PRIMARY KEY (call, name)
        ) {words.clustered}
        """,
        "CREATE INDEX call_tags_by_name ON call_tags (name, value, call)",
        f"""
        CREATE TABLE call_repairs (
            call BIGINT NOT NULL REFERENCES calls (place) ON DELETE CASCADE,
            code TEXT NOT NULL,
            count BIGINT NOT NULL,
            PRIMARY KEY (call, code)
        ) {words.clustered}
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
        *words.refuse("calls", but="OLD.settled_ms < (SELECT value FROM meta WHERE name = 'kept')"),
        *(
            statement
            for table in ("attempts", "call_tags", "call_repairs")
            for statement in words.refuse(table, but="NOT EXISTS (SELECT 1 FROM calls WHERE place = OLD.call)")
        ),
    )


def _second(_words: SqlDialect) -> Sequence[str]:
    """How long an attempt's events let wait for one another."""
    return (
        "ALTER TABLE attempts ADD COLUMN longest_gap_ms BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE attempts ADD COLUMN stalls TEXT NOT NULL DEFAULT '[]'",
    )


def _third(_words: SqlDialect) -> Sequence[str]:
    """A rotated key has another secret, and is no longer another key: `replaced_by` is left to those that were."""
    return (
        "ALTER TABLE keys ADD COLUMN rotated_ms BIGINT",
        "ALTER TABLE keys ADD COLUMN previous TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE keys ADD COLUMN previous_until_ms BIGINT",
    )


def _fourth(words: SqlDialect) -> Sequence[str]:
    """Sums, and traits in the order of time, in place of three indexes. They are empty: the scribe fills them."""
    bins = ", ".join(f"b{number} BIGINT NOT NULL" for number in range(83))  # as many as `bins.py` has
    return (
        "INSERT INTO meta (name, value) VALUES ('summed', 0)",
        f"""
        CREATE TABLE summed_names (
            number {words.serial},
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
        ) {words.clustered}
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
        ) {words.clustered}
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
        ) {words.clustered}
        """,
        f"""
        CREATE TABLE call_traits (
            kind TEXT NOT NULL,
            name TEXT NOT NULL,
            at_ms BIGINT NOT NULL,
            call BIGINT NOT NULL,
            PRIMARY KEY (kind, name, at_ms, call)
        ) {words.clustered}
        """,
        "DROP INDEX IF EXISTS attempts_by_provider",
        "DROP INDEX IF EXISTS call_tags_by_name",
        "DROP INDEX IF EXISTS call_repairs_by_code",
        *words.removed(
            "calls",
            (
                "UPDATE meta SET value = 0 WHERE name = 'summed'",  # first: whoever sums up holds it
                "DELETE FROM summed_answers",
                "DELETE FROM summed_times",
                "DELETE FROM summed_names",
                "DELETE FROM summed_usage",
                "DELETE FROM call_traits",
            ),
        ),
    )


def _fifth(_words: SqlDialect) -> Sequence[str]:
    """What a cost depends on besides: audio, cache writes for an hour, the service tier; and whether it is approximate.

    Of calls that were booked before, these are unknown, and 0.
    """
    counts = ("audio_input", "audio_output", "cache_write_1h", "approximate")
    return (
        *(f"ALTER TABLE attempts ADD COLUMN {name} BIGINT NOT NULL DEFAULT 0" for name in counts),
        "ALTER TABLE attempts ADD COLUMN tier TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE calls ADD COLUMN approximate BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE summed_usage ADD COLUMN approximate BIGINT NOT NULL DEFAULT 0",
    )


def _sixth(_words: SqlDialect) -> Sequence[str]:
    """What translations between dialects lost, and whether a key is strict about it."""
    return (
        "ALTER TABLE calls ADD COLUMN losses TEXT NOT NULL DEFAULT '{}'",
        "ALTER TABLE keys ADD COLUMN strict BIGINT NOT NULL DEFAULT 0",
    )


def _seventh(_words: SqlDialect) -> Sequence[str]:
    """By which losses calls are found, of those that are summed up already."""
    return (note_losses(f"c.place <= {SUMMED}"),)


# The n-th leads to version n.
MIGRATIONS: tuple[Migration, ...] = (_first, _second, _third, _fourth, _fifth, _sixth, _seventh)


def migrate(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring a database up to date, or refuse it."""
    current = _version(database, database)
    while current < len(migrations):
        if database.readonly and not current:
            raise BookUnusableError(f"{database.name} is empty: no gateway has kept a ledger here yet")
        if database.readonly:
            raise BookUnusableError(f"{database.name} was made by an earlier version: let the gateway run on it once")
        current = database.write(lambda transaction: _step(transaction, database, migrations))
    if current > len(migrations):
        raise BookUnusableError(
            f"{database.name} was made by a newer version of Penstock (its schema is {current}, this one knows "
            f"{len(migrations)}): use that version, or another ledger"
        )


def _step(transaction: Transaction, database: Database, migrations: Sequence[Migration]) -> int:
    """Go one version further, unless somebody else just did. The version that is reached."""
    current = _version(transaction, database)
    if current >= len(migrations):
        return current
    for statement in migrations[current](database.words):
        transaction.fetch(statement)
    transaction.fetch("UPDATE meta SET value = ? WHERE name = 'schema'", (current + 1,))
    return current + 1


def _version(reader: Queryable, database: Database) -> int:
    """0 where nothing is."""
    tables = {name for (name,) in reader.fetch(database.words.tables)}
    if not tables:
        return 0
    rows = reader.fetch("SELECT value FROM meta WHERE name = 'schema'") if {"meta", "calls"} <= tables else []
    if not rows:
        raise BookUnusableError(f"{database.name} holds something else: choose another place for the ledger")
    return cast(int, rows[0][0])

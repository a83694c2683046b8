"""SqlPeople: API tokens, sessions and the audit log, in tables beside the ledger's.

Every change and its audit entry are one transaction. Triggers reject updates of the audit log, and deletions of entries
that are younger than the configured retention (`kept_audit` in `meta`).
"""

from collections.abc import Callable, Sequence
from typing import cast

import msgspec
from msgspec import structs

from penstock.amounts import DAY_MS, clock_ms
from penstock.gateway.keys.owner import user_parts
from penstock.gateway.people.audit import Actor, AuditEntry, AuditFilter, entry_of
from penstock.gateway.people.sessions import AdminSession
from penstock.gateway.people.tokens import (
    ApiToken,
    NewToken,
    TokenTerms,
    check_new,
    find_token,
    make_token,
    token_json,
)
from penstock.stores.book.database import (
    Database,
    Queryable,
    Row,
    SqlDialect,
    Transaction,
    Value,
    insertion,
    numbers,
    replacement,
    texts,
)
from penstock.stores.book.rows import RowMapper, number, text

_TOKEN, _SESSION = RowMapper(ApiToken), RowMapper(AdminSession)
_TOKENS = f"SELECT {', '.join(_TOKEN.columns)} FROM api_tokens"
_PUT_TOKEN = replacement("api_tokens", "id", _TOKEN.columns, "revoked_ms")
_START_SESSION = insertion("admin_sessions", _SESSION.columns)
_AUDIT = ["at_ms", "who", "via", "address", "action", "subject", "before_json", "after_json"]
_ENTRY = RowMapper(AuditEntry, _AUDIT, before_json="before", after_json="after")
_RECORD = f"INSERT INTO audit ({', '.join(_AUDIT)}) VALUES ({', '.join('?' * len(_AUDIT))})"
_CHANGED = "UPDATE meta SET value = value + 1 WHERE name = 'people'"
# Of one field of an act, in characters. Larger ones are replaced by a note.
_MAX_JSON = 20_000


def people_tables(dialect: SqlDialect) -> Sequence[str]:
    """The statements that create the tables."""
    return (
        f"""
        CREATE TABLE api_tokens (
            id TEXT PRIMARY KEY,
            digest TEXT NOT NULL UNIQUE,
            {texts("name hint role team created_by")},
            created_ms BIGINT NOT NULL,
            expires_ms BIGINT,
            revoked_ms BIGINT
        )
        """,
        f"CREATE TABLE admin_sessions (id TEXT PRIMARY KEY, {texts('who grants')}, {numbers('created_ms expires_ms')})",
        f"""
        CREATE TABLE audit (
            place {dialect.serial},
            at_ms BIGINT NOT NULL,
            {texts("who via address action subject before_json after_json")}
        )
        """,
        "CREATE INDEX audit_by_time ON audit (at_ms)",
        "CREATE INDEX audit_by_subject ON audit (subject, place)",
        *dialect.protect("audit", unless="OLD.at_ms < (SELECT value FROM meta WHERE name = 'kept_audit')"),
    )


class SqlPeople:
    """The tokens, the sessions and the audit log in the database of a book. Every change is recorded in the audit log,
    in the same transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def tokens(self) -> list[ApiToken]:
        """All tokens, the oldest first."""
        return [_TOKEN.read(row) for row in self._database.fetch(f"{_TOKENS} ORDER BY created_ms, id")]

    def token(self, digest: bytes, now_ms: int) -> ApiToken | None:
        """The usable token with this digest."""
        rows = self._database.fetch(f"{_TOKENS} WHERE digest = ?", (digest.hex(),))
        token = _TOKEN.read(rows[0]) if rows else None
        return token if token is not None and not token.unusable(now_ms) else None

    def create_token(self, terms: TokenTerms, actor: Actor, now_ms: int) -> NewToken:
        """Create a token."""
        new = make_token(terms, actor.who, now_ms)

        def put(transaction: Transaction) -> None:
            tokens = [_TOKEN.read(row) for row in transaction.fetch(_TOKENS)]
            if any(each.id == new.token.id for each in tokens):
                return  # it is stored; only the confirmation was lost
            check_new(tokens, new.token)
            transaction.execute_each(_PUT_TOKEN, [_TOKEN.write(new.token)])
            transaction.fetch(_CHANGED)
            after = token_json(new.token, now_ms)
            append(transaction, actor, entry_of(actor, now_ms, "token.create", new.token.id, after=after))

        self._database.write(put)
        return new

    def revoke_token(self, which: str, actor: Actor, now_ms: int) -> ApiToken:
        """Revoke a token. One that is revoked already stays unchanged."""

        def put(transaction: Transaction) -> ApiToken:
            token = find_token((_TOKEN.read(row) for row in transaction.fetch(_TOKENS)), which, now_ms)
            if token.revoked_ms is not None and token.revoked_ms <= now_ms:
                return token
            revoked = structs.replace(token, revoked_ms=now_ms)
            transaction.execute_each(_PUT_TOKEN, [_TOKEN.write(revoked)])
            transaction.fetch(_CHANGED)
            states = ({"state": token_json(each, now_ms)["state"]} for each in (token, revoked))
            append(transaction, actor, entry_of(actor, now_ms, "token.revoke", token.id, *states))
            return revoked

        return self._database.write(put)

    def session(self, id: str, now_ms: int) -> AdminSession | None:
        """The session with this id, unless it has expired."""
        sql = f"SELECT {', '.join(_SESSION.columns)} FROM admin_sessions WHERE id = ? AND expires_ms > ?"
        rows = self._database.fetch(sql, (text(id), number(now_ms)))
        return _SESSION.read(rows[0]) if rows else None

    def version(self) -> int:
        """A number that changes with every change of tokens and sessions."""
        return cast(int, self._database.fetch("SELECT value FROM meta WHERE name = 'people'")[0][0])

    def start_session(self, session: AdminSession, actor: Actor) -> None:
        """Store a session, and delete those that have expired."""
        self._database.write(lambda transaction: start_session(transaction, session, actor))

    def sessions(self, now_ms: int) -> list[AdminSession]:
        """The sessions that have not expired, the oldest first."""
        return _sessions(self._database, now_ms)

    def end_session(self, id: str, actor: Actor, now_ms: int) -> None:
        """Delete the session of the actor."""

        def put(transaction: Transaction) -> None:
            transaction.fetch("DELETE FROM admin_sessions WHERE id = ?", (text(id),))
            transaction.fetch(_CHANGED)
            append(transaction, actor, entry_of(actor, now_ms, "session.end", actor.who))

        self._database.write(put)

    def end_sessions(self, which: str, actor: Actor, now_ms: int) -> int:
        """Delete the session with this id, or those of the user with this name or id; returns their number."""

        def chosen(session: AdminSession) -> bool:
            return which in (session.id, session.who, *user_parts(session.who))

        return self._database.write(lambda transaction: end_sessions(transaction, chosen, actor, now_ms))

    def record(self, entry: AuditEntry, keep_days: int | None = None) -> None:
        """Append to the audit log, and delete the entries that are older than `keep_days`."""
        self._database.write(lambda transaction: _append(transaction, [entry], keep_days))

    def audit(self, wanted: AuditFilter, *, limit: int, before: int | None = None) -> list[tuple[int, AuditEntry]]:
        """Entries, the newest first, each with its place; `before` continues from such a place."""
        conditions: list[tuple[str, Value]] = [("place < ?", number(before) if before is not None else 2**62)]
        if wanted.since_ms is not None:
            conditions.append(("at_ms >= ?", number(wanted.since_ms)))
        if wanted.until_ms is not None:
            conditions.append(("at_ms < ?", number(wanted.until_ms)))
        if wanted.subject:
            conditions.append(("subject = ?", text(wanted.subject)))
        where = " AND ".join(condition for condition, _ in conditions)
        values = [value for _, value in conditions]
        # A name finds users with and without an id, and `key` finds `key.create`.
        for column, value, end in (("who", wanted.who, " <"), ("action", wanted.action, ".")):
            if value:
                where += f" AND ({column} = ? OR SUBSTR({column}, 1, ?) = ?)"
                prefix = f"{text(value)}{end}"
                values += [text(value), len(prefix), prefix]
        sql = f"SELECT place, {', '.join(_AUDIT)} FROM audit WHERE {where} ORDER BY place DESC LIMIT {number(limit)}"
        return [(cast(int, row[0]), _ENTRY.read(row[1:])) for row in self._database.fetch(sql, values)]


def _sessions(reader: Queryable, now_ms: int) -> list[AdminSession]:
    sql = f"SELECT {', '.join(_SESSION.columns)} FROM admin_sessions WHERE expires_ms > ? ORDER BY created_ms, id"
    return [_SESSION.read(row) for row in reader.fetch(sql, (number(now_ms),))]


def has_session(reader: Queryable, who: str, now_ms: int) -> bool:
    """Whether a user, as recorded, has a session."""
    sql = "SELECT 1 FROM admin_sessions WHERE who = ? AND expires_ms > ? LIMIT 1"
    return bool(reader.fetch(sql, (text(who), number(now_ms))))


def start_session(transaction: Transaction, session: AdminSession, actor: Actor) -> None:
    """Store a session, and delete those that have expired."""
    roles = {"roles": [structs.asdict(grant) for grant in session.grants]}
    transaction.fetch("DELETE FROM admin_sessions WHERE expires_ms <= ?", (number(session.created_ms),))
    transaction.execute_each(_START_SESSION, [_SESSION.write(session)])
    transaction.fetch(_CHANGED)
    append(transaction, actor, entry_of(actor, session.created_ms, "session.start", session.who, after=roles))


def end_sessions(transaction: Transaction, chosen: Callable[[AdminSession], bool], actor: Actor, now_ms: int) -> int:
    """Delete the sessions that are chosen; returns their number."""
    sessions = [session for session in _sessions(transaction, now_ms) if chosen(session)]
    for session in sessions:
        transaction.fetch("DELETE FROM admin_sessions WHERE id = ?", (text(session.id),))
        append(transaction, actor, entry_of(actor, now_ms, "session.end", session.who))
    if sessions:
        transaction.fetch(_CHANGED)
    return len(sessions)


def append(transaction: Transaction, actor: Actor, *entries: AuditEntry) -> None:
    """Append to the audit log in a transaction that also makes the changes."""
    if entries:
        _append(transaction, entries, actor.keep_days)


def _append(transaction: Transaction, entries: Sequence[AuditEntry], keep_days: int | None) -> None:
    rows: list[Row] = [
        (
            number(entry.at_ms),
            *map(text, (entry.who, entry.via, entry.address, entry.action, entry.subject)),
            _short_json(entry.before),
            _short_json(entry.after),
        )
        for entry in entries
    ]
    transaction.execute_each(_RECORD, rows)
    if keep_days is not None:
        before_ms = number(clock_ms() - keep_days * DAY_MS)
        transaction.fetch("UPDATE meta SET value = ? WHERE name = 'kept_audit' AND value < ?", (before_ms, before_ms))
        transaction.fetch("DELETE FROM audit WHERE at_ms < (SELECT value FROM meta WHERE name = 'kept_audit')")


def _json(value: object) -> str:
    # PostgreSQL's text has no NUL. JSON escapes it, and nothing else here needs it.
    return msgspec.json.encode(value).decode()


def _short_json(value: object) -> str:
    encoded = _json(value)
    return encoded if len(encoded) <= _MAX_JSON else _json({"omitted": f"{len(encoded)} characters"})

"""SqlLimitRequests: the requests of members for more, in a table beside the keys.

An approval, the change of the key or of the member, and their entries of the audit log are one transaction.
"""

from collections.abc import Callable
from typing import cast

from msgspec import structs

from penstock.amounts import clock_ms
from penstock.errors import AdminError
from penstock.gateway.keys.owner import user_parts
from penstock.gateway.keys.report import facts
from penstock.gateway.people.audit import Actor, entry_of, key_change
from penstock.gateway.people.limit_requests import LimitRequest, Raised, Subject, TakenRequest, check_open
from penstock.gateway.teams.members import MemberLimits
from penstock.stores.book.database import Database, Queryable, SqlDialect, Transaction, Value, texts
from penstock.stores.book.key_rows import put_keys, read_keys
from penstock.stores.book.people import append, has_session
from penstock.stores.book.rows import RowMapper, number, text
from penstock.stores.book.selection import marks
from penstock.stores.book.team_rows import change_member, read_members, read_teams

_REQUEST = RowMapper(LimitRequest)
_COLUMNS = ", ".join(_REQUEST.columns)
_NEW = ("member", "due_ms", *_REQUEST.columns)
_INSERT = f"INSERT INTO limit_requests ({', '.join(_NEW)}) VALUES {marks(_NEW)}"
# As for budget warnings (`budget_warnings.py`): `due_ms` is set while a request waits for the webhook.
_NEXT_DUE = "SELECT MIN(due_ms) FROM limit_requests WHERE due_ms IS NOT NULL AND answer = ''"
_TAKE = f"""
UPDATE limit_requests SET sends = sends + 1, due_ms = ? WHERE id = (
    SELECT id FROM limit_requests WHERE due_ms <= ? AND answer = '' ORDER BY due_ms, place LIMIT 1
) RETURNING {_COLUMNS}, sends
"""
_ANSWERS = ("answer", "answered_ms", "answered_by", "note", "granted")
_ANSWER = f"UPDATE limit_requests SET {', '.join(f'{name} = ?' for name in _ANSWERS)} WHERE id = ?"


def limit_request_tables(dialect: SqlDialect) -> list[str]:
    """The statements that create the table. `member` is the id of the user who asks."""
    return [
        f"""
        CREATE TABLE limit_requests (
            place {dialect.serial},
            id TEXT NOT NULL UNIQUE,
            created_ms BIGINT NOT NULL,
            {texts("member who team key wanted reason answer answered_by note granted")},
            answered_ms BIGINT
        )
        """,
        "CREATE INDEX limit_requests_by_member ON limit_requests (member, place)",
        "CREATE INDEX limit_requests_open ON limit_requests (place) WHERE answer = ''",
    ]


def limit_request_notices(_dialect: SqlDialect) -> list[str]:
    """The statements that add what the webhook needs."""
    added = ("due_ms BIGINT", "sends BIGINT NOT NULL DEFAULT 0")
    return [
        *(f"ALTER TABLE limit_requests ADD COLUMN {column}" for column in added),
        "CREATE INDEX limit_requests_due ON limit_requests (due_ms) WHERE due_ms IS NOT NULL",
    ]


class SqlLimitRequests:
    """The requests in the database of a book."""

    def __init__(self, database: Database, actor: Actor) -> None:
        self._database = database
        self._actor = actor

    def newest(
        self, *, since_ms: int | None = None, limit: int, before: int | None = None
    ) -> list[tuple[int, LimitRequest]]:
        """Requests, the newest first, each with its place; with `since_ms`, those since then that have no answer."""
        conditions: list[str] = ["place < ?"]
        values: list[Value] = [number(before) if before is not None else 2**62]
        if since_ms is not None:
            conditions += ["answer = ''", "created_ms > ?"]
            values.append(number(since_ms))
        sql = f"SELECT place, {_COLUMNS} FROM limit_requests WHERE {' AND '.join(conditions)}"
        rows = self._database.fetch(f"{sql} ORDER BY place DESC LIMIT {number(limit)}", values)
        return [(cast(int, row[0]), _REQUEST.read(row[1:])) for row in rows]

    def find(self, id: str) -> LimitRequest:
        """The request with this id."""
        return _find(self._database, id)

    def ask(self, make: Callable[[Subject], LimitRequest], *, key: str, team: str, now_ms: int) -> LimitRequest:
        """Store the request that is made for a key, or for the limits of the actor in a team."""
        member = user_parts(self._actor.who)[1]

        def put(transaction: Transaction) -> LimitRequest:
            if self._actor.via == "session" and not has_session(transaction, self._actor.who, clock_ms()):
                raise AdminError("this session has ended: sign in again", code="session_not_found")
            request = make(subject_of(transaction, key, team, self._actor.who))
            sql = f"SELECT {_COLUMNS} FROM limit_requests WHERE member = ? AND answer = ''"
            check_open((_REQUEST.read(row) for row in transaction.fetch(sql, (text(member),))), now_ms)
            transaction.execute_each(_INSERT, [(text(member), number(now_ms), *_REQUEST.write(request))])
            shown = {"wanted": facts(request.wanted), "reason": request.reason}
            append(transaction, self._actor, entry_of(self._actor, now_ms, "limits.ask", request.subject, after=shown))
            return request

        return self._database.write(put)

    def take(self, now_ms: int, until_ms: int) -> TakenRequest | int | None:
        """Take the open request that is due for the webhook, until a time; or when the next one is due."""
        ((due_ms,),) = self._database.fetch(_NEXT_DUE)
        if due_ms is None or cast(int, due_ms) > now_ms:
            return cast("int | None", due_ms)
        rows = self._database.write(lambda transaction: transaction.fetch(_TAKE, (number(until_ms), number(now_ms))))
        if not rows:
            return now_ms  # another process was quicker: look again
        return TakenRequest(_REQUEST.read(rows[0][:-1]), cast(int, rows[0][-1]))

    def end_delivery(self, taken: TakenRequest, due_ms: int | None) -> None:
        """Store when the next attempt is due, unless another process has taken the request since."""
        due = number(due_ms) if due_ms is not None else None
        sql = "UPDATE limit_requests SET due_ms = ? WHERE id = ? AND sends = ?"
        values = (due, text(taken.request.id), taken.attempt)
        self._database.write(lambda transaction: transaction.fetch(sql, values))

    def withdraw(self, id: str, now_ms: int) -> None:
        """Delete a request that has no answer."""

        def put(transaction: Transaction) -> None:
            request = _unanswered(transaction, id, now_ms)
            transaction.fetch("DELETE FROM limit_requests WHERE id = ?", (text(id),))
            append(transaction, self._actor, entry_of(self._actor, now_ms, "limits.withdraw", request.subject))

        self._database.write(put)

    def answer(self, id: str, decide: Callable[[LimitRequest, Subject], Raised], now_ms: int) -> LimitRequest:
        """Store an answer, and what it raises."""

        def put(transaction: Transaction) -> LimitRequest:
            given = _find(transaction, id)
            if (given.answered_ms, given.answered_by) == (now_ms, self._actor.who):
                return given  # it is stored; only the confirmation was lost
            request = _unanswered(transaction, id, now_ms)
            before = subject_of(transaction, request.key, request.team, request.who)
            raised = decide(request, before)
            answered = raised.request
            values = dict(zip(_REQUEST.columns, _REQUEST.write(answered), strict=True))
            transaction.fetch(_ANSWER, [*(values[name] for name in _ANSWERS), text(id)])
            if raised.key is not None:
                put_keys(transaction, [raised.key])
                change = key_change(self._actor, now_ms, before.key, raised.key)
                append(transaction, self._actor, *([change] if change is not None else []))
            if raised.member is not None:
                change_member(transaction, raised.member, self._actor, now_ms)
            shown = {"request": id, "granted": facts(answered.granted), "note": answered.note}
            action = "limits.approve" if answered.answer == "approved" else "limits.refuse"
            entry = entry_of(self._actor, now_ms, action, answered.subject, {"wanted": facts(answered.wanted)}, shown)
            append(transaction, self._actor, entry)
            return answered

        return self._database.write(put)


def subject_of(reader: Queryable, key: str, team: str, who: str) -> Subject:
    """What a request of a member is about: a key, by its id, or the limits of the member in a team."""
    teams = [each for each in read_teams(reader) if each.deleted_ms is None]
    if key:
        keys = read_keys(reader, [key])
        if not keys:
            raise AdminError("there is no key with that id or name", code="key_not_found")
        return Subject(keys[0], None, teams)
    if not any(each.path == team for each in teams):
        raise AdminError(f"there is no team {team[:200]}", code="team_not_found", param="team")
    id = user_parts(who)[1]
    own = next((each for each in read_members(reader) if (each.team, each.member) == (team, id)), None)
    return Subject(None, structs.replace(own or MemberLimits(team=team, member=id, who=who), who=who), teams)


def _find(reader: Queryable, id: str) -> LimitRequest:
    rows = reader.fetch(f"SELECT {_COLUMNS} FROM limit_requests WHERE id = ?", (text(id),))
    if not rows:
        raise AdminError("there is no request for more with that id", code="request_not_found")
    return _REQUEST.read(rows[0])


def _unanswered(reader: Queryable, id: str, now_ms: int) -> LimitRequest:
    request = _find(reader, id)
    state = request.state(now_ms)
    if state != "open":
        what = "has expired" if state == "expired" else f"was {state}"
        raise AdminError(f"this request {what} already", code="request_answered")
    return request

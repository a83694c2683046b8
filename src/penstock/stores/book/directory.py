"""SqlDirectory: the people and groups that an identity provider provisions, in tables beside the ledger's.

A person who is deactivated or deleted loses access in the same transaction: its sessions end, its keys are blocked or
revoked, and their running calls are stopped, by every gateway that uses the book. Keys that the deactivation blocked
have its time as `blocked_ms`, by which an activation finds and unblocks them. A person who leaves a group, whose roles
may depend on it, has to sign in again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import structs

from penstock.errors import AdminError
from penstock.gateway.keys.keys import Key
from penstock.gateway.keys.owner import user_parts
from penstock.gateway.people.audit import Actor, entry_of, key_change
from penstock.gateway.people.directory import Membership, PeopleGroup, Person
from penstock.gateway.people.group_roles import GroupRoles
from penstock.gateway.people.sessions import AdminSession
from penstock.stores.book.database import Database, Queryable, Transaction, numbers, replacement, texts
from penstock.stores.book.key_rows import put_keys, read_keys, stop_calls
from penstock.stores.book.people import append, end_sessions, start_session
from penstock.stores.book.rows import RowMapper, number, text
from penstock.stores.book.selection import containing
from penstock.stores.book.team_rows import create_missing_teams

_PERSON = RowMapper(Person)
_PEOPLE = f"SELECT {', '.join(_PERSON.columns)} FROM people"
_PUT_PERSON = replacement("people", "id", _PERSON.columns)
_GROUP = RowMapper(PeopleGroup, [name for name in PeopleGroup.__struct_fields__ if name != "members"])
_GROUPS = f"SELECT {', '.join(_GROUP.columns)} FROM people_groups"
_PUT_GROUP = replacement("people_groups", "id", _GROUP.columns)
_MEMBERS = "SELECT person FROM people_members WHERE people_group = ? ORDER BY person"
_JOIN = "INSERT INTO people_members (people_group, person) VALUES (?, ?)"
_GROUPS_OF = (
    "SELECT display_name FROM people_groups JOIN people_members ON people_group = people_groups.id WHERE person = ?"
)
_LEAVE = "DELETE FROM people_members WHERE people_group = ? AND person = ?"


def directory_tables() -> Sequence[str]:
    """The statements that create the tables."""
    return (
        f"""
        CREATE TABLE people (
            id TEXT PRIMARY KEY,
            known_as TEXT NOT NULL UNIQUE,
            {texts("user_name email external_id display_name formatted given_name family_name emails subs")},
            {numbers("created_ms changed_ms")},
            inactive_ms BIGINT
        )
        """,
        "CREATE INDEX people_by_external_id ON people (external_id)",
        f"""
        CREATE TABLE people_groups (
            id TEXT PRIMARY KEY, {texts("display_name external_id")}, {numbers("created_ms changed_ms")}
        )
        """,
        f"CREATE TABLE people_members ({texts('people_group person')}, PRIMARY KEY (people_group, person))",
        "CREATE INDEX people_members_by_person ON people_members (person)",
    )


class SqlDirectory:
    """The directory in the database of a book. Every change is recorded in the audit log, in the same transaction."""

    def __init__(self, database: Database, actor: Actor) -> None:
        self._database = database
        self._actor = actor

    def people(
        self, equal: Mapping[str, str], *, limit: int | None = None, offset: int = 0
    ) -> tuple[int, list[Person]]:
        """How many people have these values in these columns, and those of a page, the oldest first."""
        where, values = _where(equal)
        page = f" LIMIT {number(limit)} OFFSET {number(offset)}" if limit is not None else ""

        def read(reader: Queryable) -> tuple[int, list[Person]]:
            ((total,),) = reader.fetch(f"SELECT COUNT(*) FROM people{where}", values)
            rows = reader.fetch(f"{_PEOPLE}{where} ORDER BY created_ms, id{page}", values)
            return cast(int, total), [_PERSON.read(row) for row in rows]

        return self._database.read(read)

    def person(self, id: str) -> Person:
        """The person with this id."""
        return _person(self._database, id)

    def add_person(self, person: Person) -> None:
        """Store a new person, whose name no other has."""

        def put(transaction: Transaction) -> None:
            _check_name(transaction, person)
            transaction.execute_each(_PUT_PERSON, [_PERSON.write(person)])
            ended: dict[str, Any] = {}
            if person.inactive_ms is not None:  # it may have signed in before the directory knew it
                ended = self._end_access(transaction, [person], person.inactive_ms)
            self._record(transaction, person.changed_ms, "person.create", person.id, after=_facts(person) | ended)

        self._database.write(put)

    def change_person(self, id: str, change: Callable[[Person], Person]) -> Person:
        """Store what `change` makes of a person; end or restore its access if its activity changes."""

        def put(transaction: Transaction) -> Person:
            before = _person(transaction, id)
            after = change(before)
            _check_name(transaction, after)
            if structs.replace(after, changed_ms=before.changed_ms) == before:
                return before
            transaction.execute_each(_PUT_PERSON, [_PERSON.write(after)])
            old, new = _facts(before), _facts(after)
            changed = [name for name in new if new[name] != old[name]]
            ended: dict[str, Any] = {}
            if after.inactive_ms is not None and (before.inactive_ms is None or not after.is_known_as(before)):
                ended = self._end_access(transaction, [before, after], after.inactive_ms)
            elif before.inactive_ms is not None and after.inactive_ms is None:
                ended = self._restore(transaction, before, after.changed_ms)
            self._record(
                transaction,
                after.changed_ms,
                "person.update",
                id,
                {name: old[name] for name in changed},
                {name: new[name] for name in changed} | ended,
            )
            return after

        return self._database.write(put)

    def delete_person(self, id: str, now_ms: int) -> None:
        """Delete a person, and end its access for good."""

        def put(transaction: Transaction) -> None:
            person = _person(transaction, id)
            ended = self._end_access(transaction, [person], now_ms, for_good=True)
            transaction.fetch("DELETE FROM people WHERE id = ?", (text(id),))
            transaction.fetch("DELETE FROM people_members WHERE person = ?", (text(id),))
            self._record(transaction, now_ms, "person.delete", id, _facts(person), ended)

        self._database.write(put)

    def groups(self) -> list[PeopleGroup]:
        """All groups with their members, the oldest first."""

        def read(reader: Queryable) -> list[PeopleGroup]:
            members: dict[str, list[str]] = {}
            for group, person in reader.fetch("SELECT people_group, person FROM people_members ORDER BY person"):
                members.setdefault(cast(str, group), []).append(cast(str, person))
            rows = reader.fetch(f"{_GROUPS} ORDER BY created_ms, id")
            groups = [_GROUP.read(row) for row in rows]
            return [structs.replace(each, members=tuple(members.get(each.id, ()))) for each in groups]

        return self._database.read(read)

    def group(self, id: str) -> PeopleGroup:
        """The group with this id."""
        return self._database.read(lambda reader: _group(reader, id))

    def add_group(self, group: PeopleGroup, roles: GroupRoles) -> PeopleGroup:
        """Store a new group, and create the teams that it is to have."""
        return self._database.write(lambda transaction: self._put_group(transaction, None, group, roles))

    def change_group(self, id: str, change: Callable[[PeopleGroup], PeopleGroup], roles: GroupRoles) -> PeopleGroup:
        """Store what `change` makes of a group, and create the teams that it is to have."""

        def put(transaction: Transaction) -> PeopleGroup:
            before = _group(transaction, id)
            return self._put_group(transaction, before, change(before), roles)

        return self._database.write(put)

    def _put_group(
        self, transaction: Transaction, before: PeopleGroup | None, after: PeopleGroup, roles: GroupRoles
    ) -> PeopleGroup:
        """Store a group. Members who do not exist are left out. Those who leave it have to sign in again."""
        for other, name in transaction.fetch("SELECT id, display_name FROM people_groups"):
            if other != after.id and cast(str, name).casefold() == after.display_name.casefold():
                raise AdminError("there is a group with that displayName", code="name_taken")
        known = {row[0] for row in transaction.fetch("SELECT id FROM people")}
        members = {member for member in after.members if member in known}
        past = set(before.members) if before is not None else set()
        after = structs.replace(after, members=tuple(sorted(members)))
        if before is not None and structs.replace(after, changed_ms=before.changed_ms) == before:
            return before
        transaction.execute_each(_PUT_GROUP, [_GROUP.write(after)])
        transaction.execute_each(_LEAVE, [(after.id, person) for person in sorted(past - members)])
        transaction.execute_each(_JOIN, [(after.id, person) for person in sorted(members - past)])
        renamed = before is not None and before.display_name != after.display_name
        self._sign_out(transaction, past if renamed else past - members, after.changed_ms)
        old = {} if before is None else {"display_name": before.display_name}
        new = {"display_name": after.display_name, "joined": len(members - past), "left": len(past - members)}
        self._record(transaction, after.changed_ms, "group.update" if before else "group.create", after.id, old, new)
        if before is None or renamed:
            new_teams = roles.new_teams([after.display_name])
            create_missing_teams(transaction, new_teams, self._actor, after.changed_ms)
        return after

    def delete_group(self, id: str, now_ms: int) -> None:
        """Delete a group. Its members have to sign in again."""

        def put(transaction: Transaction) -> None:
            group = _group(transaction, id)
            transaction.fetch("DELETE FROM people_groups WHERE id = ?", (text(id),))
            transaction.fetch("DELETE FROM people_members WHERE people_group = ?", (text(id),))
            self._sign_out(transaction, set(group.members), now_ms)
            facts = {"display_name": group.display_name, "left": len(group.members)}
            self._record(transaction, now_ms, "group.delete", id, facts)

        self._database.write(put)

    def names(self, ids: Sequence[str]) -> dict[str, str]:
        """The user names of people, by their ids."""
        if not ids:
            return {}
        rows = self._database.fetch("SELECT id, user_name FROM people")
        wanted = set(ids)
        return {str(id): str(name) for id, name in rows if id in wanted}

    def membership(self, who: str) -> Membership:
        """What the directory knows of a user."""
        return self._database.read(lambda reader: _membership(reader, _people_of(reader, who)))

    def sign_in(self, session: AdminSession, actor: Actor, new_teams: Sequence[str] = ()) -> bool:
        """Store the session of a user who signs in, and create these teams if they do not exist; returns False for one
        who is deactivated."""

        def put(transaction: Transaction) -> bool:
            people = _people_of(transaction, session.who)
            if _membership(transaction, people).deactivated:
                return False
            signed_in = [(person, person.with_sub(session.who)) for person in people if person.inactive_ms is None]
            changed = [_PERSON.write(after) for before, after in signed_in if after is not before]
            transaction.execute_each(_PUT_PERSON, changed)
            create_missing_teams(transaction, new_teams, actor, session.created_ms)
            start_session(transaction, session, actor)
            return True

        return self._database.write(put)

    def _end_access(
        self, transaction: Transaction, known: Sequence[Person], now_ms: int, *, for_good: bool = False
    ) -> dict[str, int]:
        """End the sessions and keys of a person, by what it is and was; returns how many."""
        people = tuple(known)

        def is_user(who: str) -> bool:
            return any(person.is_user(who) for person in people)

        sessions = end_sessions(transaction, lambda session: is_user(session.who), self._actor, now_ms)
        keys = [key for key in _keys_of(transaction, is_user) if for_good or key.blocked_ms is None]
        change = "revoked_ms" if for_good else "blocked_ms"
        self._put_keys(transaction, keys, now_ms, **{change: now_ms})
        stop_calls(transaction, [key.id for key in keys], now_ms)
        return {"sessions_ended": sessions, "keys_revoked" if for_good else "keys_blocked": len(keys)}

    def _restore(self, transaction: Transaction, person: Person, now_ms: int) -> dict[str, int]:
        """Unblock the keys that the deactivation of a person blocked; returns how many."""
        keys = [key for key in _keys_of(transaction, person.is_user) if key.blocked_ms == person.inactive_ms]
        self._put_keys(transaction, keys, now_ms, blocked_ms=None)
        return {"keys_unblocked": len(keys)}

    def _put_keys(self, transaction: Transaction, keys: Sequence[Key], now_ms: int, **change: int | None) -> None:
        changed = [structs.replace(key, **change) for key in keys]
        put_keys(transaction, changed)
        for before, after in zip(keys, changed, strict=True):
            if entry := key_change(self._actor, now_ms, before, after):
                append(transaction, self._actor, entry)

    def _sign_out(self, transaction: Transaction, ids: set[str], now_ms: int) -> None:
        if ids:
            people = [person for person in map(_PERSON.read, transaction.fetch(_PEOPLE)) if person.id in ids]
            end_sessions(
                transaction, lambda session: any(each.is_user(session.who) for each in people), self._actor, now_ms
            )

    def _record(
        self,
        transaction: Transaction,
        now_ms: int,
        action: str,
        id: str,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> None:
        append(transaction, self._actor, entry_of(self._actor, now_ms, action, id, before, after))


def _people_of(reader: Queryable, who: str) -> list[Person]:
    """The people that a user may be."""
    name, sub = user_parts(who)
    folded = text(name.casefold())
    rows = reader.fetch(
        f"{_PEOPLE} WHERE known_as = ? OR email = ? OR external_id = ? OR subs LIKE ? ESCAPE '~'",
        (folded, folded, text(sub), containing(msgspec.json.encode(text(sub)).decode())),
    )
    return [person for person in map(_PERSON.read, rows) if person.is_user(who)]


def _membership(reader: Queryable, people: Sequence[Person]) -> Membership:
    """The state and the groups of a user. One active person of several that the user may be is enough for access."""
    active = [person.id for person in people if person.inactive_ms is None]
    groups: set[str] = set()
    for id in active:
        groups |= {cast(str, row[0]) for row in reader.fetch(_GROUPS_OF, (id,))}
    return Membership(deactivated=bool(people) and not active, groups=tuple(sorted(groups)))


def _keys_of(transaction: Transaction, is_user: Callable[[str], bool]) -> list[Key]:
    """The keys of a user that are not revoked."""
    rows = transaction.fetch("SELECT id, owner FROM keys WHERE owner <> '' AND revoked_ms IS NULL")
    return read_keys(transaction, [cast(str, id) for id, owner in rows if is_user(cast(str, owner))])


def _person(reader: Queryable, id: str) -> Person:
    rows = reader.fetch(f"{_PEOPLE} WHERE id = ?", (text(id),))
    if not rows:
        raise AdminError("there is no user with that id", code="not_found")
    return _PERSON.read(rows[0])


def _group(reader: Queryable, id: str) -> PeopleGroup:
    rows = reader.fetch(f"{_GROUPS} WHERE id = ?", (text(id),))
    if not rows:
        raise AdminError("there is no group with that id", code="not_found")
    members = tuple(cast(str, row[0]) for row in reader.fetch(_MEMBERS, (text(id),)))
    return _GROUP.read(rows[0], members=members)


def _check_name(transaction: Transaction, person: Person) -> None:
    sql = "SELECT 1 FROM people WHERE known_as = ? AND id <> ?"
    if transaction.fetch(sql, (text(person.known_as), text(person.id))):
        raise AdminError("there is a user with that userName", code="name_taken")


def _where(equal: Mapping[str, str]) -> tuple[str, list[str]]:
    conditions = [f"{column} = ?" for column in equal]
    return (f" WHERE {' AND '.join(conditions)}" if conditions else ""), [text(value) for value in equal.values()]


def _facts(person: Person) -> dict[str, Any]:
    """What is recorded of a person."""
    return {
        "user_name": person.user_name,
        "external_id": person.external_id,
        "display_name": person.display_name,
        "active": person.inactive_ms is None,
    }

"""The directory of an identity provider, in both databases."""

import time

import pytest
from msgspec.structs import replace

from penstock.errors import AdminError
from penstock.gateway.keys import changes as key_changes
from penstock.gateway.keys.terms import KeyTerms
from penstock.gateway.people.audit import Actor, AuditFilter
from penstock.gateway.people.directory import Email, PeopleGroup, Person
from penstock.gateway.people.group_roles import GroupRoles, PatternSettings
from penstock.gateway.people.sessions import AdminSession
from penstock.gateway.teams import changes as team_changes
from penstock.gateway.teams.changes import TeamTerms
from penstock.stores.book.sql_book import Book

PROVIDER = Actor("token:okta", "API token")


def now() -> int:
    return time.time_ns() // 1_000_000


def person(name: str, **other: object) -> Person:
    facts = {"user_name": name, "known_as": name.casefold(), "email": "", "created_ms": now(), "changed_ms": now()}
    return Person(id=f"id-{name}", **facts | other)  # type: ignore[arg-type]


def session(who: str) -> AdminSession:
    return AdminSession(id=f"session of {who}", who=who, grants=(), created_ms=now(), expires_ms=now() + 10**6)


def test_people_are_stored_as_they_are(book: Book) -> None:
    ann = person("Ann@example.com", emails=(Email("ann@example.com", "work", primary=True),), email="ann@example.com")
    book.directory.add_person(ann)
    book.directory.add_person(person("bob", external_id="E1"))
    assert book.directory.person(ann.id) == ann
    assert book.directory.people({}, limit=1, offset=0) == (2, [ann])
    assert [each.id for each in book.directory.people({"external_id": "E1"})[1]] == ["id-bob"]
    with pytest.raises(AdminError, match="userName"):
        book.directory.add_person(replace(person("x"), known_as="ann@example.com"))
    with pytest.raises(AdminError, match="userName"):
        book.directory.change_person("id-bob", lambda bob: replace(bob, known_as="ann@example.com"))
    assert book.directory.people({})[0] == 2
    with pytest.raises(AdminError, match="no user"):
        book.directory.person("id-x")


def test_who_leaves_loses_what_is_its_own(book: Book) -> None:
    book.actor = PROVIDER
    for name in ("ann", "bob"):
        book.directory.add_person(person(name))
    owners = {"ann <1>": "hers", "ANN <2>": "hers too", "bob <3>": "his", "token:ann <tok_1>": "a token's"}
    keys = {
        name: key_changes.create(book, KeyTerms(name=name), now(), owner=who).key.id for who, name in owners.items()
    }
    for who in owners:
        assert book.directory.sign_in(session(who), Actor(who, "session"))
    at = now()
    version = book.keys_version()
    book.directory.change_person("id-ann", lambda ann: replace(ann, inactive_ms=at, changed_ms=at))
    assert book.keys_version() > version
    stored = book.keys()
    states = {key.name: key.blocked_ms for key in stored}
    assert states == {"hers": at, "hers too": at, "his": None, "a token's": None}
    assert book.stopped_calls() == {keys["hers"]: at, keys["hers too"]: at}
    assert [each.who for each in book.people.sessions(now())] == ["bob <3>", "token:ann <tok_1>"]
    assert not book.directory.sign_in(session("Ann <9>"), Actor("Ann <9>", "session"))
    book.directory.delete_person("id-ann", at + 5)
    stored = book.keys()
    assert {key.name for key in stored if key.revoked_ms == at + 5} == {"hers", "hers too"}
    acts = [entry for _, entry in book.people.audit(AuditFilter(action="person"), limit=9)]
    assert [act.action for act in acts] == ["person.delete", "person.update", "person.create", "person.create"]
    assert acts[1].after == {"active": False, "sessions_ended": 2, "keys_blocked": 2}


@pytest.mark.parametrize("sub", ["CORP\\ann", 'a"b', "100%", "a_b", "Ä|1", "it's"])
def test_a_user_is_known_by_any_sub(book: Book, sub: str) -> None:
    """Also one with the wildcards and escapes of SQL and JSON: who has left stays out under another name."""
    book.directory.add_person(person("ann"))
    assert book.directory.sign_in(session(f"ann <{sub}>"), PROVIDER)
    at = now()
    book.directory.change_person("id-ann", lambda ann: replace(ann, inactive_ms=at, changed_ms=at))
    assert book.directory.membership(f"lee <{sub}>").deactivated
    assert not book.directory.membership(f"lee <{sub}x>").deactivated


def test_a_deactivated_person_with_another_name_loses_what_that_user_has(book: Book) -> None:
    at = now()
    book.directory.add_person(person("ann", inactive_ms=at))
    assert book.directory.sign_in(session("lee <1>"), PROVIDER)
    key = key_changes.create(book, KeyTerms(name="k"), at, owner="lee <1>").key.id
    change = {"user_name": "lee", "known_as": "lee", "changed_ms": at + 1}
    book.directory.change_person("id-ann", lambda ann: replace(ann, **change))
    assert book.people.sessions(at) == []
    stored = book.keys()
    assert [(each.id, each.blocked_ms) for each in stored] == [(key, at)]


def test_the_groups_of_a_user_are_those_of_its_active_person(book: Book) -> None:
    for name in ("ann", "bob"):
        book.directory.add_person(person(name))
    made = PeopleGroup(id="g1", display_name="staff", created_ms=now(), changed_ms=now(), members=("id-ann", "id-none"))
    assert book.directory.add_group(made, GroupRoles()).members == ("id-ann",)
    assert book.directory.groups() == [book.directory.group("g1")]
    assert book.directory.membership("ann <1>").groups == ("staff",)
    assert book.directory.membership("bob <2>").groups == ()
    assert not book.directory.membership("eve <3>").deactivated
    with pytest.raises(AdminError, match="displayName"):
        book.directory.add_group(replace(made, id="g2", display_name="STAFF"), GroupRoles())
    changed = book.directory.change_group("g1", lambda group: replace(group, members=("id-bob",)), GroupRoles())
    assert changed.members == book.directory.group("g1").members == ("id-bob",)
    book.directory.delete_group("g1", now())
    assert book.directory.groups() == []
    assert book.directory.membership("bob <2>").groups == ()


def test_a_person_without_changes_is_not_written(book: Book) -> None:
    book.directory.add_person(person("ann"))
    book.directory.change_person("id-ann", lambda ann: replace(ann, changed_ms=ann.changed_ms + 5))
    assert len(book.people.audit(AuditFilter(action="person"), limit=9)) == 1


def test_missing_teams_are_created_at_a_sign_in_and_deleted_ones_are_not(book: Book) -> None:
    team_changes.create(book, TeamTerms(path="old"), now())
    team_changes.delete(book, "old", now())
    wanted = ["acme/search/prod", "acme/ml", "old/search"]
    for name in ("ann <1>", "ann <2>"):
        assert book.directory.sign_in(session(name), Actor("ann <1>", "session"), wanted)
    paths = {team.path: team.deleted_ms is None for team in book.teams()}
    assert paths == {"acme": True, "acme/ml": True, "acme/search": True, "acme/search/prod": True, "old": False}
    acts = [entry for _, entry in book.people.audit(AuditFilter(action="team.create", who="ann <1>"), limit=9)]
    assert sorted(act.subject for act in acts) == ["acme", "acme/ml", "acme/search", "acme/search/prod"]


def test_a_group_of_the_directory_makes_its_team_once(book: Book) -> None:
    roles = GroupRoles(patterns={"llm": PatternSettings(pattern="llm-(?<team>.+)-(admin|member)", create_teams=True)})
    made = PeopleGroup(id="g1", display_name="llm-search-admin", created_ms=now(), changed_ms=now())
    version = book.keys_version()
    book.directory.add_group(made, roles)
    assert [team.path for team in book.teams()] == ["search"]
    assert book.keys_version() > version  # gateways read their teams again
    team_changes.delete(book, "search", now())
    book.directory.change_group("g1", lambda group: replace(group, display_name="llm-ml-member"), roles)
    assert {team.path: team.deleted_ms is None for team in book.teams()} == {"ml": True, "search": False}

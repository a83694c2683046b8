"""Teams in every store: their settings, their spending with all below them, and the rules of changing them."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.errors import AdminError
from penstock.gateway.billing.queries import Filter, with_teams
from penstock.gateway.keys import changes as key_changes
from penstock.gateway.keys.changes import KeyChange
from penstock.gateway.keys.keys import KeyLimits
from penstock.gateway.keys.quota import Spender
from penstock.gateway.keys.terms import KeyTerms, KeyUpdate, LimitTerms
from penstock.gateway.people.audit import AuditFilter
from penstock.gateway.teams.changes import TeamTerms, TeamUpdate, create, delete, update
from penstock.gateway.teams.members import MemberLimits
from penstock.gateway.teams.report import report_teams
from penstock.stores.accounts.sqlite import SqliteAccounts
from penstock.stores.book.sql_book import Book
from tests.stores.entries import DAY_MS, entry

NOW = 1_794_700_800_000  # 2026-11-15
PATHS = ("acme", "acme.x", "acme/search", "acme/search/prod", "acme_x", "acmeb/search", "acmeb")


def add_teams(book: Book) -> None:
    for path in sorted(PATHS):
        create(book, TeamTerms(path=path), NOW)


def test_what_is_created_and_changed_is_what_is_kept(book: Book) -> None:
    version = book.keys_version()
    users = LimitTerms(budgets={"day": "0.5"}, concurrent=2)
    terms = TeamTerms(
        path="acme", budgets={"month": 500, "day": "50"}, tokens_per_minute=9, models=("x",), end_users=users
    )
    made = create(book, terms, NOW)
    assert book.teams() == [made]
    assert book.keys_version() != version
    assert (made.level, dict(made.budgets)) == ("organisation", {"day": 50 * 10**9, "month": 500 * 10**9})
    assert made.end_users == KeyLimits(budgets={"day": 5 * 10**8}, concurrent=2)
    given = TeamUpdate(budgets={"day": None, "week": 7}, tokens_per_minute=None, models=(), blocked=True)
    changed = update(book, "acme", given, NOW + 1)
    budgets = {"week": 7 * 10**9, "month": 500 * 10**9}
    assert changed == replace(made, budgets=budgets, tokens_per_minute=None, models=(), blocked_ms=NOW + 1)
    assert book.teams() == [changed]


def test_a_team_needs_those_above_it_and_is_deleted_after_those_below(book: Book) -> None:
    with pytest.raises(AdminError, match="there is no team acme: create it first"):
        create(book, TeamTerms(path="acme/search"), NOW)
    for path in ("acme", "acme/search"):
        create(book, TeamTerms(path=path), NOW)
    for wrong in ("acme/", "/acme", "a b", "a/b/c/d", "", "a//b", "ü", "a" * 65):
        with pytest.raises(AdminError):
            create(book, TeamTerms(path=wrong), NOW)
    with pytest.raises(AdminError, match="there is a team acme"):
        create(book, TeamTerms(path="acme"), NOW)
    with pytest.raises(AdminError, match="there is no team acme/ads"):
        key_changes.create(book, KeyTerms(name="a", team="acme/ads"), NOW)
    key = key_changes.create(book, KeyTerms(name="a", team="acme/search", budgets={"day": 3}), NOW).key
    assert (key.team, dict(key.budgets)) == ("acme/search", {"day": 3 * 10**9})
    with pytest.raises(AdminError, match="line 1: there is no team gone"):
        key_changes.update(book, [KeyChange("a", KeyUpdate(team="gone"), "line 1")], NOW)
    for path, what in (("acme", "the team acme/search"), ("acme/search", "the key")):
        with pytest.raises(AdminError, match=f"{path} has {what}"):
            delete(book, path, NOW)
    key_changes.update(book, [KeyChange("a", KeyUpdate(team="acme"))], NOW)
    assert delete(book, "acme/search", NOW).deleted_ms == NOW
    with pytest.raises(AdminError, match="there is no team acme/search"):
        update(book, "acme/search", TeamUpdate(), NOW)
    with pytest.raises(AdminError, match="there is no team"):
        key_changes.create(book, KeyTerms(name="b", team="acme/search"), NOW)
    assert create(book, TeamTerms(path="acme/search"), NOW + 1).deleted_ms is None


def test_a_team_spends_what_it_and_those_below_it_spend(book: Book) -> None:
    add_teams(book)
    calls = [
        replace(entry(f"call_{number}", key="key_a", at_ms=NOW + number), team=path, user="eve" if number % 2 else "")
        for number, path in enumerate((*PATHS, ""))
    ]
    book.append(calls)
    cost = calls[0].priced
    sums = {path: book.spent(Spender(team=path), NOW - DAY_MS).total // cost for path in PATHS}
    assert sums == {**dict.fromkeys(PATHS, 1), "acme": 3, "acme/search": 2, "acmeb": 2}
    assert book.spent(Spender(team="acme", user="eve"), 0).total == cost  # acme/search/prod
    assert book.spent(Spender(key="key_a", user="eve"), 0).total == 4 * cost
    assert book.spent("key_a", 0).total == 8 * cost
    recent = book.spent(Spender(team="acme/search"), 0, recent_since_ms=NOW + 3).recent
    assert recent == {"call_3"}
    filtered = with_teams(Filter(teams=("acme",)), book.teams())
    assert {found.team for _, found in book.entries(filtered, limit=99)} == {"acme", "acme/search", "acme/search/prod"}
    assert {row.group[0]: row.calls for row in book.usage(Filter(), ["team"])} == {**dict.fromkeys(PATHS, 1), "": 1}
    assert book.usage(filtered, [])[0].cost == 3 * cost
    assert [found.team for _, found in book.following(Filter(), 0, limit=99)] == [*PATHS, ""]
    report = report_teams(book, book.teams()[:1], NOW)[0]
    assert (report["path"], report["spent_this_month"]) == ("acme", f"{3 * cost / 10**9:.9f}".rstrip("0"))


def test_archived_calls_stay_spent_and_summed_up(book: Book, tmp_path: Path) -> None:
    add_teams(book)
    calls = [replace(entry(f"call_{number}", key="key_a", at_ms=NOW), team=path) for number, path in enumerate(PATHS)]
    book.append(calls)

    def sums() -> list[object]:
        wanted = with_teams(Filter(teams=("acme",)), book.teams())
        spent = [book.spent(Spender(team=path), NOW - DAY_MS) for path in PATHS]
        return [
            *spent,
            book.usage(Filter(), ["team", "key"]),
            book.usage(wanted, ["day"]),
            book.usage(wanted, ["team"]),
        ]

    before = sums()
    while book.prune(tmp_path, NOW + 2 * DAY_MS):
        pass
    assert book.archived().calls == len(PATHS)
    assert sums() == before


def test_accounts_of_end_users_are_bounded(tmp_path: Path) -> None:
    accounts = SqliteAccounts(tmp_path, max_users=50, check_after=10)
    accounts.swap("key_1", None, b"v" * 8, b"kept")
    for number in range(300):
        accounts.swap(f"user:key_1:{number}", None, b"v" * 8, b"data")
    kept = sum(accounts.load(f"user:key_1:{number}") is not None for number in range(300))
    assert 50 <= kept < 60
    assert accounts.load("key_1") == (b"v" * 8, b"kept")
    accounts.close()


def test_a_member_spends_what_all_its_keys_in_the_team_spend(book: Book, tmp_path: Path) -> None:
    add_teams(book)
    owned = {"a1": ("ann <1>", "acme/search"), "a2": ("Ann <1>", "acme/search/prod"), "b": ("bob <2>", "acme/search")}
    keys = {
        name: key_changes.create(book, KeyTerms(name=name, team=team), NOW, owner=who).key.id
        for name, (who, team) in owned.items()
    }
    calls = [
        replace(entry(f"call_{name}", key=keys[name], at_ms=NOW + place), team=owned[name][1])
        for place, name in enumerate(owned)
    ]
    place, _ = book.spenders_after(0)
    book.append(calls)
    cost = calls[0].priced
    in_team = Spender(team="acme/search", member="1")

    def spent() -> list[int]:
        who = [in_team, Spender(team="acme", member="1"), Spender(team="acme/search/prod", member="1")]
        return [each.total for each in book.spent_by([(one, NOW - DAY_MS) for one in who])]

    assert spent() == [2 * cost, 2 * cost, cost]
    assert book.spent(Spender(team="acme", member="2"), 0).total == cost
    assert book.spent(Spender(team="acme", member="ann"), 0).total == 0
    assert book.spent(in_team, 0, recent_since_ms=NOW).recent == {"call_a1", "call_a2"}
    assert book.spent(in_team, 0, recent_since_ms=NOW + 10**9).recent == set()
    assert {in_team.account, Spender(team="acme", member="2").account} <= book.spenders_after(place)[1]
    before = spent()
    while book.prune(tmp_path, NOW + 2 * DAY_MS):
        pass
    assert book.archived().calls == 3
    assert spent() == before


def test_the_limits_of_one_member_are_stored_and_recorded(book: Book) -> None:
    add_teams(book)
    version = book.keys_version()
    raised = MemberLimits(team="acme", member="1", who="ann <1>", budgets={"month": 5 * 10**9}, concurrent=3)
    book.change_member(raised, NOW)
    book.change_member(replace(raised, budgets={}), NOW)
    assert book.members() == [replace(raised, budgets={})]
    assert book.keys_version() > version
    (_, last), (_, first) = book.people.audit(AuditFilter(action="member"), limit=9)
    assert (first.subject, last.before, last.after) == ("acme 1", {"budgets": {"month": "5.00"}}, {"budgets": {}})

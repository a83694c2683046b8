"""`penstock apply` on a ledger: whatever was done before, it converges, and touches nothing that is not its own."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.amounts import NANODOLLARS
from penstock.errors import AdminError
from penstock.gateway.declared.apply import apply_plan, plan_for
from penstock.gateway.declared.declaration import Declaration
from penstock.gateway.declared.plan import PlanReport, SecretDigest
from penstock.gateway.keys import changes as key_changes
from penstock.gateway.keys.key_secret import digest_of, new_secret
from penstock.gateway.keys.keys import Key
from penstock.gateway.keys.team_path import ancestry, within
from penstock.gateway.keys.terms import KeySettings, KeyTerms, KeyUpdate
from penstock.gateway.people.audit import Actor, AuditFilter
from penstock.gateway.teams import changes as team_changes
from penstock.gateway.teams.changes import TeamSettings, TeamTerms, TeamUpdate
from penstock.gateway.teams.team import Team
from penstock.stores.book.sql_book import Book
from penstock.stores.book.sqlite import SqliteBook
from tests.stores.places import Place

NOW = 1_800_000_000_000
PATHS = ["acme", "acme/search", "acme/search/prod", "other"]
NAMES = ["ci", "web", "batch"]
PAST, FUTURE = "2020-01-01", "2100-01-01"


def secrets_for(plan: PlanReport) -> dict[str, SecretDigest]:
    names = [each.name for each in plan.changes if each.kind == "key" and each.action == "create"]
    made = {name: new_secret() for name in names}
    return {name: SecretDigest(digest_of(secret), secret[-4:]) for name, secret in made.items()}


def apply(book: Book, file: Declaration, *, adopt: bool = False, now_ms: int = NOW) -> PlanReport:
    plan = plan_for(book, file, now_ms, adopt=adopt)
    if plan.conflicts:
        return plan
    return apply_plan(book, file, plan.fingerprint, secrets_for(plan), now_ms, adopt=adopt)


def team_settings() -> st.SearchStrategy[TeamSettings]:
    budgets: Any = st.dictionaries(st.sampled_from(["day", "month"]), st.integers(1, 3), max_size=2)
    return st.builds(TeamSettings, budgets=budgets, models=st.sampled_from([(), ("fast",)]))


def key_settings() -> st.SearchStrategy[KeySettings]:
    return st.builds(
        KeySettings,
        team=st.sampled_from([None, *PATHS]),
        budget=st.none() | st.integers(1, 3),
        concurrent=st.none() | st.integers(1, 3),
        expires=st.sampled_from([None, None, PAST, FUTURE]),
    )


def files() -> st.SearchStrategy[Declaration]:
    return st.builds(
        Declaration,
        managed_by=st.sampled_from(["a", "b"]),
        prune=st.sampled_from(["delete", "delete", "block", "keep"]),
        teams=st.dictionaries(st.sampled_from(PATHS), team_settings()),
        keys=st.dictionaries(st.sampled_from(NAMES), key_settings()),
    )


PEOPLE: dict[str, Callable[[Book, str, str], object]] = {
    "create a key": lambda book, name, path: key_changes.create(book, KeyTerms(name=name, team=path), NOW),
    "raise a limit": lambda book, name, _: update_key(book, name, concurrent=9, budget=9),
    "block a key": lambda book, name, _: update_key(book, name, blocked=True),
    "release a key": lambda book, name, _: update_key(book, name, managed_by=None),
    "rename a key": lambda book, name, _: update_key(book, name, name=f"{name}-2"),
    "move a key": lambda book, name, path: update_key(book, name, team=path),
    "revoke a key": lambda book, name, _: key_changes.revoke(book, name, NOW),
    "rotate a key": lambda book, name, _: key_changes.rotate(book, name, "0", NOW),
    "create a team": lambda book, _, path: team_changes.create(book, TeamTerms(path=path), NOW),
    "limit a team": lambda book, _, path: team_changes.update(book, path, TeamUpdate(concurrent=9), NOW),
    "block a team": lambda book, _, path: team_changes.update(book, path, TeamUpdate(blocked=True), NOW),
    "release a team": lambda book, _, path: team_changes.update(book, path, TeamUpdate(managed_by=None), NOW),
    "delete a team": lambda book, _, path: team_changes.delete(book, path, NOW),
}


def update_key(book: Book, which: str, **fields: Any) -> object:
    return key_changes.update(book, [key_changes.KeyChange(which, KeyUpdate(**fields))], NOW)


def steps() -> st.SearchStrategy[list[Any]]:
    person = st.tuples(st.sampled_from([*PEOPLE]), st.sampled_from(NAMES), st.sampled_from(PATHS))
    return st.lists(person | st.tuples(files(), st.booleans()), max_size=8)


@pytest.fixture
def sqlite(tmp_path: Any) -> Iterator[Book]:
    book = SqliteBook.open(tmp_path / "ledger.db")
    yield book
    book.close()


def live(book: Book) -> tuple[dict[str, Team], dict[str, Key]]:
    """The teams and keys that can be used."""
    teams = {team.path: team for team in book.teams() if team.deleted_ms is None}
    keys = book.keys()
    return teams, {key.name: key for key in keys if not key.unusable(NOW)}


def in_the_way(book: Book, file: Declaration, *, adopt: bool) -> bool:
    """Whether a file cannot be applied: what it declares is another's, a team is missing, or a team is in use."""
    teams, keys = live(book)
    mine = ("", file.managed_by) if adopt else (file.managed_by,)
    for declared, present in ((file.teams, teams), (file.keys, keys)):
        if any(name in present and present[name].managed_by not in mine for name in declared):
            return True
    lost = {
        path
        for path, team in teams.items()
        if team.managed_by == file.managed_by and path not in file.teams and file.prune == "delete"
    }
    stays = {*file.teams, *teams} - lost
    for path in lost:
        if any(each != path and within(each, path) for each in stays):
            return True
        if any(
            key.team == path and key.managed_by != file.managed_by and key.name not in file.keys
            for key in keys.values()
        ):
            return True
    needed = [above for path in file.teams for above in ancestry(path)]
    return not stays.issuperset([*needed, *(key.team for key in file.keys.values() if key.team)])


def check_declared(book: Book, file: Declaration) -> None:
    """The ledger has what the file says."""
    teams, keys = live(book)
    for path, wanted in file.teams.items():
        assert teams[path].budgets == {period: int(str(each)) * NANODOLLARS for period, each in wanted.budgets.items()}
        assert (teams[path].models, teams[path].concurrent) == (wanted.models, None)
        assert teams[path].managed_by == file.managed_by
    for name, declared in file.keys.items():
        if declared.expires == PAST:
            assert name not in keys
            continue
        key = keys[name]
        assert key.budget == (None if declared.budget is None else int(str(declared.budget)) * NANODOLLARS)
        assert (key.team, key.concurrent) == (declared.team or "", declared.concurrent)
        assert (key.expires_ms is not None, key.managed_by) == (declared.expires == FUTURE, file.managed_by)
    if file.prune == "keep":
        return
    left = [*(team for path, team in teams.items() if path not in file.teams)]
    left_keys = [key for name, key in keys.items() if name not in file.keys]
    for each in (*left, *left_keys):
        if each.managed_by == file.managed_by:
            assert file.prune == "block"
            assert each.blocked_ms is not None


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=steps(), file=files(), adopt=st.booleans())
def test_any_history_converges_and_nothing_foreign_is_touched(
    sqlite: Book, before: list[Any], file: Declaration, adopt: bool
) -> None:
    sqlite.database.write(lambda work: [work.fetch(f"DELETE FROM {table}") for table in ("keys", "teams")])
    for step in before:
        try:
            if isinstance(step[0], str):
                PEOPLE[step[0]](sqlite, *step[1:])
            else:
                apply(sqlite, step[0], adopt=step[1])
        except AdminError:
            pass  # there is nothing of that name
    teams, keys = sqlite.teams(), sqlite.keys()
    impossible = in_the_way(sqlite, file, adopt=adopt)
    plan = apply(sqlite, file, adopt=adopt)
    assert bool(plan.conflicts) == impossible, plan
    if plan.conflicts:
        assert (sqlite.teams(), sqlite.keys()) == (teams, keys)
        return
    check_declared(sqlite, file)
    again = plan_for(sqlite, file, NOW, adopt=False)
    assert not again.changes
    assert not again.conflicts
    stored = sqlite.keys()
    now_keys, now_teams = {key.id: key for key in stored}, {team.path: team for team in sqlite.teams()}
    for key in keys:
        if key.managed_by != file.managed_by and not (adopt and not key.managed_by and key.name in file.keys):
            assert now_keys[key.id] == key
    for team in teams:
        foreign = team.managed_by != file.managed_by and not (adopt and not team.managed_by)
        if foreign and (team.deleted_ms is None or team.path not in file.teams):
            assert now_teams[team.path] == team
    digests = [key.digest for key in now_keys.values()]
    assert len({*digests}) == len(digests)
    assert all(digests)


def declared(**keys: KeySettings) -> Declaration:
    return Declaration(managed_by="a", teams={"acme": TeamSettings(budgets={"month": 5})}, keys=keys)


def test_a_plan_says_old_and_new_values(book: Book) -> None:
    file = declared(ci=KeySettings(team="acme", budget=25, tags={"env": "prod"}), old=KeySettings())
    assert [(each.action, each.kind, each.name) for each in apply(book, file).changes] == [
        ("create", "organisation", "acme"),
        ("create", "key", "ci"),
        ("create", "key", "old"),
    ]
    update_key(book, "ci", budget=30, tags={}, requests_per_minute=5)
    file = declared(ci=KeySettings(team="acme", budget=25, tags={"env": "prod"}))
    changed, ended = plan_for(book, file, NOW, adopt=False).changes
    assert changed.before == {"budget": "30.00", "requests_per_minute": 5}
    assert changed.after == {"budget": "25.00", "tags.env": "prod"}
    assert (ended.action, ended.name, ended.id) == ("delete", "old", live(book)[1]["old"].id)


def test_a_plan_that_is_not_true_any_more_is_not_carried_out(book: Book) -> None:
    file = declared(ci=KeySettings())
    plan = plan_for(book, file, NOW, adopt=False)
    apply(book, Declaration(managed_by="a", teams={"acme": TeamSettings()}))
    before = book.teams(), book.keys()
    with pytest.raises(AdminError, match="make a new one") as caught:
        apply_plan(book, file, plan.fingerprint, secrets_for(plan), NOW, adopt=False)
    assert caught.value.code == "plan_changed"
    assert (book.teams(), book.keys()) == before


def test_a_new_key_needs_a_secret_of_its_own(book: Book) -> None:
    apply(book, declared(ci=KeySettings()))
    file = declared(ci=KeySettings(), web=KeySettings())
    plan = plan_for(book, file, NOW, adopt=False)
    used = live(book)[1]["ci"].digest
    for secrets in ({}, {"web": SecretDigest(used, "abcd")}):
        with pytest.raises(AdminError, match="web"):
            apply_plan(book, file, plan.fingerprint, secrets, NOW, adopt=False)
    assert "web" not in live(book)[1]


def test_an_expiry_passes_and_can_be_postponed(book: Book) -> None:
    apply(book, declared(ci=KeySettings(expires="2027-01-20")))
    (key,) = book.keys()
    later = NOW + 60 * 86_400_000
    assert not plan_for(book, declared(ci=KeySettings(expires="2027-01-20")), later, adopt=False).changes
    apply(book, declared(ci=KeySettings(expires=FUTURE)), now_ms=later)
    (postponed,) = book.keys()
    assert (postponed.id, postponed.digest, postponed.unusable(later)) == (key.id, key.digest, "")


def test_each_change_is_in_the_audit_log_with_its_user(book: Book) -> None:
    book.actor = Actor("ann", "command line", keep_days=30)
    apply(book, declared(ci=KeySettings(team="acme")))
    apply(book, Declaration(managed_by="a"))
    acts = [(act.who, act.action) for _, act in reversed(book.people.audit(AuditFilter(), limit=9))]
    names = ("team.create", "key.create", "team.delete", "key.revoke")
    assert acts == [("ann", name) for name in names]


@pytest.mark.slow
def test_of_two_at_once_one_makes_the_changes(place: Place) -> None:
    file = declared(**{name: KeySettings(team="acme") for name in NAMES})
    books = [place.open() for _ in range(4)]
    plans = [plan_for(book, file, NOW, adopt=False) for book in books]
    results: list[str] = []

    def carry_out(book: Book, plan: PlanReport) -> None:
        try:
            apply_plan(book, file, plan.fingerprint, secrets_for(plan), NOW, adopt=False)
            results.append("done")
        except AdminError as error:
            results.append(error.code)

    threads = [threading.Thread(target=carry_out, args=each) for each in zip(books, plans, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["done", *["plan_changed"] * 3]
    assert sorted(live(books[0])[1]) == sorted(NAMES)
    for book in books:
        assert not plan_for(book, file, NOW, adopt=False).changes
        book.close()


def test_a_confirmation_that_was_lost_is_no_change_by_others(book: Book) -> None:
    """A lost connection makes the database run a transaction again that it has already committed."""
    file = declared(ci=KeySettings())
    plan = plan_for(book, file, NOW, adopt=False)
    assert apply_plan(_Twice(book), file, plan.fingerprint, secrets_for(plan), NOW, adopt=False) == plan
    assert list(live(book)[1]) == ["ci"]


class _Twice:
    """A book that loses the confirmation of each transaction, and so runs it twice."""

    def __init__(self, book: Book) -> None:
        self.teams, self.keys, self._book = book.teams, book.keys, book

    def take_over(self, change: Any) -> Any:
        self._book.take_over(change)
        return self._book.take_over(change)

"""Keys and teams of LiteLLM, from the rows of its tables: what is taken over, findings, and what both decide."""

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.amounts import NANODOLLARS
from penstock.cli.litellm.compare import Comparison, Verdict, compare, side_by_side
from penstock.cli.litellm.config import convert
from penstock.cli.litellm.database import LitellmTables, _read, read_tables
from penstock.cli.litellm.findings import Findings
from penstock.cli.litellm.keys import KeyConversion, budget_of, spent_of
from penstock.errors import AdminError, BookError
from penstock.gateway.billing.queries import TakenOver
from penstock.gateway.config import load
from penstock.gateway.keys.key_secret import digest_of
from penstock.gateway.keys.keys import Key
from penstock.gateway.teams.team import Team
from penstock.stores.book.database import Value
from penstock.stores.book.sqlite import SqliteBook

NOW_MS = 1_750_000_000_000
BEFORE, AFTER = "2025-06-15T15:06:39+00:00", "2025-06-15T15:06:41"  # NOW_MS is 15:06:40
HASH = "ab" * 32
Row = dict[str, Any]


def tables(*keys: Row, **others: Any) -> LitellmTables:
    given: dict[str, Any] = {"organizations": [], "teams": [], "projects": [], "budgets": {}, "others": {}}
    return LitellmTables(keys=list(keys), **{**given, **others})


def converted(
    given: LitellmTables,
    teams: Sequence[Team] = (),
    keys: Sequence[Key] = (),
    groups: dict[str, list[str]] | None = None,
) -> tuple[TakenOver, dict[str, tuple[str, str]]]:
    """What is taken over, and the findings by their fields."""
    findings = Findings()
    result = KeyConversion(given, findings, NOW_MS, groups or {}).convert(teams, keys)
    return result, {each.field: (each.status, each.note) for each in findings.all}


def key(**columns: Any) -> tuple[Key, dict[str, tuple[str, str]]]:
    """One key by its columns, and the findings of its columns."""
    result, findings = converted(tables({"token": HASH, "key_alias": "k", **columns}))
    (made,) = result.keys
    return made, {field.removeprefix("key k").removeprefix("."): each for field, each in findings.items()}


def test_a_key_keeps_its_hash_name_hint_and_time() -> None:
    made, findings = key(key_name="sk-...6789", created_at="2025-06-15T15:06:40", spend=0)
    assert made == Key(
        id=f"key_{HASH[:12]}", name="k", digest=bytes.fromhex(HASH), hint="6789", created_ms=NOW_MS, team=""
    )
    assert findings == {"": ("taken", f"key_{HASH[:12]}")}
    assert key()[0].hint == ""
    assert key(created_at="2025-06-15T17:06:40.5+02:00")[0].created_ms == NOW_MS + 500


def test_a_key_that_is_stored_as_it_is_is_hashed_and_named_by_its_hash() -> None:
    result, _ = converted(tables({"token": "no-prefix-4711", "key_name": "sk-...0000"}))
    (made,) = result.keys
    digest = digest_of("no-prefix-4711")
    assert (made.digest, made.hint, made.name) == (digest, "4711", f"litellm-{digest.hex()[:8]}")


# Columns of a key: what of the key differs, and the findings.
DOLLAR = NANODOLLARS
TERMS: dict[str, tuple[Row, dict[str, Any], dict[str, tuple[str, str]]]] = {
    "limits": (
        {"rpm_limit": 60, "tpm_limit": 7000, "max_parallel_requests": 3},
        {"requests_per_minute": 60, "tokens_per_minute": 7000, "concurrent": 3},
        dict.fromkeys(("rpm_limit", "tpm_limit", "max_parallel_requests"), ("taken", "")),
    ),
    "a limit of one": ({"rpm_limit": 1}, {"requests_per_minute": 1}, {"rpm_limit": ("taken", "")}),
    "a limit of zero": (
        {"tpm_limit": 0},
        {"blocked_ms": NOW_MS},
        {"tpm_limit": ("approximated", "it is 0, which allows no call: blocked")},
    ),
    "blocked": ({"blocked": True}, {"blocked_ms": NOW_MS}, {"blocked": ("taken", "")}),
    "not blocked": ({"blocked": False}, {}, {}),
    "expires": ({"expires": AFTER}, {"expires_ms": NOW_MS + 1000}, {"expires": ("taken", "")}),
    "models": ({"models": ["a", "b/*", "a"]}, {"models": ("a", "b/*")}, {"models": ("taken", "")}),
    "all models": ({"models": ["a", "all-team-models"]}, {"models": ()}, {"models": ("taken", "")}),
    "a budget": (
        {"max_budget": 2.5, "budget_duration": "1mo"},
        {"budget": 5 * DOLLAR // 2, "period": "month"},
        {"max_budget": ("taken", "for each month of the calendar (UTC)")},
    ),
    "of no duration": ({"max_budget": 1}, {"budget": DOLLAR, "period": "total"}, {"max_budget": ("taken", "in total")}),
    "of a day": (
        {"max_budget": 1, "budget_duration": "24h"},
        {"budget": DOLLAR, "period": "day"},
        {"max_budget": ("taken", "for each day of the calendar (UTC)")},
    ),
    "of less than a day": (
        {"max_budget": 1, "budget_duration": "60s"},
        {"budget": DOLLAR, "period": "day"},
        {"max_budget": ("approximated", "for each day of the calendar (UTC), instead of 60s")},
    ),
    "of a week": (
        {"max_budget": 1, "budget_duration": "1w"},
        {"budget": DOLLAR, "period": "week"},
        {"max_budget": ("taken", "for each week of the calendar (UTC)")},
    ),
    "of thirty days": (
        {"max_budget": 1, "budget_duration": "30d"},
        {"budget": DOLLAR, "period": "month"},
        {"max_budget": ("approximated", "for each month of the calendar (UTC), instead of 30d")},
    ),
    "of more than a month": (
        {"max_budget": 1, "budget_duration": "90d"},
        {"budget": DOLLAR, "period": "total"},
        {"max_budget": ("approximated", "in total, instead of for each 90d: raise it when it is used up")},
    ),
    "of an odd duration": (
        {"max_budget": 1, "budget_duration": "often"},
        {"budget": DOLLAR, "period": "total"},
        {"max_budget": ("approximated", "in total")},
    ),
    "that is not finite": (
        {"max_budget": "Infinity", "spend": 1},
        {},
        {
            "max_budget": ("approximated", "no budget: LiteLLM does not check this one"),
            "spend": ("approximated", "not taken over: no budget counts it"),
        },
    ),
    "that is larger for a while": (
        {"max_budget": 1, "metadata": {"temp_budget_increase": 2, "temp_budget_expiry": AFTER}},
        {"budget": 3 * DOLLAR, "period": "total"},
        {
            "max_budget": ("taken", "in total"),
            "metadata.temp_budget_increase": (
                "approximated",
                f"part of the budget: lower it when it ends, at {AFTER}",
            ),
        },
    ),
    "that was larger for a while": (
        {"max_budget": 1, "metadata": {"temp_budget_increase": 2, "temp_budget_expiry": BEFORE}},
        {"budget": DOLLAR, "period": "total"},
        {"max_budget": ("taken", "in total")},
    ),
    "tags": (
        {
            "user_id": "ada",
            "metadata": {"cost": 4711, "at": ["eu", 2], "none": [], "deep": [{"a": 1}], "guardrails": [1], " x": "y"},
        },
        {"tags": {"litellm_user": "ada", "cost": "4711", "at": "eu,2"}},
        {
            "user_id": ("approximated", "the tag litellm_user"),
            "metadata.cost": ("taken", "a tag of its calls"),
            "metadata.at": ("taken", "a tag of its calls"),
            "metadata.none": ("not possible", "no tag: a key has at most 16, of at most 200 characters"),
            "metadata.deep": ("not possible", "no tag: a key has at most 16, of at most 200 characters"),
            "metadata.guardrails": ("not possible", "Penstock has no such setting"),
            "metadata. x": ("not possible", "no tag: a key has at most 16, of at most 200 characters"),
        },
    ),
    "what Penstock has not": (
        {"soft_budget": 3, "aliases": {"a": "b"}, "new_column": "x", "empty": [], "off": False, "zero": 0},
        {},
        {
            "soft_budget": ("not possible", "warnings are not made from it: see docs/alerts.yaml"),
            "aliases": ("not possible", "write a route for each alias"),
            "new_column": ("not possible", "Penstock has no such setting"),
        },
    ),
}


@pytest.mark.parametrize("case", TERMS)
def test_columns_become_terms(case: str) -> None:
    columns, terms, expected = TERMS[case]
    usual, _ = key()
    made, findings = key(**columns)
    differs = {name for name in Key.__struct_fields__ if getattr(made, name) != getattr(usual, name)}
    assert {name: getattr(made, name) for name in differs} == {
        name: value for name, value in terms.items() if value != getattr(usual, name)
    }
    assert findings == {"": ("taken", f"key_{HASH[:12]}"), **expected}


def test_a_key_has_so_many_tags_and_no_more() -> None:
    made, findings = key(user_id="ada", metadata={f"tag{number}": number for number in range(17)})
    assert len(made.tags) == 16
    assert [field for field, (status, _) in findings.items() if status == "not possible"] == [
        "metadata.tag15",
        "metadata.tag16",
    ]


def test_access_groups_are_the_models_in_them() -> None:
    result, _ = converted(tables({"token": HASH, "models": ["beta", "x", "y"]}), groups={"beta": ["x", "z"]})
    assert result.keys[0].models == ("x", "z", "y")


def test_what_exists_is_left_as_it_is() -> None:
    """A key with the same hash, now or before its rotation; a used name gets a number; deleted teams do not count."""
    existing = Key(id="key_a", name="k", digest=b"a" * 32, hint="", created_ms=1, previous=bytes.fromhex(HASH))
    result, findings = converted(tables({"token": HASH, "key_alias": "k"}), keys=[existing])
    assert (result.keys, result.entries) == ([], [])
    assert findings == {"key k": ("taken", "is the key key_a already, and left as it is")}
    other = Key(id="key_b", name="k", digest=b"b" * 32, hint="", created_ms=1)
    gone = Key(id="key_c", name="gone", digest=b"c" * 32, hint="", created_ms=1, revoked_ms=1)
    rows = [{"token": f"{number}{HASH[1:]}", "key_alias": name} for number, name in enumerate(["k", "k", "gone"])]
    result, findings = converted(tables(*rows), keys=[other, gone])
    assert [made.name for made in result.keys] == ["k-2", "k-3", "gone"]
    assert findings["key k.key_alias"] == ("approximated", "is named k-3, because there is a key k")
    teams = [Team(path="t", created_ms=1), Team(path="u", created_ms=1, deleted_ms=2)]
    given = [{"team_id": name, "team_alias": name, "max_budget": 5, "spend": 2} for name in "tu"]
    result, findings = converted(tables(teams=given), teams)
    assert [team.path for team in result.teams] == ["u"]
    assert [entry.team for entry in result.entries] == ["u"]
    assert findings["team t"] == ("approximated", "there is a team with this path: it is left as it is")


@pytest.mark.parametrize("columns", [{"key_alias": " k"}, {"rpm_limit": 10**15}, {"models": [""]}])
def test_a_key_that_cannot_be_is_reported(columns: Row) -> None:
    result, findings = converted(tables({"token": HASH, "key_alias": "k", **columns}))
    assert result.keys == []
    assert findings[f"key {columns.get('key_alias', 'k')}"][1].startswith("was not imported: ")


def test_a_team_that_cannot_be_ends_the_import() -> None:
    with pytest.raises(AdminError, match=r"^nothing was imported: team a-b: requests_per_minute is"):
        converted(tables(teams=[{"team_id": "1", "team_alias": "a b", "rpm_limit": 10**15}]))


def test_levels_make_paths_and_entries_the_rest_of_each_counter() -> None:
    organization = {
        "organization_id": "o",
        "organization_alias": "Acme, Inc.",
        "budget_id": "b",
        "spend": 120,
        "max_budget": None,
    }
    given = tables(
        {"token": "1" * 64, "key_alias": "one", "project_id": "p", "max_budget": 10, "spend": 3},
        {"token": "2" * 64, "key_alias": "two", "team_id": "t", "max_budget": 10, "spend": 4.5},
        {"token": "3" * 64, "key_alias": "none", "team_id": "t", "spend": 4},
        {"token": "4" * 64, "key_alias": "new", "organization_id": "o", "team_id": "?", "max_budget": 1},
        organizations=[organization],
        teams=[
            {"team_id": "t", "team_alias": "s/x", "organization_id": "o", "max_budget": 100, "spend": 50},
            {"team_id": "u", "team_alias": "s x", "organization_id": "o", "spend": 1},
            {"team_id": "v", "team_alias": "---"},
        ],
        projects=[{"project_id": "p", "project_alias": None, "team_id": "t", "max_budget": 5, "spend": 3}],
        budgets={"b": {"budget_id": "b", "max_budget": 500, "budget_duration": "1mo", "rpm_limit": 9}},
        others={"LiteLLM_TagTable": (2, "use teams")},
    )
    result, findings = converted(given)
    assert {team.path: dict(team.budgets) for team in result.teams} == {
        "Acme-Inc": {"month": 500 * DOLLAR},
        "Acme-Inc/s-x": {"total": 100 * DOLLAR},
        "Acme-Inc/s-x-2": {},
        "team": {},
        "Acme-Inc/s-x/p": {"total": 5 * DOLLAR},
    }
    assert result.teams[0].requests_per_minute == 9
    assert [(made.name, made.team) for made in result.keys] == [
        ("one", "Acme-Inc/s-x/p"),
        ("two", "Acme-Inc/s-x"),
        ("none", "Acme-Inc/s-x"),
        ("new", "Acme-Inc"),
    ]
    one, two = result.keys[:2]
    assert [(entry.key, entry.team, Decimal(entry.priced) / DOLLAR) for entry in result.entries] == [
        (one.id, "Acme-Inc/s-x/p", 3),
        (two.id, "Acme-Inc/s-x", Decimal("4.5")),
        ("", "Acme-Inc/s-x", Decimal("42.5")),
        ("", "Acme-Inc", 70),
    ]
    assert len({entry.id for entry in result.entries}) == 4
    entry = result.entries[0]
    assert (entry.at_ms, entry.model, entry.outcome) == (NOW_MS, "litellm/imported", "completed")
    assert entry.id == f"litellm-{digest_of(one.id).hex()[:24]}"
    assert findings["key one"] == ("taken", f"{one.id} in the team Acme-Inc/s-x/p")
    assert findings["key one.spend"] == ("taken", "one ledger entry of today")
    assert findings["key none.spend"] == ("approximated", "not taken over: no budget counts it")
    assert findings["team Acme-Inc/s-x.spend"][1] == "one ledger entry of today, without what entries below it have"
    assert "project Acme-Inc/s-x/p.spend" not in findings
    assert findings["LiteLLM_TagTable (2)"] == ("not possible", "use teams")


def test_counters_whose_reset_is_due_count_as_zero() -> None:
    due = {"spend": 3, "budget_duration": "1d", "budget_reset_at": BEFORE}
    assert spent_of(due, NOW_MS) == 0
    assert spent_of({**due, "budget_reset_at": AFTER}, NOW_MS) == 3 * DOLLAR
    assert spent_of({**due, "budget_duration": None}, NOW_MS) == 3 * DOLLAR
    assert spent_of({"spend": None}, NOW_MS) == 0
    _, findings = key(max_budget=5, **due)
    assert findings["spend"] == ("approximated", "nothing: the reset of its budget is due")
    assert budget_of({"max_budget": 0}, NOW_MS) == 0
    assert budget_of({"max_budget": 0, "organization_alias": "o"}, NOW_MS) is None
    assert budget_of({"max_budget": 1, "organization_alias": "o"}, NOW_MS) == DOLLAR


# Both gateways, side by side.

MODELS = {
    "model_list": [
        {"model_name": "near/*", "litellm_params": {"model": "groq/*"}},
        {"model_name": "near/big-*", "litellm_params": {"model": "groq/big"}},
        {"model_name": "far", "litellm_params": {"model": "groq/far"}},
    ]
}
CONFIGURATION = """
[providers.groq]
api_key = "a-key-of-some-length"
[routes."near/small"]
targets = ["groq/small"]
[routes.far]
targets = ["groq/far"]
"""
ABOVE: Row = {"teams": [{"team_id": "t", "team_alias": "team", "max_budget": 10, "spend": 4, "models": ["near/*"]}]}
# Columns of a key, and the tables above; the model; what both say, and what is left.
VERDICTS: dict[str, tuple[Row, Row, str, tuple[str, str], list[str], list[str]]] = {
    "sent": ({}, {}, "far", ("", ""), [], ["far"]),
    "a budget": ({"max_budget": 5, "spend": 2}, {}, "far", ("", ""), ["3.00"], ["far"]),
    "used up": (
        {"max_budget": 5, "spend": 5},
        {},
        "far",
        ("the budget of this key is used up", "the budget of this key is used up"),
        ["0.00"],
        ["far"],
    ),
    "overspent": (
        {"max_budget": 5, "spend": 7},
        {},
        "far",
        ("the budget of this key is used up", "the budget of this key is used up"),
        ["0.00"],
        ["far"],
    ),
    "blocked": ({"blocked": True}, {}, "far", ("this key is blocked", "blocked"), [], ["far"]),
    "expired": ({"expires": BEFORE}, {}, "far", ("this key has expired", "expired"), [], ["far"]),
    "not allowed": (
        {"models": ["far*"]},
        {},
        "near/small",
        ("this key does not allow the model", "the key or a team of it does not allow the model"),
        [],
        ["near/small"],
    ),
    "no model": ({}, {}, "other", ("there is no such model", "there is no such model"), [], []),
    "a team": (
        {"team_id": "t", "max_budget": 5, "spend": 1},
        ABOVE,
        "near/small",
        ("", ""),
        ["4.00", "6.00"],
        ["near/small"],
    ),
    "what a team does not allow": (
        {"team_id": "t"},
        ABOVE,
        "far",
        (
            "a team or organization of it does not allow the model",
            "the key or a team of it does not allow the model",
        ),
        ["6.00"],
        ["far"],
    ),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_both_decide_alike(case: str, tmp_path: Path) -> None:
    columns, above, model, refused, left, targets = VERDICTS[case]
    given = tables({"token": HASH, "key_alias": "k", **columns}, **above)
    both = compared(given, ("k", model), tmp_path)
    assert both is not None
    assert (both.litellm.refused, both.litellm.left) == (refused[0], left)
    assert both.penstock.left == left
    assert refused[1] in both.penstock.refused
    assert bool(both.penstock.refused) == bool(refused[1])
    assert bool(both.litellm.targets) == bool(targets)
    assert (both.key, both.model, both.same) == ("k", model, True)


def compared(given: LitellmTables, of: tuple[str, str], folder: Path, *, imported: bool = True) -> Comparison | None:
    """What both would do, with the keys taken over into a book."""
    folder.mkdir(exist_ok=True)
    (folder / "penstock.toml").write_text(CONFIGURATION)
    config = load(folder / "penstock.toml", {})
    converted = convert(MODELS, "")
    book = SqliteBook.open(folder / "ledger.db")
    try:
        if imported:
            book.take_over(lambda teams, keys: KeyConversion(given, Findings(), NOW_MS, {}).convert(teams, keys))
        return compare(given, converted, (config, book), of, NOW_MS)
    finally:
        book.close()


def test_a_key_is_found_by_its_secret_or_alias_and_must_be_imported(tmp_path: Path) -> None:
    given = tables({"token": "no-prefix-4711"}, {"token": HASH, "key_alias": "other", "max_budget": 1})
    both = compared(given, ("no-prefix-4711", "far"), tmp_path)
    assert both is not None
    assert (both.key, both.same) == ("the key", True)
    assert compared(given, ("nothing", "far"), tmp_path) is None
    both = compared(given, ("other", "far"), tmp_path / "empty", imported=False)
    assert both is not None
    assert (both.same, both.litellm.left) == (False, ["1.00"])
    assert both.penstock == Verdict("the key is not in the ledger: import it first", [], [])


def test_the_most_exact_pattern_has_the_targets(tmp_path: Path) -> None:
    both = compared(tables({"token": HASH, "key_alias": "k"}), ("k", "near/big-1"), tmp_path)
    assert both is not None
    assert both.litellm.targets == convert(MODELS, "").deployments["near/big-*"]


def test_the_comparison_is_a_table() -> None:
    sent, refused = Verdict("", ["a", "b"], ["1", "2"]), Verdict("x" * 70, [], [])
    assert side_by_side(Comparison("k", "m", sent, refused, same=False)).splitlines() == [
        "k, m",
        f"{'':8} {'LiteLLM':60} Penstock",
        f"{'call':8} {'sent':60} {'x' * 60}",
        f"{'targets':8} {'a, b':60} none",
        f"{'left':8} {'1, 2':60} no budget",
        "",
        "THEY DIFFER",
    ]
    assert side_by_side(Comparison("k", "m", sent, sent, same=True)).endswith("\n\nboth do the same")


# The database.


class Answers:
    """A database that has these tables; a `Queryable`."""

    def __init__(self, rows: dict[str, list[Row]]) -> None:
        self._rows = rows
        self.asked: list[str] = []

    def fetch(self, sql: str, parameters: Sequence[Value] = ()) -> list[tuple[Value, ...]]:
        assert not parameters
        self.asked.append(sql)
        table = sql.split('"')[1]
        if "to_regclass" in sql:
            return [(table if table in self._rows else None,)]
        if "count(*)" in sql:
            return [(len(self._rows[table]),)]
        return [(json.dumps(row),) for row in self._rows[table]]


def test_the_tables_are_read_as_far_as_they_exist() -> None:
    keys, budget = [{"token": HASH}, {"token": "x"}], {"budget_id": "b", "max_budget": 1}
    answers = Answers(
        {
            "LiteLLM_VerificationToken": keys,
            "LiteLLM_BudgetTable": [budget],
            "LiteLLM_TeamTable": [{"team_id": "t"}],
            "LiteLLM_TagTable": [{}, {}],
            "LiteLLM_UserTable": [],
        }
    )
    read = _read(answers, "the database")
    assert (read.keys, read.teams, read.budgets) == (keys, [{"team_id": "t"}], {"b": budget})
    assert (read.organizations, read.projects) == ([], [])
    assert read.others == {"LiteLLM_TagTable": (2, "budgets of tags; use teams")}
    assert 'SELECT count(*) FROM "LiteLLM_TagTable" WHERE budget_id IS NOT NULL' in answers.asked
    assert any(sql.endswith("ORDER BY to_jsonb(t)->>'created_at', token") for sql in answers.asked)
    assert read.columns({"budget_id": "b", "max_budget": None, "spend": 2}) == {**budget, "spend": 2}
    assert read.columns({"budget_id": "b", "max_budget": 3})["max_budget"] == 3
    assert read.columns({"max_budget": None}) == {"max_budget": None}
    with pytest.raises(BookError, match=r"^the database has no table LiteLLM_VerificationToken: is this the database"):
        _read(Answers({}), "the database")


@pytest.mark.parametrize(
    "url", ["mysql://u@h/db", "postgres://[h/db", "postgres://u@h/db?schema=a;b", "postgresql://u@h/db?schema=1"]
)
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(BookError, match=r"^--keys must be a URL such as postgres://user@host/database$"):
        read_tables(url)

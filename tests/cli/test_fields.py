"""The fields of keys and teams: each is in terms, schema, report, audit log, terminal and page."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, get_type_hints

import pytest

from penstock.gateway.keys.fields import KEY_FIELDS, LIMITS, RATES, TEAM_FIELDS, Field
from penstock.gateway.keys.keys import Key, KeyLimits
from penstock.gateway.keys.quota import Quota, RateLimits
from penstock.gateway.keys.terms import KeyTerms, KeyUpdate, LimitTerms
from penstock.gateway.teams.changes import TeamUpdate
from penstock.gateway.teams.team import Team
from tests.cli.support import invoke
from tests.corpus import ROOT

WEB = ROOT / "src/penstock/serve/web"
# By field: how it is changed on the command line, if it is not by an option with a text.
COMMANDS = {
    "blocked": ("block",),
    "strict": ("update", "--strict"),
    "end_users": ("update", "--user-concurrent", "2"),
    "members": ("update", "--member-budget", "20/month"),
    "member_keys": ("update", "--member-key-number", "3", "--member-key-raised-by", "admin"),
}
TEXTS = {
    "name": "renamed",
    "budget": "7",
    "period": "week",
    "budgets": "3/day",
    "models": "a/*",
    "expires": "2100-01-01",
    "tags": "a=b",
    "team": "acme",
    "managed_by": "platform",
}


class Holder(NamedTuple):
    """A key or a team: its command and name, its table, its fields, and where the page shows them."""

    command: str
    name: str
    key_column: str
    fields: tuple[Field, ...]
    update: type[LimitTerms]
    interface: str
    view: str


KEYS = Holder("keys", "ci", "name", KEY_FIELDS, KeyUpdate, "Key", "views/key.js")
TEAMS = Holder("teams", "acme", "path", TEAM_FIELDS, TeamUpdate, "Team", "views/team*.js")
CASES = {f"{holder.command}-{field.name}": (holder, field) for holder in (KEYS, TEAMS) for field in holder.fields}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a key and a team, and no configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    invoke("teams", "create", "acme")
    invoke("keys", "create", "--name", "ci", "--budget", "5")
    return tmp_path / "state"


def seen(state: Path, holder: Holder, field: Field, name: str) -> list[object]:
    """What shows a field: the stored value, the report, and the text for people."""
    with closing(sqlite3.connect(state / "ledger.db")) as ledger:
        column = field.stored or field.name
        sql = f"SELECT {column} FROM {holder.command} WHERE {holder.key_column} = ?"
        (stored,) = ledger.execute(sql, (name,)).fetchone()
    report = json.loads(invoke(holder.command, "show", name, "--json").stdout)
    return [stored, report[field.name], invoke(holder.command, "show", name).stdout]


def change(holder: Holder, field: Field) -> None:
    """Change a field by the command line."""
    by_option = ("update", f"--{field.option}", TEXTS.get(field.name, "5"))
    command, *options = COMMANDS.get(field.name, by_option)
    result = invoke(holder.command, command, holder.name, *options)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(("holder", "field"), CASES.values(), ids=CASES)
def test_a_change_of_a_field_is_stored_reported_recorded_and_shown(state: Path, holder: Holder, field: Field) -> None:
    before = seen(state, holder, field, holder.name)
    change(holder, field)
    after = seen(state, holder, field, "renamed" if field.name == "name" else holder.name)
    assert all(old != new for old, new in zip(before, after, strict=True)), (before, after)
    (entry, *_) = json.loads(invoke("audit", "--json").stdout.splitlines()[0])["entries"]
    assert (entry["action"], list(entry["after"])) == (f"{holder.command[:-1]}.update", [field.name])


@pytest.mark.parametrize("holder", [KEYS, TEAMS], ids=("keys", "teams"))
def test_the_terms_are_the_fields(holder: Holder) -> None:
    assert {field.name for field in holder.fields} == set(holder.update.__struct_fields__)
    stored = {field.stored or field.name for field in holder.fields}
    assert stored < set((Key if holder is KEYS else Team).__struct_fields__)


def test_limits_are_those_of_every_account() -> None:
    rates = [field.name for field in RATES]
    assert rates == list(RateLimits.__struct_fields__)
    assert {field.name for field in LIMITS} == set(KeyLimits.__struct_fields__) == set(LimitTerms.__struct_fields__)
    assert set(rates) < set(Quota.__struct_fields__)
    assert set(KeyTerms.__struct_fields__) == set(KeyUpdate.__struct_fields__)
    assert get_type_hints(RateLimits) == dict.fromkeys(rates, int | None)


@pytest.mark.parametrize("holder", [KEYS, TEAMS], ids=("keys", "teams"))
def test_the_page_has_every_field(holder: Holder) -> None:
    fields = (WEB / "kit/key_fields.js").read_text(encoding="utf-8")
    view = "".join(each.read_text(encoding="utf-8") for each in WEB.glob(holder.view))
    types = (WEB / "types.d.ts").read_text(encoding="utf-8")
    interfaces = "".join(re.findall(rf"interface (?:{holder.interface}|RateLimits) .*?\n}}", types, re.DOTALL))
    report = json.loads(invoke(holder.command, "show", holder.name, "--json").stdout)
    assert set(re.findall(r"^  (\w+)\??:", interfaces, re.MULTILINE)) == set(report)
    shown = set(re.findall(r"\w+", fields + view))
    assert {field.name for field in holder.fields} <= shown

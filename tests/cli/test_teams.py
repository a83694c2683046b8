"""`penstock teams`: what it prints and refuses."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.stores.book.sqlite import SqliteBook
from tests.cli.support import invoke
from tests.stores.entries import entry


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for state, and no configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def reported(*arguments: str) -> Any:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*arguments: str) -> str:
    result = invoke("teams", *arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    return result.stderr


def test_a_tree_of_teams_goes_round(state: Path) -> None:
    options = ["--budget", "500/month", "--budget", "50/day", "--rpm", "9", "--model", "a/*", "--user-budget", "1/day"]
    made = reported("teams", "create", "acme", *options, "--user-rpm", "3")
    assert [(each["period"], each["budget"], each["left"]) for each in made["budgets"]] == [
        ("day", "50.00", "50.00"),
        ("month", "500.00", "500.00"),
    ]
    users = {"budgets": {"day": "1.00"}, "requests_per_minute": 3, "tokens_per_minute": None, "concurrent": None}
    assert (made["level"], made["end_users"], made["models"]) == ("organisation", users, ["a/*"])
    assert invoke("teams", "create", "acme/search").exit_code == 0
    key = reported("keys", "create", "--name", "ci", "--team", "acme/search", "--further-budget", "5/day")
    assert (key["team"], [each["period"] for each in key["budgets"]]) == ("acme/search", ["day"])
    assert "team     acme/search" in invoke("keys", "show", "ci").output
    assert "per day  $0.00 spent of $5.00" in invoke("keys", "show", "ci").output
    book = SqliteBook.open(state / "ledger.db")
    book.append([replace(entry("call_1", key=key["id"]), team="acme/search")])
    book.close()
    assert json.loads(invoke("usage", "--by", "team", "--team", "acme", "--json").stdout)["team"] == "acme/search"
    assert "call_1" in invoke("ledger", "--team", "acme").output
    assert invoke("ledger", "--team", "other", "--json").stdout == ""
    assert "team      acme/search" in invoke("ledger", "show", "call_1").output
    changed = reported("teams", "update", "acme", "--budget", "none/day", "--rpm", "none", "--user-rpm", "none")
    assert ([each["period"] for each in changed["budgets"]], changed["requests_per_minute"]) == (["month"], None)
    assert changed["end_users"] == users | {"requests_per_minute": None}
    assert (changed["keys"], changed["models"]) == (1, ["a/*"])
    assert [team["path"] for team in reported("teams", "list")["teams"]] == ["acme", "acme/search"]
    assert "acme/search" in invoke("teams", "list").output
    assert "per month     $0.00 spent of $500.00" in invoke("teams", "show", "acme").output
    assert invoke("teams", "block", "acme").output == "blocked acme\n"
    assert reported("teams", "show", "acme")["state"] == "blocked"
    assert invoke("teams", "unblock", "acme").exit_code == 0
    assert "delete or move that first" in refused("delete", "acme")
    assert reported("keys", "update", "ci", "--team", "none", "--further-budget", "none/day")["team"] is None
    assert invoke("teams", "delete", "acme/search").output == "deleted acme/search\n"


def test_the_commands_of_the_page_work() -> None:
    page = (Path(__file__).parents[2] / "docs" / "teams.md").read_text(encoding="utf-8")
    block = "".join(re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    lines = [line for line in block.replace("\\\n", " ").splitlines() if line.startswith("$ penstock ")]
    assert len(lines) > 8
    for line in lines:
        result = invoke(*shlex.split(line.removeprefix("$ penstock ")))
        assert result.exit_code == 0, (line, result.output)
    assert [team["path"] for team in reported("teams", "list")["teams"]] == ["acme", "acme/search"]


MISTAKES = {
    "no team above": (("create", "a/b"), "there is no team a: create it first"),
    "a budget without a period": (("create", "a", "--budget", "5"), "a budget is written 500/month"),
    "two budgets for a period": (("create", "a", "--budget", "5/day", "--budget", "6/day"), "once for each"),
    "money": (("create", "a", "--budget", "x/day"), "an amount of dollars"),
    "a number": (("create", "a", "--rpm", "many"), "a whole number"),
    "no such team": (("show", "a"), "there is no team a"),
    "a path": (("create", "a b"), "acme/search"),
}


@pytest.mark.parametrize(("arguments", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_refused_in_one_line(arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(*arguments)

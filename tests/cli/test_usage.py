"""`penstock usage`: sums by any group, for people, spreadsheets and programs."""

import csv
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.amounts import table_dollars
from penstock.cli.ledger_options import EntryQuery
from penstock.cli.options import read_moment
from penstock.gateway.billing.queries import Filter
from penstock.serve.admin.queries import Query, read_filter
from tests.cli.books import at, fill
from tests.cli.support import invoke, on_terminal


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # where no configuration is


def test_by_model_with_a_total() -> None:
    assert invoke("usage").stdout.splitlines() == [
        "model     calls  input  cached  output  unpriced  estimated  hit rate      saved      cost",
        "smart         3  2,000     800      20         0          1     40.0%  $0.000800   $1.2350",
        r"\x1b[31m      1  1,000     400      10         1          0     40.0%         $0  unpriced",
        "total         4  3,000   1,200      30         1          1     40.0%  $0.000800   $1.2350",
    ]


def test_keys_have_their_names_and_days_their_order() -> None:
    assert invoke("usage", "--by", "day,key", "--key", "Search", "--key", "key_bare").stdout.splitlines() == [
        "day         key       calls  input  cached  output  unpriced  estimated  hit rate      saved       cost",
        "2026-11-01  Search        1  1,000     400      10         0          0     40.0%  $0.000400    $1.2345",
        "2026-11-08  key_bare      1  1,000     400      10         1          0     40.0%         $0   unpriced",
        "2026-11-08  Search        1  1,000     400      10         0          1     40.0%  $0.000400  $0.000500",
        "total                     3  3,000   1,200      30         1          1     40.0%  $0.000800    $1.2350",
    ]


def test_by_provider_a_call_counts_with_each_and_in_total_once() -> None:
    lines = [line.split()[:2] for line in invoke("usage", "--by", "provider").stdout.splitlines()]
    assert lines == [["provider", "calls"], ["openai", "2"], ["x", "1"], ["–", "1"], ["groq", "1"], ["total", "4"]]


def test_by_month_of_the_calendar() -> None:
    lines = [line.split()[:2] for line in invoke("usage", "--by", "month", "--month", "2026-11").stdout.splitlines()]
    assert lines == [["month", "calls"], ["2026-11", "4"], ["total", "4"]]
    assert invoke("usage", "--month", "2026-10").stdout == "No calls.\n"
    for wrong in (["--month", "2026-13"], ["--month", "this", "--since", "7d"]):
        assert invoke("usage", *wrong).exit_code == 2


def test_in_another_currency(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('[finance]\ncurrency = "EUR"\nrate = 0.92')
    lines = invoke("usage", "--by", "key").stdout.splitlines()
    assert [line.split()[-1] for line in lines[:2]] == ["EUR", "1.1362"]
    assert lines[-1] == "EUR: converted at 0.92 for a dollar."
    rows = list(csv.DictReader(invoke("usage", "--by", "model", "--csv").stdout.splitlines()))
    assert (rows[0]["cost_usd"], rows[0]["cost_eur"]) == ("1.235000000", "1.136200000")
    assert json.loads(invoke("usage", "--by", "", "--json").stdout)["cost_eur"] == "1.136200000"


def test_by_end_user() -> None:
    rows = [json.loads(line) for line in invoke("usage", "--by", "user", "--json").stdout.splitlines()]
    assert {row["user"]: row["calls"] for row in rows} == {"": 3, "somebody": 1}


def test_as_json() -> None:
    rows = [
        json.loads(line)
        for line in invoke("usage", "--by", "tag=team", "--json", "--model", "smart").stdout.splitlines()
    ]
    assert {row["team"]: (row["calls"], row["cost_usd"], row["estimated"]) for row in rows} == {
        "search": (1, "1.2345", 0),
        "=1+1": (1, "0.0005", 1),
        "": (1, "0.00", 0),
    }


def test_as_csv_and_json_a_key_has_its_name() -> None:
    rows = list(csv.DictReader(invoke("usage", "--by", "key,model", "--csv").stdout.splitlines()))
    assert {row["key"]: row["key_name"] for row in rows}["key_search"] == "Search"
    lines = [json.loads(line) for line in invoke("usage", "--by", "key", "--json").stdout.splitlines()]
    assert {line["key"]: line["key_name"] for line in lines}["key_search"] == "Search"


def test_as_csv_no_cell_is_a_formula() -> None:
    rows = list(csv.DictReader(invoke("usage", "--by", "tag=team", "--csv").stdout.splitlines()))
    assert {row["team"]: row["cost_usd"] for row in rows} == {
        "search": "1.234500000",
        "'=1+1": "0.000500000",
        "": "0.000000000",
    }


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        (["--since", "2026-11-08"], 3),
        (["--until", "2026-11-08"], 1),
        (["--until", "2026-11-09"], 3),
        (["--until", "2026-11-08T12:00"], 1),
        (["--since", "2026-11-08T23:00+00:00", "--until", "2026-11-16"], 2),
        (["--outcome", "refused"], 1),
        (["--outcome", "refused", "--outcome", "truncated"], 2),
        (["--provider", "groq"], 1),
        (["--repair", "no-done"], 1),
        (["--tag", "team=search"], 1),
    ],
)
def test_options_choose(options: list[str], calls: int) -> None:
    assert json.loads(invoke("usage", "--by", "", "--json", *options).stdout)["calls"] == calls


def test_no_calls_are_reported_as_none() -> None:
    assert invoke("usage", "--model", "nothing").stdout == "No calls.\n"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--by", "colour"], "cannot sum up by 'colour': choose from key, owner, team, tree, model"),
        (["--by", "tag"], "cannot sum up by 'tag'"),
        (["--by", "key,key"], "cannot sum up by 'key'"),
        (["--since", "soon"], "--since must be a duration such as 30d, a date"),
        (["--tag", "team"], "a tag is written name=value"),
        (["--config", "missing.toml"], "missing.toml"),
    ],
)
def test_mistakes_are_reported(options: list[str], reason: str) -> None:
    result = invoke("usage", *options)
    assert result.exit_code != 0
    assert reason in result.stderr


def test_where_no_ledger_is_it_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "nowhere"))
    result = invoke("usage")
    assert (result.exit_code, "no gateway has kept a ledger here yet" in result.stderr) == (1, True)


def test_the_configuration_says_where_the_ledger_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_STATE")
    (tmp_path / "penstock.toml").write_text(f"[ledger]\nfolder = {str(tmp_path)!r}\n")
    assert "total" in invoke("usage", "--config", str(tmp_path / "penstock.toml")).stdout


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_on_a_terminal_it_fits_and_is_in_nobodys_power(columns: int) -> None:
    output = on_terminal("usage", "--by", "model,key", columns=columns)
    assert "\x1b[31m" not in output
    assert r"\x1b[31m" in output
    assert "\x1b[32m" in output  # green, for money
    plain = output.replace("\x1b[", "\0").split("\0")
    text = plain[0] + "".join(part.partition("m")[2] for part in plain[1:])
    assert all(len(line) <= columns for line in text.splitlines())
    assert "$1.2350" in text


AMOUNTS = {0: "$0", 1: "<$0.000001", 1_000: "$0.000001", 9_999_000: "$0.009999", 10_000_000: "$0.0100"}


@pytest.mark.parametrize(
    ("cost", "shown"), [*AMOUNTS.items(), (1_234_567_890_000, "$1,234.5679"), (-10_000_000, "-$0.0100")]
)
def test_money(cost: int, shown: str) -> None:
    assert table_dollars(cost) == shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7d", at(8)),
        ("12h", at(15, 0)),
        ("2w", at(1)),
        ("60m", at(15, 11)),
        ("2026-11-08", at(8, 0)),
        ("2026-11-08T12:00", at(8)),
        ("2026-11-08T14:00+02:00", at(8)),
    ],
)
def test_until_is_exclusive_in_commands_and_in_the_api(text: str, expected: int) -> None:
    """So a month that ends at the first day of the next one has no call of that day."""
    now = datetime(2026, 11, 15, 12, tzinfo=UTC)
    now_ms = round(now.timestamp() * 1000)
    since_ms, until_ms = (read_moment(option, text, now_ms) for option in ("--since", "--until"))
    of_commands = EntryQuery(None, Filter(since_ms=since_ms, until_ms=until_ms)).filter([])
    of_api = read_filter(Query({"since": [text], "until": [text]}), now_ms)
    assert of_commands == of_api == Filter(since_ms=expected, until_ms=expected)


@pytest.mark.parametrize("command", ["usage", "ledger"])
def test_a_gateway_for_other_machines_may_have_its_keys_in_the_ledger(tmp_path: Path, command: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[server]\nlisten = "0.0.0.0:8080"\n')
    reported = invoke(command, "--config", str(file))
    assert reported.exit_code == 0, reported.output
    assert "smart" in reported.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["usage", "--by", "key,key"], "cannot sum up by 'key' twice: name each group once"),
        (["usage", "--by", "tag=team,tag=user"], "cannot sum up by two tags: name each group once"),
        (["usage", "--json", "--csv"], "use either --json or --csv"),
        (["usage", "--outcome", "typo"], "'typo' is not one of 'completed', 'truncated', 'failed',"),
        (["ledger", "--outcome", "typo"], "'typo' is not one of 'completed', 'truncated', 'failed',"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_refused_with_what_can(arguments: list[str], words: str) -> None:
    reported = invoke(*arguments)
    assert (reported.exit_code, reported.stdout) == (2, "")
    assert words in reported.stderr


def test_a_ledger_without_anything_in_it_is_no_older_one(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"")
    reported = invoke("usage")
    assert reported.exit_code == 1
    assert f"{tmp_path / 'ledger.db'} is empty: no gateway has kept a ledger here yet" in reported.stderr

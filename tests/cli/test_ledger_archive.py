"""`penstock ledger prune` and `penstock ledger export`, and what the other commands say of archived calls."""

import csv
import io
import json
from pathlib import Path

import pytest

from penstock.stores.book.sqlite import SqliteBook
from tests.cli.books import CALLS, fill
from tests.cli.support import invoke

# They prune with the lowest priority, and so wait while other processes use the processors.
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fill(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # where no configuration is
    return tmp_path


def exported(*options: str) -> list[str]:
    return [json.loads(line)["id"] for line in invoke("ledger", "export", *options).stdout.splitlines()]


def test_calls_are_archived_and_still_exported_and_summed_up(ledger: Path) -> None:
    all_calls, usage = exported(), invoke("usage", "--by", "key,tag=team", "--json").stdout
    dry = invoke("ledger", "prune", "--before", "2026-11-08", "--dry-run")
    assert dry.stdout == f"1 call before 2026-11-08 to move to {ledger / 'archive'}\n"
    assert not (ledger / "archive").exists()
    done = invoke("ledger", "prune", "--before", "2026-11-08T12:00")
    assert done.stdout == f"1 call before 2026-11-08 moved to {ledger / 'archive'}\n"
    assert [file.name[:10] for file in (ledger / "archive").glob("*.gz")] == ["2026-11-01"]
    assert exported() == all_calls == [call.id for call in CALLS]
    assert exported("--until", "2026-11-09", "--key", "Search") == ["call_a", "call_b"]
    after = invoke("usage", "--by", "key,tag=team", "--json")
    assert (after.stdout, after.stderr) == (usage, "")
    listed = invoke("ledger", "--json")
    assert len(listed.stdout.splitlines()) == 3
    assert listed.stderr == "Calls before 2026-11-08 are archived: `penstock ledger export` has them.\n"
    assert invoke("ledger", "--since", "2026-11-08").stderr == ""
    assert "Calls before 2026-11-08 are archived" in invoke("ledger", "show", "call_a").stderr
    repaired = invoke("usage", "--repair", "no-done")
    assert repaired.stderr.startswith("Without calls before 2026-11-08: they are archived")


def test_an_export_as_csv_has_a_line_for_each_call() -> None:
    invoke("ledger", "prune", "--before", "2026-11-08")
    rows = list(csv.DictReader(io.StringIO(invoke("ledger", "export", "--csv").stdout)))
    assert [row["id"] for row in rows] == [call.id for call in CALLS]
    assert (rows[0]["time_utc"], rows[0]["key_name"], rows[0]["cost_usd"]) == (
        "2026-11-01 12:00:00",
        "Search",
        "1.234500000",
    )
    assert (rows[1]["providers"], rows[1]["tags"]) == ("groq,openai", '{"team":"=1+1"}')


def test_an_archive_that_is_not_there_makes_the_export_fail(ledger: Path) -> None:
    invoke("ledger", "prune", "--before", "2026-11-08")
    (file,) = (ledger / "archive").glob("*.gz")
    file.unlink()
    result = invoke("ledger", "export")
    assert (result.exit_code, len(result.stdout.splitlines())) == (1, len(CALLS) - 1)
    assert file.name in result.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "set keep_days in [ledger], or give --before TIME"),
        (("--before", "1h"), "calls of the last 24 hours stay in the ledger"),
        (("--before", "soon"), "--before must be a duration such as 30d, a date"),
    ],
)
def test_a_time_is_needed_that_leaves_the_last_day(options: tuple[str, ...], reason: str) -> None:
    result = invoke("ledger", "prune", *options)
    assert result.exit_code == 2
    assert reason in result.stderr


def test_the_configuration_says_how_long_calls_and_sums_are_kept(ledger: Path) -> None:
    (ledger / "penstock.toml").write_text("[ledger]\nkeep_days = 1\nkeep_sums_days = 4\n")
    assert invoke("ledger", "prune").stdout.startswith("4 calls before ")
    usage = invoke("usage")
    assert "their sums are deleted" in usage.stderr
    assert "call_" not in usage.stdout
    book = SqliteBook.open(ledger / "ledger.db", readonly=True)
    assert book.spent("key_search", 0).total == sum(call.priced for call in CALLS if call.key == "key_search")
    book.close()

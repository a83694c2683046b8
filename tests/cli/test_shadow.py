"""`penstock shadow`: what is known of the targets at which calls were repeated, and whether a change is safe."""

import json
from pathlib import Path

import pytest

from penstock.gateway.record.entry import AttemptEntry, Entry, Tokens
from penstock.stores.book.sqlite import SqliteBook
from tests.cli.support import invoke


def tried(provider: str, cost: int, first_ms: int, outcome: str = "completed") -> AttemptEntry:
    return AttemptEntry(
        provider=provider,
        model="m",
        outcome=outcome,  # type: ignore[arg-type]  # one of the words
        measure="reported",
        tokens=Tokens(input=100, output=50),
        cost=cost,
        first_event_ms=first_ms,
        duration_ms=first_ms + 1_000,
    )


def booked(folder: Path, calls: int, *, compared: str, failed: int = 0) -> None:
    """As many calls of a route that were repeated, of which the last ones failed."""
    entries: list[Entry] = []
    for number in range(calls):
        ok = number < calls - failed
        outcome = "completed" if ok else "failed"
        tags = {"shadow_of": f"req_{number}"} | ({"shadow": compared} if ok else {})
        own = {"at_ms": 1_000 * number, "outcome": outcome}
        entries += [
            Entry(id=f"req_{number}", at_ms=1_000 * number, key="key_a", model="smart", outcome="completed",
                  attempts=(tried("old", 2_000_000_000, 400),)),
            Entry(id=f"shadow_{number}", key="shadow", model="smart (shadow)", tags=tags,
                  attempts=(tried("new", 500_000_000, 200, outcome),), **own),  # type: ignore[arg-type]
        ]  # fmt: skip
    book = SqliteBook.open(folder / "ledger.db")
    book.append(entries)
    book.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


COLUMNS = ("route", "target", "shadow", "calls", "finish", "tools", "words", "length", "first", "pace", "cost")
SAME = "finish=same tools=same similarity=0.80 length=0.90"


def test_a_target_that_answers_alike_is_safe(folder: Path) -> None:
    booked(folder, 40, compared=SAME)
    found = invoke("shadow")
    assert found.exit_code == 0
    head, row, _, last = found.stdout.splitlines()
    assert head.split() == [*COLUMNS]
    assert row.split()[:4] == ["smart", "old/m", "new/m", "40"]
    assert row.endswith("100%   100%    80%  × 0.90  × 0.50  × 1.00  × 0.25")
    assert last == "smart by new/m: safe by these figures; $60.00 costs less for 40 calls."


@pytest.mark.parametrize(
    ("compared", "calls", "failed", "why"),
    [
        (SAME, 10, 0, "too few calls: 10 of 30"),
        (SAME, 40, 4, "10% of the calls failed"),
        (SAME.replace("finish=same", "finish=other"), 40, 0, "100% end for another reason"),
        (SAME.replace("tools=same", "tools=arguments"), 40, 0, "100% have other tool calls or arguments"),
        (SAME.replace("0.80", "0.10"), 40, 0, "texts share only 10% of their words"),
    ],
)
def test_what_is_not_known_to_be_safe_is_named(folder: Path, compared: str, calls: int, failed: int, why: str) -> None:
    booked(folder, calls, compared=compared, failed=failed)
    found = invoke("shadow", "smart", "--json")
    assert found.exit_code == 1
    report = json.loads(found.stdout)
    assert (report["safe"], report["why"], report["calls"]) == (False, why, calls)


def test_without_repeated_calls_it_says_how_to_get_some(folder: Path) -> None:
    booked(folder, 0, compared=SAME)
    assert "[routes.NAME.shadow]" in invoke("shadow").stdout

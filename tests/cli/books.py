"""A ledger for the tests of its commands: four calls of two keys, a week apart."""

from datetime import UTC, datetime
from pathlib import Path

from penstock.gateway.keys.keys import Key
from penstock.gateway.record.entry import AttemptEntry, Entry, Tokens
from penstock.stores.book.sqlite import SqliteBook


def at(day: int, hour: int = 12) -> int:
    return round(datetime(2026, 11, day, hour, tzinfo=UTC).timestamp() * 1000)


def tried(provider: str, cost: int | None, *, output: int = 10, estimated: bool = False) -> AttemptEntry:
    return AttemptEntry(
        provider=provider,
        model="big",
        outcome="completed",
        status=200,
        measure="estimated" if estimated else "reported",
        tokens=Tokens(input=1_000, output=output, cached=400),
        cost=cost,
        saved=0 if cost is None else 400_000,
        price="built-in 2026-11-01",
        first_event_ms=90,
        duration_ms=1_200,
    )


FAILED = AttemptEntry(provider="groq", model="big", outcome="failed", status=503, code="overloaded")
CALLS = (
    Entry(
        id="call_a",
        at_ms=at(1),
        key="key_search",
        model="smart",
        stream=True,
        outcome="completed",
        status=200,
        first_event_ms=90,
        duration_ms=1_310,
        tags={"team": "search"},
        attempts=(tried("openai", 1_234_500_000),),
    ),
    Entry(
        id="call_b",
        at_ms=at(8),
        key="key_search",
        model="smart",
        outcome="completed",
        repairs={"role-repeated": 7, "no-done": 1, "from-the-future": 2},
        losses={"stop-dropped": 1, "from-the-future-too": 2},
        tags={"team": "=1+1"},
        user="somebody",
        attempts=(FAILED, tried("openai", 500_000, estimated=True)),
    ),
    Entry(
        id="call_c",
        at_ms=at(8, 23),
        key="key_bare",
        model="\x1b[31m",
        outcome="truncated",
        attempts=(tried("x", None),),
    ),
    Entry(id="call_d", at_ms=at(15), model="smart", outcome="refused", status=402, code="budget"),
)
KEYS = (
    Key(id="key_search", name="Search", digest=b"1", hint="abcd", created_ms=1),
    Key(id="key_bare", name="", digest=b"2", hint="efgh", created_ms=2),
)


def fill(folder: Path) -> None:
    """Book the calls in the folder."""
    book = SqliteBook.open(folder / "ledger.db")
    book.change_keys(lambda *_: KEYS)
    book.append(CALLS)
    book.close()

"""CSV: calls and their sums as rows, for `penstock ledger export --csv`, `penstock usage --csv` and the admin API."""

import csv
import io
from collections.abc import Mapping, Sequence

import msgspec

from penstock.amounts import NANODOLLARS, Currency, table_moment
from penstock.gateway.billing.queries import UsageRow
from penstock.gateway.record.entry import Entry

_TEXTS = ("id", "key", "key_name", "team", "user", "model", "surface", "outcome", "code", "error", "providers", "tags")
COLUMNS = (
    "time_utc",
    *_TEXTS,
    "status",
    "first_event_ms",
    "duration_ms",
    "input",
    "cached",
    "cache_write",
    "output",
    "reasoning",
    "measure",
    "unpriced",
    "approximate",
    "cost_usd",
)
FIGURES = ("calls", "input", "cached", "cache_write", "output", "reasoning", "unpriced", "estimated", "approximate")
"""The columns of sums, besides the groups, the cost and what caches have saved."""
_FORMULA = ("=", "+", "-", "@", "\t")


def csv_cell(text: str) -> str:
    """Quote a cell that a spreadsheet would run as a formula (CSV injection): clients choose models and tags.

    A lone carriage return is escaped: some spreadsheets begin a row there, and `csv.writer` does not quote it.
    """
    text = text.replace("\r", "\\r")
    return f"'{text}" if text[:1] in _FORMULA else text


def exact_dollars(cost: int) -> str:
    """Nanodollars as dollars with all digits. A correction is negative."""
    whole, rest = divmod(abs(cost), NANODOLLARS)
    return f"{'-' if cost < 0 else ''}{whole}.{rest:09d}"


def csv_row(entry: Entry, key_name: str) -> list[str | int | None]:
    """The values of `COLUMNS`. The time is in UTC, and the cost is exact."""
    providers = ",".join(dict.fromkeys(attempt.provider for attempt in entry.attempts))
    tags = msgspec.json.encode(dict(entry.tags)).decode() if entry.tags else ""
    texts = {"key_name": key_name, "providers": providers, "tags": tags}
    tokens = entry.tokens
    return [
        table_moment(entry.at_ms),
        *(csv_cell(texts[name] if name in texts else getattr(entry, name)) for name in _TEXTS),
        entry.status,
        entry.first_event_ms,
        entry.duration_ms,
        tokens.input,
        tokens.cached,
        tokens.cache_write,
        tokens.output,
        tokens.reasoning,
        entry.measure,
        int(entry.cost is None),
        int(entry.approximate),
        exact_dollars(entry.priced),
    ]


def usage_csv(
    heads: Sequence[str], rows: Sequence[UsageRow], key_names: Mapping[str, str], currency: Currency | None = None
) -> str:
    """Sums as a CSV file with a header. `heads` are the names of the groups; a key has its name, too. With a currency,
    the last column has the cost in it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    named = ["key_name"] if "key" in heads else []
    converted = [f"cost_{currency.code.lower()}"] if currency is not None else []
    writer.writerow([*heads, *named, *FIGURES, "cost_usd", "saved_usd", *converted])
    for row in rows:
        group = group_of(heads, row, key_names)
        figures = [getattr(row, name) for name in FIGURES]
        amounts = [exact_dollars(row.cost), exact_dollars(row.saved)]
        also = [currency.converted(row.cost)] if currency is not None else []
        writer.writerow([*map(csv_cell, group.values()), *figures, *amounts, *also])
    return text.getvalue()


def group_of(heads: Sequence[str], row: UsageRow, key_names: Mapping[str, str]) -> dict[str, str]:
    """The groups of a row by their heads; a key has its name, too."""
    group = dict(zip(heads, row.group, strict=True))
    return group | ({"key_name": key_names.get(group["key"], "")} if "key" in group else {})

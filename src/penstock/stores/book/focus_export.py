"""FocusExport: the CSV file of FOCUS (`gateway/billing/focus.py`), from one day of the book after another."""

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec.structs import replace

from penstock.amounts import DAY_MS
from penstock.gateway.billing.focus import COLUMNS, GROUPS, focus_rows
from penstock.gateway.billing.queries import Filter
from penstock.stores.book.sql_book import Book

FOCUS_HEADER = f"{','.join(COLUMNS)}\n"


def focus_csv(book: Book, wanted: Filter) -> Iterator[str]:
    """The parts of the file: its header, then the rows of each day."""
    yield FOCUS_HEADER
    for day in focus_days(book, wanted):
        yield focus_day(book, day)


def focus_days(book: Book, wanted: Filter) -> list[Filter]:
    """The filters for the days with calls. Each has a start within its day."""
    since_ms, until_ms = wanted.since_ms, wanted.until_ms
    days = []
    for row in book.usage(wanted, ["day"]):
        start = round(datetime.fromisoformat(row.group[0]).replace(tzinfo=UTC).timestamp() * 1000)
        since = start if since_ms is None else max(start, since_ms)
        until = start + DAY_MS if until_ms is None else min(start + DAY_MS, until_ms)
        days.append(replace(wanted, since_ms=since, until_ms=until))
    return days


def focus_day(book: Book, day: Filter) -> str:
    """The rows of a day that `focus_days` has found."""
    usage = book.usage(day, GROUPS)
    keys = {key.id: key for key in book.keys([*{row.group[GROUPS.index("key")] for row in usage}])}
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(focus_rows((day.since_ms or 0) // DAY_MS * DAY_MS, usage, keys))
    return text.getvalue()

"""The exports: all calls that match a filter as CSV, the newest first; and their sums by groups.

Calls are streamed, one page of the book at a time. The next page is read when the client has taken the last one, so
memory does not grow with the number of calls, and other queries of the admin API get their turn between two pages.
"""

import asyncio
import csv
import io
from collections.abc import Mapping
from functools import partial

from penstock.gateway.billing.csv_rows import COLUMNS, csv_row, usage_csv
from penstock.gateway.billing.queries import Filter
from penstock.http.exchange import Exchange
from penstock.serve.admin.backend import Backend
from penstock.serve.admin.queries import invalid_parameter, read_filter, read_grouping
from penstock.serve.admin.replies import own_headers, result_of
from penstock.serve.admin.request import AdminRequest
from penstock.serve.admin.visible import visible_filter
from penstock.stores.book.focus_export import FOCUS_HEADER, focus_day, focus_days
from penstock.stores.book.sql_book import Book

_PAGE = 500
# The rows of a report: about 20 MB.
_MOST_SUMS = 100_000


async def export(backend: Backend, request: AdminRequest, exchange: Exchange) -> None:
    """Send all calls that match, the newest first, as CSV: the columns of `penstock ledger export --csv`. A cell that a
    spreadsheet would run as a formula begins with `'`. Archived calls are not included."""
    submit, asked = backend.read_thread.submit, read_filter(request.query, request.now_ms)
    wanted, names = await result_of(submit, lambda book: (visible_filter(book, request, asked), _key_names(book)))
    text, before = await result_of(submit, partial(_page, wanted, names, None))
    exchange.start(200, own_headers() | _headers("calls"))
    exchange.write(f"{','.join(COLUMNS)}\r\n".encode())
    while before is not None:
        exchange.write(text.encode())
        await _until_taken(exchange)
        if exchange.over:
            return
        text, before = await result_of(submit, partial(_page, wanted, names, before))
    exchange.end(text.encode())


async def export_usage(backend: Backend, request: AdminRequest, exchange: Exchange) -> None:
    """Send the sums of `GET /admin/usage` as CSV, all groups: the columns of `penstock usage --csv`. More than 100,000
    rows are refused."""
    asked, (by, tag) = read_filter(request.query, request.now_ms), read_grouping(request.query)

    def report(book: Book) -> str:
        rows = book.usage(visible_filter(book, request, asked), by, tag=tag, most=_MOST_SUMS + 1)
        if len(rows) > _MOST_SUMS:
            raise invalid_parameter("by", f"the report has more than {_MOST_SUMS:,} rows: ask for less time or groups")
        rows.sort(key=lambda row: row.group)
        heads = [tag if group == "tag" else group for group in by]
        return usage_csv(heads, rows, _key_names(book), request.currency)

    text = await result_of(backend.read_thread.submit, report)
    exchange.start(200, own_headers() | _headers("usage"))
    exchange.end(text.encode())


async def export_focus(backend: Backend, request: AdminRequest, exchange: Exchange) -> None:
    """Send the costs of each day as CSV in the format [FOCUS 1.2](ledger.md#focus)."""
    submit, asked = backend.read_thread.submit, read_filter(request.query, request.now_ms)
    days = await result_of(submit, lambda book: focus_days(book, visible_filter(book, request, asked)))
    exchange.start(200, own_headers() | _headers("focus"))
    exchange.write(FOCUS_HEADER.encode())
    for day in days:
        text = await result_of(submit, partial(_day, day))
        if exchange.over:
            return
        exchange.write(text.encode())
        await _until_taken(exchange)
    exchange.end(b"")


def _day(day: Filter, book: Book) -> str:
    return focus_day(book, day)


def _headers(name: str) -> dict[str, str]:
    return {
        "content-type": "text/csv; charset=utf-8",
        "content-disposition": f'attachment; filename="penstock-{name}.csv"',
    }


async def _until_taken(exchange: Exchange) -> None:
    """Wait while the client is slow."""
    if exchange.paused:
        taken = asyncio.Event()
        exchange.on_resume = exchange.on_gone = taken.set
        await taken.wait()
        exchange.forget()


def _key_names(book: Book) -> dict[str, str]:
    return {key.id: key.name for key in book.key_names()}


def _page(wanted: Filter, names: Mapping[str, str], before: int | None, book: Book) -> tuple[str, int | None]:
    """The rows of one page, and the position of the next one; None after the last."""
    entries = book.entries(wanted, limit=_PAGE, before=before)
    text = io.StringIO()
    csv.writer(text).writerows(csv_row(entry, names.get(entry.key, "")) for _, entry in entries)
    return text.getvalue(), entries[-1][0] if len(entries) == _PAGE else None

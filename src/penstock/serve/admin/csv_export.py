"""CsvExport: sends all calls that match a filter as CSV, the newest first.

The response is streamed, one page of the book at a time. The next page is read when the client has taken the last one,
so memory does not grow with the number of calls, and other queries of the admin API get their turn between two pages.
"""

import csv
import io
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from penstock.amounts import clock_ms
from penstock.core.hub.failure import Failure
from penstock.errors import AdminError
from penstock.gateway.billing.book import Book, Filter
from penstock.gateway.billing.csv_rows import COLUMNS, csv_row
from penstock.gateway.people.roles import Scope
from penstock.http.exchange import Exchange
from penstock.serve.admin.queries import Query, read_filter
from penstock.serve.admin.replies import HEADERS, AdminResponse, refuse_method
from penstock.serve.admin.routes import AdminRequest, with_key_ids
from penstock.serve.responses import new_request_id
from penstock.stores.query_thread import QueryThread

_PAGE = 500
_HEADERS = {
    "content-type": "text/csv; charset=utf-8",
    "content-disposition": 'attachment; filename="penstock-calls.csv"',
}
_BUSY = Failure(code="admin_busy", message="too many requests wait for the ledger; try again", retry_after="1")


class _Page(NamedTuple):
    text: str
    next: "Callable[[Book], _Page] | None"
    """Reads the next page; None after the last one."""


class CsvExport:
    """Handles the route in the event loop of one worker."""

    def __init__(self, book_thread: QueryThread[Book]) -> None:
        self._book_thread = book_thread
        self.routes: tuple[
            tuple[str, re.Pattern[str], Callable[[Scope | None, str, Exchange, AdminResponse], None]], ...
        ]
        self.routes = (("GET", re.compile(r"/admin/export"), self._handle),)
        """Method, pattern of the path, handler. The handler gets what the user may see."""

    def _handle(self, scope: Scope | None, _name: str, exchange: Exchange, answer: AdminResponse) -> None:
        if exchange.request.method != "GET":
            refuse_method(exchange.request.method, "GET", answer)
            return
        now_ms = clock_ms()
        query = AdminRequest(name="", query=Query.parse(""), body=b"", now_ms=now_ms, scope=scope)
        try:
            wanted = read_filter(Query.parse(exchange.request.query), now_ms)
        except AdminError as error:
            answer(error)
            return
        _Download(self._book_thread, exchange, answer).read(partial(_first_page, query, wanted))


class _Download:
    """One response."""

    def __init__(self, book_thread: QueryThread[Book], exchange: Exchange, answer: AdminResponse) -> None:
        self._book_thread = book_thread
        self._exchange = exchange
        self._answer = answer

    def read(self, work: Callable[[Book], _Page]) -> None:
        """Read a page in the book's thread."""
        self._next = work
        if not self._book_thread.submit(work, self._on_page):
            self._fail(_BUSY)

    def _on_page(self, page: _Page | Exception) -> None:
        exchange = self._exchange
        if exchange.over:
            return
        if isinstance(page, Exception):
            self._fail(page)
            return
        if not exchange.begun:
            exchange.start(200, {**HEADERS, **_HEADERS, "x-request-id": new_request_id()})
        if page.next is None:
            exchange.forget()
            exchange.end(page.text.encode())
            return
        exchange.write(page.text.encode())
        self._next = page.next
        if exchange.paused:
            exchange.on_resume = self._resume
        else:
            self.read(page.next)

    def _resume(self) -> None:
        self._exchange.on_resume = None
        self.read(self._next)

    def _fail(self, reason: Exception | Failure) -> None:
        """Report a failure; if a part was sent, break it off, so that it cannot be taken for the whole."""
        if self._exchange.begun:
            self._exchange.abort()
        else:
            self._answer(reason)


def _first_page(request: AdminRequest, wanted: Filter, book: Book) -> _Page:
    names = {key.id: key.name for key in book.key_names()}
    page = _page(with_key_ids(book, request, wanted), names, None, book)
    return _Page(f"{','.join(COLUMNS)}\r\n{page.text}", page.next)


def _page(wanted: Filter, names: Mapping[str, str], before: int | None, book: Book) -> _Page:
    entries = book.entries(wanted, limit=_PAGE, before=before)
    text = io.StringIO()
    csv.writer(text).writerows(csv_row(entry, names.get(entry.key, "")) for _, entry in entries)
    return _Page(text.getvalue(), partial(_page, wanted, names, entries[-1][0]) if len(entries) == _PAGE else None)

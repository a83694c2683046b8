"""Reports: delivers the report of each month, into a folder or to a webhook. No call waits for it.

The ledger has which months were reported (`stores/book/report_rows.py`). Any process with the same ledger can deliver a
report: it takes it for `_LEASE_MS`, and stores the result. So of all workers and gateways one delivers it, a restart
loses none, and months that ended while no gateway was running are delivered after the next start. A delivery that fails
is repeated until it succeeds.

A file is written under another name and then renamed, so it is always complete. If a process dies before it has stored
the result, the same file is written again. A webhook can then get the same report twice, with the same `webhook-id`.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from penstock.amounts import Currency, clock_ms
from penstock.gateway.billing.csv_rows import usage_csv
from penstock.gateway.billing.queries import Filter
from penstock.gateway.config.finance import FinanceSettings, ReportSettings
from penstock.gateway.config.ledger import signing_key
from penstock.gateway.keys.terms import parse_month
from penstock.serve.webhook import WAITS_S, message_id, send_signed
from penstock.stores.book.focus_export import focus_csv
from penstock.stores.book.report_rows import TakenReport
from penstock.stores.book.sql_book import Book
from penstock.stores.query_thread import QueryThread
from penstock.upstream.remote import Remote, RemoteEndpoint

# A report of a month may have hundreds of thousands of rows.
_TIMEOUT_S = 120.0
# Longer than a report and its delivery take.
_LEASE_MS = 900_000
# How often a process looks for reports that others have left.
_POLL_S = 60.0
# How long to wait if the ledger fails.
_LEDGER_WAIT_S = 2.0
# The failed attempt after which there is a line in the log; then after each time that the waits are used up.
_REPORTED_ATTEMPT = 3
# How long `close` waits for an attempt.
_CLOSE_S = 2.0


class Reports:
    """Delivers monthly reports as configured. Used by the event loop's thread."""

    def __init__(
        self,
        remote: Remote,
        open_book: Callable[[], Book],
        warn: Callable[[str], object],
        waits_s: Sequence[float] = WAITS_S,
        now_ms: Callable[[], int] = clock_ms,
    ) -> None:
        self._remote = remote
        self._open_book = open_book
        self._warn = warn
        self._waits_s = waits_s
        self._now_ms = now_ms
        self._settings = ReportSettings()
        self._currency: Currency | None = None
        self._endpoint: RemoteEndpoint | None = None
        self._secret = b""
        self._book: QueryThread[Book] | None = None
        self._task: asyncio.Task[None] | None = None
        self._look = asyncio.Event()
        self._closing = False

    def use(self, finance: FinanceSettings) -> None:
        """Apply a configuration."""
        self._settings, self._currency, self._endpoint = finance.report, finance.shown, None
        webhook, secret = finance.report.webhook, finance.report.webhook_secret
        if webhook is not None and secret is not None:
            self._endpoint = self._remote.endpoint(webhook.reveal(), {"connection": "close"})
            self._secret = signing_key(secret.reveal())
        if finance.report.enabled and self._task is None:
            self._book = QueryThread(self._open_book, "penstock-reports")
            self._task = asyncio.get_running_loop().create_task(self._run(self._book))
        self._look.set()

    async def close(self) -> None:
        """Stop, after the attempt under way if it is short. What is not delivered is delivered after the next start."""
        self._closing = True
        self._look.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_CLOSE_S)
            self._task.cancel()
        if self._book is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._book.close)

    async def _run(self, book: QueryThread[Book]) -> None:
        """Deliver the reports that are due, and wait for the next."""
        while not self._closing:
            self._look.clear()
            wait_s = _POLL_S
            if self._settings.enabled:
                now = self._now_ms()
                found = await book.run(partial(_take, now))
                if isinstance(found, TakenReport):
                    await self._deliver(book, found)
                    continue
                wait_s = _LEDGER_WAIT_S if isinstance(found, Exception) else min(max(0, found - now) / 1000, _POLL_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), wait_s)

    async def _deliver(self, book: QueryThread[Book], taken: TakenReport) -> None:
        """Make one attempt, and store its result."""
        problem = await self._attempt(book, taken.month)
        due_ms = None
        if problem:
            wait_s = self._waits_s[min(taken.attempt, len(self._waits_s)) - 1]
            due_ms = self._now_ms() + int(wait_s * 1000)
            if taken.attempt == _REPORTED_ATTEMPT or taken.attempt % len(self._waits_s) == 0:
                self._warn(
                    f"the report of {taken.month} could not be delivered {taken.attempt} times, and is tried again: "
                    f"{problem}"
                )
        while await book.run(partial(_end, taken, due_ms)) is not None:  # noqa: ASYNC110 - until the ledger works again
            await asyncio.sleep(_LEDGER_WAIT_S)

    async def _attempt(self, book: QueryThread[Book], month: str) -> str:
        """Deliver a report. Returns why that has failed."""
        settings, endpoint = self._settings, self._endpoint
        content = await book.run(partial(_content, settings, self._currency, month))
        if isinstance(content, Exception):
            return str(content)
        if endpoint is not None:
            report = {"type": "report.month", "month": month, "format": settings.format, "csv": content}
            id = message_id(f"report/{month}/{settings.format}")
            return await send_signed(endpoint, self._secret, id, msgspec.json.encode(report), _TIMEOUT_S)
        if not settings.folder:
            return "the report was removed from the configuration"
        written = await book.run(lambda _: _write(Path(settings.folder).expanduser(), f"penstock-{month}.csv", content))
        return str(written) if written is not None else ""


def _take(now_ms: int, book: Book) -> TakenReport | int:
    return book.take_report(now_ms, now_ms + _LEASE_MS)


def _end(taken: TakenReport, due_ms: int | None, book: Book) -> None:
    book.end_report(taken, due_ms)


def _content(settings: ReportSettings, currency: Currency | None, month: str, book: Book) -> str:
    """The CSV of a month."""
    since_ms, until_ms = parse_month(month, 0)
    wanted = Filter(since_ms=since_ms, until_ms=until_ms)
    if settings.format == "focus":
        return "".join(focus_csv(book, wanted))
    names = {key.id: key.name for key in book.key_names()}
    return usage_csv(settings.by, book.usage(wanted, settings.by), names, currency)


def _write(folder: Path, name: str, content: str) -> None:
    """Write a file that is complete as soon as it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{name}.{os.getpid()}"
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / name)
    finally:
        part.unlink(missing_ok=True)

"""The table of monthly reports: one row per month, whichever process inserts it first.

`due_ms` is set until the report is delivered: the time of the next attempt. A process that takes a report sets it to
the end of its lease, so that no other process takes it meanwhile, and one does if the process dies. `attempts` tells a
result that arrives too late: another process has taken the report since.
"""

from typing import NamedTuple, cast

from penstock.gateway.keys.period import period_at
from penstock.stores.book.database import Database, Queryable, Transaction
from penstock.stores.book.rows import number

# A month is reported so long after its end: its last calls have ended, and calls of processes that died are booked.
GRACE_MS = 6 * 3_600_000
# The most months that are reported after a time without a gateway.
_MOST_MISSED = 12
_STATE = "SELECT MAX(month), MIN(due_ms) FROM reports"
_INSERT = "INSERT INTO reports (month, due_ms) VALUES (?, ?) ON CONFLICT (month) DO NOTHING"
_TAKE = """
UPDATE reports SET attempts = attempts + 1, due_ms = ? WHERE due_ms <= ? AND month = (
    SELECT MIN(month) FROM reports WHERE due_ms <= ?
) RETURNING month, attempts
"""
_END = "UPDATE reports SET due_ms = ? WHERE month = ? AND attempts = ? AND due_ms IS NOT NULL"


class TakenReport(NamedTuple):
    """A report that one process delivers. No other process takes it until its lease ends."""

    month: str
    """Such as `2026-10`."""
    attempt: int
    """Of all processes, from 1."""


def report_tables(_dialect: object) -> list[str]:
    """The statements that create the table."""
    return ["CREATE TABLE reports (month TEXT PRIMARY KEY, due_ms BIGINT, attempts BIGINT NOT NULL DEFAULT 0)"]


def take_report(database: Database, now_ms: int, until_ms: int) -> TakenReport | int:
    """Take the report that is due, until a time; or return when to look again.

    The first report is that of the last complete month. Then every month gets one, also those that ended while no
    gateway was running.
    """
    newest, due_ms = _state(database)
    this = period_at("month", now_ms - GRACE_MS)
    complete = period_at("month", this.since - 1).label
    if newest >= complete and (due_ms is None or due_ms > now_ms):
        next_ms = cast(int, this.until) + GRACE_MS
        return next_ms if due_ms is None else min(due_ms, next_ms)

    def work(transaction: Transaction) -> TakenReport | int:
        last, _ = _state(transaction)
        for month in _missed(last, this.since):
            transaction.fetch(_INSERT, (month, number(now_ms)))
        rows = transaction.fetch(_TAKE, (number(until_ms), number(now_ms), number(now_ms)))
        return TakenReport(str(rows[0][0]), cast(int, rows[0][1])) if rows else now_ms  # another process was quicker

    return database.write(work)


def end_report(database: Database, taken: TakenReport, due_ms: int | None) -> None:
    """Store the result of an attempt, unless another process has taken the report since: when it is repeated, or None
    if the report is delivered."""
    due = None if due_ms is None else number(due_ms)
    database.write(lambda transaction: transaction.fetch(_END, (due, taken.month, taken.attempt)))


def _state(reader: Queryable) -> tuple[str, int | None]:
    """The newest month that has a report, empty if none has; and when the next attempt is due."""
    ((newest, due_ms),) = reader.fetch(_STATE)
    return cast("tuple[str, int | None]", (newest or "", due_ms))


def _missed(newest: str, since_ms: int) -> list[str]:
    """The complete months after the newest one, the oldest first; the last one if there is none. `since_ms` is the
    start of the month that is not complete."""
    months: list[str] = []
    while len(months) < (_MOST_MISSED if newest else 1):
        month = period_at("month", since_ms - 1)
        if month.label <= newest:
            break
        months.insert(0, month.label)
        since_ms = month.since
    return months

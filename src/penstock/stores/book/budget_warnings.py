"""The table of budget warnings: one row per account, period and percentage, whichever process inserts it first.

`due_ms` is set while a warning waits for the webhook: the time of the next attempt. A process that takes a warning sets
it to the end of its lease, so that no other process takes it meanwhile, and one does if the process dies. `attempts`
tells a result that arrives too late: another process has taken the warning since.
"""

from collections.abc import Sequence
from typing import cast

from penstock.amounts import DAY_MS
from penstock.gateway.limits.warnings import BudgetWarning, Delivery, TakenWarning
from penstock.stores.book.database import Database, Queryable, Row, SqlDialect, Transaction, numbers, texts
from penstock.stores.book.rows import RowMapper, number, text

_WARNINGS = RowMapper(BudgetWarning)
_COLUMNS = _WARNINGS.columns
_CLAIM = (
    f"INSERT INTO budget_warnings ({', '.join(_COLUMNS)}, due_ms) VALUES ({', '.join('?' * len(_COLUMNS))}, ?) "
    "ON CONFLICT (account, label, percent) DO NOTHING RETURNING account, label, percent"
)
_NEWEST = f"SELECT {', '.join(_COLUMNS)} FROM budget_warnings ORDER BY at_ms DESC, account, percent DESC LIMIT ?"
# Those of a total budget stay: they would be repeated.
_FORGET = "DELETE FROM budget_warnings WHERE at_ms < ? AND period <> 'total'"
_NEXT_DUE = "SELECT MIN(due_ms) FROM budget_warnings WHERE due_ms IS NOT NULL"
_TAKE = f"""
UPDATE budget_warnings SET attempts = attempts + 1, due_ms = ? WHERE (account, label, percent) = (
    SELECT account, label, percent FROM budget_warnings WHERE due_ms <= ? ORDER BY due_ms, account, percent LIMIT 1
) RETURNING {", ".join(_COLUMNS)}, attempts
"""
_END = """
UPDATE budget_warnings SET delivery = ?, due_ms = ?
WHERE account = ? AND label = ? AND percent = ? AND attempts = ? AND delivery = 'waiting'
"""
_KEEP_MS = 100 * DAY_MS  # longer than the longest period, or a warning could be repeated


def warning_tables(dialect: SqlDialect) -> Sequence[str]:
    """The statements that create the table."""
    return (
        f"""
        CREATE TABLE budget_warnings (
            {texts("account label")},
            percent BIGINT NOT NULL,
            {texts("period kind name title delivery")},
            {numbers("budget spent refused at_ms")},
            attempts BIGINT NOT NULL DEFAULT 0,
            due_ms BIGINT,
            PRIMARY KEY (account, label, percent)
        ) {dialect.clustered}
        """,
        "CREATE INDEX budget_warnings_due ON budget_warnings (due_ms) WHERE due_ms IS NOT NULL",
    )


def claim(transaction: Transaction, warnings: Sequence[BudgetWarning]) -> list[BudgetWarning]:
    """Insert the warnings that are new, and return them."""
    by_id = {(text(each.account), each.label, each.percent): each for each in warnings}
    new = transaction.fetch_each(_CLAIM, [_row(each) for each in by_id.values()])
    if new:
        transaction.fetch(_FORGET, (max(each.at_ms for each in warnings) - _KEEP_MS,))
    return [by_id[cast("tuple[str, str, int]", tuple(id))] for id in new]


def take(database: Database, now_ms: int, until_ms: int) -> TakenWarning | int | None:
    """Take the warning that is due, until a time; or return when the next one is due, or None if none waits."""
    ((due_ms,),) = database.fetch(_NEXT_DUE)
    if due_ms is None or cast(int, due_ms) > now_ms:
        return cast("int | None", due_ms)
    rows = database.write(lambda transaction: transaction.fetch(_TAKE, (number(until_ms), number(now_ms))))
    if not rows:
        return now_ms  # another process was quicker: look again
    return TakenWarning(_WARNINGS.read(rows[0][:-1]), cast(int, rows[0][-1]))


def end_delivery(database: Database, taken: TakenWarning, delivery: Delivery, due_ms: int | None) -> None:
    """Store the result of an attempt, unless another process has taken the warning since."""
    warning = taken.warning
    due = number(due_ms) if due_ms is not None else None
    values: Row = (delivery, due, text(warning.account), warning.label, warning.percent, taken.attempt)
    database.write(lambda transaction: transaction.fetch(_END, values))


def newest(reader: Queryable, limit: int) -> list[BudgetWarning]:
    """The newest warnings first."""
    return [_WARNINGS.read(row) for row in reader.fetch(_NEWEST, (limit,))]


def _row(warning: BudgetWarning) -> Row:
    return *_WARNINGS.write(warning), number(warning.at_ms) if warning.delivery == "waiting" else None

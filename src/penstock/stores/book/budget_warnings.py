"""The table of budget warnings: one row per account, period and percentage, whichever process inserts it first."""

from collections.abc import Sequence
from typing import Any, cast

from msgspec import structs

from penstock.gateway.limits.period import DAY_MS
from penstock.gateway.limits.warnings import BudgetWarning
from penstock.stores.book.database import Queryable, Row, SqlDialect, Transaction
from penstock.stores.book.rows import number, text

_COLUMNS = tuple(BudgetWarning.__struct_fields__)
_CLAIM = (
    f"INSERT INTO budget_warnings ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "
    "ON CONFLICT (account, label, percent) DO NOTHING RETURNING account, label, percent"
)
_NEWEST = f"SELECT {', '.join(_COLUMNS)} FROM budget_warnings ORDER BY at_ms DESC, account, percent DESC LIMIT ?"
# Those of a total budget stay: they would be repeated.
_FORGET = "DELETE FROM budget_warnings WHERE at_ms < ? AND period <> 'total'"
_KEEP_MS = 100 * DAY_MS  # longer than the longest period, or a warning could be repeated


def warning_tables(dialect: SqlDialect) -> Sequence[str]:
    """The statements that create the table."""
    return (
        f"""
        CREATE TABLE budget_warnings (
            account TEXT NOT NULL,
            label TEXT NOT NULL,
            percent BIGINT NOT NULL,
            period TEXT NOT NULL,
            kind TEXT NOT NULL,
            name TEXT NOT NULL,
            title TEXT NOT NULL,
            budget BIGINT NOT NULL,
            spent BIGINT NOT NULL,
            refused BIGINT NOT NULL,
            at_ms BIGINT NOT NULL,
            PRIMARY KEY (account, label, percent)
        ) {dialect.clustered}
        """,
    )


def claim(transaction: Transaction, warnings: Sequence[BudgetWarning]) -> list[BudgetWarning]:
    """Insert the warnings that are new, and return them."""
    by_id = {(text(each.account), each.label, each.percent): each for each in warnings}
    new = transaction.fetch_each(_CLAIM, [_row(each) for each in by_id.values()])
    if new:
        transaction.fetch(_FORGET, (max(each.at_ms for each in warnings) - _KEEP_MS,))
    return [by_id[cast("tuple[str, str, int]", tuple(id))] for id in new]


def newest(reader: Queryable, limit: int) -> list[BudgetWarning]:
    """The newest warnings first."""
    return [_read(row) for row in reader.fetch(_NEWEST, (limit,))]


def _row(warning: BudgetWarning) -> Row:
    return tuple(number(int(value)) if isinstance(value, int) else text(value) for value in structs.astuple(warning))


def _read(row: Row) -> BudgetWarning:
    values: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    return BudgetWarning(**{**values, "refused": bool(values["refused"])})

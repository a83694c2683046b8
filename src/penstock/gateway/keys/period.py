"""BudgetPeriod: a day, week or month of the calendar for which a budget is valid. In UTC; a week starts on Monday.

Times are in milliseconds since 1970.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from msgspec import Struct

from penstock.amounts import DAY_MS
from penstock.gateway.keys.quota import Period


class BudgetPeriod(Struct, frozen=True):
    """One period of the calendar."""

    label: str
    since: int
    until: int | None

    def __contains__(self, second: int) -> bool:
        """Whether a time, in seconds since 1970, is in the period."""
        return self.since <= second * 1000 and (self.until is None or second * 1000 < self.until)


def period_at(period: Period, now: int) -> BudgetPeriod:
    """The period that contains a time."""
    return _period_at(period, now // DAY_MS)


@lru_cache(maxsize=64)
def _period_at(period: Period, day: int) -> BudgetPeriod:
    if period == "total":
        return BudgetPeriod("total", 0, None)
    today = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)
    match period:
        case "day":
            return BudgetPeriod(today.strftime("%Y-%m-%d"), day * DAY_MS, (day + 1) * DAY_MS)
        case "week":
            year, week, weekday = today.isocalendar()
            monday = day - weekday + 1
            return BudgetPeriod(f"{year}-W{week:02}", monday * DAY_MS, (monday + 7) * DAY_MS)
        case "month":
            first = day - today.day + 1
            following = (today.replace(day=1) + timedelta(days=31)).replace(day=1)
            days = (following - today.replace(day=1)).days
            return BudgetPeriod(today.strftime("%Y-%m"), first * DAY_MS, (first + days) * DAY_MS)

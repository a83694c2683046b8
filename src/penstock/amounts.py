"""Amounts: money in nanodollars and times in milliseconds since 1970, as the code has them and as people read them."""

import time
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

NANODOLLARS = 1_000_000_000
"""Of one US dollar."""
DAY_MS = 86_400_000
_CENT = NANODOLLARS // 100
_NANO = Decimal("0.000000001")
_MIN_SHOWN = 1000


def clock_ms() -> int:
    """The time, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def dollars(amount: int) -> str:
    """Dollars, exactly, with two decimal places or as many as are needed."""
    whole, rest = divmod(abs(amount), NANODOLLARS)
    return f"{'-' if amount < 0 else ''}${whole}.{f'{rest:09}'.rstrip('0').ljust(2, '0')}"


def money(amount: int | None) -> str | None:
    """Dollars, exactly, without the sign `$`, for JSON."""
    return None if amount is None else dollars(amount).replace("$", "")


def short_dollars(amount: int) -> str:
    """Dollars to the cent, or with two significant digits if the amount is smaller: `$1.05`, `$0.012`, `$0.00042`."""
    digits = 9 - min(max(len(str(amount)) - 2, 0), 7)
    unit: int = 10 ** (9 - digits)
    whole, rest = divmod((amount + unit // 2) // unit, 10**digits)
    cents, finer = f"{rest:0{digits}}"[:2], f"{rest:0{digits}}"[2:].rstrip("0")
    return f"${whole}.{cents}{finer}"


def table_dollars(amount: int) -> str:
    """Dollars for a table, with four digits, or six below a cent, because tokens cost so little."""
    if not amount:
        return "$0"
    if amount < 0:  # a correction, which an import has made
        return f"-{table_dollars(-amount)}"
    if amount < _MIN_SHOWN:
        return "<$0.000001"
    return f"${amount / NANODOLLARS:,.{4 if amount >= _CENT else 6}f}"


class Currency(NamedTuple):
    """A currency in which costs are shown beside dollars; `rate` is how much of it a dollar is."""

    code: str
    rate: Decimal

    def converted(self, amount: int) -> str:
        """An amount in nanodollars as one of this currency, with nine decimal places."""
        return f"{(amount * self.rate / NANODOLLARS).quantize(_NANO, ROUND_HALF_UP):f}"

    def table_text(self, amount: int) -> str:
        """An amount in nanodollars for a table, as `table_dollars` writes it, without the sign."""
        return table_dollars(int((amount * self.rate).to_integral_value(ROUND_HALF_UP))).replace("$", "")


def moment(at_ms: int | None) -> str | None:
    """A time in UTC as ISO 8601 writes it, with milliseconds if it has any."""
    if at_ms is None:
        return None
    try:
        at = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    except (ValueError, OverflowError):
        return None
    return at.isoformat(timespec="milliseconds" if at_ms % 1000 else "seconds").replace("+00:00", "Z")


def table_moment(at_ms: int) -> str:
    """A time in UTC for a table, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")

"""Formats amounts for people: money in US dollars, times in UTC."""

from datetime import UTC, datetime

from penstock.gateway.billing.entry import NANODOLLARS

_CENT = NANODOLLARS // 100
_MIN_SHOWN = 1000


def money(cost: int) -> str:
    """Nanodollars as dollars, with four digits, or six below a cent, because tokens cost so little."""
    if not cost:
        return "$0"
    if cost < 0:  # a correction, which an import has made
        return f"-{money(-cost)}"
    if cost < _MIN_SHOWN:
        return "<$0.000001"
    return f"${cost / NANODOLLARS:,.{4 if cost >= _CENT else 6}f}"


def moment(at_ms: int) -> str:
    """A time, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")

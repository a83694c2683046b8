"""Formats and parses amounts for people: money in US dollars, times in UTC."""

import re
from datetime import UTC, date, datetime, timedelta

from penstock.gateway.billing.entry import NANODOLLARS

DAY = timedelta(days=1)
_AGO = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": DAY, "w": 7 * DAY}
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


def dollars(cost: int | None) -> float | None:
    """Nanodollars as a number of dollars, for JSON."""
    return None if cost is None else cost / NANODOLLARS


def moment(at_ms: int) -> str:
    """A time, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def parse_moment(text: str, now: datetime, *, end: bool = False) -> int:
    """Parse `7d` (ago), `2026-11-01` or `2026-11-01T12:30` to milliseconds since the Unix epoch.

    A date means the start of the day, or its end if `end` is true.
    """
    if ago := _AGO.fullmatch(text):
        try:
            return _ms(now - int(ago[1]) * _UNITS[ago[2]])
        except OverflowError:
            return 0
    try:
        if len(text) == len("2026-11-01"):
            day = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
            return _ms(day + DAY if end else day)
        given = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no time: write 7d, 12h, 2026-11-01 or 2026-11-01T12:30") from None
    return _ms(given if given.tzinfo else given.replace(tzinfo=UTC))


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)

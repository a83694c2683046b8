"""Amounts as people read them: money, numbers, moments. Everything is in US dollars and in UTC."""

import re
from datetime import UTC, date, datetime, timedelta

from penstock.gateway.billing.entry import NANODOLLARS

DAY = timedelta(days=1)
_AGO = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": DAY, "w": 7 * DAY}
_CENT = NANODOLLARS // 100
_LEAST = 1000


def money(cost: int) -> str:
    """Nanodollars as dollars. Tokens cost so little that there are four digits, and six below a cent."""
    if not cost:
        return "$0"
    if cost < _LEAST:
        return "<$0.000001"
    return f"${cost / NANODOLLARS:,.{4 if cost >= _CENT else 6}f}"


def dollars(cost: int | None) -> float | None:
    """The same for a program."""
    return None if cost is None else cost / NANODOLLARS


def moment(at_ms: int) -> str:
    """A time, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def parse_moment(text: str, now: datetime, *, end: bool = False) -> int:
    """Milliseconds since 1970 of `7d` ago, `2026-11-01`, or `2026-11-01T12:30`. A day begins; or ends, if `end`."""
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

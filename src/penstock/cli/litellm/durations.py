"""Durations as LiteLLM writes them: 30s, 15m, 12h, 7d, 2w, 1mo."""

import re

_DURATION = re.compile(r"(\d+)(s|m|h|d|w|mo)")
MONTH_S = 31 * 86_400
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "mo": MONTH_S}


def seconds_of(duration: object) -> int | None:
    """The seconds of a duration; None if it is none."""
    match = _DURATION.fullmatch(str(duration))
    return int(match[1]) * _SECONDS[match[2]] if match is not None else None

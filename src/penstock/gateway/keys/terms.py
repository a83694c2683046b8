"""KeyTerms, KeyUpdate: the settings of a key as users write them, and the parsers for money, times and names.

| value | format |
|---|---|
| money | `25`, `$25`, `0.50`: dollars, to the nanodollar |
| duration | `45s`, `90m`, `24h`, `30d`, `2w`, or `0` |
| time | a duration from now; `2027-01-01`, which is 00:00 UTC; `2027-01-01T12:00Z` |

An invalid value raises `AdminError`, which names the field.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeAlias

from msgspec import UNSET, Struct, UnsetType

from penstock.amounts import DAY_MS, NANODOLLARS
from penstock.errors import AdminError
from penstock.gateway.keys.keys import Raiser
from penstock.gateway.keys.period import period_at
from penstock.gateway.keys.quota import Period

_MONEY = re.compile(r"\$?(\d{1,9})(?:\.(\d{1,9}))?")
_DURATION = re.compile(r"(\d{1,9})([smhdw])")
_MONTH = re.compile(r"[1-9]\d{3}-(?:0[1-9]|1[0-2])")
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS}
_CENTURY_MS = 36_525 * _UNITS_MS["d"]
# Of a stored key, and of the clients of a team that have a JWT (`teams/chain.py`).
_ID = re.compile(r"key_[0-9a-f]{12}|jwt:.*")
# Longer texts would be shortened in the store, and the key would not have the requested values.
_MAX_LENGTH = 200
_MAX_MODELS = 100
MAX_TAGS = 16
_MAX_LIMIT = 1_000_000_000
Amount: TypeAlias = str | int | float


class LimitTerms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits, as users write them. What is given replaces the present value; null removes it."""

    budgets: Mapping[Period, Amount | None] = {}
    requests_per_minute: int | UnsetType | None = UNSET
    tokens_per_minute: int | UnsetType | None = UNSET
    concurrent: int | UnsetType | None = UNSET


class PolicyTerms(LimitTerms, frozen=True, kw_only=True):
    """The most that keys may have which members create, as users write it."""

    number: int | UnsetType | None = UNSET
    days: int | UnsetType | None = UNSET
    models: tuple[str, ...] | UnsetType = UNSET
    raised_by: Raiser | UnsetType = UNSET


class LimitedUpdate(LimitTerms, frozen=True, kw_only=True):
    """Changes that keys and teams have in common."""

    models: tuple[str, ...] | UnsetType = UNSET
    end_users: LimitTerms = LimitTerms()
    blocked: bool | UnsetType = UNSET


class KeySettings(LimitedUpdate, frozen=True, kw_only=True):
    """What a file for `penstock apply` declares of a key."""

    budget: Amount | UnsetType | None = UNSET
    period: Period | UnsetType = UNSET
    expires: str | UnsetType | None = UNSET
    strict: bool | UnsetType = UNSET
    client_credentials: tuple[str, ...] | UnsetType = UNSET
    tags: Mapping[str, str] | UnsetType = UNSET
    team: str | UnsetType | None = UNSET


class KeyUpdate(KeySettings, frozen=True, kw_only=True):
    """Changes of a key: what is given replaces the present value, and null removes a limit. Also the body of
    `PATCH /admin/keys/ID`."""

    name: str | UnsetType = UNSET
    managed_by: str | UnsetType | None = UNSET


class KeyTerms(KeyUpdate, frozen=True, kw_only=True):
    """The settings of a new key. An omitted limit is no limit. Also the body of `POST /admin/keys`."""

    period: Period | UnsetType | None = UNSET  # type: ignore[assignment]  # null is the default


class ListedKeyUpdate(KeyUpdate, frozen=True, kw_only=True):
    """Changes of one of several keys: `key` is its id or name. Also a line of a file, and of `PATCH /admin/keys`."""

    key: str


def parse_money(text: str) -> int:
    """Parse dollars into nanodollars, exactly."""
    match = _MONEY.fullmatch(text.strip())
    if match is None:
        raise AdminError(
            "a budget is an amount of dollars, such as 25 or $0.50, below a billion and with at most nine digits "
            "after the point",
            param="budget",
        )
    return int(match[1]) * NANODOLLARS + int((match[2] or "").ljust(9, "0"))


def parse_duration(text: str, param: str) -> int:
    """Parse a duration into milliseconds."""
    match = _DURATION.fullmatch(text.strip())
    length = int(match[1]) * _UNITS_MS[match[2]] if match is not None else 0 if text.strip() == "0" else None
    if length is None or length > _CENTURY_MS:
        raise AdminError(f"{param} must be a duration such as 45s, 90m, 24h, 30d or 2w, at most a century", param=param)
    return length


def is_duration(text: str) -> bool:
    """Whether a text is a duration, such as `30d`."""
    return _DURATION.fullmatch(text.strip()) is not None


def parse_moment(text: str, now_ms: int, param: str, *, past: bool = False) -> int:
    """Parse a time into milliseconds since 1970: a duration from now, or before now if `past`; or a date, optionally
    with a time."""
    text = text.strip()
    if _DURATION.fullmatch(text):
        length = parse_duration(text, param)
        return now_ms - length if past else now_ms + length
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        message = f"{param} must be a duration such as 30d, a date such as 2027-01-01, or a date and time such as "
        raise AdminError(f"{message}2027-01-01T12:00Z", param=param) from None


def parse_month(text: str, now_ms: int) -> tuple[int, int]:
    """Parse a month of the calendar, in UTC: `2026-11`, `this` or `last`. Returns its start and its end."""
    this = period_at("month", now_ms)
    if text == "this":
        month = this
    elif text == "last":
        month = period_at("month", this.since - 1)
    elif _MONTH.fullmatch(text):
        month = period_at("month", parse_moment(f"{text}-01", now_ms, "month"))
    else:
        raise AdminError("month is this, last, or a month such as 2026-11", param="month")
    assert month.until is not None
    return month.since, month.until


def parse_expiry(text: str, now_ms: int) -> int:
    """Parse the time at which a key expires."""
    moment = parse_moment(text, now_ms, "expires")
    if moment <= now_ms:
        raise AdminError("expires is in the past: such a key would never be valid", param="expires")
    return moment


def parse_tag(text: str) -> tuple[str, str]:
    """Parse a tag, `name=value`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise AdminError("a tag is written name=value", param="tags")
    return name, value


def check_name(name: str) -> str:
    """The name of a key or a token. Raises if a text cannot be one."""
    if not is_text(name):
        raise AdminError(
            f"a name has 1 to {_MAX_LENGTH} printable characters, without spaces at its ends", param="name"
        )
    if _ID.fullmatch(name):
        raise AdminError("a name must not look like the id of a key", param="name")
    return name


def check_manager(name: str | None) -> str:
    """The name of what manages a key or a team; empty if nothing does. Raises if a text cannot be one."""
    if name and not is_text(name):
        raise AdminError(
            f"managed_by has 1 to {_MAX_LENGTH} printable characters, without spaces at its ends", param="managed_by"
        )
    return name or ""


def check_limit(value: int | None, param: str) -> int | None:
    """The limit. Raises if a number cannot be one."""
    if value is not None and not 1 <= value <= _MAX_LIMIT:
        raise AdminError(f"{param} is a whole number from 1 to {_MAX_LIMIT}", param=param)
    return value


def check_models(models: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns of models. Raises if they are too many or too long."""
    if len(models) > _MAX_MODELS or not all(map(is_text, models)):
        message = f"models are at most {_MAX_MODELS} names or patterns such as groq/*, of 1 to {_MAX_LENGTH} characters"
        raise AdminError(message, param="models")
    return models


def check_providers(providers: tuple[str, ...]) -> tuple[str, ...]:
    """The names of providers. Raises if they are too many or too long."""
    if len(providers) > _MAX_MODELS or not all(map(is_text, providers)):
        message = f"client_credentials are at most {_MAX_MODELS} names of providers, of 1 to {_MAX_LENGTH} characters"
        raise AdminError(message, param="client_credentials")
    return providers


def check_tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    """The tags. Raises if they are too many or too long."""
    if len(tags) > MAX_TAGS or not all(map(is_text, tags)) or not all(not v or is_text(v) for v in tags.values()):
        message = f"tags are at most {MAX_TAGS} names with their values, each of at most {_MAX_LENGTH} characters"
        raise AdminError(message, param="tags")
    return tags


def is_text(text: str) -> bool:
    """Whether a text can be a name, or a part of a tag."""
    return 0 < len(text) <= _MAX_LENGTH and text == text.strip() and text.isprintable()

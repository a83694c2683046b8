"""KeyTerms, KeyUpdate: the settings of a key as users write them, and the parsers for money, times and names.

| value | format |
|---|---|
| money | `25`, `$25`, `0.50`: dollars, to the nanodollar |
| duration | `45s`, `90m`, `24h`, `30d`, `2w`, or `0` |
| time | a duration from now; `2027-01-01`, which is 00:00 UTC; `2027-01-01T12:00Z` |

An invalid value raises `AdminError`, which names the field.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias, get_args

from msgspec import UNSET, Struct, UnsetType, structs

from penstock.amounts import DAY_MS, NANODOLLARS
from penstock.errors import AdminError
from penstock.gateway.keys.keys import EndUserLimits, Key, Period, digest_of, new_id, new_secret
from penstock.gateway.teams.path import check_team_path

_MONEY = re.compile(r"\$?(\d{1,9})(?:\.(\d{1,9}))?")
_DURATION = re.compile(r"(\d{1,9})([smhdw])")
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS}
_CENTURY_MS = 36_525 * _UNITS_MS["d"]
# Of a stored key, and of the clients of a team that have a JWT (`people/jwt_keys.py`).
_ID = re.compile(r"key_[0-9a-f]{12}|jwt:.*")
# Longer texts would be shortened in the store, and the key would not have the requested values.
_MAX_LENGTH = 200
_MAX_MODELS = 100
_MAX_TAGS = 16
_MAX_LIMIT = 1_000_000_000
_NO_BUDGET = "a period needs a budget: set one with it"


Amount: TypeAlias = str | int | float


class EndUserTerms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of each end user, as users write them. What is given replaces the present value; null removes it."""

    budgets: Mapping[Period, Amount | None] = {}
    requests_per_minute: int | UnsetType | None = UNSET
    tokens_per_minute: int | UnsetType | None = UNSET
    concurrent: int | UnsetType | None = UNSET


class KeyTerms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a new key. An omitted limit is no limit. Also the body of `POST /admin/keys`."""

    name: str = ""
    budget: str | int | float | None = None
    period: Period | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    models: tuple[str, ...] = ()
    expires: str = ""
    strict: bool = False
    tags: Mapping[str, str] = {}
    team: str = ""
    budgets: Mapping[Period, Amount | None] = {}
    end_users: EndUserTerms = EndUserTerms()


class KeyUpdate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of a key: what is given replaces the present value, and null removes a limit. Also the body of
    `PATCH /admin/keys/ID`."""

    name: str | UnsetType = UNSET
    budget: str | int | float | UnsetType | None = UNSET
    period: Period | UnsetType = UNSET
    requests_per_minute: int | UnsetType | None = UNSET
    tokens_per_minute: int | UnsetType | None = UNSET
    concurrent: int | UnsetType | None = UNSET
    models: tuple[str, ...] | UnsetType = UNSET
    expires: str | UnsetType | None = UNSET
    strict: bool | UnsetType = UNSET
    tags: Mapping[str, str] | UnsetType = UNSET
    blocked: bool | UnsetType = UNSET
    team: str | UnsetType | None = UNSET
    budgets: Mapping[Period, Amount | None] = {}
    end_users: EndUserTerms = EndUserTerms()


class ListedKeyUpdate(KeyUpdate, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of one of several keys: `key` is its id or name. Also a line of a file, and of `PATCH /admin/keys`."""

    key: str


def make_key(terms: KeyTerms, now_ms: int) -> tuple[str, Key]:
    """A new key with these settings: its secret, and the key to store."""
    id, secret = new_id(), new_secret()
    if terms.period is not None and terms.budget is None:
        raise AdminError(_NO_BUDGET, param="period")
    bare = Key(id=id, name=id, digest=digest_of(secret), hint=secret[-4:], created_ms=now_ms)
    given = {name: value for name, value in structs.asdict(terms).items() if value not in (None, "")}
    return secret, updated(bare, KeyUpdate(**given), now_ms)


def updated(key: Key, update: KeyUpdate, now_ms: int) -> Key:
    """The key with changes."""
    values: dict[str, Any] = {}
    for field, (target, parse) in _FIELDS.items():
        given = getattr(update, field)
        if given is not UNSET:
            values[target] = parse(given, now_ms)
    values |= blocking(key, update.blocked, now_ms)
    values["budgets"] = merged_budgets(key.budgets, update.budgets)
    values["end_users"] = merged_limits(key.end_users, update.end_users)
    changed = structs.replace(key, **values)
    if update.period is not UNSET and changed.budget is None:
        raise AdminError(_NO_BUDGET, param="period")
    return changed


class _Blockable(Protocol):
    @property
    def blocked_ms(self) -> int | None: ...


def blocking(current: _Blockable, blocked: bool | UnsetType, now_ms: int) -> dict[str, int | None]:
    """The change of `blocked_ms` if a key or a team is to be blocked or unblocked."""
    if blocked is UNSET or (current.blocked_ms is not None) == blocked:
        return {}
    return {"blocked_ms": now_ms if blocked else None}


def merged_budgets(current: Mapping[Period, int], given: Mapping[Period, Amount | None]) -> Mapping[Period, int]:
    """The budgets by period with those that are given; null removes one. Shorter periods first."""
    amounts = {
        **current,
        **{period: None if amount is None else parse_money(str(amount)) for period, amount in given.items()},
    }
    return {period: amount for period in get_args(Period) if (amount := amounts.get(period)) is not None}


def merged_limits(current: EndUserLimits, given: EndUserTerms) -> EndUserLimits:
    """The limits of end users with those that are given."""
    limits = {name: getattr(given, name) for name in ("requests_per_minute", "tokens_per_minute", "concurrent")}
    return structs.replace(
        current,
        budgets=merged_budgets(current.budgets, given.budgets),
        **{name: check_limit(limit, name) for name, limit in limits.items() if limit is not UNSET},
    )


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
    if not _is_text(name):
        raise AdminError(
            f"a name has 1 to {_MAX_LENGTH} printable characters, without spaces at its ends", param="name"
        )
    if _ID.fullmatch(name):
        raise AdminError("a name must not look like the id of a key", param="name")
    return name


def check_limit(value: int | None, param: str) -> int | None:
    """The limit. Raises if a number cannot be one."""
    if value is not None and not 1 <= value <= _MAX_LIMIT:
        raise AdminError(f"{param} is a whole number from 1 to {_MAX_LIMIT}", param=param)
    return value


def check_models(models: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns of models. Raises if they are too many or too long."""
    if len(models) > _MAX_MODELS or not all(map(_is_text, models)):
        message = f"models are at most {_MAX_MODELS} names or patterns such as groq/*, of 1 to {_MAX_LENGTH} characters"
        raise AdminError(message, param="models")
    return models


def _tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    if len(tags) > _MAX_TAGS or not all(map(_is_text, tags)) or not all(not v or _is_text(v) for v in tags.values()):
        message = f"tags are at most {_MAX_TAGS} names with their values, each of at most {_MAX_LENGTH} characters"
        raise AdminError(message, param="tags")
    return tags


def _is_text(text: str) -> bool:
    return 0 < len(text) <= _MAX_LENGTH and text == text.strip() and text.isprintable()


# By the name that users write: the field of the key, and its parser.
_FIELDS: dict[str, tuple[str, Callable[[Any, int], object]]] = {
    "name": ("name", lambda given, _now: check_name(given)),
    "budget": ("budget", lambda given, _now: None if given is None else parse_money(str(given))),
    "period": ("period", lambda given, _now: given),
    "requests_per_minute": ("requests_per_minute", lambda given, _now: check_limit(given, "requests_per_minute")),
    "tokens_per_minute": ("tokens_per_minute", lambda given, _now: check_limit(given, "tokens_per_minute")),
    "concurrent": ("concurrent", lambda given, _now: check_limit(given, "concurrent")),
    "models": ("models", lambda given, _now: check_models(given)),
    "expires": ("expires_ms", lambda given, now: parse_expiry(given, now) if given else None),
    "strict": ("strict", lambda given, _now: given),
    "tags": ("tags", lambda given, _now: _tags(given)),
    "team": ("team", lambda given, _now: check_team_path(given) if given else ""),
}

"""Field: what users set of a key, a team, or each of their end users. One table, from which others follow:

| what | follows |
|---|---|
| input: `terms.py`, `PATCH /admin/keys`, CSV files | `change` has the check of each field |
| the command line (`cli/field_options.py`, `cli/key_tables.py`) | `kind`, `option`, `help` and `unit` |
| columns, reports and the audit log | the structs in `keys.py`: all of their fields |
| the page (`serve/web/kit/key_fields.js`) | the same names |

`tests/cli/test_fields.py` proves that each field is in all of them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from msgspec import UNSET, structs

from penstock.errors import AdminError
from penstock.gateway.keys.key_secret import digest_of, new_secret
from penstock.gateway.keys.keys import Key, KeyLimits, Raiser, new_id
from penstock.gateway.keys.quota import Period
from penstock.gateway.keys.team_path import check_team_path
from penstock.gateway.keys.terms import (
    Amount,
    KeySettings,
    KeyTerms,
    KeyUpdate,
    LimitTerms,
    check_limit,
    check_manager,
    check_models,
    check_name,
    check_providers,
    check_tags,
    parse_expiry,
    parse_money,
)

Kind: TypeAlias = Literal["text", "number", "flag", "period", "list", "pairs", "budgets", "limits"]
L = TypeVar("L", bound=KeyLimits)


class Field(NamedTuple):
    """One field. `name` is that of terms and reports."""

    name: str
    kind: Kind
    change: Callable[[Any, Any, int], object]
    """The new value, from the present one, what is given, and the time. Raises `AdminError` if it is invalid."""
    option: str = ""
    """Of the command line; empty if there is none."""
    help: str = ""
    metavar: str | None = None
    stored: str = ""
    """The name of the stored field, if it is another one."""
    unit: str = ""
    """Of a rate: its name in lists of limits."""
    parts: "tuple[Field, ...]" = ()
    """The fields of limits, whose options begin with its own."""


def updated(subject: L, given: LimitTerms, now_ms: int) -> L:
    """A key, a team, or the limits of end users, with what is given."""
    values: dict[str, object] = {}
    for name in given.__struct_fields__:
        field, value = FIELDS.get(name), getattr(given, name)
        if field is not None and value is not UNSET:
            stored = field.stored or name
            values[stored] = field.change(getattr(subject, stored), value, now_ms)
    return structs.replace(subject, **values)


def updated_key(key: Key, given: KeySettings, now_ms: int) -> Key:
    """A key with what is given."""
    changed = updated(key, given, now_ms)
    if given.period is not UNSET and changed.budget is None:
        raise AdminError("a period needs a budget: set one with it", param="period")
    return changed


def make_key(terms: KeyTerms, now_ms: int) -> tuple[str, Key]:
    """A new key with these settings: its secret, and the key to store."""
    id, secret = new_id(), new_secret()
    bare = Key(id=id, name=id, digest=digest_of(secret), hint=secret[-4:], created_ms=now_ms)
    given = {name: value for name, value in structs.asdict(terms).items() if value not in (None, "")}
    return secret, updated_key(bare, KeyUpdate(**given), now_ms)


def _with_budgets(current: Mapping[Period, int], given: Mapping[Period, Amount | None], _now: int) -> object:
    """The budgets by period with those that are given; null removes one. Shorter periods first."""
    amounts = {**current, **{period: _money(None, amount, _now) for period, amount in given.items()}}
    return {period: amount for period in get_args(Period) if (amount := amounts.get(period)) is not None}


def _money(_current: object, given: Amount | None, _now: int) -> int | None:
    return None if given is None else parse_money(str(given))


def _expiry(_current: object, given: str | None, now_ms: int) -> int | None:
    return parse_expiry(given, now_ms) if given else None


def _checked(check: Callable[[Any], object]) -> Callable[[Any, Any, int], object]:
    """A change to what is given, if a check of it does not raise."""
    return lambda _current, given, _now: check(given)


def _count(name: str, option: str, help: str) -> Field:
    return Field(name, "number", _checked(lambda given: check_limit(given, name)), option, help, "N")


def _rate(name: str, what: str, unit: str, option: str) -> Field:
    return _count(name, option, f"Maximum {what}.")._replace(unit=unit)


RATES = (
    _rate("requests_per_minute", "requests per minute", "rpm", "rpm"),
    _rate("tokens_per_minute", "tokens per minute", "tpm", "tpm"),
    _rate("concurrent", "concurrent calls", "at a time", "concurrent"),
)
_BUDGETS = "A budget, such as 500/month or 50/day. Repeatable: all apply."
LIMITS = (Field("budgets", "budgets", _with_budgets, "budget", _BUDGETS, "DOLLARS/PERIOD"), *RATES)
"""Those of end users, and of members."""
_PATTERNS = "An allowed model, or groq/*. Repeatable."
_MODELS = Field("models", "list", _checked(check_models), "model", _PATTERNS, "PATTERN")
_RAISED_BY = f"Who may go beyond it: {' or '.join(get_args(Raiser))}."
POLICY = (
    _count("number", "number", "Maximum number of active keys."),
    _count("days", "days", "Maximum days until it expires."),
    *LIMITS,
    _MODELS,
    Field("raised_by", "text", _checked(str), "raised-by", _RAISED_BY, "ROLE"),
)
"""Those of keys that members create."""
_BLOCKED = Field("blocked", "flag", lambda since, given, now: (since or now) if given else None, stored="blocked_ms")
_MANAGER = "The file that declares it for penstock apply; none releases it."
_MANAGED = Field("managed_by", "text", _checked(check_manager), "managed-by", _MANAGER, "NAME")
_END_USERS = Field("end_users", "limits", updated, "user", "For each end user.", parts=LIMITS)
_COMMON = (*RATES, _MODELS, _END_USERS, _BLOCKED, _MANAGED)
_MEMBERS = Field("members", "limits", updated, "member", "For all keys of each member.", parts=LIMITS)
_MEMBER_KEYS = Field("member_keys", "limits", updated, "member-key", "For a key that a member creates.", parts=POLICY)
TEAM_FIELDS = (LIMITS[0], *_COMMON, _MEMBERS, _MEMBER_KEYS)
_FURTHER = "A budget for another period, such as 5/day. Repeatable: all apply."
_STRICT = "Fail its calls if a translation would change their meaning."
_CREDENTIALS = "A provider to which it may send a credential of the client's own. Repeatable."
_EXPIRES = "When it expires: 30d, or 2027-01-01."
_TEAM = "The team that it belongs to, such as acme/search."
KEY_FIELDS = (
    Field("name", "text", _checked(check_name), "name", "Its name; unique among active keys."),
    Field("budget", "text", _money, "budget", "Its budget, such as 25 or 0.50.", "DOLLARS"),
    Field("period", "period", _checked(str), "per", "The period of the budget; a month if none is given."),
    LIMITS[0]._replace(option="further-budget", help=_FURTHER),
    *_COMMON,
    Field("strict", "flag", _checked(bool), "strict", _STRICT),
    Field("client_credentials", "list", _checked(check_providers), "client-credentials", _CREDENTIALS, "PROVIDER"),
    Field("expires", "text", _expiry, "expires", _EXPIRES, "WHEN", "expires_ms"),
    Field("tags", "pairs", _checked(check_tags), "tag", "A tag for its calls. Repeatable.", "NAME=VALUE"),
    Field("team", "text", _checked(lambda given: check_team_path(given) if given else ""), "team", _TEAM, "PATH"),
)
FIELDS = {field.name: field for field in (*POLICY, *TEAM_FIELDS, *KEY_FIELDS)}

"""Options for the fields of keys and teams, and the values that they, and cells of CSV files, have.

The value `none` removes a limit, all models or all tags; in a cell, several values are separated by spaces.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast, get_args

import click
import msgspec

from penstock.errors import AdminError
from penstock.gateway.keys.fields import FIELDS, LIMITS, Field
from penstock.gateway.keys.quota import Period
from penstock.gateway.keys.terms import parse_tag

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_REPEATABLE = ("list", "pairs", "budgets")
_USER = "user_"


def field_options(fields: Iterable[Field]) -> Callable[[F], F]:
    """Add the options for fields to a command, and those for the limits of end users."""
    options = [_option(field) for field in fields if field.option]
    options += [_option(field, _USER, " For each end user.") for field in LIMITS]

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def _option(field: Field, prefix: str = "", more: str = "") -> Callable[[F], F]:
    name = f"{prefix}{field.option}".replace("_", "-")
    return click.option(
        f"--{name}/--no-{name}" if field.kind == "flag" else f"--{name}",
        f"{prefix}{field.name}",
        type=click.Choice(get_args(Period)) if field.kind == "period" else None,
        multiple=field.kind in _REPEATABLE,
        default=None,
        metavar=field.metavar,
        help=field.help + more,
    )


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given, by the names of their fields; those for end users together."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    users = {name.removeprefix(_USER): given.pop(name) for name in [*given] if name.startswith(_USER)}
    return given | ({"end_users": users} if users else {})


def read_fields(given: Mapping[str, Any], kind: type[T]) -> T:
    """The terms that options, or cells of a CSV file, describe. A name that is no field's is kept as it is."""
    try:
        return msgspec.convert(_values(given), kind)
    except msgspec.ValidationError as error:
        raise AdminError(f"it is not valid: {error}") from None


def _values(given: Mapping[str, Any]) -> dict[str, object]:
    return {name: _value(FIELDS[name], value) if name in FIELDS else value for name, value in given.items()}


def _value(field: Field, value: Any) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, dict):
        return _values(value)
    if field.kind in _REPEATABLE:
        return _parts(field, value.split() if isinstance(value, str) else value)
    if value == "none" and field.name not in ("name", "period"):
        return None
    if field.kind == "number":
        if not (value.isascii() and value.isdigit()):
            raise AdminError(f"{field.name} is a whole number, or none to remove it", param=field.name)
        return int(value)
    return {"true": True, "false": False}.get(value.lower(), value) if field.kind == "flag" else value


def _parts(field: Field, parts: Sequence[str]) -> object:
    if field.kind == "budgets":
        return _budgets(parts)
    parts = () if tuple(parts) == ("none",) else tuple(parts)
    return dict(map(parse_tag, parts)) if field.kind == "pairs" else parts


def _budgets(given: Sequence[str]) -> dict[Period, str | None]:
    """Parse budgets, each an amount and a period: `500/month`. The amount none removes the budget."""
    budgets: dict[Period, str | None] = {}
    for text in given:
        amount, slash, period = text.partition("/")
        if not slash or period not in get_args(Period) or period in budgets:
            raise AdminError(
                f"a budget is written 500/month, once for each of {', '.join(get_args(Period))}", param="budgets"
            )
        budgets[cast(Period, period)] = None if amount == "none" else amount
    return budgets

"""Options for the fields of keys and teams, and the values that they, and cells of CSV files, have.

The value `none` removes a limit, all models or all tags; in a cell, several values are separated by spaces.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast, get_args

import click
import msgspec

from penstock.errors import AdminError
from penstock.gateway.keys.fields import FIELDS, Field
from penstock.gateway.keys.quota import Period
from penstock.gateway.keys.terms import parse_tag

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_REPEATABLE = ("list", "pairs", "budgets")
# Between the names of a field and of its part.
_PART = "__"


def field_options(fields: Iterable[Field]) -> Callable[[F], F]:
    """Add the options for fields to a command, and those for their parts, such as the limits of end users."""
    fields = tuple(fields)
    options = [_option(field) for field in fields if field.option and not field.parts]
    options += [_option(part, whole) for whole in fields for part in whole.parts]

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def _option(field: Field, whole: Field | None = None) -> Callable[[F], F]:
    name = field.option if whole is None else f"{whole.option}-{field.option}"
    return click.option(
        f"--{name}/--no-{name}" if field.kind == "flag" else f"--{name}",
        field.name if whole is None else f"{whole.name}{_PART}{field.name}",
        type=click.Choice(get_args(Period)) if field.kind == "period" else None,
        multiple=field.kind in _REPEATABLE,
        default=None,
        metavar=field.metavar,
        help=field.help if whole is None else f"{field.help} {whole.help}",
    )


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given, by the names of their fields; those for parts of one together."""
    given: dict[str, Any] = {}
    for name, value in options.items():
        whole, part, own = name.partition(_PART)
        if value not in (None, ()):
            (given.setdefault(whole, {}) if part else given)[own or name] = value
    return given


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
    if value == "none" and field.name not in ("name", "period", "raised_by"):
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

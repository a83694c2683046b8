"""Options of keys and teams for budgets with several periods, and for the limits of end users."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast, get_args

import click

from penstock.errors import AdminError
from penstock.gateway.keys.keys import Period
from penstock.gateway.keys.terms import EndUserTerms

F = TypeVar("F", bound=Callable[..., Any])
further_budget_option = click.option(
    "--further-budget",
    "budgets",
    multiple=True,
    metavar="DOLLARS/PERIOD",
    help="A budget for another period, such as 5/day, or none/day. Repeatable.",
)
_END_USERS = (
    click.option(
        "--user-budget",
        multiple=True,
        metavar="DOLLARS/PERIOD",
        help="A budget of each end user, such as 1/day. Repeatable.",
    ),
    click.option("--user-rpm", metavar="N", help="Maximum requests per minute of each end user."),
    click.option("--user-tpm", metavar="N", help="Maximum tokens per minute of each end user."),
    click.option("--user-concurrent", metavar="N", help="Maximum concurrent calls of each end user."),
)


def end_user_options(function: F) -> F:
    """Add the options for the limits of end users to a command."""
    for option in reversed(_END_USERS):
        function = option(function)
    return function


def end_user_terms(options: dict[str, Any]) -> EndUserTerms:
    """The limits of end users, which are removed from the options."""
    given: dict[str, Any] = {"budgets": parse_budgets(options.pop("user_budget"))}
    names = {"user_rpm": "requests_per_minute", "user_tpm": "tokens_per_minute", "user_concurrent": "concurrent"}
    for option, name in names.items():
        if (value := options.pop(option)) is not None:
            given[name] = parse_number(name, value)
    return EndUserTerms(**given)


def parse_budgets(given: Sequence[str]) -> dict[Period, str | None]:
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


def parse_number(name: str, text: str) -> int | None:
    """Parse a limit: a whole number, or none."""
    if text == "none":
        return None
    if not (text.isascii() and text.isdigit()):
        raise AdminError(f"{name} is a whole number, or none to remove it", param=name)
    return int(text)

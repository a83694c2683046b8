"""Loads [finance]: changes of prices, and the currency of reports."""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

from penstock.amounts import Currency
from penstock.gateway.config.problems import Problems
from penstock.gateway.keys.team_path import is_team_path
from penstock.gateway.record.price import PERCENT_UNITS

Percent: TypeAlias = Annotated[float, Meta(ge=-100, le=1_000)]
Rate: TypeAlias = Annotated[float, Meta(gt=0, le=1_000_000_000)]
_CURRENCY = re.compile(r"[A-Z]{3}")


class FinanceSettings(Struct, frozen=True, kw_only=True):
    """Discounts and markups, and the currency of reports."""

    currency: str = ""
    """The currency in which reports show costs, beside dollars: a code of ISO 4217, such as `"EUR"`. The ledger,
    budgets and prices stay in dollars. Default: dollars only."""
    rate: Rate | None = None
    """How much of that currency a dollar is, such as `0.92`. A currency needs one."""
    provider_prices: Mapping[str, Percent] = MappingProxyType({})
    """By how many percent [prices of providers](prices.md#discounts-and-markups) are changed, by their names: `-15` is
    a discount of 15 %, `10` a markup of 10 %, with at most two decimal places."""
    team_prices: Mapping[str, Percent] = MappingProxyType({})
    """The same for calls of teams, by their paths, such as `"acme/search"`. It applies to the teams below, too, as far
    as they have none of their own."""

    @property
    def shown(self) -> Currency | None:
        """The currency of reports, if there is one."""
        return Currency(self.currency, Decimal(str(self.rate))) if self.rate is not None else None


def load_finance(given: dict[str, Any], unknown: Callable[[str], str | None], problems: Problems) -> FinanceSettings:
    """The settings of finance. `unknown` returns the error for a name that no provider has."""
    finance = FinanceSettings(**given)
    for table in ("provider_prices", "team_prices"):
        for name, percent in getattr(finance, table).items():
            if isinstance(percent, (int, float)) and percent_units(percent) is None:
                problems.error(("finance", table, name), "may have two decimal places")
    for name in finance.provider_prices:
        if (wrong := unknown(name)) is not None:
            problems.error(("finance", "provider_prices", name), wrong)
    for path in finance.team_prices:
        if not is_team_path(path):
            problems.error(("finance", "team_prices", path), "is no path of a team, such as acme/search")
    if finance.currency and not _CURRENCY.fullmatch(finance.currency):
        problems.error(("finance", "currency"), "must be a code of three capital letters, such as EUR")
    if bool(finance.currency) != (finance.rate is not None):
        missing = "rate, how much of it a dollar is" if finance.currency else "currency, such as EUR"
        problems.error(("finance",), f"needs {missing}")
    return finance


def percent_units(percent: float) -> int | None:
    """Percent as hundredths of a percent, exactly as it is written; None if it has more decimal places."""
    units = Decimal(str(percent)) * PERCENT_UNITS
    return int(units) if units == int(units) else None

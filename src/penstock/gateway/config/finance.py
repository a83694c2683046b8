"""The settings of [finance]: changes of prices, the currency of reports, and monthly reports."""

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from penstock.amounts import Currency
from penstock.gateway.record.price import PERCENT_UNITS
from penstock.providers.secret import Secret

Percent: TypeAlias = Annotated[float, Meta(ge=-100, le=1_000)]
ReportGroup: TypeAlias = Literal["key", "owner", "team", "tree", "model", "provider", "day", "month", "outcome", "user"]
Rate: TypeAlias = Annotated[float, Meta(gt=0, le=1_000_000_000)]


class ReportSettings(Struct, frozen=True, kw_only=True):
    """A [report](ledger.md#monthly-reports) of every month, as CSV."""

    folder: str = ""
    """The folder in which a file is written for each month, such as `penstock-2026-10.csv`. Several gateways write each
    file once, into the folder of one of them."""
    webhook: Secret | None = None
    """The URL to which reports are sent, in place of a folder."""
    webhook_secret: Secret | None = None
    """The secret with which these requests are signed, as those of [warnings](teams.md#warnings) are."""
    format: Literal["usage", "focus"] = "usage"
    """`usage`, the columns of `penstock usage --csv`; or `focus`, those of [FOCUS](ledger.md#focus)."""
    by: tuple[ReportGroup, ...] = ("team", "key", "model")
    """The groups of `usage`, of those that `penstock usage --by` has."""

    @property
    def enabled(self) -> bool:
        """Whether reports are made."""
        return bool(self.folder) or self.webhook is not None


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
    """By how many percent the costs of calls of teams are changed, by the teams' paths, such as `"acme/search"`. It
    applies to the teams below, too, as far as they have none of their own."""

    report: ReportSettings = ReportSettings()
    """A [report](ledger.md#monthly-reports) of every month."""

    @property
    def shown(self) -> Currency | None:
        """The currency of reports, if there is one."""
        return Currency(self.currency, Decimal(str(self.rate))) if self.rate is not None else None


def percent_units(percent: float) -> int | None:
    """Percent as hundredths of a percent, exactly as it is written; None if it has more decimal places."""
    units = Decimal(str(percent)) * PERCENT_UNITS
    return int(units) if units == int(units) else None

"""FOCUS: the costs of each day as rows of the FinOps Open Cost and Usage Specification, version 1.2.

A row has what one key of one team used of one model of one provider on one day. The columns are all mandatory ones, and
the others of which the ledger knows something. Three rules:

1. The provider bills, so it is the provider, the publisher, the issuer of the invoice and the billing account.
2. All four costs are the booked one, after discounts and markups: the ledger has no unit prices, and without them the
   specification demands that they are equal. The unit columns are absent because of that, too.
3. A null is an empty cell. Columns that the specification does not have begin with `x_`.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence

from penstock.amounts import DAY_MS, moment
from penstock.gateway.billing.csv_rows import csv_cell, exact_dollars
from penstock.gateway.billing.queries import Grouping, UsageRow
from penstock.gateway.keys.keys import Key
from penstock.gateway.keys.period import period_at

GROUPS: Sequence[Grouping] = ("provider", "model", "key", "team")
"""What the usage of a day is summed up by."""
_COST = re.compile(r"-?\d+\.\d{9}")
_DESCRIPTION = "Use of {model} of {provider}"
# The value of each column, from the usage of a day, the start of the day, and the key if it is stored.
_Value = Callable[["_Charge"], str | int | None]


class _Charge:
    """The usage of a row, with what it is of."""

    def __init__(self, row: UsageRow, day_ms: int, keys: Mapping[str, Key]) -> None:
        self.provider, self.model, self.key, self.team = row.group
        self.row = row
        self.day_ms = day_ms
        self.month = period_at("month", day_ms)
        self.stored = keys.get(self.key)

    @property
    def tokens(self) -> int:
        return self.row.input + self.row.output

    @property
    def tags(self) -> str | None:
        """The tags of the key, which no client can replace."""
        return json.dumps(dict(self.stored.tags)) if self.stored is not None and self.stored.tags else None


_COLUMNS: Mapping[str, _Value] = {
    "BilledCost": lambda charge: exact_dollars(charge.row.cost),
    "BillingAccountId": lambda charge: charge.provider,
    "BillingAccountName": lambda charge: charge.provider,
    "BillingCurrency": lambda _: "USD",
    "BillingPeriodEnd": lambda charge: moment(charge.month.until),
    "BillingPeriodStart": lambda charge: moment(charge.month.since),
    "ChargeCategory": lambda _: "Usage",
    "ChargeClass": lambda _: None,
    "ChargeDescription": lambda charge: _DESCRIPTION.format(model=charge.model, provider=charge.provider),
    "ChargeFrequency": lambda _: "Usage-Based",
    "ChargePeriodEnd": lambda charge: moment(charge.day_ms + DAY_MS),
    "ChargePeriodStart": lambda charge: moment(charge.day_ms),
    "ConsumedQuantity": lambda charge: charge.tokens,
    "ConsumedUnit": lambda _: "Tokens",
    "ContractedCost": lambda charge: exact_dollars(charge.row.cost),
    "EffectiveCost": lambda charge: exact_dollars(charge.row.cost),
    "InvoiceIssuerName": lambda charge: charge.provider,
    "ListCost": lambda charge: exact_dollars(charge.row.cost),
    "PricingCategory": lambda _: "Standard",
    "PricingQuantity": lambda charge: charge.tokens,
    "PricingUnit": lambda _: "Tokens",
    "ProviderName": lambda charge: charge.provider,
    "PublisherName": lambda charge: charge.provider,
    "ResourceId": lambda charge: charge.model,
    "ResourceName": lambda charge: charge.model,
    "ResourceType": lambda _: "Model",
    "ServiceCategory": lambda _: "AI and Machine Learning",
    "ServiceName": lambda charge: f"{charge.provider} API",
    "ServiceSubcategory": lambda _: "Generative AI",
    "SubAccountId": lambda charge: charge.team or None,
    "SubAccountName": lambda charge: charge.team or None,
    "SubAccountType": lambda charge: "Team" if charge.team else None,
    "Tags": lambda charge: charge.tags,
    "x_KeyId": lambda charge: charge.key or None,
    "x_KeyName": lambda charge: charge.stored.name if charge.stored is not None else None,
    "x_KeyOwner": lambda charge: charge.stored.owner or None if charge.stored is not None else None,
    "x_Calls": lambda charge: charge.row.calls,
    "x_InputTokens": lambda charge: charge.row.input,
    "x_CachedTokens": lambda charge: charge.row.cached,
    "x_OutputTokens": lambda charge: charge.row.output,
    "x_UnpricedCalls": lambda charge: charge.row.unpriced,
    "x_EstimatedCalls": lambda charge: charge.row.estimated,
    "x_ApproximateCalls": lambda charge: charge.row.approximate,
}
COLUMNS = tuple(_COLUMNS)


def focus_rows(day_ms: int, usage: Sequence[UsageRow], keys: Mapping[str, Key]) -> list[list[str | int | None]]:
    """The rows of the day that starts then, from its usage by `GROUPS`. Calls that no provider was asked for cost
    nothing, and have no row."""
    charges = [_Charge(row, day_ms, keys) for row in usage if row.group[0]]
    return [[_cell(value(charge)) for value in _COLUMNS.values()] for charge in charges]


def _cell(value: str | int | None) -> str | int | None:
    # A cost may be negative, and is no formula.
    return csv_cell(value) if isinstance(value, str) and not _COST.fullmatch(value) else value

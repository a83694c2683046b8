"""FOCUS 1.2: the columns and the nulls that the specification demands, and costs to the nanodollar."""

import csv
import json
from datetime import UTC, datetime
from decimal import Decimal

from msgspec.structs import replace

from penstock.core.hub.usage import Tokens
from penstock.gateway.billing.queries import Filter
from penstock.gateway.record.entry import AttemptEntry
from penstock.stores.book.focus_export import focus_csv
from penstock.stores.book.sql_book import Book
from tests.stores.entries import KEY, entry

# Of the specification, version 1.2: the columns of the level Mandatory, and which of them may be null.
MANDATORY = {
    "BilledCost": False,
    "BillingAccountId": False,
    "BillingAccountName": True,
    "BillingCurrency": False,
    "BillingPeriodEnd": False,
    "BillingPeriodStart": False,
    "ChargeCategory": False,
    "ChargeClass": True,
    "ChargeDescription": True,
    "ChargePeriodEnd": False,
    "ChargePeriodStart": False,
    "ContractedCost": False,
    "EffectiveCost": False,
    "InvoiceIssuerName": False,
    "ListCost": False,
    "PricingQuantity": False,  # of usage
    "PricingUnit": False,
    "ProviderName": False,
    "PublisherName": False,
    "ServiceCategory": False,
    "ServiceName": False,
}
COSTS = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def tried(provider: str, cost: int | None) -> AttemptEntry:
    tokens = Tokens(input=5, output=2, cached=1)
    return AttemptEntry(provider=provider, model="m", outcome="completed", cost=cost, tokens=tokens)


def test_rows_have_the_columns_of_the_specification_and_exact_costs(book: Book) -> None:
    book.change_keys(lambda *_: [replace(KEY, id="key_1", name="=cmd", tags={"cost": "17"}, owner="ann <1>")])
    first, second = (tried("openai", 7), tried("groq", 123_456_789_012_345)), (tried("openai", -5), tried("groq", None))
    book.append(
        [
            entry("a", at("2026-10-31T23:59:59.999"), key="key_1", team="acme/search", attempts=first),
            entry("b", at("2026-11-01"), key="key_1", team="acme/search", attempts=first),
            entry("c", at("2026-11-30T23:59:59.999"), key="jwt:acme", team="", model="=1+1", attempts=second),
            entry("d", at("2026-11-30"), attempts=(), outcome="refused"),
            entry("e", at("2026-12-01"), attempts=first),
        ]
    )
    assert book.sum_up(2)
    wanted = Filter(since_ms=at("2026-11-01"), until_ms=at("2026-12-01"))
    rows = list(csv.DictReader("".join(focus_csv(book, wanted)).splitlines()))
    assert len(rows) == 4
    for row in rows:
        assert row.keys() >= MANDATORY.keys()
        assert all(row[name] for name, nullable in MANDATORY.items() if not nullable)
        assert len({row[name] for name in COSTS}) == 1
        assert (row["ChargeCategory"], row["ChargeClass"], row["BillingCurrency"]) == ("Usage", "", "USD")
        assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")
        assert all(name in MANDATORY or name[0].isupper() or name.startswith("x_") for name in row)
    total = sum(Decimal(row["BilledCost"]) for row in rows)
    assert total * 10**9 == sum(each.cost for each in book.usage(wanted, [])) == 123_456_789_012_347
    found = {(row["ProviderName"], row["ChargePeriodStart"]): row for row in rows}
    openai = found["openai", "2026-11-01T00:00:00Z"]
    assert openai["BilledCost"] == "0.000000007"
    assert openai["ChargePeriodEnd"] == "2026-11-02T00:00:00Z"
    assert (openai["SubAccountId"], openai["x_KeyName"], openai["x_KeyOwner"]) == ("acme/search", "'=cmd", "ann <1>")
    assert json.loads(openai["Tags"]) == {"cost": "17"}
    assert (openai["ConsumedQuantity"], openai["ConsumedUnit"], openai["x_CachedTokens"]) == ("7", "Tokens", "1")
    correction = found["openai", "2026-11-30T00:00:00Z"]
    assert (correction["BilledCost"], correction["ResourceId"]) == ("-0.000000005", "'=1+1")
    assert (correction["SubAccountId"], correction["Tags"], correction["x_KeyId"]) == ("", "", "jwt:acme")
    assert found["groq", "2026-11-30T00:00:00Z"]["x_UnpricedCalls"] == "1"

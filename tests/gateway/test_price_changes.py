"""Discounts and markups: the cost of a call, by its provider and the teams of its key."""

from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.hub.usage import Tokens
from penstock.errors import ConfigError
from penstock.gateway.billing.price_table import PriceTable
from penstock.gateway.billing.prices import PriceBook, PriceChanges
from penstock.gateway.config import load
from penstock.gateway.record.price import OF_CLIENT, Price, Rates, ServiceTier, charge
from penstock.providers.provider import Provider

ACME = Provider(name="acme", base_url="https://acme.example/v1")
LISTED = Price(Rates(input=1_250_000, output=10_000_001), service_tiers=(("flex", Price(Rates(input=7, output=3))),))
FINANCE = """
[providers.acme]
base_url = "https://acme.example/v1"
api_key = "sk-acme-0123456789"
[prices."acme/*"]
input = 1.25
output = 10
[finance.provider_prices]
acme = -12.34
[finance.team_prices]
"acme" = 10
"acme/research" = 0
"acme/search/prod" = -100
"""


def cost(tokens: Tokens, provider: int = 0, team: int = 0) -> int:
    changes = PriceChanges({"acme": provider}, {"acme/search": team})
    book = PriceBook(PriceTable(), {"acme/*": LISTED}, changes)
    priced = book.find(ACME, "m", 0, "acme/search/prod")
    assert priced is not None
    return charge(tokens, priced.price)[0]


@given(
    st.integers(0, 10**6), st.integers(0, 10**6), st.integers(-10_000, 100_000), st.integers(-10_000, 100_000)
)  # fmt: skip
def test_the_whole_cost_is_changed_and_rounded_once(input: int, output: int, provider: int, team: int) -> None:
    whole = Decimal(input) * LISTED.rates.input + Decimal(output) * LISTED.rates.output
    changed = whole * (10_000 + provider) / 10_000 * (10_000 + team) / 10_000 / 1_000
    assert cost(Tokens(input=input, output=output), provider, team) == changed.to_integral_value(ROUND_HALF_UP)


def test_the_innermost_team_counts_and_the_source_says_so(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(FINANCE)
    config = load(file, {})
    book = PriceBook(PriceTable(), config.prices, PriceChanges.of(config.finance))
    found = {
        team: book.find(ACME, "m", 0, team) for team in ("", "other", "acme/x", "acme/research/a", "acme/search/prod")
    }
    versions = {team: priced.version for team, priced in found.items() if priced is not None}
    assert versions == {
        "": "configured -12.34%",
        "other": "configured -12.34%",
        "acme/x": "configured -12.34% +10%",
        "acme/research/a": "configured -12.34%",
        "acme/search/prod": "configured -12.34% -100%",
    }
    million = Tokens(input=1_000_000)
    costs = [charge(million, priced.price)[0] for priced in found.values() if priced is not None]
    assert costs == [1_095_750_000, 1_095_750_000, 1_205_325_000, 1_095_750_000, 0]


def test_every_service_tier_is_changed() -> None:
    changed = LISTED.changed(50_000_000)
    assert charge(Tokens(input=1_000_000), changed, ServiceTier(reported="flex")) == (3_500, False)


def test_what_the_client_pays_itself_stays_free() -> None:
    changes = PriceChanges({"acme": 1_000})
    assert changes.apply(OF_CLIENT, "acme") is OF_CLIENT
    assert changes.apply(None, "acme") is None


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("[finance.provider_prices]\nacmee = -5", "there is no provider 'acmee'"),
        ("[finance.provider_prices]\nacme = -5.123", "may have two decimal places"),
        ("[finance.provider_prices]\nacme = -101", "at least -100"),
        ('[finance.team_prices]\n"a b" = 5', "is no path of a team"),
        ('[finance]\ncurrency = "EUR"', "needs rate"),
        ("[finance]\nrate = 0.9", "needs currency"),
        ('[finance]\ncurrency = "euro"\nrate = 0.9', "three capital letters"),
    ],
)
def test_mistakes_are_reported(tmp_path: Path, lines: str, reason: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(FINANCE.partition("[finance")[0] + lines)
    with pytest.raises(ConfigError, match=reason):
        load(file, {})

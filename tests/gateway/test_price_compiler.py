"""Prices of genai-prices become whole numbers, with what holds when: made-up models, by hand."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from genai_prices import types

from penstock.gateway.billing import price_compiler
from penstock.gateway.billing.price_table import Clause, ServiceTerm, Term
from penstock.gateway.record.price import Price, Rates, Tier

MODEL = types.ClauseEquals(equals="M-1")
SPRING = types.StartDateConstraint(start_date=date(2026, 3, 1))
SPRING_S = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp())


def price(**dollars: Any) -> types.ModelPrice:
    return types.ModelPrice(**{name: _amount(given) for name, given in dollars.items()})


def _amount(given: Any) -> Any:
    return given if isinstance(given, types.TieredPrices) else Decimal(str(given))


def terms(prices: Any, *variants: types.PriceVariant) -> tuple[Term, ...]:
    """The terms of a model with these prices, by way of the whole table."""
    model = types.ModelInfo(id="m-1", match=MODEL, prices=prices, price_variants=list(variants) or None)
    provider = types.Provider(id="p", name="P", api_pattern="https://p", models=[model])
    (row,) = price_compiler._seller(provider).rows()
    assert row.match == Clause("equals", "m-1")
    return row.terms


# Dollars per million tokens are millions of picodollars per token.
RATES: dict[str, tuple[dict[str, Any], Rates]] = {
    "input and output": (
        {"input_mtok": 3, "output_mtok": 15},
        Rates(3_000_000, 15_000_000, 3_000_000, 3_000_000, 15_000_000, 3_000_000, 15_000_000),
    ),
    "every rate": (
        {
            "input_mtok": 1,
            "output_mtok": 2,
            "cache_read_mtok": "0.1",
            "cache_write_mtok": "1.25",
            "output_reasoning_mtok": 4,
            "input_audio_mtok": 5,
            "output_audio_mtok": 6,
            "cache_write_1h_mtok": 7,
        },
        Rates(1_000_000, 2_000_000, 100_000, 1_250_000, 4_000_000, 5_000_000, 6_000_000, 7_000_000),
    ),
    "input alone": ({"input_mtok": "0.02"}, Rates(20_000, 0, 20_000, 20_000, 0, 20_000, 0)),
    "free": ({}, Rates()),
}


@pytest.mark.parametrize(("given", "rates"), RATES.values(), ids=RATES)
def test_what_has_no_rate_of_its_own_has_that_of_its_whole(given: dict[str, Any], rates: Rates) -> None:
    assert terms(price(**given)) == (Term(Price(rates=rates, tiers=(), request=0)),)


def test_a_request_may_cost_something_too() -> None:
    (term,) = terms(price(requests_kcount=5))
    assert term.price == Price(rates=Rates(), tiers=(), request=5_000_000_000)


def test_what_is_not_sold_by_the_token_has_no_price() -> None:
    image = types.ModelPrice(input_mtok=None)
    vars(image)["image_kcount"] = Decimal(4)
    assert terms(image) == (Term(None),)


def test_long_inputs_have_the_rates_of_their_tier() -> None:
    tiered = types.TieredPrices(base=Decimal(1), tiers=[types.Tier(200, Decimal(2)), types.Tier(1_000, Decimal(4))])
    late = types.TieredPrices(base=Decimal(10), tiers=[types.Tier(1_000, Decimal(20))])
    (term,) = terms(price(input_mtok=tiered, output_mtok=late))
    assert term.price is not None
    assert (term.price.rates.input, term.price.rates.output) == (1_000_000, 10_000_000)
    assert [(tier.above, tier.rates.input, tier.rates.output) for tier in term.price.tiers] == [
        (200, 2_000_000, 10_000_000),
        (1_000, 4_000_000, 20_000_000),
    ]
    assert all(isinstance(tier, Tier) for tier in term.price.tiers)


def test_prices_hold_from_a_day_on_or_at_a_time_of_the_day() -> None:
    night = types.TimeOfDateConstraint(start_time=time(16, 30, tzinfo=UTC), end_time=time(0, 30, tzinfo=UTC))
    there = timezone(timedelta(hours=-8))
    local = types.TimeOfDateConstraint(start_time=time(20, tzinfo=there), end_time=time(1, 0, 5))
    given = [
        types.ConditionalPrice(prices=price(input_mtok=1)),
        types.ConditionalPrice(constraint=SPRING, prices=price(input_mtok=2)),
        types.ConditionalPrice(constraint=night, prices=price(input_mtok=3)),
        types.ConditionalPrice(constraint=local, prices=price(input_mtok=4)),
    ]
    found = [(term.price.rates.input, term.since_s, term.daily_s) for term in terms(given) if term.price is not None]
    assert found == [
        (1_000_000, None, None),
        (2_000_000, SPRING_S, None),
        (3_000_000, None, (16 * 3600 + 1800, 1800)),
        (4_000_000, None, (4 * 3600, 3605)),
    ]


def variant(constraint: Any = None, dollars: Any = 6, **when: str) -> types.PriceVariant:
    return types.PriceVariant(when=when, prices=price(output_mtok=dollars), constraint=constraint)


def test_service_tiers_have_the_standard_prices_but_for_their_own() -> None:
    standard = price(input_mtok=1, output_mtok=3)
    (term,) = terms(
        standard,
        variant(service_tier="Priority"),
        variant(processing="batch", dollars="1.5"),
        variant(SPRING, service_tier="flex", dollars=2),
        # What is of no tier that a call can have, or of a time of the day.
        variant(service_tier="flex", region="eu"),
        variant(processing="batch", region="eu"),
        variant(processing="other"),
        variant(types.TimeOfDateConstraint(start_time=time(1), end_time=time(2)), service_tier="flex"),
    )
    assert [(one.tier, one.price.rates.input, one.price.rates.output, one.since_s) for one in term.service_terms] == [
        ("priority", 1_000_000, 6_000_000, None),
        ("batch", 1_000_000, 1_500_000, None),
        ("flex", 1_000_000, 2_000_000, SPRING_S),
    ]
    for conditional in (
        types.ConditionalPrice(prices=standard),
        types.ConditionalPrice(constraint=SPRING, prices=standard),
        types.ConditionalPrice(
            constraint=types.TimeOfDateConstraint(start_time=time(1), end_time=time(2)), prices=standard
        ),
    ):
        (again,) = terms([conditional], variant(service_tier="priority"))
        assert [type(one) for one in again.service_terms] == [ServiceTerm]


CLAUSES: dict[str, tuple[Any, Clause]] = {
    "equals": (types.ClauseEquals(equals="A-b"), Clause("equals", "a-b")),
    "starts with": (types.ClauseStartsWith(starts_with="A-"), Clause("starts_with", "a-")),
    "ends with": (types.ClauseEndsWith(ends_with="-B"), Clause("ends_with", "-b")),
    "contains": (types.ClauseContains(contains="B"), Clause("contains", "b")),
    "a regular expression": (types.ClauseRegex(regex=r"\D+"), Clause("regex", r"\D+")),
    "any": (types.ClauseOr(or_=[MODEL]), Clause("or", "", (Clause("equals", "m-1"),))),
    "all": (types.ClauseAnd(and_=[MODEL, MODEL]), Clause("and", "", (Clause("equals", "m-1"),) * 2)),
}


@pytest.mark.parametrize(("clause", "compiled"), CLAUSES.values(), ids=CLAUSES)
def test_names_are_matched_as_the_package_does(clause: Any, compiled: Clause) -> None:
    provider = types.Provider(
        id="p", name="P", api_pattern="https://p", provider_match=clause, fallback_model_providers=["q"]
    )
    seller = price_compiler._seller(provider)
    assert (seller.match, seller.fallbacks, seller.rows(), seller.api_pattern) == (compiled, ("q",), (), "https://p")


def test_a_kind_of_clause_that_is_new_is_an_error() -> None:
    provider = types.Provider(id="p", name="P", api_pattern="", provider_match="new")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="an unknown kind of clause: 'new'"):
        price_compiler._seller(provider)


def test_the_table_names_the_edition_of_the_package() -> None:
    table = price_compiler.compile_table("1.2")
    assert table.version == "genai-prices 1.2"
    assert {"openai", "anthropic"} <= {seller.id for seller in table.sellers}

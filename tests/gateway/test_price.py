"""Price: whole numbers; each token is charged once, and the sum is rounded once."""

from decimal import Decimal

import pytest

from penstock.core.hub.usage import Tokens
from penstock.gateway.record.price import FREE, Price, Rates, Tier, cost_of, rate, saved_by_cache

# Powers of ten, so that a figure shows what it is made of. In picodollars; a cost is a thousandth of that.
RATES = Rates(10**3, 10**5, 10**7, 10**9, 10**11, 10**13, 10**15)
PARTS: dict[str, tuple[Tokens, int]] = {
    "nothing": (Tokens(), 0),
    "input": (Tokens(input=3), 3),
    "output": (Tokens(output=3), 300),
    "cached": (Tokens(input=5, cached=3), 30_002),
    "cache write": (Tokens(input=5, cache_write=3), 3_000_002),
    "reasoning": (Tokens(output=5, reasoning=3), 300_000_200),
    "audio": (Tokens(input=5, audio_input=3), 30_000_000_002),
    "audio answer": (Tokens(output=5, audio_output=3), 3_000_000_000_200),
    "all fresh input is audio": (Tokens(input=5, cached=3, audio_input=5), 20_000_030_000),
    "parts beyond their whole": (Tokens(input=1, cached=2, output=1, reasoning=3), 100_020_000),
}


@pytest.mark.parametrize(("tokens", "expected"), PARTS.values(), ids=PARTS)
def test_each_token_is_paid_once(tokens: Tokens, expected: int) -> None:
    assert cost_of(tokens, Price(RATES)) == expected


CLAUDE = Price(Rates(input=5_000_000, output=25_000_000, cached=500_000, cache_write=6_250_000, reasoning=25_000_000))
SAVINGS: dict[str, tuple[Tokens, int]] = {
    "no cache": (Tokens(input=1_000, output=10), 0),
    "reads cost a tenth": (Tokens(input=1_000, cached=1_000), 4_500_000),
    "writes cost a quarter more": (Tokens(input=1_000, cache_write=1_000), -1_250_000),
    "both": (Tokens(input=2_000, cached=1_000, cache_write=500, output=10), 4_500_000 - 625_000),
}


@pytest.mark.parametrize(("tokens", "expected"), SAVINGS.values(), ids=SAVINGS)
def test_a_cache_saves_what_the_call_would_cost_more_without_it(tokens: Tokens, expected: int) -> None:
    assert saved_by_cache(tokens, CLAUDE) == expected


def test_a_tier_holds_for_the_whole_call() -> None:
    price = Price(Rates(input=1_000), (Tier(200, Rates(input=2_000)), Tier(300, Rates(input=5_000))))
    counts = (0, 200, 201, 300, 301, 10**9)
    assert [cost_of(Tokens(input=count), price) for count in counts] == [0, 200, 402, 600, 1505, 5 * 10**9]


def test_a_request_may_cost_something_by_itself() -> None:
    assert cost_of(Tokens(), Price(Rates(), request=12 * 10**9)) == 12_000_000


def test_only_the_sum_is_rounded_half_up() -> None:
    price = Price(Rates(input=300, output=200))
    assert cost_of(Tokens(input=1), price) == 0
    assert cost_of(Tokens(input=1, output=1), price) == 1
    assert cost_of(Tokens(input=5), price) == 2
    assert cost_of(Tokens(input=10**6), FREE) == 0


def test_a_rate_is_reported_in_dollars_for_a_million() -> None:
    figures = {"1.25": 1_250_000, "0.000001": 1, "0.0000005": 1, "0.07500000000000001": 75_000, "0": 0}
    assert {text: rate(Decimal(text)) for text in figures} == figures

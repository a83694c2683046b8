"""Price: what the tokens of one model cost, in whole numbers.

A rate is picodollars (10⁻¹² US dollars) for one token, so that a price of a millionth of a dollar per million tokens is
a whole number still; a few resellers divide further, and are rounded to that. A cost is nanodollars (10⁻⁹). No figure
is ever a float, and of a cost only the sum is rounded, once.

1. Each token is paid at one rate: that of the most special part that it belongs to. A cached token is not input, too.
2. Where a part has no rate of its own, it costs what its whole costs. A `Rates` has every figure filled in.
3. A tier holds for the whole call as soon as its input has more tokens than the tier's `above`; of several, the last.
4. It is not known which of the cached tokens are audio. The fresh ones are taken for audio first.
"""

from decimal import ROUND_HALF_UP, Decimal

from msgspec import Struct

from penstock.core.usage import Tokens

# A dollar for a million tokens is so many picodollars for one.
_PER_MILLION = 1_000_000
_PICO_IN_NANO = 1_000


class Rates(Struct, frozen=True, gc=False, array_like=True):
    """Picodollars for a token, by what it is."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    audio_input: int = 0
    audio_output: int = 0

    def of(self, tokens: Tokens) -> int:
        """What tokens cost at these rates, in picodollars."""
        if not tokens.divided:
            return tokens.input * self.input + tokens.output * self.output
        fresh = max(tokens.input - tokens.cached - tokens.cache_write, 0)
        heard = min(tokens.audio_input, fresh)
        reasoning = min(tokens.reasoning, tokens.output)
        spoken = min(tokens.audio_output, tokens.output - reasoning)
        return (
            (fresh - heard) * self.input
            + heard * self.audio_input
            + tokens.cached * self.cached
            + tokens.cache_write * self.cache_write
            + (tokens.output - reasoning - spoken) * self.output
            + reasoning * self.reasoning
            + spoken * self.audio_output
        )


class Tier(Struct, frozen=True, array_like=True):
    """Rates for calls whose input has more tokens than `above`."""

    above: int
    rates: Rates


class Price(Struct, frozen=True, array_like=True):
    """What one model costs. `tiers` are in ascending order; `request` is for each call besides, in picodollars."""

    rates: Rates
    tiers: tuple[Tier, ...] = ()
    request: int = 0


FREE = Price(Rates())


def cost_of(tokens: Tokens, price: Price) -> int:
    """What a call costs in nanodollars, rounded half up."""
    rates = price.rates
    for tier in price.tiers:
        if tokens.input > tier.above:
            rates = tier.rates
    return (rates.of(tokens) + price.request + _PICO_IN_NANO // 2) // _PICO_IN_NANO


def rate(dollars_per_million: Decimal) -> int:
    """Picodollars for a token, by what is usually said: dollars for a million of them."""
    return int((dollars_per_million * _PER_MILLION).to_integral_value(ROUND_HALF_UP))

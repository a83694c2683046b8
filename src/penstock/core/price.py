"""Price: what the tokens of one model cost, in whole numbers.

A rate is picodollars (10⁻¹² US dollars) for one token, so that a price of a millionth of a dollar per million tokens is
a whole number still; a few resellers divide further, and are rounded to that. A cost is nanodollars (10⁻⁹). No figure
is ever a float, and of a cost only the sum is rounded, once.

1. Each token is paid at one rate: that of the most special part that it belongs to. A cached token is not input, too.
2. Where a part has no rate of its own, it costs what its whole costs. A `Rates` has every figure filled in.
3. A tier holds for the whole call as soon as its input has more tokens than the tier's `above`; of several, the last.
4. It is not known which of the cached tokens are audio. The fresh ones are taken for audio first.
5. A service tier (flex, priority, batch) has a price of its own. The provider's report of the tier counts. Where it
   reports none, and the client asked for one, the dearer of that tier and the standard one counts.
6. A cost is *approximate* where its rate is not known for sure: a tier that was not reported, or has no price; or cache
   writes for an hour where only others have a rate. Those cost twice the input then, as at Anthropic.
"""

from decimal import ROUND_HALF_UP, Decimal

from msgspec import Struct

from penstock.core.usage import Tokens

# A dollar for a million tokens is so many picodollars for one.
_PER_MILLION = 1_000_000
_PICO_IN_NANO = 1_000
# Names of the tier that the standard price is for. `auto` is the tier that a project is set to: by default, this one.
STANDARD_TIERS = frozenset(("", "auto", "default", "standard", "standard_only", "on_demand"))


class Rates(Struct, frozen=True, gc=False, array_like=True):
    """Picodollars for a token, by what it is."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    audio_input: int = 0
    audio_output: int = 0
    cache_write_1h: int | None = None
    """None where it is not known."""

    def of(self, tokens: Tokens) -> int:
        """What tokens cost at these rates, in picodollars."""
        if not tokens.divided:
            return tokens.input * self.input + tokens.output * self.output
        fresh = max(tokens.input - tokens.cached - tokens.cache_write, 0)
        audio_input = min(tokens.audio_input, fresh)
        reasoning = min(tokens.reasoning, tokens.output)
        audio_output = min(tokens.audio_output, tokens.output - reasoning)
        return (
            (fresh - audio_input) * self.input
            + audio_input * self.audio_input
            + tokens.cached * self.cached
            + (tokens.cache_write - tokens.cache_write_1h) * self.cache_write
            + tokens.cache_write_1h * self._hour
            + (tokens.output - reasoning - audio_output) * self.output
            + reasoning * self.reasoning
            + audio_output * self.audio_output
        )

    @property
    def _hour(self) -> int:
        """What a cache write for an hour costs, as far as is known (rule 6)."""
        if self.cache_write_1h is not None:
            return self.cache_write_1h
        return max(self.cache_write, 2 * self.input) if self.cache_write > self.input else self.cache_write


class Tier(Struct, frozen=True, array_like=True):
    """Rates for calls whose input has more tokens than `above`."""

    above: int
    rates: Rates


class Price(Struct, frozen=True, array_like=True):
    """What one model costs. `tiers` are in ascending order; `request` is for each call besides, in picodollars.

    `service_tiers` are its prices in other service tiers than the standard one, by their names in lower case.
    """

    rates: Rates
    tiers: tuple[Tier, ...] = ()
    request: int = 0
    service_tiers: tuple[tuple[str, "Price"], ...] = ()

    def in_tier(self, name: str) -> "Price | None":
        """The price in another service tier; None where it is not known."""
        return next((price for tier, price in self.service_tiers if tier == name), None)

    def rates_for(self, tokens: Tokens) -> Rates:
        """The rates that hold for a call of so many tokens."""
        rates = self.rates
        for tier in self.tiers:
            if tokens.input > tier.above:
                rates = tier.rates
        return rates


FREE = Price(Rates())


class ServiceTier(Struct, frozen=True):
    """The service tier of an attempt, in lower case: as the client asked for it, and as the provider reports it."""

    asked: str = ""
    reported: str = ""

    @property
    def name(self) -> str:
        """The tier that counts; empty for the standard one."""
        name = self.reported or self.asked
        return "" if name in STANDARD_TIERS else name

    def prices(self, price: Price) -> tuple[Price, ...]:
        """The prices that may count: one where the tier is known."""
        if not self.name:
            return (price,)
        other = price.in_tier(self.name) or price
        return (other,) if self.reported else (price, other)


STANDARD = ServiceTier()


def charge(tokens: Tokens, price: Price, tier: ServiceTier = STANDARD) -> tuple[int, bool]:
    """What a call costs in nanodollars, and whether that is approximate (rules 5 and 6)."""
    if not tier.name and not tokens.cache_write_1h:  # nearly always
        return cost_of(tokens, price), False
    prices = tier.prices(price)
    cost = max([cost_of(tokens, each) for each in prices])
    approximate = bool(tier.name) and (not tier.reported or price.in_tier(tier.name) is None)
    if tokens.cache_write_1h and not approximate:
        approximate = any(each.rates_for(tokens).cache_write_1h is None for each in prices)
    return cost, approximate and cost > 0


def cost_of(tokens: Tokens, price: Price) -> int:
    """What a call costs in nanodollars in the standard tier, rounded half up."""
    rates = price.rates if not price.tiers else price.rates_for(tokens)
    return (rates.of(tokens) + price.request + _PICO_IN_NANO // 2) // _PICO_IN_NANO


def rate(dollars_per_million: Decimal) -> int:
    """Picodollars for a token, by what is usually said: dollars for a million of them."""
    return int((dollars_per_million * _PER_MILLION).to_integral_value(ROUND_HALF_UP))

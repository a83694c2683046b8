"""Price: what the tokens of one model cost, in whole numbers.

A rate is picodollars (10⁻¹² US dollars) per token, so that a price of a millionth of a dollar per million tokens is
still a whole number. A few resellers have finer prices, which are rounded to that. A cost is in nanodollars (10⁻⁹). No
amount is ever a float, and only the sum of a cost is rounded, once.

1. Each token is charged at one rate: that of the most specific part that it belongs to. A cached token is not charged
   as input too.
2. A part without a rate of its own is charged at the rate of its whole. A `Rates` has every rate filled in.
3. A tier applies to the whole call if the input has more tokens than the tier's `above`; of several, the last applies.
4. Providers do not report which of the cached tokens are audio. Audio tokens are taken from the uncached ones first.
5. A service tier (flex, priority, batch) has a price of its own. The tier that the provider reports applies. If it
   reports none and the client requested one, the more expensive of that tier and the standard one applies.
6. A discount or markup (`Price.factor`) changes the whole cost, before it is rounded.
7. A cost is *approximate* if its rate is not certain: the tier was not reported or has no price, or there are cache
   writes for an hour and only other cache writes have a rate. Those then cost twice the input, as at Anthropic.
"""

from decimal import ROUND_HALF_UP, Decimal

from msgspec import Struct, structs

from penstock.core.hub.usage import Tokens

PERCENT_UNITS = 100
"""A change of prices is in hundredths of a percent."""
UNCHANGED = (100 * PERCENT_UNITS) ** 2
"""The factor of a price that neither its provider nor the team of a call changes."""
# One dollar per million tokens, in picodollars per token.
_PER_MILLION = 1_000_000
_PICO_IN_NANO = 1_000
# Names of the standard tier. `auto` is the tier that the project is configured for, which is this one by default.
STANDARD_TIERS = frozenset(("", "auto", "default", "standard", "standard_only", "on_demand"))


class Rates(Struct, frozen=True, gc=False, array_like=True):
    """Picodollars per token, for each kind of token."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    audio_input: int = 0
    audio_output: int = 0
    cache_write_1h: int | None = None
    """None if it is not known."""

    def of(self, tokens: Tokens) -> int:
        """The cost of tokens at these rates, in picodollars."""
        parts = tokens.cached or tokens.cache_write or tokens.reasoning or tokens.audio_input or tokens.audio_output
        if not parts:
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
        """The rate of cache writes for an hour, or an approximation of it (rule 7)."""
        if self.cache_write_1h is not None:
            return self.cache_write_1h
        return max(self.cache_write, 2 * self.input) if self.cache_write > self.input else self.cache_write


class Tier(Struct, frozen=True, array_like=True):
    """Rates for calls whose input has more tokens than `above`."""

    above: int
    rates: Rates


class Price(Struct, frozen=True, array_like=True):
    """The price of one model. `tiers` are in ascending order. `request` is charged for each call, in picodollars.

    `service_tiers` are the prices in other service tiers than the standard one, with the tier's name in lower case.
    `factor` is what a cost is multiplied by, as a share of `UNCHANGED`: a discount or a markup.
    """

    rates: Rates
    tiers: tuple[Tier, ...] = ()
    request: int = 0
    service_tiers: tuple[tuple[str, "Price"], ...] = ()
    factor: int = UNCHANGED

    def changed(self, factor: int) -> "Price":
        """The price with this factor, in all service tiers."""
        tiers = tuple((name, structs.replace(price, factor=factor)) for name, price in self.service_tiers)
        return structs.replace(self, factor=factor, service_tiers=tiers)

    def in_tier(self, name: str) -> "Price | None":
        """The price in another service tier; None if it is not known."""
        return next((price for tier, price in self.service_tiers if tier == name), None)

    def rates_for(self, tokens: Tokens) -> Rates:
        """The rates that apply to a call with these tokens."""
        rates = self.rates
        for tier in self.tiers:
            if tokens.input > tier.above:
                rates = tier.rates
        return rates


FREE = Price(Rates())


class PricedModel(Struct, frozen=True):
    """A price and its source: `genai-prices 0.2.1`, `configured`, `local`, `replay` or `client`. Attempts that copy an
    answer have `shared` or `cache` as their price."""

    price: Price
    version: str


OF_CLIENT = PricedModel(FREE, "client")
"""The price of a call with a credential of the client's own, such as a subscription, that costs nothing per token."""


class ServiceTier(Struct, frozen=True):
    """The service tier of an attempt, in lower case: as the client requested it, and as the provider reports it."""

    requested: str = ""
    reported: str = ""

    @property
    def name(self) -> str:
        """The tier that applies; empty for the standard one."""
        name = self.reported or self.requested
        return "" if name in STANDARD_TIERS else name

    def prices(self, price: Price) -> tuple[Price, ...]:
        """The prices that may apply: only one if the tier is known."""
        if not self.name:
            return (price,)
        other = price.in_tier(self.name) or price
        return (other,) if self.reported else (price, other)


STANDARD = ServiceTier()


def charge(tokens: Tokens, price: Price, tier: ServiceTier = STANDARD) -> tuple[int, bool]:
    """The cost of a call in nanodollars, and whether it is approximate (rules 5 and 7)."""
    if (tier is STANDARD or not tier.name) and not tokens.cache_write_1h:  # nearly always
        return cost_of(tokens, price), False
    prices = tier.prices(price)
    cost = max([cost_of(tokens, each) for each in prices])
    approximate = bool(tier.name) and (not tier.reported or price.in_tier(tier.name) is None)
    if tokens.cache_write_1h and not approximate:
        approximate = any(each.rates_for(tokens).cache_write_1h is None for each in prices)
    return cost, approximate and cost > 0


def saved_by_cache(tokens: Tokens, price: Price, tier: ServiceTier = STANDARD) -> int:
    """What the prompt cache has saved, in nanodollars: negative if more was written to it than read from it."""
    if not tokens.cached and not tokens.cache_write:
        return 0
    uncached = structs.replace(tokens, cached=0, cache_write=0, cache_write_1h=0)
    return charge(uncached, price, tier)[0] - charge(tokens, price, tier)[0]


def cost_of(tokens: Tokens, price: Price) -> int:
    """The cost of a call in nanodollars in the standard tier, rounded half up."""
    rates = price.rates if not price.tiers else price.rates_for(tokens)
    cost = rates.of(tokens) + price.request
    if price.factor == UNCHANGED:
        return (cost + _PICO_IN_NANO // 2) // _PICO_IN_NANO
    return (cost * price.factor + _PICO_IN_NANO * UNCHANGED // 2) // (_PICO_IN_NANO * UNCHANGED)


def rate(dollars_per_million: Decimal) -> int:
    """Picodollars per token, from the usual unit: dollars per million tokens."""
    return int((dollars_per_million * _PER_MILLION).to_integral_value(ROUND_HALF_UP))

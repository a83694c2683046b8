"""Requirements: what a request, or its route, demands of a provider: where and how it processes, and at which price.

    zdr, data_collection=deny, region=eu, max_price=3/15

They are checked against what the configuration says of providers. What it does not say is not met.
"""

import re
from math import inf

from msgspec import Struct

from penstock.gateway.record.price import PricedModel
from penstock.providers.provider import Provider

_SYNTAX = "zdr, data_collection=deny, region=NAME and max_price=INPUT/OUTPUT (dollars per million tokens)"
_PRICE = re.compile(r"(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)")
_MAX_TEXT = 200
_PICO_PER_TOKEN = 1_000_000  # picodollars per token, of a dollar per million tokens


class Requirements(Struct, frozen=True):
    """What is demanded of a provider and a model."""

    zdr: bool = False
    no_data_collection: bool = False
    regions: frozenset[str] = frozenset()
    """Where it may process; empty for anywhere."""
    max_input: float = inf
    max_output: float = inf
    """In dollars per million tokens."""

    def unmet(self, provider: Provider, priced: PricedModel | None) -> str:
        """What a provider does not meet, as the rest of a sentence about it; empty if it meets all."""
        own = provider.embedded
        if self.zdr and not (own or provider.zdr):
            return "is not known to retain nothing (zdr)"
        if self.no_data_collection and not (own or provider.zdr or provider.data_collection == "deny"):
            return "is not known to collect no data (data_collection)"
        if self.regions and provider.region.lower() not in self.regions:
            return f"is not known to be in {' or '.join(sorted(self.regions))} (region)"
        if self.max_input == self.max_output == inf:
            return ""
        if priced is None:
            return "has no known price (max_price)"
        rates = priced.price.rates
        input, output = rates.input / _PICO_PER_TOKEN, rates.output / _PICO_PER_TOKEN
        return "is too expensive (max_price)" if input > self.max_input or output > self.max_output else ""


def parse_requirements(text: str) -> Requirements:
    """Read requirements. Raises `ValueError` with a message if one is not known: none may be left out in silence."""
    zdr = no_data_collection = False
    regions: set[str] = set()
    max_input = max_output = inf
    for item in filter(None, (item.strip().lower() for item in text[: _MAX_TEXT + 1].split(","))):
        name, _, value = item.partition("=")
        price = _PRICE.fullmatch(value) if name == "max_price" else None
        if item == "zdr":
            zdr = True
        elif item == "data_collection=deny":
            no_data_collection = True
        elif name == "region" and value:
            regions.add(value)
        elif price is not None:
            max_input, max_output = float(price[1]), float(price[2])
        elif item != "data_collection=allow":
            raise ValueError(f"{item!r} is no requirement; there are {_SYNTAX}")
    if len(text) > _MAX_TEXT:
        raise ValueError(f"has more than {_MAX_TEXT} characters")
    return Requirements(zdr, no_data_collection, frozenset(regions), max_input, max_output)

"""CostReader: looks up what an answer cost. A thread loads the prices while the user types."""

import threading
import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from penstock.core.hub.usage import Tokens, Usage
from penstock.errors import UnknownTargetError
from penstock.gateway.billing.prices import PriceBook, PriceChanges
from penstock.gateway.config import Config
from penstock.gateway.record.price import ServiceTier, charge

UNPRICED = "unpriced"


class AnswerCost(Struct, frozen=True):
    """The cost of an answer in nanodollars, and the version of its price.

    Both are None if the cost is unknown: another gateway answered, or no usage was reported. `price` is `unpriced` if
    the tokens are known but their price is not.
    """

    cost: int | None = None
    price: str | None = None
    approximate: bool = False


class CostReader:
    """Looks up costs by the prices of a configuration."""

    def __init__(self, config: Config, environment: Mapping[str, str], warn: Callable[[str], None]) -> None:
        self._config = config
        self._book: PriceBook | None = None
        self._thread = threading.Thread(
            target=self._open, args=(environment, warn), daemon=True, name="penstock-prices"
        )
        self._thread.start()

    def cost_of(self, target: str, usage: Usage | None, tier: str) -> AnswerCost:
        """The cost of an answer of a target in a service tier. Waits until the prices are loaded."""
        if usage is None or usage.blank:
            return AnswerCost()
        try:
            requested = self._config.target(target)
        except UnknownTargetError:
            return AnswerCost()
        self._thread.join()
        priced = self._book.find(requested.provider, requested.model, time.time()) if self._book is not None else None
        if priced is None:
            return AnswerCost(None, UNPRICED)
        reported = ServiceTier(reported=(usage.tier or tier).lower())
        cost, approximate = charge(Tokens.of(usage), priced.price, reported)
        return AnswerCost(cost, priced.version, approximate)

    def _open(self, environment: Mapping[str, str], warn: Callable[[str], None]) -> None:
        self._book = PriceBook.load(environment, self._config.prices, warn, PriceChanges.of(self._config.finance))

"""CostReader: looks up what an answer cost. A thread loads the prices while the user types."""

import threading
import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from penstock.core.price import ServiceTier, charge
from penstock.core.usage import Tokens, Usage
from penstock.errors import UnknownTargetError
from penstock.gateway.billing.prices import PriceBook
from penstock.gateway.config import Config

UNPRICED = "unpriced"


class AnswerCost(Struct, frozen=True):
    """What an answer has cost in nanodollars, and by which price.

    Both are None where that is not known: another gateway answered, or nobody counted the tokens. A `price` alone is
    `unpriced`: the tokens are known, and what they cost is not.
    """

    cost: int | None = None
    price: str | None = None
    approximate: bool = False


class CostReader:
    """Knows the prices of a configuration."""

    def __init__(self, config: Config, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._config = config
        self._book: PriceBook | None = None
        self._thread = threading.Thread(target=self._open, args=(environment, say), daemon=True, name="penstock-prices")
        self._thread.start()

    def bill(self, target: str, usage: Usage | None, tier: str) -> AnswerCost:
        """What an answer of a target has cost in a service tier. Waits for the prices, if they are not there yet."""
        if usage is None or usage.blank:
            return AnswerCost()
        try:
            asked = self._config.target(target)
        except UnknownTargetError:
            return AnswerCost()
        self._thread.join()
        found = self._book.find(asked.provider, asked.model, time.time()) if self._book is not None else None
        if found is None:
            return AnswerCost(None, UNPRICED)
        reported = ServiceTier(reported=(usage.tier or tier).lower())
        cost, approximate = charge(Tokens.of(usage), found.price, reported)
        return AnswerCost(cost, found.version, approximate)

    def _open(self, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._book = PriceBook.load(environment, self._config.prices, say)

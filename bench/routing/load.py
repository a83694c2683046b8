"""The load of the comparison of strategies, and what becomes of it.

Only the standard library, because the drivers of other gateways run in environments of their own.
"""

import asyncio
import random
import time
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

TARGETS = ("a", "b", "c")
PRICES = {"a": (0.5, 1.5), "b": (1.0, 3.0), "c": (3.0, 9.0)}
"""Dollars per million tokens of input and output."""
INPUT, OUTPUT = 1_000, 200
"""The tokens of each answer."""
PROMPT = "Say something."
FIRST_EVENT_S = 2.0
"""How long a first event may take, for all gateways."""
_CLIENT_TIMEOUT_S = 30.0


class Answer(NamedTuple):
    """What became of one call: whether the answer was complete, and when its first content came."""

    complete: bool
    first_s: float


Ask = Callable[[], Awaitable[Answer]]


async def drive(ask: Ask, seconds: float, rate: float, seed: int) -> list[Answer]:
    """Make calls at random times, on average so many per second, and wait for all answers."""
    chance, tasks, began = random.Random(seed), list[asyncio.Task[Answer]](), time.monotonic()
    due = 0.0
    while due < seconds:
        await asyncio.sleep(max(0.0, began + due - time.monotonic()))
        tasks.append(asyncio.create_task(_with_timeout(ask)))
        due += chance.expovariate(rate)
    return [await task for task in tasks]


async def _with_timeout(ask: Ask) -> Answer:
    try:
        return await asyncio.wait_for(ask(), _CLIENT_TIMEOUT_S)
    except Exception:  # noqa: BLE001 - whatever the client of a gateway raises, the call has failed
        return Answer(False, 0.0)


def start(url: str, script: str, seconds: float, seed: int) -> None:
    """Begin the script of the providers."""
    urllib.request.urlopen(urllib.request.Request(f"{url}/start/{script}/{seconds}/{seed}", b""), timeout=5).close()


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")

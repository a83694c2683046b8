"""Live: the calls of one process that are under way, as somebody who watches is told of them.

Nothing is counted for it: it looks at what calls keep account of anyway, when it is asked, twice a second at most, and
at the newest of them. While nobody asks, it does nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import islice

from msgspec import Struct

from penstock.core.price import cost_of
from penstock.core.usage import Tokens
from penstock.gateway.call import Attempt, Call
from penstock.gateway.entry import Entry
from penstock.gateway.key_report import money
from penstock.serve.surfaces.client import SurfaceClient

# How many calls are told at a time; the newest are.
MOST = 200
# So many half-seconds are told of each.
_RATES = 24
_LEAST_S = 0.4
# Who has not asked for so long does not watch any more.
_WATCHED_S = 3.0
# How long a call is told that is over: whoever asks twice a second learns of it for certain.
_OVER_S = 2.0
# Over so many looks, and so many seconds, it is said how fast something is.
_LOOKS = 5
_PACE_S = 5.0

Told = dict[str, object]


class Over(Struct, frozen=True):
    """A call that is over, and how many seconds ago."""

    ago_s: float
    call: Told


class Snapshot(Struct, frozen=True):
    """What is told of one process: how many calls there are, how many ended per second, the newest, and who ended."""

    total: int
    pace: float
    calls: list[Told]
    over: list[Over]


class Live:
    """Belongs to the event loop. `calls` are those under way, in the order in which they began."""

    def __init__(self, calls: dict[SurfaceClient, None], output: Callable[[Attempt], int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = calls
        self._output = output
        self._seen: dict[str, _Seen] = {}
        self._over: deque[tuple[float, Told]] = deque(maxlen=MOST)
        self._ended: deque[float] = deque(maxlen=10_000)
        self._looked = self._watched_until = float("-inf")
        self._told: list[Told] = []
        self.content = False
        """Whether it may be watched what calls say."""

    def snapshot(self) -> Snapshot:
        """How things are now, or were less than half a second ago."""
        now = self._loop.time()
        if now >= self._watched_until:  # it is looked at for the first time in a while
            self._seen.clear()
            self._over.clear()
            self._ended.clear()
        self._watched_until = now + _WATCHED_S
        if now - self._looked >= _LEAST_S:
            self._looked = now
            self._look(now)
        while self._ended and now - self._ended[0] > _PACE_S:
            self._ended.popleft()
        over = [Over(now - at, told) for at, told in self._over if now - at <= _OVER_S]
        return Snapshot(len(self._calls), len(self._ended) / _PACE_S, self._told, over)

    def settled(self, call: Call, entry: Entry) -> None:
        """A call is over."""
        now = self._loop.time()
        if now >= self._watched_until:
            return
        seen = self._seen.pop(call.id, None) or _Seen()
        told = self._tell(call, seen) | {
            "phase": "over",
            "outcome": entry.outcome,
            "tokens": entry.tokens.output,
            "cost": money(entry.cost),
        }
        self._over.append((now, told))
        self._ended.append(now)

    def find(self, id: str) -> SurfaceClient | None:
        """A call that is under way."""
        return next((client for client in self._calls if client.call.id == id), None)

    def _look(self, now: float) -> None:
        seen: dict[str, _Seen] = {}
        told = []
        for client in islice(reversed(self._calls), MOST):
            call = client.call
            seen[call.id] = at = self._seen.get(call.id) or _Seen()
            if call.attempts:
                attempt = call.attempts[-1]
                at.note(now, attempt.reached[0], self._output(attempt))
            told.append(self._tell(call, at))
        self._seen, self._told = seen, told

    def _tell(self, call: Call, seen: "_Seen") -> Told:
        attempt = call.attempts[-1] if call.attempts else None
        first, key = call.first_event_s, call.key
        phase = "draining" if call.ending is not None else "waiting" if first is None else "streaming"
        return {
            "id": call.id,
            "at_ms": call.at_ms,
            "model": call.model,
            "provider": attempt and attempt.provider,
            "target": attempt and f"{attempt.provider}/{attempt.model}",
            "key": key.id if key is not None else None,
            "key_name": key.name if key is not None else None,
            "surface": call.surface,
            "stream": call.stream,
            "phase": phase,
            "attempts": len(call.attempts),
            "events": attempt.reached[0] if attempt is not None else 0,
            "tokens": seen.tokens,
            "tokens_per_s": seen.pace(),
            "first_event_ms": round(first * 1000) if first is not None else None,
            "longest_gap_ms": round(attempt.gaps.longest_s * 1000) if attempt is not None else 0,
            "rates": list(seen.rates),
            "cost": money(_cost(call, attempt, seen.tokens)) if attempt is not None else None,
            "content": self.content and call.surface == "chat",
        }


class _Seen:
    """What was seen of one call so far."""

    __slots__ = ("_events", "_looks", "rates", "tokens")

    def __init__(self) -> None:
        self._events: int | None = None
        self._looks: deque[tuple[float, int]] = deque(maxlen=_LOOKS)
        self.rates: deque[int] = deque(maxlen=_RATES)
        """Events in each of the last half-seconds."""
        self.tokens = 0

    def note(self, now: float, events: int, tokens: int) -> None:
        """So far it has come by now."""
        if self._events is not None:
            self.rates.append(max(0, events - self._events))
        self._events = events
        self.tokens = tokens
        self._looks.append((now, tokens))

    def pace(self) -> float | None:
        """Tokens per second, of late."""
        if len(self._looks) < 2:
            return None
        (began, before), (now, after) = self._looks[0], self._looks[-1]
        return round(max(0, after - before) / (now - began), 1)


def _cost(call: Call, attempt: Attempt, tokens: int) -> int | None:
    """About what an attempt has cost so far; None where nobody knows."""
    if attempt.priced is None:
        return None
    return cost_of(Tokens(input=call.input_estimate, output=tokens), attempt.priced.price)

"""LiveCalls: the calls of one process that are under way, as somebody who watches is told of them.

Nothing is counted for it: it looks at what calls keep account of anyway, when it is asked, twice a second at most, and
closely only at those that are told: a page of those that somebody looks for. While nobody asks, it does nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from heapq import nlargest
from typing import TypeAlias
from urllib.parse import urlencode

from msgspec import Struct

from penstock.core.price import charge
from penstock.core.usage import Tokens
from penstock.gateway.billing.entry import Entry
from penstock.gateway.calls.call import Attempt, Call
from penstock.gateway.keys.report import money
from penstock.gateway.relay.event_gaps import BOUNDS, EventGaps
from penstock.serve.surfaces.client import CallSession
from penstock.serve.telemetry.otel_names import has_answers

# How many calls are told at a time.
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
_LONGEST = 200
# What is told is kept for others who look at the same, of so many views at most.
_MOST_VIEWS = 64
_MOST_DIGITS = 16

Told = dict[str, object]
# Where a call stands in the list: when it was made, and its id.
Rank: TypeAlias = tuple[int, str]


class LiveFilter(Struct, frozen=True):
    """Which calls somebody looks at: the newest of those in whose names a text is, before another one of them."""

    find: str = ""
    before: Rank | None = None

    @classmethod
    def read(cls, find: str, before: str) -> "LiveFilter":
        """A view as a query says it. Raises `ValueError`."""
        at, _, id = before.partition("-")
        if before and not (at.isascii() and at.isdigit() and len(at) < _MOST_DIGITS):
            raise ValueError("before is the `next` of the page before")
        return cls(find[:_LONGEST], (int(at), id[:_LONGEST]) if before else None)

    @property
    def query(self) -> str:
        """As it is read again."""
        return urlencode({"find": self.find, "before": place(self.before) if self.before is not None else ""})

    def means(self, told: Told) -> bool:
        """Whether a call is one of them."""
        words = " ".join(str(told[name]) for name in ("model", "target", "key_name", "key", "id"))
        return self.find.lower() in words.lower() and (self.before is None or rank(told) < self.before)


def place(rank: Rank) -> str:
    """A place in the list, as `LiveFilter.read` reads it."""
    return f"{rank[0]}-{rank[1]}"


def rank(told: Told) -> Rank:
    """Where a call stands in the list."""
    at = told["at_ms"]
    return (at if isinstance(at, int) else 0, str(told["id"]))


class EndedCall(Struct, frozen=True):
    """A call that is over, and how many seconds ago."""

    ago_s: float
    call: Told


class Snapshot(Struct, frozen=True):
    """What is told of one process: how many calls there are, and how many are looked for; how many ended per second; a
    page of those that are looked for; and who ended.
    """

    total: int
    found: int
    pace: float
    calls: list[Told]
    over: list[EndedCall]


class LiveCalls:
    """Belongs to the event loop. `calls` are those under way, in the order in which they began."""

    def __init__(self, calls: dict[CallSession, None], output: Callable[[Call], int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = calls
        self._output = output
        self._seen: dict[str, _SeenCall] = {}
        self._over: deque[tuple[float, Told]] = deque(maxlen=MOST)
        self._ended: deque[float] = deque(maxlen=10_000)
        self._looked = self._watched_until = float("-inf")
        self.watched = False
        """Whether somebody has looked of late, so that calls that are over are of interest."""
        self._told: dict[LiveFilter, tuple[int, list[Told]]] = {}
        self.content = False
        """Whether it may be watched what calls say."""

    def snapshot(self, view: LiveFilter) -> Snapshot:
        """How things are now, or were less than half a second ago."""
        now = self._loop.time()
        if now >= self._watched_until:  # it is looked at for the first time in a while
            self._seen.clear()
            self._over.clear()
            self._ended.clear()
        self._watched_until = now + _WATCHED_S
        self.watched = True
        if now - self._looked >= _LEAST_S:
            self._looked = now
            self._told.clear()
            self._seen = {id: seen for id, seen in self._seen.items() if now - seen.at < _WATCHED_S}
        if view not in self._told:
            if len(self._told) >= _MOST_VIEWS:
                self._told.clear()
            self._told[view] = self._look(view)
        while self._ended and now - self._ended[0] > _PACE_S:
            self._ended.popleft()
        over = [EndedCall(now - at, told) for at, told in self._over if now - at <= _OVER_S]
        found, told = self._told[view]
        return Snapshot(len(self._calls), found, len(self._ended) / _PACE_S, told, over)

    def settled(self, call: Call, entry: Entry) -> None:
        """A call is over. Needs to be told only while it is watched."""
        now = self._loop.time()
        self.watched = now < self._watched_until
        if not self.watched:
            return
        seen = self._seen.pop(call.id, None) or _SeenCall()
        told = self._tell(call, seen) | {
            "phase": "over",
            "outcome": entry.outcome,
            "tokens": entry.tokens.output,
            "cost": money(entry.cost),
        }
        self._over.append((now, told))
        self._ended.append(now)

    def find(self, id: str) -> CallSession | None:
        """A call that is under way."""
        return next((client for client in self._calls if client.call.id == id), None)

    def _look(self, view: LiveFilter) -> tuple[int, list[Told]]:
        """How many calls are looked for, and a page of them."""
        find, before = view.find.lower(), view.before
        found = [client.call for client in self._calls if not find or find in _words(client.call)]
        listed = found if before is None else [call for call in found if (call.at_ms, call.id) < before]
        told = []
        for call in nlargest(MOST, listed, key=lambda call: (call.at_ms, call.id)):
            seen = self._seen.setdefault(call.id, _SeenCall())
            if call.attempts and seen.at != self._looked:
                attempt = call.attempts[-1]
                seen.note(self._looked, call.reached[0], self._output(call), attempt.gaps)
            told.append(self._tell(call, seen))
        return len(found), told

    def _tell(self, call: Call, seen: "_SeenCall") -> Told:
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
            "events": call.reached[0] if attempt is not None else 0,
            "tokens": seen.tokens,
            "tokens_per_s": seen.pace(),
            "first_event_ms": round(first * 1000) if first is not None else None,
            "longest_gap_ms": round(attempt.gaps.longest_s * 1000) if attempt is not None else 0,
            "rates": list(seen.rates),
            "gaps_ms": list(seen.gaps_ms),
            "cost": money(_cost(call, attempt, seen.tokens)) if attempt is not None else None,
            "content": self.content and has_answers(call.surface),
        }


class _SeenCall:
    """What was seen of one call so far."""

    __slots__ = ("_counts", "_events", "_looks", "_silent_s", "at", "gaps_ms", "rates", "tokens")

    def __init__(self) -> None:
        self.at = float("-inf")
        """When it was last looked at."""
        self._events: int | None = None
        self._looks: deque[tuple[float, int]] = deque(maxlen=_LOOKS)
        self.rates: deque[int] = deque(maxlen=_RATES)
        """Events in each of the last half-seconds."""
        self._counts: list[int] = []
        self._silent_s = 0.0
        self.gaps_ms: deque[int] = deque(maxlen=_RATES)
        """The longest gap in each of them, by the bound of its bucket; where no event came, the silence so far."""
        self.tokens = 0

    def note(self, now: float, events: int, tokens: int, gaps: EventGaps) -> None:
        """So far it has come by now."""
        if self._events is not None:
            self.rates.append(max(0, events - self._events))
            self._silent_s = 0.0 if events > self._events else self._silent_s + now - self.at
            longest = _longest_ms(self._counts, gaps)
            self.gaps_ms.append(max(longest, round(self._silent_s * 1000)))
        self._counts = gaps.counts.copy()
        self._events = events
        self.at = now
        self.tokens = tokens
        self._looks.append((now, tokens))

    def pace(self) -> float | None:
        """Tokens per second, of late."""
        if len(self._looks) < 2:
            return None
        (began, before), (now, after) = self._looks[0], self._looks[-1]
        return round(max(0, after - before) / (now - began), 1)


def _words(call: Call) -> str:
    """What a call is found by, as `LiveFilter` has it."""
    target = f"{call.attempts[-1].provider}/{call.attempts[-1].model}" if call.attempts else ""
    key = f"{call.key.name} {call.key.id}" if call.key is not None else ""
    return f"{call.model} {target} {key} {call.id}".lower()


def _cost(call: Call, attempt: Attempt, tokens: int) -> int | None:
    """About what an attempt has cost so far; None where nobody knows."""
    if attempt.priced is None:
        return None
    return charge(Tokens(input=call.input_estimate, output=tokens), attempt.priced.price, attempt.tier)[0]


def _longest_ms(before: list[int], gaps: EventGaps) -> int:
    """About how long the longest gap was of those that were counted since."""
    counted = [place for place, number in enumerate(gaps.counts) if number > before[place]]
    if not counted:
        return 0
    bound_s = BOUNDS[counted[-1]] if counted[-1] < len(BOUNDS) else gaps.longest_s
    return round(min(bound_s, gaps.longest_s) * 1000)

"""LiveCalls: the calls in progress of one process, for the live view, which shows and stops them.

The live view must not slow down calls, so nothing is counted for it. A snapshot reads the figures that calls keep for
the ledger anyway, at most every `_MIN_INTERVAL_S`. Only the calls of the requested page are read in detail. While there
are no requests for snapshots, nothing is done.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from heapq import nlargest
from typing import TypeAlias
from urllib.parse import urlencode

from msgspec import Struct

from penstock.amounts import money
from penstock.core.hub.failure import Failure
from penstock.core.hub.usage import Tokens
from penstock.gateway.record.attempt import GAP_BOUNDS, Attempt, EventGaps
from penstock.gateway.record.call import EMBEDDINGS, Call
from penstock.gateway.record.entry import Entry
from penstock.gateway.record.price import charge
from penstock.serve.surfaces.call_session import CallSession

# Calls per page.
PAGE_SIZE = 200
# Intervals of half a second for which the rates and gaps of a call are kept.
_INTERVALS = 24
_MIN_INTERVAL_S = 0.4
# The live view counts as closed after so long without a request for a snapshot.
_WATCHED_S = 3.0
# How long a call is reported after its end. A client that polls twice a second cannot miss it.
_ENDED_S = 2.0
# Rates are averages: of tokens over so many samples, of ended calls over so many seconds.
_SAMPLES = 5
_RATE_S = 5.0
_MAX_CHARS = 200
# Pages are cached for other requests with the same filter, at most so many.
_MAX_CACHED = 64
_MAX_DIGITS = 16

_STOPPED = Failure(
    code="stopped_by_operator",
    message="the operator of the gateway has stopped this call",
    retryable=False,
    client_may_retry=False,
)
LiveCall: TypeAlias = dict[str, object]
# The order of the list: when a call was made, and its id.
SortKey: TypeAlias = tuple[int, str]


class LiveFilter(Struct, frozen=True):
    """Selects a page of calls: those whose names contain `find`, the newest first, older than `before`."""

    find: str = ""
    before: SortKey | None = None

    @classmethod
    def parse(cls, find: str, before: str) -> "LiveFilter":
        """Parse the parameters of a query. Raises `ValueError`."""
        at, _, id = before.partition("-")
        if before and not (at.isascii() and at.isdigit() and len(at) < _MAX_DIGITS):
            raise ValueError("before is the `next` of the previous page")
        return cls(find[:_MAX_CHARS], (int(at), id[:_MAX_CHARS]) if before else None)

    @property
    def query(self) -> str:
        """The parameters as a query string, which `parse` accepts."""
        return urlencode({"find": self.find, "before": cursor(self.before) if self.before is not None else ""})

    def matches(self, call: LiveCall) -> bool:
        """Whether a call is selected."""
        names = " ".join(str(call[name]) for name in ("model", "target", "key_name", "key", "id"))
        return self.find.lower() in names.lower() and (self.before is None or sort_key(call) < self.before)


def cursor(key: SortKey) -> str:
    """A position in the list as text, which `LiveFilter.parse` accepts."""
    return f"{key[0]}-{key[1]}"


def sort_key(call: LiveCall) -> SortKey:
    """The position of a call in the list."""
    at = call["at_ms"]
    return (at if isinstance(at, int) else 0, str(call["id"]))


class EndedCall(Struct, frozen=True):
    """A call that has ended, and how many seconds ago."""

    ago_s: float
    call: LiveCall


class Snapshot(Struct, frozen=True):
    """The calls of one process: how many are in progress and how many of them match, how many end per second, a page of
    those that match, and the calls that ended just now.
    """

    total: int
    matching: int
    ended_per_s: float
    calls: list[LiveCall]
    ended: list[EndedCall]


class LiveCalls:
    """Shows and stops `calls`, the calls in progress, the oldest first. Used by the event loop's thread."""

    def __init__(self, calls: dict[CallSession, None], output: Callable[[Call], int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = calls
        self._output = output
        self._seen: dict[str, _SeenCall] = {}
        self._ended: deque[tuple[float, LiveCall]] = deque(maxlen=PAGE_SIZE)
        self._end_times: deque[float] = deque(maxlen=10_000)
        self._sampled_at = self._watched_until = float("-inf")
        self.watched = False
        """Whether a snapshot was requested recently, so that calls that end are recorded."""
        self._pages: dict[LiveFilter, tuple[int, list[LiveCall]]] = {}
        self.content = False
        """Whether readers may see the text of calls."""

    def allow_content(self, *, allowed: bool) -> None:
        """Allow or forbid readers to see the text of calls. If forbidden, transcripts are dropped at once."""
        self.content = allowed
        if not allowed:
            for session in self._calls:
                if session.call.progress.control is not None:
                    session.call.progress.control.drop_transcript()

    def stop(self, id: str) -> bool:
        """Stop a call for the operator. Returns False if it is not in progress in this process."""
        session = self.find(id)
        if session is not None:
            session.call.guarded(session.stop)(_STOPPED)
        return session is not None

    def end(self, id: str, failure: Failure) -> None:
        """Stop a call, if it is in progress in this process: its client keeps the text so far and gets the failure."""
        session = self.find(id)
        if session is not None:
            session.call.keeping = None  # what is cancelled cannot be continued
            session.call.guarded(session.stop)(failure)

    def stop_keys(self, keys: set[str]) -> None:
        """Stop the calls of keys for the operator."""
        for session in list(self._calls) if keys else ():
            if session.call.key is not None and session.call.key.id in keys:
                session.stop(_STOPPED)

    def snapshot(self, view: LiveFilter) -> Snapshot:
        """The state now, or at most `_MIN_INTERVAL_S` ago."""
        now = self._loop.time()
        if now >= self._watched_until:  # the first request in a while
            self._seen.clear()
            self._ended.clear()
            self._end_times.clear()
        self._watched_until = now + _WATCHED_S
        self.watched = True
        if now - self._sampled_at >= _MIN_INTERVAL_S:
            self._sampled_at = now
            self._pages.clear()
            self._seen = {id: seen for id, seen in self._seen.items() if now - seen.at < _WATCHED_S}
        if view not in self._pages:
            if len(self._pages) >= _MAX_CACHED:
                self._pages.clear()
            self._pages[view] = self._page(view)
        while self._end_times and now - self._end_times[0] > _RATE_S:
            self._end_times.popleft()
        ended = [EndedCall(now - at, call) for at, call in self._ended if now - at <= _ENDED_S]
        matching, page = self._pages[view]
        return Snapshot(len(self._calls), matching, len(self._end_times) / _RATE_S, page, ended)

    def settled(self, call: Call, entry: Entry) -> None:
        """Record a settled call. Needs to be called only while `watched`."""
        now = self._loop.time()
        self.watched = now < self._watched_until
        if not self.watched:
            return
        seen = self._seen.pop(call.id, None) or _SeenCall()
        settled = self._describe(call, seen) | {
            "phase": "over",
            "outcome": entry.outcome,
            "tokens": entry.tokens.output,
            "cost": money(entry.cost),
        }
        self._ended.append((now, settled))
        self._end_times.append(now)

    def find(self, id: str) -> CallSession | None:
        """The call in progress with this id."""
        return next((client for client in self._calls if client.call.id == id), None)

    def _page(self, view: LiveFilter) -> tuple[int, list[LiveCall]]:
        """How many calls match, and a page of them."""
        find, before = view.find.lower(), view.before
        matching = [client.call for client in self._calls if not find or find in _searchable(client.call)]
        older = matching if before is None else [call for call in matching if (call.at_ms, call.id) < before]
        page = []
        for call in nlargest(PAGE_SIZE, older, key=lambda call: (call.at_ms, call.id)):
            seen = self._seen.setdefault(call.id, _SeenCall())
            if call.progress.attempts and seen.at != self._sampled_at:
                attempt = call.progress.attempts[-1]
                seen.sample(self._sampled_at, call.progress.reached[0], self._output(call), attempt.gaps)
            page.append(self._describe(call, seen))
        return len(matching), page

    def _describe(self, call: Call, seen: "_SeenCall") -> LiveCall:
        progress = call.progress
        attempt = progress.attempts[-1] if progress.attempts else None
        first, key = progress.commit_s, call.key
        phase = "draining" if progress.ending is not None else "waiting" if first is None else "streaming"
        running = progress.control.running if progress.control is not None else None
        since = running.last_event_at if running is not None and first is not None else call.started
        silent_ms = round((self._loop.time() - since) * 1000) if phase in ("waiting", "streaming") else None
        longest_ms = round(attempt.gaps.longest_s * 1000) if attempt is not None else 0
        return {
            "id": call.id,
            "at_ms": call.at_ms,
            "model": call.model,
            "provider": attempt and attempt.provider,
            "target": attempt and f"{attempt.provider}/{attempt.model}",
            "dialect": attempt and attempt.dialect if call.surface != EMBEDDINGS else None,
            "key": key.id if key is not None else None,
            "key_name": key.name if key is not None else None,
            "surface": call.surface,
            "stream": call.stream,
            "phase": phase,
            "attempts": len(progress.attempts),
            "events": progress.reached[0] if attempt is not None else 0,
            "tokens": seen.tokens,
            "tokens_per_s": seen.tokens_per_s(),
            "first_event_ms": round(first * 1000) if first is not None else None,
            "silent_ms": silent_ms,
            "longest_gap_ms": max(longest_ms, silent_ms or 0) if phase == "streaming" else longest_ms,
            "rates": list(seen.rates),
            "gaps_ms": list(seen.gaps_ms),
            "cost": money(_cost(call, attempt, seen.tokens)) if attempt is not None else None,
            "content": self.content and call.surface != EMBEDDINGS,
        }


class _SeenCall:
    """The samples of one call so far."""

    __slots__ = ("_counts", "_events", "_samples", "_silent_s", "at", "gaps_ms", "rates", "tokens")

    def __init__(self) -> None:
        self.at = float("-inf")
        """When it was last sampled."""
        self._events: int | None = None
        self._samples: deque[tuple[float, int]] = deque(maxlen=_SAMPLES)
        self.rates: deque[int] = deque(maxlen=_INTERVALS)
        """Events in each of the last intervals."""
        self._counts: list[int] = []
        self._silent_s = 0.0
        self.gaps_ms: deque[int] = deque(maxlen=_INTERVALS)
        """The longest gap in each interval, by the bound of its bucket; if no event arrived, the silence so far."""
        self.tokens = 0

    def sample(self, now: float, events: int, tokens: int, gaps: EventGaps) -> None:
        """Add a sample: the number of events and tokens so far, and the gaps between events."""
        if self._events is not None:
            self.rates.append(max(0, events - self._events))
            self._silent_s = 0.0 if events > self._events else self._silent_s + now - self.at
            longest = _longest_ms(self._counts, gaps)
            self.gaps_ms.append(max(longest, round(self._silent_s * 1000)))
        self._counts = gaps.counts.copy()
        self._events = events
        self.at = now
        self.tokens = tokens
        self._samples.append((now, tokens))

    def tokens_per_s(self) -> float | None:
        """The average rate over the last samples; None before the second."""
        if len(self._samples) < 2:
            return None
        (then, before), (now, after) = self._samples[0], self._samples[-1]
        return round(max(0, after - before) / (now - then), 1)


def _searchable(call: Call) -> str:
    """The text that `LiveFilter.find` is searched in."""
    attempts = call.progress.attempts
    target = f"{attempts[-1].provider}/{attempts[-1].model}" if attempts else ""
    key = f"{call.key.name} {call.key.id}" if call.key is not None else ""
    return f"{call.model} {target} {key} {call.id}".lower()


def _cost(call: Call, attempt: Attempt, tokens: int) -> int | None:
    """The estimated cost of an attempt so far; None if the price is unknown."""
    if attempt.priced is None:
        return None
    return charge(Tokens(input=call.input_estimate, output=tokens), attempt.priced.price, attempt.tier)[0]


def _longest_ms(before: list[int], gaps: EventGaps) -> int:
    """An upper bound of the longest gap since the counts `before`, by its histogram bucket."""
    counted = [bucket for bucket, number in enumerate(gaps.counts) if number > before[bucket]]
    if not counted:
        return 0
    bound_s = GAP_BOUNDS[counted[-1]] if counted[-1] < len(GAP_BOUNDS) else gaps.longest_s
    return round(min(bound_s, gaps.longest_s) * 1000)

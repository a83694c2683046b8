"""Refusals: records refused requests and failed sign-ins in the audit log, in few entries however many there are.

The first refusal of a kind is recorded at once. Those that follow within `WINDOW_S` are counted, and become one entry
at its end. A kind is a user, its address, and what was refused for which reason. Beyond `MAX_KINDS` of users and
`MAX_UNKNOWN` of unknown clients, refusals are counted as those of others. So a process writes at most two entries per
window for each of these and for the others, whatever clients do.

Nothing that a client sends is recorded, except its address: no path, no parameter, no credential. No refusal waits for
the audit log.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from penstock.amounts import clock_ms
from penstock.gateway.people.audit import Actor, AuditEntry, entry_of

WINDOW_S = 600.0
MAX_KINDS = 200
MAX_UNKNOWN = 20
UNKNOWN = "(unknown)"
_OTHERS = Actor("(others)", "none")


class _Kind(NamedTuple):
    actor: Actor
    action: str
    subject: str
    reason: str


class Refusals:
    """Counts refusals in the event loop of one worker. `record` appends to the audit log."""

    def __init__(self, record: Callable[[AuditEntry], None], window_s: float = WINDOW_S) -> None:
        self._record = record
        self._window_s = window_s
        # Refusals since the entry of the first one.
        self._counts: dict[_Kind, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, actor: Actor, action: str, subject: str, reason: str) -> None:
        """Record a refusal, now or at the end of the window."""
        kind = _Kind(actor, action, subject, reason)
        if kind not in self._counts and self._is_full(unknown=kind.actor.who == UNKNOWN):
            kind = _Kind(_OTHERS, "request.refuse", "", "too_many")
        if kind in self._counts:
            self._counts[kind] += 1
            return
        self._counts[kind] = 0
        self._record(_entry(kind, 1))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._window_s, self.flush)

    def _is_full(self, *, unknown: bool) -> bool:
        """Whether there are too many kinds, of users or of unknown clients."""
        same = sum((kind.actor.who == UNKNOWN) == unknown for kind in self._counts)
        return same >= (MAX_UNKNOWN if unknown else MAX_KINDS)

    def flush(self) -> None:
        """Record what was counted, and start a new window."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        counts, self._counts = self._counts, {}
        for kind, count in counts.items():
            if count:
                self._record(_entry(kind, count))


def _entry(kind: _Kind, count: int) -> AuditEntry:
    after = {"reason": kind.reason, "times": count}
    return entry_of(kind.actor, clock_ms(), kind.action, kind.subject, after=after)

"""AttemptTimeouts: how long an attempt may take, and how large its answer may be."""

from math import inf

from msgspec import Struct


class AttemptTimeouts(Struct, frozen=True, eq=False, gc=False, kw_only=True):
    """The timeouts of an attempt in seconds, and the size limit of an unstreamed answer in bytes."""

    first_event_s: float
    gap_s: float
    heartbeat_s: float
    total_s: float
    """For the whole call, from its start."""
    first_check_s: float = 0.0
    """The shorter of `first_event_s` and `heartbeat_s`: the timer is set for it first."""
    drain_s: float = 0.0
    """How long an answer is drained after its client has disconnected; 0: not at all."""
    pace_window_s: float = inf
    """How long an answer may take for `pace_chars`, from its first event on, and then again and again."""
    pace_chars: float = 0.0
    """The least characters in each such window."""
    max_body: int = 32_000_000

"""AttemptTimeouts: how long an attempt may take, and how large its answer may be."""

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
    max_body: int = 32_000_000

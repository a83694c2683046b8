"""Unwatched: what it takes to keep account of each event while nobody watches, in this process.

No gateway can be run without it, so the code that forwards a chunk of text is compiled a second time without the lines
that are there only to be looked at: the gaps between events, and whether somebody reads along. Both are run in turns
on the same event; the difference is the figure. What is done once for each call is not in it: a look at the clock.
"""

import inspect
import itertools
import statistics
import textwrap
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from penstock.gateway.calls.call import Attempt, Call
from penstock.gateway.relay import relay
from penstock.gateway.relay.control import AttemptControl
from penstock.gateway.relay.relay import Relay

# What stands in `Relay._on_text_chunk` so that somebody may look, and what stands there without it.
OBSERVING = (
    ("if self._call.on_text is not None:", "if False:"),
    ("    gap = now - watchdog.progress\n", ""),
    ("    gaps = watchdog.gaps\n    gaps.counts[bisect_left(BOUNDS, gap)] += 1\n", ""),
    ("    if gap > gaps.notable_s:\n        gaps.note(gap, now - gap - watchdog.started)\n", ""),
)
_EVENTS = 20_000
_ROUNDS = 25
_APART_S = 0.005

_Forwarder = Callable[[bytes, bytes], bool]


def idle_us() -> float:
    """Microseconds for each event, the median of the rounds."""
    whole = textwrap.dedent(inspect.getsource(Relay._on_text_chunk))
    with_it, without = _made(whole), _made(unobserved(whole))
    differences = [_seconds(with_it) - _seconds(without) for _ in range(_ROUNDS)]
    return statistics.median(differences) / _EVENTS * 1e6


def unobserved(source: str) -> str:
    """The code without what observes. Raises `ValueError` where that is not what it was."""
    for words, instead in OBSERVING:
        if source.count(words) != 1:
            raise ValueError(f"{words!r} is not in the relay as it was: look at bench/watching/unwatched.py")
        source = source.replace(words, instead)
    return source


def _made(source: str) -> _Forwarder:
    """What this code makes, on a relay whose sockets and pass-through cost next to nothing."""
    names: dict[str, Any] = dict(vars(relay))
    exec(compile(source, "<forwarding>", "exec"), names)
    attempt = Attempt("provider", "model")
    forwarding = SimpleNamespace(
        _watchdog=SimpleNamespace(
            loop=SimpleNamespace(time=itertools.count(0.0, _APART_S).__next__),
            gaps=attempt.gaps,
            started=0.0,
            progress=0.0,
        ),
        _call=Call("req_1", "model", stream=True, started=0.0),
        _attempt=attempt,
        _control=AttemptControl(attempt),
        _feed=_five,
        _write_chunk=_nothing,
    )
    return partial(names["_on_text_chunk"], forwarding)


def _five(_chunk: bytes) -> int:
    return 5


def _nothing(_chunk: bytes) -> None: ...


def _seconds(forwarder: _Forwarder) -> float:
    began = time.process_time()
    for _ in range(_EVENTS):
        forwarder(b"", b"")
    return time.process_time() - began

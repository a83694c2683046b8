"""Measures the cost of observing each event while no Live page is open, in this process.

No gateway can run without the observing code. So the function that forwards a chunk of text is compiled a second time
without the lines for observation: the gaps between events, and the check for a watcher of the text. Both run in turns
on the same event, and the difference is the figure. It does not include what is done once per call: reading the clock.
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

from penstock.gateway.record.attempt import Attempt, AttemptControl
from penstock.gateway.record.call import Call
from penstock.gateway.relay import streamed_answer
from penstock.gateway.relay.streamed_answer import StreamedAnswer

# The lines for observation in `StreamedAnswer._on_chunk`, and what replaces them.
OBSERVING = (
    ("if self._call.on_text is not None:", "if False:"),
    ("    gap = now - watchdog.last_event_at\n", ""),
    ("    gaps = watchdog.gaps\n    gaps.counts[bisect_left(GAP_BOUNDS, gap)] += 1\n", ""),
    ("    if gap > gaps.notable_s:\n        gaps.note(gap, now - gap - watchdog.started)\n", ""),
)
_EVENTS = 20_000
_ROUNDS = 25
_APART_S = 0.005

_Forwarder = Callable[[bytes, bytes], bool]


def idle_us() -> float:
    """Microseconds for each event, the median of the rounds."""
    whole = textwrap.dedent(inspect.getsource(StreamedAnswer._on_chunk))
    with_it, without = _made(whole), _made(unobserved(whole))
    differences = [_seconds(with_it) - _seconds(without) for _ in range(_ROUNDS)]
    return statistics.median(differences) / _EVENTS * 1e6


def unobserved(source: str) -> str:
    """The code without the lines for observation. Raises `ValueError` if one of them is not in it."""
    for words, instead in OBSERVING:
        if source.count(words) != 1:
            raise ValueError(f"{words!r} is not in the forwarder any more: update bench/watching/unwatched.py")
        source = source.replace(words, instead)
    return source


def _made(source: str) -> _Forwarder:
    """The compiled function, bound to a forwarder whose sockets and matcher cost next to nothing."""
    names: dict[str, Any] = dict(vars(streamed_answer))
    exec(compile(source, "<forwarding>", "exec"), names)
    attempt = Attempt("provider", "model")
    forwarding = SimpleNamespace(
        _watchdog=SimpleNamespace(
            loop=SimpleNamespace(time=itertools.count(0.0, _APART_S).__next__),
            gaps=attempt.gaps,
            started=0.0,
            last_event_at=0.0,
        ),
        _call=Call("req_1", "model", stream=True, started=0.0),
        _attempt=attempt,
        _control=AttemptControl(attempt),
        _take_text=_five_characters,
        _write_text=None,
        _send_bytes=_nothing,
        _keep_text=None,
        _follow_text=None,
    )
    return partial(names["_on_chunk"], forwarding)


def _five_characters(_chunk: bytes) -> str:
    return "words"


def _nothing(_chunk: bytes) -> None: ...


def _seconds(forwarder: _Forwarder) -> float:
    began = time.process_time()
    for _ in range(_EVENTS):
        forwarder(b"", b"")
    return time.process_time() - began

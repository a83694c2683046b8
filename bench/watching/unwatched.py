"""Unwatched: what it takes to keep account of each event while nobody watches, in this process.

No gateway can be run without it, so the code that relays a steady stream is compiled a second time without the lines
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

from penstock.gateway import steady
from penstock.gateway.call import Attempt, Call
from penstock.gateway.steady import SteadyRelay

# What stands in `SteadyRelay._take_steady` so that somebody may look, and what stands there without it.
OBSERVING = (
    ("if self._call.on_text is not None:", "if False:"),
    ("    gap = now - self._progress\n", ""),
    ("    gaps = self._gaps\n    gaps.counts[bisect_left(BOUNDS, gap)] += 1\n", ""),
    ("    if gap > gaps.notable_s:\n        gaps.note(gap, now - gap - self._begun)\n", ""),
)
_EVENTS = 20_000
_ROUNDS = 25
_APART_S = 0.005

_Shortcut = Callable[[bytes], bool]


def idle_us() -> float:
    """Microseconds for each event, the median of the rounds."""
    whole = textwrap.dedent(inspect.getsource(SteadyRelay._take_steady))
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


def _made(source: str) -> _Shortcut:
    """The shortcut that this code makes, on a relay whose sockets and parser cost next to nothing."""
    names = dict(vars(steady))
    exec(compile(source, "<shortcut>", "exec"), names)
    attempt = Attempt("provider", "model")
    takes = SimpleNamespace(
        _loop=SimpleNamespace(time=itertools.count(0.0, _APART_S).__next__),
        _call=Call("req_1", "model", stream=True, started=0.0),
        _attempt=attempt,
        _gaps=attempt.gaps,
        _begun=0.0,
        _progress=0.0,
        _read_chunk=_five,
        _write_chunk=_nothing,
    )
    return partial(names["_take_steady"], takes)


def _five(_chunk: bytes) -> int:
    return 5


def _nothing(_chunk: bytes) -> None: ...


def _seconds(shortcut: _Shortcut) -> float:
    began = time.process_time()
    for _ in range(_EVENTS):
        shortcut(b"")
    return time.process_time() - began

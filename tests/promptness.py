"""Promptness: promises about time, judged by the best of a few runs.

A busy machine is late now and then; a slow gateway is late every time. So a test that was late is run again, up to ten
times in all, and the shortest time counts:

    @prompt
    def test_it_is_left_at_once(gateway: Gateway) -> None:
        ...
        in_time(closed_at - left_at, 0.05)

A test raises `Late` itself if it finds that the machine was too slow for what it plays: say, that a short timeout has
passed before the first byte was sent.

A test that is `prompt` may run again with the same fixtures: it must create what it measures, and leave nothing behind.

A limit of CPU time does not depend on what else runs, but on the speed of the machine, which `cpu_s` measures:

    assert time.process_time() - began < cpu_s(2.0)
"""

import functools
import time
from collections.abc import Callable
from typing import ParamSpec

_RUNS = 10
# A machine that is busy now may be less busy in a moment.
_PAUSE_S = 0.05

# What `cpu_s` counts to, and how long that takes where the limits were chosen.
_COUNT = 1_000_000
_COUNT_S = 0.02

_Arguments = ParamSpec("_Arguments")


class Late(AssertionError):
    """Something took longer than promised in this run."""


def in_time(took_s: float, limit_s: float) -> None:
    """It took less than that, or it is `Late`."""
    if took_s >= limit_s:
        raise Late(f"it took {took_s * 1000:.3g} ms, and may take {limit_s * 1000:.3g}")


def prompt(test: Callable[_Arguments, None]) -> Callable[_Arguments, None]:
    """A test that runs again if it was late. Any other failure fails at once."""

    @functools.wraps(test)
    def run(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        for number in range(_RUNS - 1):
            try:
                return test(*args, **kwargs)
            except Late:
                time.sleep(number * _PAUSE_S)
        return test(*args, **kwargs)

    return run


def cpu_s(seconds: float) -> float:
    """So many seconds of CPU time of a usual machine: more of a slower one, and never less."""
    began = time.process_time()
    for _ in range(_COUNT):
        pass
    return seconds * max(1.0, (time.process_time() - began) / _COUNT_S)

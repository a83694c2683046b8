"""Loop: the event loop that serves. It is uvloop's, or asyncio's own where uvloop is not installed."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

try:
    import uvloop
except ImportError:
    _fast = False
else:
    _fast = True

Result = TypeVar("Result")

# What the log says of the loop; empty where there is nothing to say.
REMARK = "" if _fast else "uvloop is not installed: the event loop is asyncio's own, which takes more CPU for each call"


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of the best kind that there is."""
    return uvloop.new_event_loop() if _fast else asyncio.new_event_loop()


def run_loop(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in such a loop, to its end."""
    return uvloop.run(main) if _fast else asyncio.run(main)

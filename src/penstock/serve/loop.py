"""Loop: the event loop of the server, uvloop if it is installed, otherwise asyncio's own; and tasks in it."""

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

# A message for the log if uvloop is missing; otherwise empty.
NOTICE = "" if _fast else "uvloop is not installed: the event loop is asyncio's own, which uses more CPU per call"


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new event loop: uvloop if possible."""
    return uvloop.new_event_loop() if _fast else asyncio.new_event_loop()


def run_loop(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in a new event loop."""
    return uvloop.run(main) if _fast else asyncio.run(main)


class Tasks(set["asyncio.Task[None]"]):
    """Tasks in the background. The event loop has only weak references to tasks, so something else has to keep them."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task, which is kept until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self.add(task)
        task.add_done_callback(self.discard)

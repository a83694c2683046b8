"""The gateway, which also measures how long its event loop is blocked: `python -m bench.page.gateway FILE serve …`.

A timer of the loop fires about every millisecond. Between two of its calls, the loop's thread runs the callbacks that
are due. So a callback that holds the loop shows as a long time between them. The file has two numbers, in milliseconds,
of the worst since it was last set to zero:

    CPU      what the thread used: no other process affects it
    blocked  the time between two calls, without that in which the thread was ready but had no core. It includes the
             wait for the interpreter's lock (GIL) while another thread of the gateway has it.
"""

import asyncio
import mmap
import struct
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import penstock.serve.run
from penstock.cli.main import main
from penstock.serve.loop import Result, run_loop

_BEAT_S = 0.001
_FIGURES = struct.Struct("dd")


class LoopDelays:
    """The file with the figures, shared by the gateway and the benchmark."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_FIGURES.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _FIGURES.size)

    def read(self) -> tuple[float, float]:
        """The longest CPU time and the longest hold, in milliseconds."""
        cpu, blocked = _FIGURES.unpack(self._shared)
        return cpu, blocked

    def write(self, cpu_ms: float = 0, blocked_ms: float = 0) -> None:
        """Set both."""
        self._shared[:] = _FIGURES.pack(cpu_ms, blocked_ms)


def _beat(delays: LoopDelays) -> None:
    """Measure in the running loop until it ends."""
    loop = asyncio.get_running_loop()
    ready = Path("/proc/thread-self/schedstat").open("rb", buffering=0)  # noqa: SIM115 - open as long as the loop

    def now() -> tuple[float, float, float]:
        ready.seek(0)
        return time.monotonic(), time.thread_time(), int(ready.read().split()[1]) / 1e9

    def beat(last: tuple[float, float, float]) -> None:
        at = now()
        wall, cpu, waited = (1e3 * (after - before) for before, after in zip(last, at, strict=True))
        worst_cpu, longest_blocked = delays.read()
        delays.write(max(worst_cpu, cpu), max(longest_blocked, wall - 1e3 * _BEAT_S - waited))
        loop.call_later(_BEAT_S, beat, at)

    beat(now())


if __name__ == "__main__":
    _delays = LoopDelays(Path(sys.argv.pop(1)))

    def _run_measured(work: Coroutine[Any, Any, Result]) -> Result:
        async def measured() -> Result:
            _beat(_delays)
            return await work

        return run_loop(measured())

    penstock.serve.run.run_loop = _run_measured  # type: ignore[assignment, attr-defined]
    main()

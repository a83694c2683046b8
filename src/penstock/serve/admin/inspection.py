"""Inspection: the result of `penstock inspect` for uploaded bytes, computed in a child process.

Parsing megabytes would block the event loop or, in a thread, hold the GIL and delay every stream of this process. The
bytes are also untrusted, so the child gets a time limit and no environment variables that could contain secrets.
"""

import asyncio
import os
import sys
from contextlib import suppress

import msgspec

from penstock.core.hub.failure import Failure
from penstock.serve.admin.replies import refusal

MAX_BYTES = 5_000_000
_TIMEOUT_S = 20.0
_MAX_RUNNING = 2
_COMMAND = ("-P", "-m", "penstock", "inspect", "--json", "--findings", "-")
_BUSY = Failure(
    code="inspector_busy",
    message=f"{_MAX_RUNNING} inspections are running already; try again",
    retry_after="2",
)
_TIMED_OUT = Failure(code="inspection_timeout", message=f"the inspection took longer than {_TIMEOUT_S:g} s")


class Inspector:
    """Runs a bounded number of inspections at the same time."""

    def __init__(self) -> None:
        self._running = 0

    async def inspect(self, data: bytes) -> msgspec.Raw | Failure:
        """Inspect a stream or a capture file. Returns the report, or why there is none."""
        if not data:
            return refusal("invalid_parameter", "send the bytes of a stream, or a capture file, as the body")
        if self._running >= _MAX_RUNNING:
            return _BUSY
        self._running += 1
        try:
            return await _inspect(data)
        finally:
            self._running -= 1


async def _inspect(data: bytes) -> msgspec.Raw | Failure:
    # Nothing else of our environment: it contains secrets.
    environment = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, *_COMMAND, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
    )
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            report, stderr = await child.communicate(data)
    except TimeoutError:
        return _TIMED_OUT
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    if not report:
        reason = stderr.decode(errors="replace").strip().removeprefix("penstock: -: ")
        return refusal("unreadable", reason[:1000] or "the bytes cannot be read as a stream or a capture")
    return msgspec.Raw(report)

"""Inspection: what `penstock inspect` says of bytes that somebody hands in, by a process of its own.

Reading megabytes would hold up every stream of this process, in whichever thread it was done; and what is handed in may
be anything.
"""

import asyncio
import os
import sys
from contextlib import suppress

import msgspec

from penstock.core.failure import Failure
from penstock.serve.admin.replies import refusal
from penstock.serve.admin.routes import AdminReply

LARGEST = 5_000_000
_WAIT_S = 20.0
_MOST = 2
_COMMAND = ("-P", "-m", "penstock", "inspect", "--json", "--findings", "-")
_BUSY = Failure(
    code="inspector_busy",
    message="others have streams inspected; come again",
    retry_after="2",
)
_TOO_LONG = Failure(code="inspection_timeout", message=f"it took longer than {_WAIT_S:g} s")


class Inspector:
    """Inspects a few streams at a time."""

    def __init__(self) -> None:
        self._busy = 0

    async def inspect(self, data: bytes) -> AdminReply | Failure:
        """What is to be said of a stream, or of a capture file; or why nothing is."""
        if not data:
            return refusal("invalid_parameter", "send the bytes of a stream, or a capture file, as the body")
        if self._busy >= _MOST:
            return _BUSY
        self._busy += 1
        try:
            return await _inspect(data)
        finally:
            self._busy -= 1


async def _inspect(data: bytes) -> AdminReply | Failure:
    # Nothing of our environment: there are secrets in it.
    environment = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, *_COMMAND, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
    )
    try:
        async with asyncio.timeout(_WAIT_S):
            said, complaint = await child.communicate(data)
    except TimeoutError:
        return _TOO_LONG
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    if not said:
        reason = complaint.decode(errors="replace").strip().removeprefix("penstock: -: ")
        return refusal("unreadable", reason[:1000] or "it cannot be read")
    return AdminReply(200, msgspec.Raw(said))

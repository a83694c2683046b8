"""GatewayLink: requests between the gateways that use one ledger (`stores/gateway_board.py`).

One worker of each gateway answers for all of its workers: the one that has the lock on a file. It passes each request
on to all workers over their sockets (`peers.py`), so the requests are those of `Routes`. If it dies, another one gets
the lock. Any worker can send requests.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.serve.workers.peers import WorkerPeers
from penstock.stores.gateway_board import LEASE_S, GatewayBoard
from penstock.stores.query_thread import QueryThread

# How often to look for requests; and how often while others send requests, as they do for an open live view.
_IDLE_S = 1.0
_BUSY_S = 0.2
_BUSY_FOR_S = 5.0
_RENEW_S = LEASE_S / 3
# How long the end of the process waits for the database.
_LEAVE_S = 1.0
_LOCK_FILE = "link.lock"
_BODIES = msgspec.json.Decoder(list[msgspec.Raw])


class Replies(NamedTuple):
    """The responses of other workers."""

    bodies: list[bytes]
    gateways: int | None = 1
    """How many gateways run, including this one; None if the database does not answer."""
    answered: int = 1


class GatewayLink:
    """The link of one worker to the other gateways. Used by the event loop's thread."""

    def __init__(self, open_board: Callable[[], GatewayBoard], id: str, folder: Path, peers: WorkerPeers) -> None:
        """`id` and `folder` are those of the gateway: all its workers have the same."""
        self._id = id
        self._peers = peers
        self._lock = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # One thread waits for replies; meanwhile the other one answers.
        self._asking = QueryThread(open_board, "penstock-ask")
        self._answering = QueryThread(open_board, "penstock-answer")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to answer the requests of other gateways."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def request_all(self, method: str, path: str) -> Replies:
        """Send a request to all other workers, on this gateway and on others."""
        own, others = await asyncio.gather(self._peers.request_all(method, path), self.request_gateways(method, path))
        return others._replace(bodies=[*own, *others.bodies])

    async def request_gateways(self, method: str, path: str) -> Replies:
        """Send a request to all workers of other gateways."""
        found = await self._asking.run(lambda board: board.ask(self._id, f"{method} {path}"))
        if isinstance(found, Exception):
            return Replies([], None)
        bodies = [bytes(raw) for body in found.bodies for raw in _BODIES.decode(body)]
        return Replies(bodies, 1 + found.asked, 1 + len(found.bodies))

    async def close(self) -> None:
        """Stop answering."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._owns_lock():
            with suppress(TimeoutError):  # its row expires
                async with asyncio.timeout(_LEAVE_S):
                    await self._answering.run(lambda board: board.leave(self._id))
        for thread in (self._asking, self._answering):
            await asyncio.get_running_loop().run_in_executor(None, thread.close)
        os.close(self._lock)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        busy_until = renew_at = float("-inf")
        while True:
            if self._owns_lock():
                if loop.time() >= renew_at:
                    renew_at = loop.time() + _RENEW_S
                    await self._answering.run(lambda board: board.renew(self._id))
                pending = await self._answering.run(lambda board: board.pending(self._id))
                for request, target in pending if isinstance(pending, list) else ():
                    busy_until = loop.time() + _BUSY_FOR_S
                    await self._answer(request, target)
            await asyncio.sleep(_BUSY_S if loop.time() < busy_until else _IDLE_S)

    async def _answer(self, request: str, target: str) -> None:
        """Send a request to all workers of this gateway, and reply with their responses."""
        method, _, path = target.partition(" ")
        bodies = await self._peers.request_all(method, path, own=True)
        reply = f"[{','.join(body.decode() for body in bodies)}]"
        await self._answering.run(lambda board: board.reply(request, self._id, reply))

    def _owns_lock(self) -> bool:
        """Whether this worker answers for its gateway."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

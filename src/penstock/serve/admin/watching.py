"""Watching: event streams for those who watch: the calls under way on all workers, and what one of them says.

They are few, and none of them holds up a call. Who is slow misses messages; who takes none for a while is dropped.
"""

import asyncio
import time
from urllib.parse import quote

import msgspec

from penstock.gateway.failure import Failure
from penstock.http.client import UpstreamConnection
from penstock.http.exchange import Exchange
from penstock.serve.live import MOST, Live, Snapshot, Told
from penstock.serve.overhearing import HEARTBEAT, Overhearing, frame
from penstock.serve.responses import STREAM_HEADERS
from penstock.serve.siblings import Siblings

MOST_WATCHERS = 16
_TICK_S = 0.5
_TICKS_PER_HEARTBEAT = 20
# A watcher that has taken nothing for so long is dropped.
_PATIENCE_TICKS = 20
# A call that is over is told once; so long it is remembered that it was.
_TOLD_TICKS = 20
_SNAPSHOT = msgspec.json.Decoder(Snapshot)

TOO_MANY = Failure(
    code="too_many_watchers",
    message=f"{MOST_WATCHERS} watch already; close another window",
    status=503,
    kind="server_error",
    retry_after="5",
)


class Watching:
    """Those who watch by one worker. Belongs to its event loop."""

    def __init__(self, live: Live, overhearing: Overhearing, siblings: Siblings | None) -> None:
        self._live = live
        self._overhearing = overhearing
        self._siblings = siblings
        self._watchers: dict[Exchange, int] = {}  # for how many messages each has been slow
        self._piped = 0
        self._ticking: asyncio.Task[None] | None = None
        self._told_over: dict[str, int] = {}
        self._tick = 0

    @property
    def full(self) -> bool:
        """Whether nobody else may watch."""
        return len(self._watchers) + len(self._overhearing) + self._piped >= MOST_WATCHERS

    def watch(self, exchange: Exchange, headers: dict[str, str]) -> None:
        """Tell somebody of the calls under way, from now on."""
        exchange.on_gone = lambda: self._leave(exchange)
        exchange.start(200, STREAM_HEADERS | headers)
        exchange.flush()
        self._watchers[exchange] = 0
        if self._ticking is None:
            self._begin()

    async def overhear(self, id: str, exchange: Exchange, headers: dict[str, str]) -> bool:
        """Let somebody read along with a call, on whichever worker it is; False if it is on none."""
        client = self._live.find(id)
        if client is not None:
            self._overhearing.join(client.call, exchange, headers)
            return True
        if self._siblings is None:
            return False
        pipe = _Pipe(exchange, headers)
        self._piped += 1
        try:
            if not await self._siblings.follow(f"/text?id={quote(id, safe='')}", pipe):
                return False
            await pipe.over
        finally:
            self._piped -= 1
        return True

    def close(self) -> None:
        """The gateway ends, and so does what it tells."""
        if self._ticking is not None:
            self._ticking.cancel()
        for exchange in list(self._watchers):
            exchange.forget()
            exchange.end()
        self._watchers.clear()
        self._overhearing.close()

    def _begin(self) -> None:
        self._ticking = asyncio.get_running_loop().create_task(self._tell_all())
        self._ticking.add_done_callback(self._on_silence)

    def _leave(self, exchange: Exchange) -> None:
        self._watchers.pop(exchange, None)

    async def _tell_all(self) -> None:
        """Twice a second, while anybody watches."""
        while self._watchers:
            self._tick += 1
            message = await self._message()
            if self._tick % _TICKS_PER_HEARTBEAT == 0:
                message += HEARTBEAT
            for exchange, slow in list(self._watchers.items()):
                if not exchange.paused:
                    self._watchers[exchange] = 0
                    exchange.write(message)
                elif slow < _PATIENCE_TICKS:
                    self._watchers[exchange] = slow + 1
                else:
                    self._leave(exchange)
                    exchange.forget()
                    exchange.abort()
            await asyncio.sleep(_TICK_S)

    def _on_silence(self, task: asyncio.Task[None]) -> None:
        """Nobody is told any more. Where that went wrong, those who watch are let go, and may ask again."""
        self._ticking = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            for exchange in list(self._watchers):
                self._leave(exchange)
                exchange.forget()
                exchange.end()
            context = {"message": "those who watch could not be told", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        elif self._watchers:
            self._begin()  # somebody came at the last moment

    async def _message(self) -> bytes:
        snapshots = [self._live.snapshot()]
        if self._siblings is not None:
            snapshots += map(_SNAPSHOT.decode, await self._siblings.ask("GET", "/live"))
        over = {ended.call["id"] for snapshot in snapshots for ended in snapshot.over}
        calls = [call for snapshot in snapshots for call in snapshot.calls if call["id"] not in over]
        calls.sort(key=_began, reverse=True)
        return frame(
            "calls",
            {
                "now": time.time_ns() // 1_000_000,
                "total": sum(snapshot.total for snapshot in snapshots),
                "streams_per_s": round(sum(snapshot.pace for snapshot in snapshots), 1),
                "calls": self._newly_over(snapshots) + calls[:MOST],
            },
        )

    def _newly_over(self, snapshots: list[Snapshot]) -> list[Told]:
        """Calls that ended since the last message, each once."""
        self._told_over = {id: at for id, at in self._told_over.items() if self._tick - at < _TOLD_TICKS}
        over = [ended.call for snapshot in snapshots for ended in snapshot.over]
        new = [call for call in over if call["id"] not in self._told_over]
        self._told_over |= {str(call["id"]): self._tick for call in new}
        return sorted(new, key=_began, reverse=True)


class _Pipe:
    """Passes what another worker tells on to whoever asked this one."""

    def __init__(self, exchange: Exchange, headers: dict[str, str]) -> None:
        self._exchange = exchange
        self._headers = headers
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, connection: UpstreamConnection) -> None:
        """It comes on this connection."""
        exchange = self._exchange
        exchange.on_gone = lambda: self._end(connection)
        exchange.on_pause = connection.pause
        exchange.on_resume = connection.resume
        exchange.start(200, STREAM_HEADERS | self._headers)
        if exchange.over:
            self._end(connection)

    def on_data(self, data: bytes) -> None:
        """A piece."""
        self._exchange.write(data)

    def on_end(self) -> None:
        """There is no more."""
        self._exchange.forget()
        self._exchange.end()
        self._end(None)

    def _end(self, connection: UpstreamConnection | None) -> None:
        if connection is not None:
            connection.close()
        if not self.over.done():
            self.over.set_result(None)


def _began(call: Told) -> int:
    at = call["at_ms"]
    return at if isinstance(at, int) else 0

"""LiveStreams: event streams for those who watch: the calls under way on all workers, and what one of them says.

They are few, and none of them holds up a call. Who is slow misses messages; who takes none for a while is dropped.
"""

import asyncio
import time
from urllib.parse import quote

import msgspec

from penstock.core.failure import Failure
from penstock.http.client import UpstreamConnection
from penstock.http.exchange import Exchange
from penstock.serve.admin.queries import Query, wrong
from penstock.serve.responses import STREAM_HEADERS
from penstock.serve.workers.live_calls import MOST, LiveCalls, LiveFilter, Snapshot, Told, place, rank
from penstock.serve.workers.peers import WorkerPeers
from penstock.serve.workers.text_stream import HEARTBEAT, TextStreams, frame

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
    retry_after="5",
)


class LiveStreams:
    """Those who watch by one worker. Belongs to its event loop."""

    def __init__(self, live: LiveCalls, overhearing: TextStreams, siblings: WorkerPeers | None) -> None:
        self._live = live
        self._overhearing = overhearing
        self._siblings = siblings
        self._watchers: dict[Exchange, _LiveStream] = {}
        self._piped = 0
        self._ticking: asyncio.Task[None] | None = None
        self._came = asyncio.Event()
        self._told_over: dict[str, int] = {}
        self._tick = 0

    @property
    def full(self) -> bool:
        """Whether nobody else may watch."""
        return len(self._watchers) + len(self._overhearing) + self._piped >= MOST_WATCHERS

    def watch(self, exchange: Exchange, headers: dict[str, str], view: LiveFilter) -> None:
        """Tell somebody of the calls under way that they look for, from now on."""
        exchange.on_gone = lambda: self._leave(exchange)
        exchange.start(200, STREAM_HEADERS | headers)
        exchange.flush()
        self._watchers[exchange] = _LiveStream(view)
        self._came.set()
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
        pipe = _RemoteText(exchange, headers)
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
        """Twice a second, while anybody watches; who comes in between is told at once."""
        loop = asyncio.get_running_loop()
        while self._watchers:
            self._tick += 1
            again = loop.time() + _TICK_S
            self._came.clear()
            snapshots = await self._snapshots({watcher.view for watcher in self._watchers.values()})
            self._tell(snapshots, self._newly_over(snapshots))
            while (left := again - loop.time()) > 0:
                try:
                    async with asyncio.timeout(left):
                        await self._came.wait()
                except TimeoutError:
                    break
                self._came.clear()
                self._tell(await self._snapshots({each.view for each in self._watchers.values() if each.new}), None)

    def _tell(self, snapshots: dict[LiveFilter, list[Snapshot]], over: list[Told] | None) -> None:
        """Tell all who look at these; only those who have just come, where nothing is said of calls that are over."""
        beat = HEARTBEAT if over is not None and self._tick % _TICKS_PER_HEARTBEAT == 0 else b""
        messages = {view: _message(view, each, over or []) + beat for view, each in snapshots.items()}
        for exchange, watcher in list(self._watchers.items()):
            if watcher.view not in messages or (over is None and not watcher.new):
                continue  # who came meanwhile is told the next time
            watcher.new = False
            if not exchange.paused:
                watcher.slow = 0
                exchange.write(messages[watcher.view])
            elif watcher.slow < _PATIENCE_TICKS:
                watcher.slow += 1
            else:
                self._leave(exchange)
                exchange.forget()
                exchange.abort()

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

    async def _snapshots(self, views: set[LiveFilter]) -> dict[LiveFilter, list[Snapshot]]:
        """Of what is looked at, one for each worker."""
        told = {}
        for view in views:
            told[view] = [self._live.snapshot(view)]
            if self._siblings is not None:
                told[view] += map(_SNAPSHOT.decode, await self._siblings.ask("GET", f"/live?{view.query}"))
        return told

    def _newly_over(self, snapshots: dict[LiveFilter, list[Snapshot]]) -> list[Told]:
        """Calls that ended since the last message, each once."""
        self._told_over = {id: at for id, at in self._told_over.items() if self._tick - at < _TOLD_TICKS}
        each = [snapshot for workers in snapshots.values() for snapshot in workers]
        over = {str(ended.call["id"]): ended.call for snapshot in each for ended in snapshot.over}
        new = {id: call for id, call in over.items() if id not in self._told_over}
        self._told_over |= dict.fromkeys(new, self._tick)
        return list(new.values())


class _LiveStream:
    """One who watches: what they look at, and for how many messages they have been slow."""

    def __init__(self, view: LiveFilter) -> None:
        self.view = view
        self.slow = 0
        self.new = True


class _RemoteText:
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


def _message(view: LiveFilter, snapshots: list[Snapshot], over: list[Told]) -> bytes:
    gone = {ended.call["id"] for snapshot in snapshots for ended in snapshot.over}
    calls = [call for snapshot in snapshots for call in snapshot.calls if call["id"] not in gone]
    calls.sort(key=rank, reverse=True)
    page = calls[:MOST]
    further = len(calls) > MOST or (len(page) == MOST and any(len(snapshot.calls) == MOST for snapshot in snapshots))
    return frame(
        "calls",
        {
            "now": time.time_ns() // 1_000_000,
            "total": sum(snapshot.total for snapshot in snapshots),
            "found": sum(snapshot.found for snapshot in snapshots),
            "streams_per_s": round(sum(snapshot.pace for snapshot in snapshots), 1),
            "next": place(rank(page[-1])) if page and further else None,
            "calls": sorted(filter(view.means, over), key=rank, reverse=True) + page,
        },
    )


def read_view(query: Query) -> LiveFilter:
    """Which calls somebody looks at: `find=TEXT`, and `before`, the `next` of the page before."""
    query.only({"find", "before"})
    try:
        return LiveFilter.read(query.one("find"), query.one("before"))
    except ValueError as error:
        raise wrong("before", str(error)) from None

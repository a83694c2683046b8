"""LiveStreams: event streams (SSE) for the live view: the calls in progress on all gateways, and the text of one call
of this gateway.

At most `MAX_STREAMS` streams are open, and none of them delays a call. A client that reads slowly misses messages. A
client that reads nothing for `_STALLED_TICKS` is disconnected.
"""

import asyncio
from urllib.parse import quote

import msgspec

from penstock.amounts import clock_ms
from penstock.core.hub.failure import Failure
from penstock.http.exchange import Exchange
from penstock.http.upstream_connection import UpstreamConnection
from penstock.serve.admin.queries import Query, invalid_parameter
from penstock.serve.composition import App
from penstock.serve.live.live_calls import PAGE_SIZE, LiveCall, LiveFilter, Snapshot, cursor, sort_key
from penstock.serve.live.text_stream import HEARTBEAT, frame
from penstock.serve.responses import STREAM_HEADERS
from penstock.serve.workers.gateways import GatewayLink, Replies

MAX_STREAMS = 16
_TICK_S = 0.5
_TICKS_PER_HEARTBEAT = 20
# The pause between two requests to other gateways.
_ASK_S = 0.7
# How long the first message waits for their replies.
_FIRST_REPLY_S = 2.0
# A client that has read nothing for so long is disconnected.
_STALLED_TICKS = 20
# The end of a call is sent once. It is remembered for so long that it was sent.
_SENT_TICKS = 20
_SNAPSHOT = msgspec.json.Decoder(Snapshot)

TOO_MANY = Failure(
    code="too_many_watchers",
    message=f"{MAX_STREAMS} live streams are open already; close another window",
    retry_after="5",
)


class LiveStreams:
    """The live streams that one worker serves. Used by the event loop's thread."""

    def __init__(self, app: App) -> None:
        self._live = app.live
        self._text_streams = app.text_streams
        self._peers = app.peers
        self._link = app.link
        # By filter: what the other gateways answered last, since they take longer to answer than a tick.
        self._elsewhere: dict[LiveFilter, Replies] = {}
        self._replied = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None
        self._watchers: dict[Exchange, _LiveStream] = {}
        self._remote_count = 0
        self._task: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()
        self._sent_ended: dict[str, int] = {}
        self._tick = 0

    @property
    def full(self) -> bool:
        """Whether the limit of open streams is reached."""
        return len(self._watchers) + len(self._text_streams) + self._remote_count >= MAX_STREAMS

    def watch(self, exchange: Exchange, headers: dict[str, str], view: LiveFilter) -> None:
        """Start a stream of the calls in progress that match a filter."""
        exchange.on_gone = lambda: self._leave(exchange)
        exchange.start(200, STREAM_HEADERS | headers)
        exchange.flush()
        self._watchers[exchange] = _LiveStream(view)
        self._joined.set()
        if self._task is None:
            self._start()

    async def follow_text(self, id: str, exchange: Exchange, headers: dict[str, str]) -> bool:
        """Stream the text of a call, on whichever worker it is. Returns False if no worker has it."""
        client = self._live.find(id)
        if client is not None:
            self._text_streams.join(client.call, exchange, headers)
            return True
        if self._peers is None:
            return False
        pipe = _RemoteText(exchange, headers)
        self._remote_count += 1
        try:
            if not await self._peers.follow(f"/text?id={quote(id, safe='')}", pipe):
                return False
            await pipe.ended
        finally:
            self._remote_count -= 1
        return True

    def close(self) -> None:
        """End all streams."""
        for task in (self._task, self._asking):
            if task is not None:
                task.cancel()
        for exchange in list(self._watchers):
            exchange.forget()
            exchange.end()
        self._watchers.clear()
        self._text_streams.close()

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._on_run_end)

    def _leave(self, exchange: Exchange) -> None:
        self._watchers.pop(exchange, None)

    async def _ask_gateways(self, link: GatewayLink) -> None:
        """Ask the other gateways for their snapshots, again and again while there are streams."""
        while self._watchers:
            views = {watcher.view for watcher in self._watchers.values()}
            replies = [await link.request_gateways("GET", f"/live?{view.query}") for view in views]
            self._elsewhere = dict(zip(views, replies, strict=True))
            self._replied.set()
            await asyncio.sleep(_ASK_S)

    async def _wait_for_gateways(self, view: LiveFilter) -> None:
        """Wait until the other gateways have answered for a new filter: without them, a call of theirs seems over."""
        try:
            async with asyncio.timeout(_FIRST_REPLY_S):
                while view not in self._elsewhere:
                    self._replied.clear()
                    await self._replied.wait()
        except TimeoutError:
            self._elsewhere[view] = Replies([], None)

    async def _run(self) -> None:
        """Send a message to every stream twice a second while there are any; to a new stream at once."""
        loop = asyncio.get_running_loop()
        if self._link is not None and (self._asking is None or self._asking.done()):
            self._asking = loop.create_task(self._ask_gateways(self._link))
        while self._watchers:
            self._tick += 1
            next_tick = loop.time() + _TICK_S
            self._joined.clear()
            snapshots = await self._snapshots({watcher.view for watcher in self._watchers.values()})
            self._send(snapshots, self._newly_ended(snapshots))
            while (left := next_tick - loop.time()) > 0:
                try:
                    async with asyncio.timeout(left):
                        await self._joined.wait()
                except TimeoutError:
                    break
                self._joined.clear()
                self._send(await self._snapshots({each.view for each in self._watchers.values() if each.new}), None)

    def _send(self, snapshots: dict[LiveFilter, list[Snapshot]], ended: list[LiveCall] | None) -> None:
        """Send the snapshots to the streams with these filters. If `ended` is None, only to new streams."""
        beat = HEARTBEAT if ended is not None and self._tick % _TICKS_PER_HEARTBEAT == 0 else b""
        messages = {
            view: _message(view, each, ended or [], self._elsewhere.get(view)) + beat
            for view, each in snapshots.items()
        }
        for exchange, watcher in list(self._watchers.items()):
            if watcher.view not in messages or (ended is None and not watcher.new):
                continue  # a stream that was started meanwhile gets the next message
            watcher.new = False
            if not exchange.paused:
                watcher.slow = 0
                exchange.write(messages[watcher.view])
            elif watcher.slow < _STALLED_TICKS:
                watcher.slow += 1
            else:
                self._leave(exchange)
                exchange.forget()
                exchange.abort()

    def _on_run_end(self, task: asyncio.Task[None]) -> None:
        """The task has ended: no stream is left, or it failed. Then end the streams, so that clients reconnect."""
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            for exchange in list(self._watchers):
                self._leave(exchange)
                exchange.forget()
                exchange.end()
            context = {"message": "the live streams failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        elif self._watchers:
            self._start()  # a stream was started after the task's last check

    async def _snapshots(self, views: set[LiveFilter]) -> dict[LiveFilter, list[Snapshot]]:
        """For each filter, one snapshot per worker, of all gateways that answered."""
        snapshots = {}
        for view in views:
            snapshots[view] = [self._live.snapshot(view)]
            if self._peers is not None:
                snapshots[view] += map(_SNAPSHOT.decode, await self._peers.request_all("GET", f"/live?{view.query}"))
            if self._link is not None and view not in self._elsewhere:
                await self._wait_for_gateways(view)
            if view in self._elsewhere:
                snapshots[view] += map(_read_elsewhere, self._elsewhere[view].bodies)
        return snapshots

    def _newly_ended(self, snapshots: dict[LiveFilter, list[Snapshot]]) -> list[LiveCall]:
        """Calls that ended since the last message, each once."""
        self._sent_ended = {id: at for id, at in self._sent_ended.items() if self._tick - at < _SENT_TICKS}
        each = [snapshot for workers in snapshots.values() for snapshot in workers]
        recent = {str(ended.call["id"]): ended.call for snapshot in each for ended in snapshot.ended}
        new = {id: call for id, call in recent.items() if id not in self._sent_ended}
        self._sent_ended |= dict.fromkeys(new, self._tick)
        return list(new.values())


class _LiveStream:
    """One stream: its filter, and for how many messages its client has been slow."""

    def __init__(self, view: LiveFilter) -> None:
        self.view = view
        self.slow = 0
        self.new = True


class _RemoteText:
    """Forwards the text stream of another worker to a client of this one."""

    def __init__(self, exchange: Exchange, headers: dict[str, str]) -> None:
        self._exchange = exchange
        self._headers = headers
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_start(self, connection: UpstreamConnection) -> None:
        """Start the response; apply the client's backpressure to the connection."""
        exchange = self._exchange
        exchange.on_gone = lambda: self._end(connection)
        exchange.on_pause = connection.pause
        exchange.on_resume = connection.resume
        exchange.start(200, STREAM_HEADERS | self._headers)
        if exchange.over:
            self._end(connection)

    def on_data(self, data: bytes) -> None:
        """Forward bytes."""
        self._exchange.write(data)

    def on_end(self) -> None:
        """End the response."""
        self._exchange.forget()
        self._exchange.end()
        self._end(None)

    def _end(self, connection: UpstreamConnection | None) -> None:
        if connection is not None:
            connection.close()
        if not self.ended.done():
            self.ended.set_result(None)


def _read_elsewhere(data: bytes) -> Snapshot:
    """A snapshot of another gateway. The text of its calls cannot be read here."""
    snapshot = _SNAPSHOT.decode(data)
    for call in (*snapshot.calls, *(ended.call for ended in snapshot.ended)):
        call |= {"elsewhere": True, "content": False}
    return snapshot


def _message(view: LiveFilter, snapshots: list[Snapshot], ended: list[LiveCall], elsewhere: Replies | None) -> bytes:
    gone = {each.call["id"] for snapshot in snapshots for each in snapshot.ended}
    calls = [call for snapshot in snapshots for call in snapshot.calls if call["id"] not in gone]
    calls.sort(key=sort_key, reverse=True)
    page = calls[:PAGE_SIZE]
    further = len(calls) > PAGE_SIZE or (
        len(page) == PAGE_SIZE and any(len(snapshot.calls) == PAGE_SIZE for snapshot in snapshots)
    )
    return frame(
        "calls",
        {
            "now": clock_ms(),
            "gateways": elsewhere.gateways if elsewhere is not None else 1,
            "answered": elsewhere.answered if elsewhere is not None else 1,
            "total": sum(snapshot.total for snapshot in snapshots),
            "found": sum(snapshot.matching for snapshot in snapshots),
            "streams_per_s": round(sum(snapshot.ended_per_s for snapshot in snapshots), 1),
            "next": cursor(sort_key(page[-1])) if page and further else None,
            "calls": sorted(filter(view.matches, ended), key=sort_key, reverse=True) + page,
        },
    )


def read_view(query: Query) -> LiveFilter:
    """The filter of a query: `find=TEXT`, and `before`, the `next` of the previous page."""
    try:
        return LiveFilter.parse(query.one("find"), query.one("before"))
    except ValueError as error:
        raise invalid_parameter("before", str(error)) from None

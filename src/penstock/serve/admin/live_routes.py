"""LiveRoutes: the admin routes that do not query the book: live calls, stopping a call, the playground, inspection."""

import asyncio
import os
import re
from collections.abc import Callable, Coroutine
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeAlias
from urllib.parse import quote

from penstock.errors import KeyTermsError
from penstock.gateway.keys.report import money
from penstock.http.exchange import Exchange
from penstock.serve.admin.endpoint import AdminEndpoint
from penstock.serve.admin.inspection import Inspector
from penstock.serve.admin.live_stream import TOO_MANY, LiveStreams, read_view
from penstock.serve.admin.queries import Query
from penstock.serve.admin.replies import HEADERS, AdminResponse, refusal, refuse_method
from penstock.serve.admin.routes import AdminReply
from penstock.serve.app import App
from penstock.serve.responses import new_request_id
from penstock.serve.workers.peers import WorkerPeers

# Answers a request, in which a name may stand.
Handler: TypeAlias = Callable[[str, Exchange, AdminResponse], None]

# Where Prometheus looks for them.
METRICS = "/metrics"
_NOT_RUNNING = refusal("call_not_found", "there is no such call under way")
_NO_CONTENT = refusal("content_not_allowed", "what models say is shown only with content = true in [admin]")


class LiveRoutes:
    """Belongs to the event loop of its process."""

    def __init__(self, place: AdminEndpoint, app: App) -> None:
        self._place = place
        self._app = app
        self._watching = LiveStreams(app.live, app.overhearing, app.siblings)
        self._inspector = Inspector()
        self._tasks: set[asyncio.Task[None]] = set()
        self.routes: tuple[tuple[str, re.Pattern[str], Handler], ...] = (
            ("GET", re.compile(METRICS), self._tell_metrics),
            ("GET", re.compile(r"/admin/state"), self._tell_state),
            ("GET", re.compile(r"/admin/models"), self._tell_models),
            ("GET", re.compile(r"/admin/holds"), self._tell_holds),
            ("GET", re.compile(r"/admin/live"), self._watch),
            ("GET", re.compile(r"/admin/calls/([^/]+)/text"), self._overhear),
            ("POST", re.compile(r"/admin/calls/([^/]+)/stop"), self._stop),
            ("POST", re.compile(r"/admin/inspect"), self._inspect),
            ("POST", re.compile(r"/admin/playground"), self._play),
        )
        """A method, and a path in which a name may stand → what answers it."""

    def close(self) -> None:
        """The gateway ends."""
        self._watching.close()

    def _tell_state(self, _name: str, _exchange: Exchange, answer: AdminResponse) -> None:
        admin = str(self._place.address)
        answer(AdminReply(200, {"version": _version(), "pid": os.getpid(), "admin": admin, **self._app.state()}))

    def _tell_metrics(self, _name: str, exchange: Exchange, _answer: AdminResponse) -> None:
        self._app.metrics.handle(exchange)

    def _tell_models(self, _name: str, _exchange: Exchange, answer: AdminResponse) -> None:
        answer(AdminReply(200, {"models": self._app.models()}))

    def _tell_holds(self, _name: str, _exchange: Exchange, answer: AdminResponse) -> None:
        answer(AdminReply(200, {"holds": {key: money(held) for key, held in self._app.holds().items()}}))

    def _watch(self, _name: str, exchange: Exchange, answer: AdminResponse) -> None:
        if exchange.request.method != "GET":
            refuse_method(exchange.request.method, "GET", answer)
        elif self._watching.full:
            answer(TOO_MANY)
        else:
            try:
                view = read_view(Query.parse(exchange.request.query))
            except KeyTermsError as error:
                answer(error)
            else:
                self._watching.watch(exchange, _streamed(), view)

    def _overhear(self, name: str, exchange: Exchange, answer: AdminResponse) -> None:
        if not self._app.config.admin.content:
            answer(_NO_CONTENT)
        elif exchange.request.method != "GET":
            refuse_method(exchange.request.method, "GET", answer)
        elif self._watching.full:
            answer(TOO_MANY)
        else:
            self._begin(self._overhear_anywhere(name, exchange, answer), answer)

    async def _overhear_anywhere(self, name: str, exchange: Exchange, answer: AdminResponse) -> None:
        if not await self._watching.overhear(name, exchange, _streamed()):
            answer(_NOT_RUNNING)

    def _stop(self, name: str, _exchange: Exchange, answer: AdminResponse) -> None:
        if self._app.stop(name):
            answer(AdminReply(200, {"stopped": True}))
        elif self._app.siblings is None:
            answer(_NOT_RUNNING)
        else:
            self._begin(self._stop_elsewhere(name, self._app.siblings, answer), answer)

    async def _stop_elsewhere(self, name: str, siblings: WorkerPeers, answer: AdminResponse) -> None:
        stopped = await siblings.ask("POST", f"/stop?id={quote(name, safe='')}")
        answer(AdminReply(200, {"stopped": True}) if stopped else _NOT_RUNNING)

    def _inspect(self, _name: str, exchange: Exchange, answer: AdminResponse) -> None:
        self._begin(self._inspect_apart(exchange.body, answer), answer)

    async def _inspect_apart(self, data: bytes, answer: AdminResponse) -> None:
        answer(await self._inspector.inspect(data))

    def _play(self, _name: str, exchange: Exchange, _answer: AdminResponse) -> None:
        self._app.play(exchange, new_request_id())

    def _begin(self, work: Coroutine[Any, Any, None], answer: AdminResponse) -> None:
        """Do what takes a while; if it goes wrong, that is the answer."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._end(done, answer))

    def _end(self, task: asyncio.Task[None], answer: AdminResponse) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            answer(error)


def _streamed() -> dict[str, str]:
    return {"x-request-id": new_request_id(), "x-content-type-options": HEADERS["x-content-type-options"]}


def _version() -> str | None:
    try:
        return version("penstock")
    except PackageNotFoundError:
        return None

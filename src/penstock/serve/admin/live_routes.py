"""LiveRoutes: the admin routes that do not query the book: live calls, stopping a call, the playground, inspection."""

import asyncio
import os
import re
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import structs

from penstock.amounts import moment, money
from penstock.core.dialects.registry import DEFAULT_DIALECT, surface_dialect
from penstock.errors import AdminError
from penstock.http.exchange import Exchange
from penstock.installation import version
from penstock.serve.admin.endpoint import AdminEndpoint
from penstock.serve.admin.inspection import Inspector
from penstock.serve.admin.live_stream import TOO_MANY, LiveStreams, read_view
from penstock.serve.admin.queries import MAX_LIMIT, Query, invalid_parameter
from penstock.serve.admin.replies import HEADERS, AdminResponse, refusal, refuse_method
from penstock.serve.admin.routes import AdminReply
from penstock.serve.app import App
from penstock.serve.rejections import RejectionRow, merged
from penstock.serve.responses import new_request_id
from penstock.serve.workers.gateways import Replies

# Handles a request. The string is the variable part of the path, or empty.
Handler: TypeAlias = Callable[[str, Exchange, AdminResponse], None]

# The default path of Prometheus.
METRICS = "/metrics"
# The API of the playground, unless the request names another.
_REJECTIONS = msgspec.json.Decoder(list[RejectionRow])
_DEFAULT_API = surface_dialect(DEFAULT_DIALECT).name
_NOT_RUNNING = refusal("call_not_found", "no call with this id is in progress")
NO_CONTENT = refusal("content_not_allowed", "content is shown only with content = true in [admin]")


class LiveRoutes:
    """Handles the routes in the event loop of one worker."""

    def __init__(self, endpoint: AdminEndpoint, app: App) -> None:
        self._endpoint = endpoint
        self._app = app
        self._streams = LiveStreams(app)
        self._inspector = Inspector()
        self._tasks: set[asyncio.Task[None]] = set()
        self.routes: tuple[tuple[str, re.Pattern[str], Handler], ...] = (
            ("GET", re.compile(METRICS), self._get_metrics),
            ("GET", re.compile(r"/admin/state"), self._get_state),
            ("GET", re.compile(r"/admin/models"), self._get_models),
            ("GET", re.compile(r"/admin/holds"), self._get_holds),
            ("GET", re.compile(r"/admin/provider-keys"), self._get_provider_keys),
            ("GET", re.compile(r"/admin/setup"), self._get_setup),
            ("GET", re.compile(r"/admin/live"), self._watch),
            ("GET", re.compile(r"/admin/calls/([^/]+)/text"), self._follow_text),
            ("POST", re.compile(r"/admin/calls/([^/]+)/stop"), self._stop),
            ("GET", re.compile(r"/admin/rejections"), self._get_rejections),
            ("POST", re.compile(r"/admin/inspect"), self._inspect),
            ("POST", re.compile(r"/admin/playground"), self._play),
        )
        """Method, pattern of the path (with at most one variable part), handler."""

    def close(self) -> None:
        """End the live streams."""
        self._streams.close()

    def _get_state(self, _name: str, _exchange: Exchange, answer: AdminResponse) -> None:
        admin = str(self._endpoint.address)
        answer(AdminReply(200, {"version": version(), "pid": os.getpid(), "admin": admin, **self._app.state()}))

    def _get_metrics(self, _name: str, exchange: Exchange, _answer: AdminResponse) -> None:
        self._app.metrics.handle(exchange)

    def _get_models(self, _name: str, _exchange: Exchange, answer: AdminResponse) -> None:
        apis = [{"name": name, "title": title} for name, title in self._app.apis.items()]
        answer(AdminReply(200, {"models": self._app.models(), "apis": apis}))

    def _get_holds(self, _name: str, _exchange: Exchange, answer: AdminResponse) -> None:
        answer(AdminReply(200, {"holds": {key: money(amount) for key, amount in self._app.holds().items()}}))

    def _get_provider_keys(self, _name: str, _exchange: Exchange, answer: AdminResponse) -> None:
        answer(AdminReply(200, {"keys": self._app.provider_keys()}))

    def _get_setup(self, _name: str, _exchange: Exchange, answer: AdminResponse) -> None:
        answer(AdminReply(200, self._app.setup()))

    def _watch(self, _name: str, exchange: Exchange, answer: AdminResponse) -> None:
        if exchange.request.method != "GET":
            refuse_method(exchange.request.method, "GET", answer)
        elif self._streams.full:
            answer(TOO_MANY)
        else:
            try:
                view = read_view(Query.parse(exchange.request.query))
            except AdminError as error:
                answer(error)
            else:
                self._streams.watch(exchange, _stream_headers(), view)

    def _follow_text(self, name: str, exchange: Exchange, answer: AdminResponse) -> None:
        if not self._app.config.admin.content:
            answer(NO_CONTENT)
        elif exchange.request.method != "GET":
            refuse_method(exchange.request.method, "GET", answer)
        elif self._streams.full:
            answer(TOO_MANY)
        else:
            self._start(self._follow_text_anywhere(name, exchange, answer), answer)

    async def _follow_text_anywhere(self, name: str, exchange: Exchange, answer: AdminResponse) -> None:
        if not await self._streams.follow_text(name, exchange, _stream_headers()):
            answer(_NOT_RUNNING)

    def _stop(self, name: str, _exchange: Exchange, answer: AdminResponse) -> None:
        if self._app.stop(name):
            answer(AdminReply(200, {"stopped": True}))
        else:
            self._start(self._stop_elsewhere(name, answer), answer)

    async def _stop_elsewhere(self, name: str, answer: AdminResponse) -> None:
        replies = await self._app.request_all("POST", f"/stop?id={quote(name, safe='')}")
        if replies.bodies:
            answer(AdminReply(200, {"stopped": True}))
        else:
            answer(refusal("call_not_found", f"no call with this id is in progress{_unseen(replies)}"))

    def _get_rejections(self, _name: str, _exchange: Exchange, answer: AdminResponse) -> None:
        self._start(self._get_all_rejections(answer), answer)

    async def _get_all_rejections(self, answer: AdminResponse) -> None:
        replies = await self._app.request_all("GET", "/rejections")
        elsewhere = [row for body in replies.bodies for row in _REJECTIONS.decode(body)]
        rows = [_rejection_json(row) for row in merged([*self._app.rejections.rows, *elsewhere])[:MAX_LIMIT]]
        answer(AdminReply(200, {"rejections": rows, "gateways": replies.gateways, "answered": replies.answered}))

    def _inspect(self, _name: str, exchange: Exchange, answer: AdminResponse) -> None:
        self._start(self._inspect_in_task(exchange.body, answer), answer)

    async def _inspect_in_task(self, data: bytes, answer: AdminResponse) -> None:
        answer(await self._inspector.inspect(data))

    def _play(self, _name: str, exchange: Exchange, answer: AdminResponse) -> None:
        try:
            query = Query.parse(exchange.request.query)
            query.only(("api",))
            api = query.one("api") or _DEFAULT_API
        except AdminError as error:
            answer(error)
            return
        if api in self._app.apis:
            self._app.handle_playground(exchange, new_request_id(), api)
        else:
            answer(invalid_parameter("api", f"api is one of {', '.join(self._app.apis)}"))

    def _start(self, work: Coroutine[Any, Any, None], answer: AdminResponse) -> None:
        """Run work in a task. If it fails, the error is the response."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._on_task_end(done, answer))

    def _on_task_end(self, task: asyncio.Task[None], answer: AdminResponse) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            answer(error)


def _rejection_json(row: RejectionRow) -> dict[str, object]:
    fields = structs.asdict(row)
    return fields | {"first": moment(fields.pop("first_ms")), "last": moment(fields.pop("last_ms"))}


def _unseen(replies: Replies) -> str:
    """Which gateways did not answer, for the end of a message; empty if all did."""
    if replies.gateways is None:
        return " on this gateway; others cannot be asked, because the ledger's database does not answer"
    if replies.answered < replies.gateways:
        return f" on the {replies.answered} of {replies.gateways} gateways that answered"
    return ""


def _stream_headers() -> dict[str, str]:
    return {"x-request-id": new_request_id(), "x-content-type-options": HEADERS["x-content-type-options"]}

"""Admin: the admin API of one process, and the page that uses it.

1. A request with an unknown Host header is refused (DNS rebinding, `serve/hosts.py`). So is one that a page of another
   origin sent (CSRF).
2. Without credentials (`access.py`), every path under `/admin` gets the same 401, so that routes cannot be probed, and
   no large body is accepted. A client's key is not an admin token, and the admin token is not a client's key.
3. With a session, a request that changes something must prove that our own page sent it (CSRF, `access.py`).
4. A route is handled only if the user's role allows it (`routes.py`).
5. Acts and looks at content are recorded in the audit log first: if that is impossible, they are refused. Changes of
   keys and tokens are recorded by the book, in the same transaction. What a role does not allow, and wrong credentials,
   are recorded afterwards, in a bounded number of entries (`refusals.py`). Without a ledger there is no audit log.
6. The book is queried in a `QueryThread`; the event loop never waits for the database. Lists and reports have a thread
   of their own, so that a slow one delays neither authentication nor acts, such as revoking a key or stopping a call.
"""

import asyncio
import ipaddress
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import msgspec

from penstock.amounts import clock_ms
from penstock.core.hub.failure import Failure
from penstock.errors import BookError
from penstock.gateway.config import Config
from penstock.gateway.people.audit import GATEWAY, Actor
from penstock.gateway.people.roles import Principal
from penstock.http.exchange import Exchange, HttpRequest
from penstock.http.limits import FrontLimits
from penstock.http.server import ServerConnection
from penstock.serve.admin.access import Access, is_own, proves_page
from penstock.serve.admin.audit_log import AuditLog
from penstock.serve.admin.authentication import Authentication
from penstock.serve.admin.backend import Backend
from penstock.serve.admin.endpoint import AdminEndpoint
from penstock.serve.admin.inspection import MAX_BYTES, Inspector
from penstock.serve.admin.live_stream import LiveStreams
from penstock.serve.admin.page import AdminPage
from penstock.serve.admin.page_files import LOCKED, read_files
from penstock.serve.admin.queries import Query
from penstock.serve.admin.replies import SCIM_ROOT, RefusedActError, refusal, result_of, send_error, send_json
from penstock.serve.admin.request import AdminRequest
from penstock.serve.admin.route import AdminRoute, BookHandler, LoopHandler
from penstock.serve.admin.routes import DECLARED, METRICS, ROUTES
from penstock.serve.admin.sign_in import SignIn
from penstock.serve.composition import App
from penstock.serve.hosts import AllowedHosts
from penstock.serve.loop import Tasks
from penstock.serve.responses import error_page, new_request_id
from penstock.stores.book.open import open_book, state_folder
from penstock.stores.book.snapshot import LocalSnapshot
from penstock.stores.book.sql_book import Book
from penstock.stores.query_thread import QueryThread

# No key needs a larger body, and few programs manage keys at the same time.
_LIMITS = FrontLimits(max_body=65_536, max_head=32_768, max_connections=256, replaces_unused=True)
# Some twenty thousand declared keys.
_MAX_DECLARATION = 8 * 2**20
# A group with its members, of which each takes about 200 bytes.
_MAX_SCIM_BODY = 4 * 2**20
_LOOPBACK = ("127.0.0.1", "::1")
# The directory, in the state directory, of the sessions that have ended.
_ENDED_SESSIONS = "ended-sessions"


class Admin:
    """Serves the admin API in the event loop of one worker."""

    def __init__(
        self, endpoint: AdminEndpoint, app: App, config: Config, environment: Mapping[str, str], used_links: Path
    ) -> None:
        self._endpoint = endpoint
        try:
            ended = state_folder(config.ledger, environment) / _ENDED_SESSIONS
        except BookError:  # a gateway without a ledger may have no state directory
            ended = used_links
        access = Access(endpoint.link_key.reveal(), used_links, ended, secure=endpoint.tls is not None)
        opened = partial(open_book, config.ledger, environment)
        act_thread = QueryThread(opened, "penstock-admin-act")
        self._backend = Backend(
            app=app,
            endpoint=endpoint,
            access=access,
            audit=AuditLog(access, act_thread, enabled=config.ledger.enabled),
            streams=LiveStreams(app),
            inspector=Inspector(),
            read_thread=QueryThread(opened, "penstock-admin-read"),
            act_thread=act_thread,
        )
        postgres = config.ledger.enabled and config.ledger.postgres is not None
        snapshot = LocalSnapshot(state_folder(config.ledger, environment)) if postgres else None
        self._connections: set[ServerConnection] = set()
        self._authentication = Authentication(access, act_thread, snapshot, app, self._connections)
        files = read_files()
        self._sign_in = SignIn(self._backend, files[LOCKED])
        self._page = AdminPage(self._backend, self._sign_in, files)
        self._routes = [(route.pattern, route) for route in ROUTES]
        self._body_limits: dict[str, int] = {}
        self._tasks = Tasks()
        self._server: asyncio.Server | None = None
        self._any_address = ipaddress.ip_address(endpoint.address.host).is_unspecified
        self.use(config)

    def use(self, config: Config) -> None:
        """Apply a configuration. The listening address does not change."""
        token = config.admin.token or self._endpoint.token
        self._backend.access.use(token.reveal(), config)
        self._backend.audit.keep_days = config.admin.audit_days
        self._group_roles = config.admin.group_roles
        self._sign_in.use(config.admin)
        self._body_limits = {
            "/admin/inspect": MAX_BYTES,
            "/admin/playground": config.limits.max_body,
            **dict.fromkeys(DECLARED, _MAX_DECLARATION),
        }
        names = (*_LOOPBACK, *config.admin.hosts, self._endpoint.address.host, config.admin.address.host)
        self._hosts = AllowedHosts(names, any_address=self._any_address)

    async def listen(self) -> None:
        """Start to accept connections."""
        tls = self._endpoint.tls
        self._server = await asyncio.get_running_loop().create_server(
            self._connection, sock=self._endpoint.socket, ssl=tls.context if tls is not None else None
        )

    def _connection(self) -> ServerConnection:
        def max_body(target: bytes, headers: Mapping[str, str]) -> int:
            path = target.partition(b"?")[0].decode("latin-1")
            usual = _MAX_SCIM_BODY if path.startswith(f"{SCIM_ROOT}/") else _LIMITS.max_body
            larger = self._body_limits.get(path, usual)
            return self._authentication.max_body(connection, headers, _LIMITS.max_body, larger)

        connection = ServerConnection(self.handle, error_page, _LIMITS, self._connections, max_body)
        return connection

    async def close(self) -> None:
        """Accept no more connections, and abort the open ones."""
        if self._server is not None:
            self._server.close()
        self._backend.streams.close()
        for connection in list(self._connections):
            connection.close_when_idle()
        await asyncio.sleep(0)
        for connection in list(self._connections):
            connection.abort()
        self._backend.audit.flush()
        for thread in (self._backend.read_thread, self._backend.act_thread):
            await asyncio.get_running_loop().run_in_executor(None, thread.close)
        for task in self._tasks:
            task.cancel()

    def handle(self, exchange: Exchange) -> None:
        """Check a request's host and origin, and handle it."""
        request = exchange.request
        for_page = not request.path.startswith("/admin/") and request.path not in ("/admin", METRICS)
        if not self._hosts.allows(request.headers.get("host", "")):
            send_error(exchange, RefusedActError(_HOST_NOT_ALLOWED))
        elif not is_own(request.headers) and not (for_page and _is_visit(request)):
            send_error(exchange, RefusedActError(_ORIGIN_NOT_ALLOWED))
        elif for_page:
            self._handle_page(exchange)
        else:
            self._tasks.start(_guarded(self._answer, exchange))

    def _handle_page(self, exchange: Exchange) -> None:
        """Serve the page. Its files contain no data, so only the start page needs a session."""
        if self._sign_in.handles(exchange.request.path):
            self._sign_in.handle(exchange)
        elif self._page.needs_session(exchange):
            self._tasks.start(_guarded(self._show_start_page, exchange))
        else:
            self._page.handle(exchange, new_request_id(), None)

    async def _show_start_page(self, exchange: Exchange) -> None:
        try:
            user = await self._authentication.user_of(exchange)
        except Exception:  # noqa: BLE001 - without a user, the page says how to sign in
            user = None
        self._page.handle(exchange, new_request_id(), user)

    async def _answer(self, exchange: Exchange) -> None:
        """Authenticate the user of a request, check its role, record it, and handle it."""
        audit, user = self._backend.audit, await self._authentication.user_of(exchange)
        if exchange.over:
            return  # the client has gone meanwhile
        if user is None:
            if "authorization" in exchange.request.headers:
                audit.refuse_sign_in("", "invalid_admin_token", exchange)
            raise RefusedActError(_UNAUTHORIZED)
        actor = audit.actor(user, exchange)
        if user.ambient and not _only_reads(exchange.request) and not proves_page(exchange.request.headers):
            audit.refuse("request.refuse", "", "page_not_proven", actor)
            raise RefusedActError(_NOT_OUR_PAGE)
        route, name = self._find(exchange.request)
        if not route.allows(user):
            audit.refuse("request.refuse", route.name, "permission_denied", actor)
            raise RefusedActError(_denied(user))
        if route.audit:
            await audit.record(route.audit, name, actor)
        await self._call(route, name, user, actor, exchange)

    async def _call(self, route: AdminRoute, name: str, user: Principal, actor: Actor, exchange: Exchange) -> None:
        """Call the handler of a route, and send what it returns."""
        if exchange.over:
            return
        backend, now_ms, scope = self._backend, clock_ms(), route.scope_of(user)
        query = _query(route, exchange.request)
        request = AdminRequest(
            user=user,
            name=name,
            query=query,
            body=exchange.body,
            now_ms=now_ms,
            scope=scope,
            group_roles=self._group_roles,
            currency=backend.app.config.finance.shown,
        )
        if iscoroutinefunction(route.handle):
            body = await cast(LoopHandler, route.handle)(backend, request, exchange)
        else:
            thread = backend.read_thread if _only_reads(exchange.request) else backend.act_thread
            body = await result_of(thread.submit, partial(_work, cast(BookHandler, route.handle), actor, request))
        if isinstance(body, Failure):
            raise RefusedActError(body)
        if body is not None:
            send_json(exchange, route.status, body)

    def _find(self, request: HttpRequest) -> tuple[AdminRoute, str]:
        """The route of a request, and the variable part of its path."""
        allowed = []
        for pattern, route in self._routes:
            if match := pattern.fullmatch(request.path):
                if route.answers(request.method):
                    return route, unquote(match[1], errors="replace") if match.groups() else ""
                allowed.append(route.method)
        if not allowed:
            raise RefusedActError(refusal("not_found", f"there is nothing at {request.path[:200]}"))
        methods = ", ".join(allowed)
        message = f"{request.method[:20]} is not allowed here; use {methods}"
        raise RefusedActError(refusal("method_not_allowed", message), allow=methods)


async def _guarded(handle: Callable[[Exchange], Coroutine[Any, Any, None]], exchange: Exchange) -> None:
    """Answer a request; with an error if that fails. If a part was sent, it is broken off."""
    try:
        await handle(exchange)
    except Exception as error:  # noqa: BLE001 - it is the response
        if exchange.begun:
            exchange.abort()
        else:
            send_error(exchange, error)


def _query(route: AdminRoute, request: HttpRequest) -> Query:
    """The parameters of a request, of which none is unknown."""
    if route.query is None:
        return Query({})
    query = Query.parse(request.query)
    query.only(route.query)
    return query


def _work(handle: BookHandler, actor: Actor, request: AdminRequest, book: Book) -> msgspec.Raw:
    """Run a handler. Called in the book worker's thread."""
    book.actor = actor
    try:
        # Encoded here and not in the event loop: ten thousand names take milliseconds.
        return msgspec.Raw(msgspec.json.encode(handle(book, request)))
    finally:
        book.actor = GATEWAY


def _only_reads(request: HttpRequest) -> bool:
    return request.method in ("GET", "HEAD")


def _denied(user: Principal) -> Failure:
    roles = [*([user.role] if user.role else []), *(f"{role} of {team}" for team, role in sorted(user.teams.items()))]
    what = f"the role {', '.join(roles)} does not allow this" if roles else "no group of this user has a role here"
    return refusal("permission_denied", what)


_UNAUTHORIZED = refusal(
    "invalid_admin_token", "send the admin token or an API token as `Authorization: Bearer …`, or use a session"
)
_NOT_OUR_PAGE = refusal(
    "page_not_proven", "with a session, changes need the header `x-penstock-page: 1` and the Origin of this page"
)
_HOST_NOT_ALLOWED = refusal("host_not_allowed", "use the IP address or localhost, or add the name to [admin] hosts")
_ORIGIN_NOT_ALLOWED = refusal("origin_not_allowed", "requests from pages of other origins are refused")


def _is_visit(request: HttpRequest) -> bool:
    """Whether a browser navigates to the page, from a link elsewhere. Scripts cannot set these `Sec-Fetch` headers."""
    mode_and_dest = (request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest"))
    return request.method == "GET" and mode_and_dest == ("navigate", "document") and "origin" not in request.headers

"""Admin: the admin API of one process, and the page that uses it. Requests need the admin token or a session.

1. A request with an unknown Host header is refused (DNS rebinding, `serve/hosts.py`). So is one that a page of another
   origin sent (CSRF).
2. Without token or session, every path under `/admin` gets the same 401, so that routes cannot be probed, and no large
   body is accepted. A client's key is not an admin token, and the admin token is not a client's key.
3. With a session, a request that changes something must prove that our own page sent it (CSRF, `access.py`).
4. The book is queried in a `QueryThread`; the event loop never waits for the database.
"""

import asyncio
import ipaddress
import re
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from penstock.core.failure import Failure
from penstock.gateway.billing.book import Book
from penstock.gateway.config import Config
from penstock.http.exchange import Exchange, HttpRequest
from penstock.http.limits import FrontLimits
from penstock.http.server import ServerConnection
from penstock.http.tls import ListenerTls
from penstock.serve.admin.access import Access, is_own, proves_page
from penstock.serve.admin.content_routes import ContentRoutes
from penstock.serve.admin.endpoint import AdminEndpoint
from penstock.serve.admin.inspection import MAX_BYTES
from penstock.serve.admin.live_routes import METRICS, Handler, LiveRoutes
from penstock.serve.admin.page import AdminPage
from penstock.serve.admin.queries import Query
from penstock.serve.admin.replies import AdminResponse, refusal, refuse_method, send_answer
from penstock.serve.admin.routes import ROUTES, AdminReply, AdminRequest, Work
from penstock.serve.app import App
from penstock.serve.hosts import AllowedHosts
from penstock.serve.responses import error_page, new_request_id
from penstock.stores.book.open import open_book
from penstock.stores.query_thread import QueryThread

# No key needs a larger body, and few programs manage keys at the same time.
_LIMITS = FrontLimits(max_body=65_536, max_head=32_768, max_connections=256)
_LOOPBACK = ("127.0.0.1", "::1")
# The headers with credentials.
_CREDENTIAL_HEADERS = ("authorization", "cookie")


class Admin:
    """Serves the admin API in the event loop of one worker."""

    def __init__(
        self, endpoint: AdminEndpoint, app: App, config: Config, environment: Mapping[str, str], used_links: Path
    ) -> None:
        self._endpoint = endpoint
        self._access = Access(endpoint.link_key.reveal(), used_links, secure=endpoint.tls is not None)
        self._page = AdminPage(self._access)
        self._body_limits: dict[str, int] = {}
        self._live_routes = LiveRoutes(endpoint, app)
        self._content_routes = ContentRoutes(app)
        self._connections: set[ServerConnection] = set()
        self._server: asyncio.Server | None = None
        self._book_thread = QueryThread(partial(open_book, config.ledger, environment), "penstock-admin")
        self._any_address = ipaddress.ip_address(endpoint.address.host).is_unspecified
        self.use(config)

    def use(self, config: Config) -> None:
        """Apply a configuration. The listening address does not change."""
        token = config.admin.token or self._endpoint.token
        self._access.use(token.reveal())
        self._body_limits = {"/admin/inspect": MAX_BYTES, "/admin/playground": config.limits.max_body}
        names = (*_LOOPBACK, *config.admin.hosts, self._endpoint.address.host, config.admin.address.host)
        self._hosts = AllowedHosts(names, any_address=self._any_address)

    @property
    def tls(self) -> ListenerTls | None:
        """The TLS of its port."""
        return self._endpoint.tls

    async def listen(self) -> None:
        """Start to accept connections."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: ServerConnection(self.handle, error_page, _LIMITS, self._connections, self._max_body),
            sock=self._endpoint.socket,
            ssl=self.tls.context if self.tls is not None else None,
        )

    async def close(self) -> None:
        """Accept no more connections, and abort the open ones."""
        if self._server is not None:
            self._server.close()
        self._live_routes.close()
        for connection in list(self._connections):
            connection.drain()
        await asyncio.sleep(0)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.get_running_loop().run_in_executor(None, self._book_thread.close)

    def handle(self, exchange: Exchange) -> None:
        """Check a request's host, origin and credentials, and route it."""
        request = exchange.request
        answer = partial(send_answer, exchange, new_request_id())
        for_page = not request.path.startswith("/admin/") and request.path not in ("/admin", METRICS)
        if not self._hosts.allows(request.headers.get("host", "")):
            answer(refusal("host_not_allowed", "use the IP address or localhost, or add the name to [admin] hosts"))
        elif not is_own(request.headers) and not (for_page and _is_visit(request)):
            answer(refusal("origin_not_allowed", "requests from pages of other origins are refused"))
        elif for_page:
            self._page.handle(
                exchange, new_request_id()
            )  # the files of the page contain no data, so they need no token
        elif not self._is_authorized(request.headers):
            answer(_UNAUTHORIZED)
        elif not self._may_change(request):
            answer(_NOT_OUR_PAGE)
        else:
            self._route(exchange, answer)

    def _max_body(self, target: bytes, headers: Mapping[str, str]) -> int:
        """The limit of a request body: larger for some paths, if the request is authorized."""
        limit = self._body_limits.get(target.partition(b"?")[0].decode("latin-1"))
        if limit is None:
            return _LIMITS.max_body
        credentials = {name: headers[name] for name in _CREDENTIAL_HEADERS if name in headers}
        return limit if self._is_authorized(credentials) else _LIMITS.max_body

    def _route(self, exchange: Exchange, answer: AdminResponse) -> None:
        request = exchange.request
        allowed = []
        for method, match, handle in self._matching_routes(request.path):
            if request.method == method or (request.method, method) == ("HEAD", "GET"):
                name = unquote(match[1], errors="replace") if match.groups() else ""
                handle(name, exchange, answer)
                return
            allowed.append(method)
        if allowed:
            refuse_method(request.method, ", ".join(allowed), answer)
        else:
            answer(refusal("not_found", f"there is nothing at {request.path[:200]}"))

    def _matching_routes(self, path: str) -> Iterator[tuple[str, re.Match[str], Handler]]:
        """The routes whose pattern matches a path."""
        for method, pattern, handle in (*self._live_routes.routes, *self._content_routes.routes):
            if match := pattern.fullmatch(path):
                yield method, match, handle
        for method, pattern, work in ROUTES:
            if match := pattern.fullmatch(path):
                yield method, match, partial(self._query_book, work)

    def _query_book(self, work: Work, name: str, exchange: Exchange, answer: AdminResponse) -> None:
        """Run a route in the book worker's thread."""
        job = partial(_work, work, name, exchange.request.query, exchange.body)
        if not self._book_thread.submit(job, answer):
            answer(_BUSY)

    def _is_authorized(self, headers: Mapping[str, str]) -> bool:
        return self._access.has_token(headers) or self._access.has_session(headers)

    def _may_change(self, request: HttpRequest) -> bool:
        """Whether an authorized request may have this method. Changes need the token, or proof of our page (CSRF)."""
        return (
            request.method in ("GET", "HEAD") or self._access.has_token(request.headers) or proves_page(request.headers)
        )


def _work(work: Work, name: str, query: str, body: bytes, book: Book) -> AdminReply:
    """Run a route. Called in the book worker's thread."""
    now_ms = time.time_ns() // 1_000_000
    return work(book, AdminRequest(name=name, query=Query.parse(query), body=body, now_ms=now_ms))


_UNAUTHORIZED = refusal("invalid_admin_token", "send the admin token as `Authorization: Bearer …`, or use a session")
_NOT_OUR_PAGE = refusal(
    "page_not_proven", "with a session, changes need the header `x-penstock-page: 1` and the Origin of this page"
)
_BUSY = Failure(
    code="admin_busy",
    message="too many requests wait for the ledger; try again",
    retry_after="1",
)


def _is_visit(request: HttpRequest) -> bool:
    """Whether a browser navigates to the page, from a link elsewhere. Scripts cannot set these `Sec-Fetch` headers."""
    mode_and_dest = (request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest"))
    return request.method == "GET" and mode_and_dest == ("navigate", "document") and "origin" not in request.headers

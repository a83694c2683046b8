"""Admin: the admin API of one process, and the page that uses it. Who shows the token or has a session is let in.

1. A request for another host than this one is refused (DNS rebinding, `serve/hosts.py`). So is one that a page of
   another origin sent.
2. Without either nothing is told under `/admin`, not even which routes there are, and no large body is taken. A
   client's key is not the token, and the token is no client's key.
3. Who has a session changes nothing without proof that our own page wants it.
4. The book is asked at the desk; the event loop never waits for it.
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
from penstock.serve.admin.access import Access, is_own, proves_page
from penstock.serve.admin.book_worker import BookWorker
from penstock.serve.admin.endpoint import AdminEndpoint
from penstock.serve.admin.inspection import LARGEST
from penstock.serve.admin.live_routes import METRICS, Handler, LiveRoutes
from penstock.serve.admin.page import AdminPage
from penstock.serve.admin.queries import Query
from penstock.serve.admin.replies import AdminResponse, refusal, refuse_method, send_answer
from penstock.serve.admin.routes import ROUTES, AdminReply, AdminRequest, Work
from penstock.serve.app import App
from penstock.serve.hosts import AllowedHosts
from penstock.serve.responses import error_page, new_request_id
from penstock.stores.book.open import open_book

# Nobody's keys have longer terms; and few programs manage keys at a time.
_LIMITS = FrontLimits(max_body=65_536, max_head=32_768, max_connections=256)
_HERE = ("127.0.0.1", "::1")
# The headers by which somebody is let in.
_SHOWN = ("authorization", "cookie")


class Admin:
    """Belongs to the event loop of its process."""

    def __init__(
        self, place: AdminEndpoint, app: App, config: Config, environment: Mapping[str, str], used_links: Path
    ) -> None:
        self._place = place
        self._access = Access(place.link_key.reveal(), used_links)
        self._page = AdminPage(self._access)
        self._bodies: dict[str, int] = {}
        self._direct = LiveRoutes(place, app)
        self._connections: set[ServerConnection] = set()
        self._server: asyncio.Server | None = None
        self._desk = BookWorker(partial(open_book, config.ledger, environment))
        self._any_address = ipaddress.ip_address(place.address.host).is_unspecified
        self.use(config)

    def use(self, config: Config) -> None:
        """Go by this configuration from now on; it stays where it is."""
        token = config.admin.token or self._place.token
        self._access.use(token.reveal())
        self._bodies = {"/admin/inspect": LARGEST, "/admin/playground": config.limits.max_body}
        names = (*_HERE, *config.admin.hosts, self._place.address.host, config.admin.address.host)
        self._hosts = AllowedHosts(names, any_address=self._any_address)

    async def listen(self) -> None:
        """Begin to take connections."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: ServerConnection(self.handle, error_page, _LIMITS, self._connections, self._max_body),
            sock=self._place.socket,
        )

    async def close(self) -> None:
        """Take no more, and break off what is under way."""
        if self._server is not None:
            self._server.close()
        self._direct.close()
        for connection in list(self._connections):
            connection.drain()
        await asyncio.sleep(0)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.get_running_loop().run_in_executor(None, self._desk.close)

    def handle(self, exchange: Exchange) -> None:
        """Answer a request."""
        request = exchange.request
        answer = partial(send_answer, exchange, new_request_id())
        for_page = not request.path.startswith("/admin/") and request.path not in ("/admin", METRICS)
        if not self._hosts.allows(request.headers.get("host", "")):
            answer(refusal("host_not_allowed", "ask by its address or localhost, or add the name to [admin] hosts"))
        elif not is_own(request.headers) and not (for_page and _is_visit(request)):
            answer(refusal("origin_not_allowed", "pages of other origins are not answered here"))
        elif for_page:
            self._page.handle(exchange, new_request_id())  # it shows nothing by itself, so that it needs no token
        elif not self._is_let_in(request.headers):
            answer(_UNAUTHORIZED)
        elif not self._may_change(request):
            answer(_NOT_OUR_PAGE)
        else:
            self._route(exchange, answer)

    def _max_body(self, target: bytes, headers: Mapping[str, str]) -> int:
        """How large a body may be: of somebody who is let in, and has reason to, larger than of others."""
        wanted = self._bodies.get(target.partition(b"?")[0].decode("latin-1"))
        if wanted is None:
            return _LIMITS.max_body
        given = {name: headers[name] for name in _SHOWN if name in headers}
        return wanted if self._is_let_in(given) else _LIMITS.max_body

    def _route(self, exchange: Exchange, answer: AdminResponse) -> None:
        request = exchange.request
        allowed = []
        for method, path, handle in self._found(request.path):
            if request.method == method or (request.method, method) == ("HEAD", "GET"):
                name = unquote(path[1], errors="replace") if path.groups() else ""
                handle(name, exchange, answer)
                return
            allowed.append(method)
        if allowed:
            refuse_method(request.method, ", ".join(allowed), answer)
        else:
            answer(refusal("not_found", f"there is nothing at {request.path[:200]}"))

    def _found(self, path: str) -> Iterator[tuple[str, re.Match[str], Handler]]:
        """The routes that a path may mean."""
        for method, pattern, handle in self._direct.routes:
            if found := pattern.fullmatch(path):
                yield method, found, handle
        for method, pattern, work in ROUTES:
            if found := pattern.fullmatch(path):
                yield method, found, partial(self._ask, work)

    def _ask(self, work: Work, name: str, exchange: Exchange, answer: AdminResponse) -> None:
        """Have it done at the desk."""
        asked = partial(_work, work, name, exchange.request.query, exchange.body)
        if not self._desk.ask(asked, answer):
            answer(_BUSY)

    def _is_let_in(self, headers: Mapping[str, str]) -> bool:
        return self._access.has_token(headers) or self._access.has_session(headers)

    def _may_change(self, request: HttpRequest) -> bool:
        """Whether a request may do what it asks for, of somebody who is let in. To look is free."""
        return (
            request.method in ("GET", "HEAD") or self._access.has_token(request.headers) or proves_page(request.headers)
        )


def _work(work: Work, name: str, query: str, body: bytes, book: Book) -> AdminReply:
    """What runs at the desk."""
    now_ms = time.time_ns() // 1_000_000
    return work(book, AdminRequest(name=name, query=Query.parse(query), body=body, now_ms=now_ms))


_UNAUTHORIZED = refusal("invalid_admin_token", "this needs the admin token, as `Authorization: Bearer …`; or a session")
_NOT_OUR_PAGE = refusal(
    "page_not_proven", "with a session, changes need the header `x-penstock-page: 1` and the Origin of this page"
)
_BUSY = Failure(
    code="admin_busy",
    message="too many questions wait for the ledger; ask again",
    retry_after="1",
)


def _is_visit(request: HttpRequest) -> bool:
    """Whether somebody comes by a link that stands elsewhere: a browser says so, and no script can make it."""
    wanted = (request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest"))
    return request.method == "GET" and wanted == ("navigate", "document") and "origin" not in request.headers

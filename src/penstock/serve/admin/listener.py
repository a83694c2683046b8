"""Admin: the admin API of one process, and the page that uses it. Who shows the token or has a session is let in.

1. A request for another host than this one is refused: a page of somebody else may have this machine's address under
   a name of its own. So is one that a page of somebody else sent.
2. Without either nothing is told under `/admin`, not even which routes there are, and no large body is taken. A
   client's key is not the token, and the token is no client's key.
3. Who has a session changes nothing without proof that our own page wants it.
4. The book is asked at the desk; the event loop never waits for it.
"""

import asyncio
import ipaddress
import os
import time
from collections.abc import Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from penstock.errors import BookError, KeyTermsError
from penstock.gateway.book import Book
from penstock.gateway.config import Config
from penstock.gateway.failure import Failure
from penstock.http.exchange import Exchange, HttpRequest
from penstock.http.limits import FrontLimits
from penstock.http.server import ServerConnection
from penstock.serve.admin.access import Access, proves_page
from penstock.serve.admin.desk import Desk
from penstock.serve.admin.page import Page
from penstock.serve.admin.place import Place
from penstock.serve.admin.queries import Query
from penstock.serve.admin.routes import ROUTES, Ask, Reply, Work
from penstock.serve.responses import error_page, new_request_id, respond_failure, respond_json
from penstock.stores.books import open_book

# Nobody's keys have longer terms; and few programs manage keys at a time.
_LIMITS = FrontLimits(max_body=65_536, max_head=32_768, max_connections=256)
_HERE = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_STATE = "/admin/state"
# The headers by which somebody is let in.
_SHOWN = ("authorization", "cookie")
# What a refusal by the rules of keys is in HTTP; 400 for all others.
_STATUSES = {
    "key_not_found": 404,
    "entry_not_found": 404,
    "name_taken": 409,
    "ambiguous": 409,
    "key_replaced": 409,
    "key_unusable": 409,
}


class Watched(Protocol):
    """The process, as the admin API sees it."""

    def state(self) -> dict[str, object]:
        """How it is."""


class Answer(Protocol):
    """Sends the answer to one request."""

    def __call__(self, what: Reply | Exception | Failure, /, *, allow: str = "") -> None: ...


class Admin:
    """Belongs to the event loop of its process."""

    def __init__(
        self, place: Place, watched: Watched, config: Config, environment: Mapping[str, str], used_links: Path
    ) -> None:
        self._place = place
        self._watched = watched
        self._access = Access(place.link_key.reveal(), used_links)
        self._page = Page(self._access)
        self._bodies: dict[str, int] = {}
        self._connections: set[ServerConnection] = set()
        self._server: asyncio.Server | None = None
        self._desk = Desk(partial(open_book, config.ledger, environment))
        self._hosts = _HERE | {_written(place.address.host), config.admin.address.host.lower()}
        self._any_address = ipaddress.ip_address(place.address.host).is_unspecified
        self.use(config)

    def use(self, config: Config) -> None:
        """Go by this configuration from now on; it stays where it is."""
        token = config.admin.token or self._place.token
        self._access.use(token.reveal())

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
        for connection in list(self._connections):
            connection.drain()
        await asyncio.sleep(0)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.get_running_loop().run_in_executor(None, self._desk.close)

    def handle(self, exchange: Exchange) -> None:
        """Answer a request."""
        request = exchange.request
        answer = partial(_answer, exchange, new_request_id())
        if not self._is_for_us(request.headers.get("host", "")):
            answer(_failure(403, "host_not_allowed", "ask for this by the address that it listens on, or localhost"))
        elif not _is_own(request.headers):
            answer(_failure(403, "origin_not_allowed", "pages of other origins are not answered here"))
        elif request.path != "/admin" and not request.path.startswith("/admin/"):
            self._page.handle(exchange, new_request_id())  # it shows nothing by itself, so that it needs no token
        elif not self._is_let_in(request.headers):
            answer(_UNAUTHORIZED)
        elif not self._may_change(request):
            answer(_NOT_OUR_PAGE)
        elif request.path == _STATE:
            self._tell_state(request.method, answer)
        else:
            self._route(exchange, answer)

    def _max_body(self, target: bytes, headers: Mapping[str, str]) -> int:
        """How large a body may be: of somebody who is let in, and has reason to, larger than of others."""
        wanted = self._bodies.get(target.partition(b"?")[0].decode("latin-1"))
        if wanted is None:
            return _LIMITS.max_body
        given = {name: headers[name] for name in _SHOWN if name in headers}
        return wanted if self._is_let_in(given) else _LIMITS.max_body

    def _route(self, exchange: Exchange, answer: Answer) -> None:
        request = exchange.request
        found = [(method, path, work) for method, pattern, work in ROUTES if (path := pattern.fullmatch(request.path))]
        if not found:
            answer(_failure(404, "not_found", f"there is nothing at {request.path[:200]}"))
            return
        for method, path, work in found:
            if request.method == method or (request.method, method) == ("HEAD", "GET"):
                name = unquote(path[1], errors="replace") if path.groups() else ""
                asked = partial(_work, work, name, request.query, request.body)
                if not self._desk.ask(asked, answer):
                    answer(_BUSY)
                return
        _refuse_method(request.method, ", ".join(method for method, _, _ in found), answer)

    def _tell_state(self, method: str, answer: Answer) -> None:
        if method in ("GET", "HEAD"):
            admin = str(self._place.address)
            told = {"version": _version(), "pid": os.getpid(), "admin": admin, **self._watched.state()}
            answer(Reply(200, told))
        else:
            _refuse_method(method, "GET", answer)

    def _is_for_us(self, host: str) -> bool:
        """Whether a Host header names this machine as it is known. Which port does not matter: there are tunnels."""
        name = (host[: host.index("]") + 1] if "]" in host else host.partition(":")[0]).lower()
        if name in self._hosts:
            return True
        if not self._any_address:
            return False
        try:
            ipaddress.ip_address(name.strip("[]"))  # a name could be anybody's; an address is nobody else's
        except ValueError:
            return False
        return True

    def _is_let_in(self, headers: Mapping[str, str]) -> bool:
        return self._access.has_token(headers) or self._access.has_session(headers)

    def _may_change(self, request: HttpRequest) -> bool:
        """Whether a request may do what it asks for, of somebody who is let in. To look is free."""
        return (
            request.method in ("GET", "HEAD") or self._access.has_token(request.headers) or proves_page(request.headers)
        )


def _work(work: Work, name: str, query: str, body: bytes, book: Book) -> Reply:
    """What runs at the desk."""
    now_ms = time.time_ns() // 1_000_000
    return work(book, Ask(name=name, query=Query.parse(query), body=body, now_ms=now_ms))


def _answer(exchange: Exchange, request_id: str, what: Reply | Exception | Failure, *, allow: str = "") -> None:
    headers = {**_HEADERS, "x-request-id": request_id}
    if allow:
        headers["allow"] = allow
    match what:
        case Reply(status, body):
            respond_json(exchange, status, body, headers)
            return
        case Failure():
            failure = what
        case KeyTermsError():
            failure = _failure(_STATUSES.get(what.code, 400), what.code, str(what), what.param)
        case BookError():
            failure = Failure(
                code="ledger_unavailable", message=str(what), status=503, kind="server_error", retry_after="2"
            )
        case _:
            # It is a bug of ours: what it says is for no one else.
            message = f"the admin API failed: {type(what).__name__}"
            failure = Failure(code="internal_error", message=message, status=500, kind="server_error", passing=False)
    if failure.status == 401:
        headers["www-authenticate"] = "Bearer"
    respond_failure(exchange, failure, request_id, headers)


def _failure(status: int, code: str, message: str, param: str | None = None) -> Failure:
    kind = "authentication_error" if status == 401 else "invalid_request_error"
    return Failure(code=code, message=message, status=status, kind=kind, param=param, retryable=False)


_UNAUTHORIZED = _failure(
    401, "invalid_admin_token", "this needs the admin token, as `Authorization: Bearer …`; or a session"
)
_NOT_OUR_PAGE = _failure(
    403, "page_not_proven", "with a session, changes need the header `x-penstock-page: 1` and the Origin of this page"
)
_BUSY = Failure(
    code="admin_busy",
    message="too many questions wait for the ledger; ask again",
    status=503,
    kind="server_error",
    retry_after="1",
)


def _refuse_method(method: str, allowed: str, answer: Answer) -> None:
    answer(_failure(405, "method_not_allowed", f"{method[:20]} is not possible here; use {allowed}"), allow=allowed)


def _is_own(headers: Mapping[str, str]) -> bool:
    """Whether a request comes from no page at all, or from one of this very origin."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    origin = headers.get("origin")
    return origin is None or (urlsplit(origin).netloc != "" and origin == f"http://{headers.get('host', '')}")


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


def _version() -> str | None:
    try:
        return version("penstock")
    except PackageNotFoundError:
        return None

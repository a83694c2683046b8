"""AdminPage: the paths of the admin listener outside of `/admin`: the files of the page, and one-time links."""

from collections.abc import Callable
from urllib.parse import parse_qs

from penstock.gateway.people.roles import Principal
from penstock.http.exchange import Exchange
from penstock.serve.admin.access import Access
from penstock.serve.admin.page_files import HARDENING, INDEX, LOCKED, PageFile, read_files

_OPEN = "/open"
_START = ("/", INDEX, LOCKED)
_PREFETCH = ("purpose", "sec-purpose", "x-moz")
_NOT_FOUND = PageFile("text/plain; charset=utf-8", b"not found\n", "")


class AdminPage:
    """Serves the files of the page."""

    def __init__(
        self,
        access: Access,
        on_link: Callable[[Exchange], None],
        on_wrong_link: Callable[[Exchange], None],
        show_locked: Callable[[Exchange, int, str], None],
    ) -> None:
        """`on_link` is called when a link was exchanged for a session, `on_wrong_link` when it could not be.
        `show_locked` sends the page for users without a session.
        """
        self._show_locked = show_locked
        self._access = access
        self._on_link = on_link
        self._on_wrong_link = on_wrong_link
        self._files = read_files()

    @property
    def locked(self) -> PageFile:
        """The page for users without a session."""
        return self._files[LOCKED]

    def needs_session(self, exchange: Exchange) -> bool:
        """Whether the response depends on the user's session."""
        return exchange.request.path in (*_START, _OPEN)

    def handle(self, exchange: Exchange, request_id: str, user: Principal | None) -> None:
        """Respond to a request for a file or a link. `user` has a session; None if there is none."""
        request = exchange.request
        headers = {**HARDENING, "x-request-id": request_id}
        if request.method not in ("GET", "HEAD"):
            _send(exchange, 405, _NOT_FOUND, headers | {"allow": "GET"})
        elif request.path == _OPEN:
            self._open(exchange, headers, user)
        elif request.path in _START:
            if user is not None and user.ambient:
                _send(exchange, 200, self._files.get(INDEX, _NOT_FOUND), headers)
            else:
                self._show_locked(exchange, 401, "")
        else:
            file = self._files.get(request.path)
            _send(exchange, 200 if file else 404, file or _NOT_FOUND, headers)

    def _open(self, exchange: Exchange, headers: dict[str, str], user: Principal | None) -> None:
        """Exchange a link for a session and redirect to the page; otherwise explain how to get a new link."""
        request = exchange.request
        # A prefetch or a HEAD request must not use up a one-time link.
        prefetch = request.method != "GET" or any("prefetch" in request.headers.get(name, "") for name in _PREFETCH)
        link = parse_qs(request.query, max_num_fields=20).get("link", [""])[0] if len(request.query) < 2_000 else ""
        cookie = self._access.redeem(link) if link and not prefetch else ""
        if cookie:
            self._on_link(exchange)
        if cookie or (user is not None and user.ambient):
            cookies = {"set-cookie": cookie} if cookie else {}
            exchange.respond(303, headers | {"location": "/", "cache-control": "no-store"} | cookies, b"")
        else:
            if link and not prefetch:
                self._on_wrong_link(exchange)
            self._show_locked(exchange, 403, "")


def _send(exchange: Exchange, status: int, file: PageFile, headers: dict[str, str]) -> None:
    """Send a file, or 304 if the client has this version."""
    if status != 200:
        exchange.respond(status, headers | {"content-type": file.media_type, "cache-control": "no-store"}, file.body)
        return
    headers = headers | {"etag": file.etag, "cache-control": "no-cache", "vary": "cookie"}
    cached = exchange.request.headers.get("if-none-match", "")
    if file.etag and file.etag in (tag.strip().removeprefix("W/") for tag in cached.split(",")):
        exchange.respond(304, headers, b"")
    else:
        exchange.respond(200, headers | {"content-type": file.media_type}, file.body)

"""AdminPage: the paths of the admin listener outside of `/admin`: the files of the page, and one-time links."""

from collections.abc import Mapping

from penstock.gateway.people.roles import Principal
from penstock.http.exchange import Exchange
from penstock.serve.admin.backend import Backend
from penstock.serve.admin.page_files import HARDENING, INDEX, LOCKED, PageFile
from penstock.serve.admin.sign_in import SignIn, read_query

_OPEN = "/open"
_START = ("/", INDEX, LOCKED)
_PREFETCH = ("purpose", "sec-purpose", "x-moz")
_NOT_FOUND = PageFile("text/plain; charset=utf-8", b"not found\n", "")


class AdminPage:
    """Serves the files of the page."""

    def __init__(self, backend: Backend, sign_in: SignIn, files: Mapping[str, PageFile]) -> None:
        """`sign_in` shows the page for users without a session."""
        self._access = backend.access
        self._audit = backend.audit
        self._sign_in = sign_in
        self._files = files

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
                self._sign_in.show(exchange, 401, "")
        else:
            file = self._files.get(request.path)
            _send(exchange, 200 if file else 404, file or _NOT_FOUND, headers)

    def _open(self, exchange: Exchange, headers: dict[str, str], user: Principal | None) -> None:
        """Exchange a link for a session and redirect to the page; otherwise explain how to get a new link."""
        request = exchange.request
        # A prefetch or a HEAD request must not use up a one-time link.
        prefetch = request.method != "GET" or any("prefetch" in request.headers.get(name, "") for name in _PREFETCH)
        link = read_query(request.query).get("link", "")
        cookie = self._access.redeem(link) if link and not prefetch else ""
        if cookie:
            self._audit.on_link(exchange)
        if cookie or (user is not None and user.ambient):
            cookies = {"set-cookie": cookie} if cookie else {}
            exchange.respond(303, headers | {"location": "/", "cache-control": "no-store"} | cookies, b"")
        else:
            if link and not prefetch:
                self._audit.refuse_sign_in("", "invalid_link", exchange)
            self._sign_in.show(exchange, 403, "")


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

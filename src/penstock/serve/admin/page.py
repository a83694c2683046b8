"""AdminPage: the paths of the admin listener outside of `/admin`: the files of the page, and one-time links."""

from urllib.parse import parse_qs

from penstock.http.exchange import Exchange
from penstock.serve.admin.access import Access
from penstock.serve.admin.page_files import HARDENING, INDEX, LOCKED, PageFile, read_files

_OPEN = "/open"
_PREFETCH = ("purpose", "sec-purpose", "x-moz")
_NOT_FOUND = PageFile("text/plain; charset=utf-8", b"not found\n", "")


class AdminPage:
    """Serves the files of the page."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._files = read_files()

    def handle(self, exchange: Exchange, request_id: str) -> None:
        """Respond to a request for a file or a link."""
        request = exchange.request
        headers = {**HARDENING, "x-request-id": request_id}
        if request.method not in ("GET", "HEAD"):
            _send(exchange, 405, _NOT_FOUND, headers | {"allow": "GET"})
        elif request.path == _OPEN:
            self._open(exchange, headers)
        elif request.path in ("/", INDEX, LOCKED):
            if self._access.has_session(request.headers):
                _send(exchange, 200, self._files.get(INDEX, _NOT_FOUND), headers)
            else:
                _send(exchange, 401, self._files[LOCKED], headers)
        else:
            file = self._files.get(request.path)
            _send(exchange, 200 if file else 404, file or _NOT_FOUND, headers)

    def _open(self, exchange: Exchange, headers: dict[str, str]) -> None:
        """Exchange a link for a session and redirect to the page; otherwise explain how to get a new link."""
        request = exchange.request
        # A prefetch or a HEAD request must not use up a one-time link.
        prefetch = request.method != "GET" or any("prefetch" in request.headers.get(name, "") for name in _PREFETCH)
        link = parse_qs(request.query, max_num_fields=20).get("link", [""])[0] if len(request.query) < 2_000 else ""
        cookie = self._access.redeem(link) if link and not prefetch else ""
        if cookie or self._access.has_session(request.headers):
            cookies = {"set-cookie": cookie} if cookie else {}
            exchange.respond(303, headers | {"location": "/", "cache-control": "no-store"} | cookies, b"")
        else:
            _send(exchange, 403, self._files[LOCKED], headers)


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

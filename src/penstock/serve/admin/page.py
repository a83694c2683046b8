"""AdminPage: what the admin listener answers outside of `/admin`: the files of the page, and the links that open it."""

from urllib.parse import parse_qs

from penstock.http.exchange import Exchange
from penstock.serve.admin.access import Access
from penstock.serve.admin.page_files import HARDENING, INDEX, LOCKED, PageFile, read_files

_OPEN = "/open"
_PREFETCH = ("purpose", "sec-purpose", "x-moz")
_NOTHING = PageFile("text/plain; charset=utf-8", b"there is nothing here\n", "")


class AdminPage:
    """Belongs to one process."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._files = read_files()

    def handle(self, exchange: Exchange, request_id: str) -> None:
        """Answer a request for the page, or for a part of it."""
        request = exchange.request
        headers = {**HARDENING, "x-request-id": request_id}
        if request.method not in ("GET", "HEAD"):
            _send(exchange, 405, _NOTHING, headers | {"allow": "GET"})
        elif request.path == _OPEN:
            self._open(exchange, headers)
        elif request.path in ("/", INDEX, LOCKED):
            if self._access.has_session(request.headers):
                _send(exchange, 200, self._files.get(INDEX, _NOTHING), headers)
            else:
                _send(exchange, 401, self._files[LOCKED], headers)
        else:
            found = self._files.get(request.path)
            _send(exchange, 200 if found else 404, found or _NOTHING, headers)

    def _open(self, exchange: Exchange, headers: dict[str, str]) -> None:
        """Make a session for a link, and go on to the page; or say how to get another link."""
        request = exchange.request
        # What fetches ahead, or only looks, must not use a link up.
        idle = request.method != "GET" or any("prefetch" in request.headers.get(name, "") for name in _PREFETCH)
        link = parse_qs(request.query, max_num_fields=20).get("link", [""])[0] if len(request.query) < 2_000 else ""
        cookie = self._access.redeem(link) if link and not idle else ""
        if cookie or self._access.has_session(request.headers):
            cookies = {"set-cookie": cookie} if cookie else {}
            exchange.respond(303, headers | {"location": "/", "cache-control": "no-store"} | cookies, b"")
        else:
            _send(exchange, 403, self._files[LOCKED], headers)


def _send(exchange: Exchange, status: int, file: PageFile, headers: dict[str, str]) -> None:
    """Send a file; or, where it is known already, that it is the same."""
    if status != 200:
        exchange.respond(status, headers | {"content-type": file.kind, "cache-control": "no-store"}, file.body)
        return
    headers = headers | {"etag": file.tag, "cache-control": "no-cache", "vary": "cookie"}
    known = exchange.request.headers.get("if-none-match", "")
    if file.tag and file.tag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        exchange.respond(304, headers, b"")
    else:
        exchange.respond(200, headers | {"content-type": file.kind}, file.body)

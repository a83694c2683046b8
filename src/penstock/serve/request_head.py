"""RequestHead: what the gateway makes of a request by its head alone. Made once for all requests that share a head."""

from msgspec import Struct

from penstock.core.failure import Failure
from penstock.gateway.keys.keys import digest_of
from penstock.http.exchange import HttpRequest
from penstock.serve.hosts import AllowedHosts
from penstock.serve.paths import plain_path
from penstock.serve.responses import JSON, refused


class RequestHead(Struct):
    """What a request asks for, and by whom."""

    path: str
    """Without the prefix under which it was asked for."""
    posted: str
    """The same, where a body is posted there that can be taken; else empty."""
    secret: str
    """What the client shows to be let in; empty if it shows nothing."""
    digest: bytes
    """Of that secret, by which its key is found."""
    unreadable: Failure | None
    """Why a body cannot be taken by what the headers say of it; None where it can."""
    host: str
    """The Host header; empty if there is none."""
    origin: str | None
    """Where the page comes from that sends it; None where no page does."""
    allowed_by: AllowedHosts | None = None
    """The hosts by which `host` and `origin` were found to be allowed."""


def read(request: HttpRequest) -> RequestHead:
    """What a request is, by its head."""
    path, secret, unreadable = plain_path(request.path), _secret(request.headers), _unreadable(request.headers)
    posted = path if request.method == "POST" and unreadable is None else ""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    return RequestHead(path, posted, secret, digest_of(secret), unreadable, host, origin)


def _secret(headers: dict[str, str]) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""  # an empty one hides no other
    return bearer or headers.get("x-api-key") or headers.get("api-key") or ""


def _unreadable(headers: dict[str, str]) -> Failure | None:
    coding = headers.get("content-encoding", "identity").lower()
    if coding not in ("", "identity"):
        return refused(f"a body encoded as {coding[:40]} is not taken; send it plain", "unsupported_encoding")
    kind = headers.get("content-type", JSON).partition(";")[0].strip().lower()
    from_page = "origin" in headers or "sec-fetch-site" in headers
    if from_page and not (kind == JSON or kind.endswith("+json")):
        # A page may post such a body anywhere without asking; JSON it may not.
        return refused("the body must be sent as application/json", "unsupported_type")
    return None

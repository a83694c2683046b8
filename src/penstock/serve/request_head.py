"""RequestHead: everything that the gateway derives from the head of a request alone.

It is computed once per distinct head of a connection, not once per request. The HTTP server recognises a repeated head
and passes the same `HttpRequest` again (`http/head_cache.py`), and `HttpRequest.parsed_head` refers to this object. So
a client that repeats its head costs no path matching, no digest of its key and no host check. Therefore nothing in it
may depend on time or on the configuration: whether a key is valid is looked up for each request by its digest, and the
host check is stored together with the `AllowedHosts` that made it, which a reload replaces.
"""

from msgspec import Struct

from penstock.core.hub.failure import Failure
from penstock.gateway.keys.key_secret import digest_of
from penstock.gateway.record.client_credentials import ClientCredentials
from penstock.http.exchange import HttpRequest
from penstock.serve.aws_signature import AwsSignature, read_signature
from penstock.serve.client_headers import GATEWAY_KEY, read_keys
from penstock.serve.edge import CorsPolicy
from penstock.serve.hosts import AllowedHosts
from penstock.serve.paths import endpoint, plain_path
from penstock.serve.responses import JSON, refused
from penstock.serve.streams.stream_options import StreamOptions, read_options


class RequestHead(Struct):
    """The path, credentials and origin of a request."""

    path: str
    """The path without a prefix such as `/v1`. In that of a POST, `{model}` stands for a model that it names."""
    post_path: str
    """`path` if the request is a POST with an acceptable body; otherwise empty."""
    secret: str
    """The API key of the gateway that the client sent; empty if there is none."""
    digest: bytes
    """The digest of the API key, by which it is looked up."""
    body_refusal: Failure | None
    """Why the body is refused because of its headers; None if it is acceptable."""
    host: str
    """The Host header; empty if there is none."""
    origin: str | None
    """The Origin header; None if no page sent the request."""
    signature: AwsSignature | None = None
    """The signature of AWS, if the request has one; `secret` is then the id of its access key."""
    credentials: ClientCredentials | None = None
    """The client's own credentials for a provider; None unless its key is in `x-penstock-key`."""
    allowed_by: AllowedHosts | None = None
    """The `AllowedHosts` that allowed `host` and `origin`; None before the first check."""
    stream_options: StreamOptions | None = None
    """What the request asks of durable streams; None if it asks nothing."""
    cors: CorsPolicy | None = None
    """The `CorsPolicy` of the request's fixed headers; None if they have no headers of CORS."""


def parse_head(request: HttpRequest) -> RequestHead:
    """Derive a `RequestHead` from a request."""
    path, refusal = plain_path(request.path), _body_refusal(request.headers)
    if request.method == "POST":
        path = endpoint(path)
    secret, credentials = read_keys(request.headers, path, request.query)
    # With `x-penstock-key`, no other header authenticates the client.
    signed = "" if GATEWAY_KEY in request.headers else request.headers.get("authorization", "")
    signature = read_signature(signed)
    if signature is not None:
        secret = signature.access_key
    post_path = path if request.method == "POST" and refusal is None else ""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    digest, options = digest_of(secret), read_options(request.headers)
    return RequestHead(
        path, post_path, secret, digest, refusal, host, origin, signature, credentials, stream_options=options
    )


def _body_refusal(headers: dict[str, str]) -> Failure | None:
    coding = headers.get("content-encoding", "identity").lower()
    if coding not in ("", "identity"):
        return refused(
            f"a request body with the encoding {coding[:40]} is not supported; send it without one",
            "unsupported_encoding",
        )
    media_type = headers.get("content-type", JSON).partition(";")[0].strip().lower()
    from_page = "origin" in headers or "sec-fetch-site" in headers
    if from_page and not (media_type == JSON or media_type.endswith("+json")):
        # A page can send such a body to any origin without a CORS preflight, but not JSON (CSRF).
        return refused("the body must be sent as application/json", "unsupported_type")
    return None

"""AWS's signatures of requests (Signature Version 4): reads one from a request's headers, and verifies it.

    Authorization: AWS4-HMAC-SHA256 Credential=ID/DATE/REGION/SERVICE/aws4_request, SignedHeaders=a;b, Signature=HEX

A signature covers the method, the path, the query, the named headers and the body. It is valid for five minutes before
and after its time, as at AWS. The host, the time and the body must be covered: `UNSIGNED-PAYLOAD` is refused.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from urllib.parse import quote

from msgspec import Struct

from penstock.http.exchange import HttpRequest

_ALGORITHM = "AWS4-HMAC-SHA256"
_SERVICE = "bedrock"
_LAST = "aws4_request"
_TIME = "x-amz-date"
_BODY = "x-amz-content-sha256"
_REQUIRED = frozenset(("host", _TIME))
_FORMAT = "%Y%m%dT%H%M%SZ"
_SKEW_S = 300
_FIELD = re.compile(r"\s*(Credential|SignedHeaders|Signature)=([^,\s]{1,4096})\s*")


class AwsSignature(Struct, frozen=True):
    """A signature as a request has it."""

    access_key: str
    scope: tuple[str, ...]
    """The day, the region, the service, and a constant."""
    headers: tuple[str, ...]
    """The names of the headers that it covers."""
    value: str


def read_signature(authorization: str) -> AwsSignature | None:
    """The signature in an Authorization header; None if it has none, or a malformed one."""
    scheme, _, rest = authorization.partition(" ")
    fields = [_FIELD.fullmatch(field) for field in rest.split(",")] if scheme == _ALGORITHM else []
    given = {field[1]: field[2] for field in fields if field is not None}
    access_key, *scope = given.get("Credential", "").split("/")
    if len(fields) != 3 or len(given) != 3 or len(scope) != 4 or not access_key:
        return None
    return AwsSignature(access_key, tuple(scope), tuple(given["SignedHeaders"].split(";")), given["Signature"])


def refusal(signature: AwsSignature, secret: str, request: HttpRequest, body: Iterable[bytes], now_s: float) -> str:
    """Why a signature is not valid, as a message for the client; empty if it is. `secret` is that of its access key."""
    headers, day = request.headers, signature.scope[0]
    time = headers.get(_TIME, "")
    if signature.scope[2:] != (_SERVICE, _LAST):
        return f"the request must be signed for the service {_SERVICE}"
    missing = _REQUIRED.difference(signature.headers)
    if missing:
        return f"the signature must cover the headers {' and '.join(sorted(missing))}"
    try:
        signed_s = datetime.strptime(time, _FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return f"the header {_TIME} must have a time such as 20260131T120000Z"
    if abs(now_s - signed_s) > _SKEW_S or not time.startswith(day):
        return f"the signature has expired, or is not yet valid: its time is {time}; check the clock of this machine"
    digest, size = hashlib.sha256(), 0
    for piece in body:
        digest.update(piece)
        size += len(piece)
    hashed = digest.hexdigest()
    if headers.get(_BODY, hashed) != hashed:
        return f"the signature must cover the body, and {_BODY} must be its hash"
    known = {**headers, "content-length": str(size)}
    covered = "".join(f"{name}:{' '.join(known.get(name, '').split())}\n" for name in signature.headers)
    path = quote(request.path.encode("latin-1"), safe="/~")
    parts = (request.method, path, _query(request.query), covered, ";".join(signature.headers), hashed)
    canonical = hashlib.sha256("\n".join(parts).encode("latin-1", "replace")).hexdigest()
    text = "\n".join((_ALGORITHM, time, "/".join(signature.scope), canonical))
    key = f"AWS4{secret}".encode()
    for each in (*signature.scope, text):
        key = hmac.digest(key, each.encode(errors="replace"), "sha256")
    if not hmac.compare_digest(key.hex().encode(), signature.value.encode(errors="replace")):
        return "the signature does not match: check the secret access key, and that no proxy changes the request"
    return ""


def _query(query: str) -> str:
    """The query with its parameters sorted."""
    pairs = (pair.partition("=") for pair in query.split("&") if pair)
    return "&".join(f"{name}={value}" for name, _, value in sorted(pairs))

"""Requests that are signed as AWS does: botocore signs, and the gateway verifies with access keys that it derives."""

from datetime import UTC, datetime, timedelta
from typing import Any

import botocore.auth
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from msgspec import Struct
from msgspec.structs import replace

from penstock.gateway.keys.access_keys import access_key
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.key_ring import KeyRing
from penstock.gateway.keys.key_secret import digest_of, new_secret
from penstock.http.exchange import HttpRequest
from penstock.providers.secret import Secret
from penstock.serve.auth import Authenticator
from penstock.serve.rejections import Rejection
from penstock.serve.request_head import parse_head

MASTER = "of-the-configuration-0123456789abcdef"
SECRET, OLD = new_secret(), new_secret()
KEY = ClientKey(id="key_1", name="ci", digest=digest_of(SECRET), previous=digest_of(OLD))
PAIR, OLD_PAIR = access_key(MASTER, digest_of(SECRET)), access_key(MASTER, digest_of(OLD))
PATH = "/model/eu.weir%2F3-v1%3A0/converse"
BODY = b'{"messages": []}'


class Unconnected(Struct):
    """A request that no connection has."""

    request: HttpRequest
    body: bytes = BODY
    pieces: tuple[bytes, ...] = ()


def signed(
    id: str = PAIR.id,
    secret: str = PAIR.secret,
    *,
    service: str = "bedrock",
    path: str = PATH,
    body: bytes = BODY,
    headers: dict[str, str] | None = None,
) -> HttpRequest:
    """A request as boto3 sends it."""
    url = f"http://gateway.example:8080{path}"
    made = AWSRequest("POST", url, data=body, headers={"content-type": "application/json", **(headers or {})})
    SigV4Auth(Credentials(id, secret), service, "eu-west-3").add_auth(made)
    given = {name.lower(): value for name, value in made.headers.items()}
    place, _, query = path.partition("?")
    return HttpRequest("POST", place, query, {"host": "gateway.example:8080", **given})


def judged(
    request: HttpRequest, key: ClientKey = KEY, *, master: str = MASTER, closed: bool = True, **sent: Any
) -> ClientKey | Rejection | None:
    authenticator = Authenticator()
    authenticator.access_key_secret = Secret(master) if master else None
    authenticator.use(KeyRing([key] if closed else []))
    exchange: Any = Unconnected(request, **sent)
    return authenticator.authenticate(parse_head(request), exchange)


def rejected(*given: Any, **options: Any) -> tuple[str, str]:
    rejection = judged(*given, **options)
    assert isinstance(rejection, Rejection)
    assert rejection.failure.code == "invalid_api_key"
    assert PAIR.secret not in rejection.failure.message
    return rejection.reason, rejection.failure.message


@pytest.mark.parametrize("path", [PATH, f"{PATH}?b=2&a=%20x&a=1", "/model/groq/gpt~oss/converse-stream"])
@pytest.mark.parametrize("headers", [{}, {"x-amz-meta": "two   spaces "}, {"content-length": str(len(BODY))}])
def test_what_botocore_signs_is_valid(path: str, headers: dict[str, str]) -> None:
    request = signed(path=path, headers=headers)
    request.headers.pop("content-length", None)  # as the HTTP server has it
    assert judged(request) == KEY
    assert judged(request, body=b"", pieces=(BODY[:5], BODY[5:])) == KEY


def test_the_previous_secret_is_valid_until_it_ends() -> None:
    request = signed(OLD_PAIR.id, OLD_PAIR.secret)
    valid = replace(KEY, previous_until_ms=2**53)
    assert judged(request, valid) == valid
    assert rejected(request, replace(KEY, previous_until_ms=1))[0] == "rotated_key"


def test_a_revoked_key_is_revoked_for_signatures_too() -> None:
    assert rejected(signed(), replace(KEY, revoked_ms=1))[0] == "revoked_key"


def test_everything_that_is_covered_is_checked() -> None:
    request = signed()
    others = {
        "another path": replace(request, path="/model/other/converse"),
        "another query": replace(request, query="a=1"),
        "another method": replace(request, method="PUT"),
        "another host": replace(request, headers=request.headers | {"host": "other.example"}),
        "another type": replace(request, headers=request.headers | {"content-type": "text/plain"}),
    }
    for name, other in others.items():
        assert rejected(other) == ("invalid_signature", rejected(others["another path"])[1]), name
    assert rejected(request, body=BODY + b" ")[0] == "invalid_signature"
    assert rejected(signed(secret="another"))[0] == "invalid_signature"
    assert rejected(signed(service="s3"))[0] == "invalid_signature"


@pytest.mark.parametrize("name", ["host", "x-amz-date"])
def test_the_host_and_the_time_must_be_covered(name: str) -> None:
    request = signed()
    authorization = request.headers["authorization"].replace(f";{name}", "").replace(f"{name};", "")
    reason, message = rejected(replace(request, headers=request.headers | {"authorization": authorization}))
    assert (reason, name in message) == ("invalid_signature", True)


def test_the_body_must_be_covered() -> None:
    request = signed(headers={"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"})
    assert "body" in rejected(request)[1]


@pytest.mark.parametrize(("minutes", "valid"), [(-6, False), (-4, True), (4, True), (6, False)])
def test_a_signature_is_valid_for_five_minutes(monkeypatch: pytest.MonkeyPatch, minutes: int, valid: bool) -> None:
    then = datetime.now(UTC) + timedelta(minutes=minutes)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: then)
    request = signed()
    assert (judged(request) == KEY) == valid
    assert valid or "clock" in rejected(request)[1]


def test_an_access_key_that_is_not_known_is_refused() -> None:
    other = access_key(MASTER, digest_of("other"))
    assert rejected(signed(other.id, other.secret))[0] == "unknown_key"
    assert rejected(signed("AKIAIOSFODNN7EXAMPLE", "x"))[0] == "unknown_key"


def test_without_the_secret_of_the_configuration_no_signature_is_valid() -> None:
    reason, message = rejected(signed(), master="")
    assert (reason, "AWS_BEARER_TOKEN_BEDROCK" in message) == ("invalid_signature", True)
    assert rejected(signed(), master="another-secret-of-the-configuration")[0] == "unknown_key"


@pytest.mark.parametrize(
    "authorization",
    [
        "AWS4-HMAC-SHA256 ",
        "AWS4-HMAC-SHA256 Credential=a/b/c/bedrock/aws4_request, SignedHeaders=host",
        "AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host, Signature=0",
        "AWS4-HMAC-SHA256 Credential=a/b/c/bedrock/aws4_request, Signature=0, Signature=1",
        "AWS4-ECDSA-P256-SHA256 Credential=a/b/c/d/e, SignedHeaders=host, Signature=0",
    ],
)
def test_a_malformed_signature_is_no_key(authorization: str) -> None:
    request = signed()
    assert rejected(replace(request, headers=request.headers | {"authorization": authorization}))[0] == "no_key"


def test_the_gateway_s_own_access_key_must_be_right_even_while_no_key_is_required() -> None:
    request = signed()
    local = replace(request, headers=request.headers | {"host": "localhost"})
    assert rejected(local, closed=False)[0] == "unknown_key"
    other = signed("any", "any")
    assert judged(replace(other, headers=other.headers | {"host": "localhost"}), closed=False) is None


def test_the_secret_cannot_be_derived_from_the_digest_alone() -> None:
    assert access_key("one", digest_of(SECRET)) != access_key("two", digest_of(SECRET))
    assert PAIR.secret not in repr(PAIR)

"""An identity provider for tests: signs JWTs, and serves its public keys on loopback."""

import base64
import hmac
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey

WAIT_S = 20.0
AnyKey = RSAKey | ECKey | OKPKey


class IdentityProvider:
    """`keys` are the published ones. `fetched` counts the requests for them."""

    def __init__(self) -> None:
        self.keys: list[AnyKey] = [RSAKey.generate_key(2048, {"kid": "one"})]
        self.fetched = 0
        self.status = 200
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                documents: dict[str, Any] = {
                    "/.well-known/openid-configuration": {"issuer": provider.url, "jwks_uri": f"{provider.url}/jwks"},
                    "/jwks": KeySet([*provider.keys]).as_dict(private=False),
                }
                provider.fetched += self.path == "/jwks"
                body = json.dumps(documents.get(self.path, {})).encode()
                self.send_response(provider.status if self.path in documents else 404)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def claims(self, **other: Any) -> dict[str, Any]:
        """The claims of a valid token, or others. A claim of None is left out."""
        now = int(time.time())
        claims = {"iss": self.url, "aud": "penstock", "sub": "ann", "exp": now + 600, "groups": ["dev"]} | other
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, key: AnyKey | None = None, header: dict[str, Any] | None = None, **other: Any) -> str:
        """A token with these claims."""
        key = key or self.keys[0]
        head = {"alg": "RS256", "kid": key.kid} | (header or {})
        return jwt.encode(head, self.claims(**other), key, algorithms=[head["alg"]])


def until(true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Forged tokens


OTHER = RSAKey.generate_key(2048, {"kid": "one"})


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def unsigned(provider: IdentityProvider, alg: str) -> str:
    return f"{part({'alg': alg, 'kid': 'one'})}.{part(provider.claims())}."


def signed_with_public_key(provider: IdentityProvider) -> str:
    public = provider.keys[0]
    assert isinstance(public, RSAKey)
    payload = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(provider.claims())}"
    signature = hmac.digest(public.as_pem(private=False), payload.encode(), "sha256")
    return f"{payload}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"

"""OpenID Connect: the requests of a sign-in to the identity provider, with Authlib. Needs the extra `oidc`. They block.

The authorisation code flow with PKCE. The ID token must be signed by a key that the provider publishes, with a private
key; `iss`, `aud`, `azp`, `exp`, `iat`, `nonce` and `at_hash` are checked. If it does not have the user's groups, they
are read from the userinfo endpoint, whose `sub` must be the same.
"""

import hmac
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from authlib.common.errors import AuthlibBaseError
from authlib.common.security import generate_token
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from requests import RequestException

from penstock.gateway.config.people import ALGORITHMS, OidcSettings
from penstock.serve.signing_keys import DISCOVERY, fetch_json

_TIMEOUT_S = 10.0
_METADATA_S = 300.0
_LEEWAY_S = 30
# What a provider that is down, or that answers something else, raises here.
ERRORS = (
    AuthlibBaseError,
    JoseError,
    RequestException,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    OSError,
    RecursionError,
)


class SignInRequest(NamedTuple):
    """What the browser keeps while the user signs in, in a signed cookie."""

    state: str
    nonce: str
    verifier: str
    redirect_uri: str


class OpenIdProvider:
    """One identity provider. Used by several threads."""

    def __init__(self, settings: OidcSettings) -> None:
        self.settings = settings
        self._metadata: tuple[float, Mapping[str, Any]] | None = None

    def begin(self, redirect_uri: str) -> tuple[str, SignInRequest]:
        """The address to which the browser goes, and what to remember."""
        request = SignInRequest(generate_token(32), generate_token(32), generate_token(64), redirect_uri)
        with self._session(redirect_uri) as session:
            url, _ = session.create_authorization_url(
                self._discover()["authorization_endpoint"],
                state=request.state,
                nonce=request.nonce,
                code_verifier=request.verifier,
            )
        return str(url), request

    def complete(self, request: SignInRequest, code: str) -> Mapping[str, Any]:
        """Exchange the code for the claims of the user."""
        metadata = self._discover()
        with self._session(request.redirect_uri) as session:
            tokens = session.fetch_token(
                metadata["token_endpoint"],
                code=code,
                code_verifier=request.verifier,
                grant_type="authorization_code",
                timeout=_TIMEOUT_S,
                allow_redirects=False,
            )
            claims = self._verify(tokens, request.nonce, metadata)
            wanted = (self.settings.groups_claim, self.settings.user_claim)
            endpoint = metadata.get("userinfo_endpoint")
            if endpoint and any(name not in claims for name in wanted):
                response = session.get(endpoint, timeout=_TIMEOUT_S, allow_redirects=False)
                response.raise_for_status()
                more = response.json()
                if not hmac.compare_digest(str(more["sub"]).encode(), str(claims["sub"]).encode()):
                    raise ValueError("the user information is that of another user")
                claims = {**more, **claims}
        return claims

    def _session(self, redirect_uri: str) -> Any:
        secret = self.settings.client_secret
        return OAuth2Session(
            self.settings.client_id,
            secret.reveal() if secret is not None else None,
            scope=" ".join(dict.fromkeys(("openid", *self.settings.scopes))),
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            token_endpoint_auth_method="client_secret_basic" if secret is not None else "none",
        )

    def _discover(self) -> Mapping[str, Any]:
        found = self._metadata
        if found is None or found[0] < time.monotonic() - _METADATA_S:
            metadata = fetch_json(self.settings.issuer.rstrip("/") + DISCOVERY)
            if metadata["issuer"] != self.settings.issuer:
                raise ValueError("the discovery document is that of another issuer")
            self._metadata = found = (time.monotonic(), metadata)
        return found[1]

    def _verify(self, tokens: Mapping[str, Any], nonce: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """The claims of an ID token."""
        published = fetch_json(metadata["jwks_uri"])["keys"]
        keys = KeySet.import_key_set({"keys": [key for key in published if key.get("kty") != "oct"]})
        token = jwt.decode(tokens["id_token"], keys, algorithms=list(ALGORITHMS))
        claims = CodeIDToken(
            token.claims,
            token.header,
            {
                "iss": {"essential": True, "value": self.settings.issuer},
                "aud": {"essential": True, "value": self.settings.client_id},
            },
            {"nonce": nonce, "client_id": self.settings.client_id, "access_token": tokens["access_token"]},
        )
        claims.validate(leeway=_LEEWAY_S)
        return dict(token.claims)

"""Authenticator: authenticates every request by the current keys. A key may have expired since the last request.

While no key is required, `Host` and `Origin` are checked instead (`hosts.py`, DNS rebinding and CSRF): otherwise any
web page could spend the providers' keys. If a key is required, a page without it can do nothing.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.core.hub.failure import Failure
from penstock.gateway.keys.access_keys import PREFIX as ACCESS_KEY
from penstock.gateway.keys.access_keys import AccessKeys
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.key_ring import KeyRing
from penstock.gateway.keys.key_secret import PREFIX, digest_of, is_mistyped
from penstock.gateway.record.client_credentials import ClientCredentials
from penstock.http.exchange import Exchange
from penstock.providers.secret import Secret
from penstock.serve.aws_signature import AwsSignature, refusal
from penstock.serve.hosts import AllowedHosts
from penstock.serve.rejections import Rejection
from penstock.serve.request_head import RequestHead
from penstock.serve.responses import refused

if TYPE_CHECKING:  # an extra
    from penstock.serve.jwt_clients import JwtClients

_KEYS_UNKNOWN = Failure(
    code="ledger_unavailable",
    message="the gateway cannot read its keys now, so it refuses keys that it does not know; try again soon",
    retry_after="2",
)
_NO_KEY = (
    "this request needs an API key: send it as `Authorization: Bearer …`, `x-api-key`, `api-key` or `x-goog-api-key`"
)
_NO_SIGNATURES = (
    "requests that are signed as AWS does are not accepted here: send the gateway's key as "
    "AWS_BEARER_TOKEN_BEDROCK, or ask the gateway's operator to set access_key_secret in [server]"
)
_UNKNOWN_ACCESS_KEY = "this access key is not known"
_UNKNOWN = "this API key is not known"
_MISTYPED = "this API key is mistyped or incomplete: its checksum does not match"
_ROTATED = "this API key was rotated, and this secret has expired: use the new one"
_MISPLACED = (
    "x-penstock-key is sent, so the other headers have credentials for providers, but one of them has a key of this "
    "gateway: send that in x-penstock-key, where it reaches no provider"
)
_REMEDY = (
    "require a key (penstock keys create --name NAME, or [server] keys), which disables this check "
    "against DNS rebinding"
)
_MAX_QUOTED = 100
# The beginning of every JWT: its header is a JSON object in base64.
_JWT_PREFIX = "eyJ"


class Authenticator:
    """Checks the API keys of requests. Refuses all unknown keys until `use` has been called with `known`."""

    def __init__(self) -> None:
        self.hosts = AllowedHosts(())
        """The hosts that a request may name while no key is required. Replace it, never mutate it: see `check_host`."""
        self.jwt: JwtClients | None = None
        """Authenticates clients by their JWTs; None if the configuration has no issuer of such."""
        self.access_key_secret: Secret | None = None
        """The secret of access keys (`access_keys.py`); None if the configuration has none."""
        self._access_keys: tuple[Secret, KeyRing, AccessKeys] | None = None  # made when one is first needed
        self._team_keys: Mapping[str, ClientKey] = {}
        self.use(KeyRing([]), known=False)

    def use(
        self, keys: KeyRing, *, known: bool = True, closed: bool = False, teams: Mapping[str, ClientKey] | None = None
    ) -> None:
        """Replace the keys.

        `known`: these are all keys. `closed`: a key is required, even if there is none. `teams` are the keys of clients
        with a JWT, by the path of their team.
        """
        self._team_keys = teams or {}
        self._keys = keys
        self._known = known
        self._open = known and not closed and not keys

    def authenticate(self, head: RequestHead, exchange: Exchange) -> ClientKey | Rejection | None:
        """The key of a request, or why the request is rejected; None if no key is required."""
        secret = head.secret
        if head.credentials is not None and self._has_own_key(head.credentials):
            return Rejection(_unauthorized(_MISPLACED), "misplaced_key")
        if head.signature is not None and not (self._open and not secret.startswith(ACCESS_KEY)):
            return self._authenticate_signed(head.signature, exchange)
        if self._open and not secret.startswith(PREFIX):
            return self.check_host(head)
        now_ms = time.time() * 1000
        key = self._keys.find(head.digest, now_ms)
        if key is not None:
            return _rejected(key, now_ms)
        if (key := self._keys.rotated(secret, now_ms)) is not None:
            return Rejection(_unauthorized(_ROTATED), "rotated_key", key)
        if not self._known:
            return Rejection(_KEYS_UNKNOWN, "ledger_unavailable")
        if self.jwt is not None and secret.startswith(_JWT_PREFIX):
            found = self.jwt.authenticate(secret, head.digest, self._team_keys, now_ms / 1000)
            if isinstance(found, ClientKey):
                return _rejected(found, now_ms)
            return Rejection(found, "invalid_token" if found.code == "invalid_api_key" else found.code)
        if is_mistyped(secret):
            return Rejection(_unauthorized(_MISTYPED), "mistyped_key")
        return Rejection(_unauthorized(_UNKNOWN if secret else _NO_KEY), "unknown_key" if secret else "no_key")

    def _authenticate_signed(self, signature: AwsSignature, exchange: Exchange) -> ClientKey | Rejection:
        """The key of a request that is signed as AWS does, or why it is rejected."""
        if self.access_key_secret is None:
            return Rejection(_unauthorized(_NO_SIGNATURES), "invalid_signature")
        made = self._access_keys
        if made is None or made[0] is not self.access_key_secret or made[1] is not self._keys:
            keys = AccessKeys(self.access_key_secret.reveal(), self._keys.digests())
            made = self._access_keys = (self.access_key_secret, self._keys, keys)
        found = made[2].find(signature.access_key)
        if found is None:
            unknown = Rejection(_unauthorized(_UNKNOWN_ACCESS_KEY), "unknown_key")
            return unknown if self._known else Rejection(_KEYS_UNKNOWN, "ledger_unavailable")
        access_key, digest = found
        now = time.time()
        body = exchange.pieces or (exchange.body,)
        if problem := refusal(signature, access_key.secret, exchange.request, body, now):
            return Rejection(_unauthorized(problem), "invalid_signature")
        key = self._keys.find(digest, now * 1000)
        if key is None:
            return Rejection(_unauthorized(_ROTATED), "rotated_key", self._keys.expired(digest, now * 1000))
        return _rejected(key, now * 1000)

    def _has_own_key(self, credentials: ClientCredentials) -> bool:
        """Whether one of the credentials for providers is a key of this gateway, which no provider may get."""
        now_s = time.time()
        for secret in credentials.secrets.values():
            digest = digest_of(secret)
            if secret.startswith(PREFIX) or self._keys.find(digest, now_s * 1000) is not None:
                return True
            if self.jwt is not None and self.jwt.issued(secret):
                return True
        return False

    def check_host(self, head: RequestHead) -> Rejection | None:
        """Why a request is rejected because of its host or origin; None if it is allowed or if a key is required.

        A positive result is stored in the head, so that the check is skipped when the client repeats the head.
        """
        hosts = self.hosts
        if not self._open or head.allowed_by is hosts:
            return None
        if not hosts.allows(head.host):
            return Rejection(_host_not_allowed(head.host), "host_not_allowed")
        if head.origin is not None and not hosts.allows_origin(head.origin, head.host):
            return Rejection(_origin_not_allowed(head.origin), "origin_not_allowed")
        head.allowed_by = hosts
        return None


def _rejected(key: ClientKey, now_ms: float) -> ClientKey | Rejection:
    """A key, or why it cannot be used now."""
    message = key.refusal(now_ms)
    if not message:
        return key
    reason = "blocked_key" if key.blocked_ms else "blocked_team"
    if key.unusable(now_ms):
        reason = "revoked_key" if key.revoked_ms is not None and key.revoked_ms <= now_ms else "expired_key"
    return Rejection(_unauthorized(message), reason, key)


def _host_not_allowed(host: str) -> Failure:
    named = f"not to {host[:_MAX_QUOTED]!r}" if host else "and this one has no Host header"
    return refused(
        "no key is required, so only requests to localhost, to an IP address or to a name in [server] hosts are "
        f"allowed, {named}. Add the name there, or {_REMEDY}",
        "host_not_allowed",
    )


def _origin_not_allowed(origin: str) -> Failure:
    return refused(
        "no key is required, so only pages of localhost, of this host or of a name in [server] hosts are "
        f"allowed, not of {origin[:_MAX_QUOTED]!r}. Add the name there, or {_REMEDY}",
        "origin_not_allowed",
    )


def _unauthorized(message: str) -> Failure:
    return Failure(code="invalid_api_key", message=message, retryable=False)

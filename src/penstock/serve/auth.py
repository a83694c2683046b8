"""Authenticator: authenticates every request by the current keys. A key may have expired since the last request.

While no key is required, `Host` and `Origin` are checked instead (`hosts.py`): a page under any name could spend the
providers' keys. Where one is required, a page that does not have it can do nothing.
"""

import time

from penstock.core.failure import Failure
from penstock.gateway.keys.keys import PREFIX, Key, KeyRing, is_mistyped
from penstock.serve.hosts import AllowedHosts
from penstock.serve.request_head import RequestHead
from penstock.serve.responses import refused

_KEYS_UNKNOWN = Failure(
    code="ledger_unavailable",
    message="the gateway cannot read its keys now, and lets nobody in whom it does not know; try again soon",
    retry_after="2",
)
_NO_KEY = "this needs a key: send one as `Authorization: Bearer …`, `x-api-key` or `api-key`"
_UNKNOWN = "this key is not known here; one that was made just now is known within a second"
_MISTYPED = "this key is mistyped, or a part of it is missing: its last digits do not fit the rest"
_ROTATED = "this key was rotated, and what you show has ended: ask for its new secret"
_REMEDY = (
    "require a key (penstock keys create --name NAME, or [server] keys), which ends this check: it guards against DNS "
    "rebinding"
)
_MAX_QUOTED = 100


class Authenticator:
    """Where clients show their keys. It is shut until it has been told which there are."""

    def __init__(self) -> None:
        self.hosts = AllowedHosts(())
        """Those that a request may name while no key is required. To be replaced, not changed."""
        self.use(KeyRing([]), known=False)

    def use(self, keys: KeyRing, *, known: bool = True, closed: bool = False) -> None:
        """Go by these keys from now on.

        `known` says whether they are all; `closed` that a key is needed, even if there is none.
        """
        self._keys = keys
        self._known = known
        self._open = known and not closed and not keys

    def judge(self, reading: RequestHead) -> Key | Failure | None:
        """The key whose secret a client shows, or why it is not let in; None where no key is required."""
        secret = reading.secret
        if self._open and not secret.startswith(PREFIX):
            return self.check_host(reading)
        now_ms = time.time() * 1000
        key = self._keys.find_by(reading.digest, now_ms)
        if key is not None:
            unusable = key.unusable(now_ms) if key.stored else ""
            return _unauthorized(unusable) if unusable else key
        if self._keys.was_rotated(secret, now_ms):
            return _unauthorized(_ROTATED)
        if not self._known:
            return _KEYS_UNKNOWN
        return _unauthorized(_MISTYPED if is_mistyped(secret) else _UNKNOWN if secret else _NO_KEY)

    def check_host(self, reading: RequestHead) -> Failure | None:
        """Why a request is refused by its host or its origin; None where it is not, or where a key is required.

        That a head is allowed is kept in its reading, so that a client that repeats it costs nothing.
        """
        hosts = self.hosts
        if not self._open or reading.allowed_by is hosts:
            return None
        if not hosts.allows(reading.host):
            return _host_not_allowed(reading.host)
        if reading.origin is not None and not hosts.allows_origin(reading.origin, reading.host):
            return _origin_not_allowed(reading.origin)
        reading.allowed_by = hosts
        return None


def _host_not_allowed(host: str) -> Failure:
    named = f"not to {host[:_MAX_QUOTED]!r}" if host else "and this one names no host"
    return refused(
        "no key is required here, so only requests to localhost, to an IP address or to a name that is listed in "
        f"[server] hosts are answered, {named}. Add the name there, or {_REMEDY}",
        "host_not_allowed",
    )


def _origin_not_allowed(origin: str) -> Failure:
    return refused(
        "no key is required here, so only pages of localhost, of this very host or of a name that is listed in "
        f"[server] hosts are answered, not of {origin[:_MAX_QUOTED]!r}. Add the name there, or {_REMEDY}",
        "origin_not_allowed",
    )


def _unauthorized(message: str) -> Failure:
    return Failure(code="invalid_api_key", message=message, retryable=False)

"""Door: who is let in, by the keys that there are now. Every request is judged anew: a key may have ended since."""

import time

from penstock.gateway.failure import Failure
from penstock.gateway.keys import PREFIX, Key, KeyRing, is_mistyped

_KEYS_UNKNOWN = Failure(
    code="ledger_unavailable",
    message="the gateway cannot read its keys now, and lets nobody in whom it does not know; try again soon",
    status=503,
    kind="server_error",
    retry_after="2",
)
_NO_KEY = "this needs a key: send one as `Authorization: Bearer …`, `x-api-key` or `api-key`"
_UNKNOWN = "this key is not known here; one that was made just now is known within a second"
_MISTYPED = "this key is mistyped, or a part of it is missing: its last digits do not fit the rest"
_ROTATED = "this key was rotated, and what you show has ended: ask for its new secret"


class Door:
    """Where clients show their keys. It is shut until it has been told which there are."""

    def __init__(self) -> None:
        self.use(KeyRing([]), known=False)

    def use(self, keys: KeyRing, *, known: bool = True, closed: bool = False) -> None:
        """Go by these keys from now on.

        `known` says whether they are all; `closed` that a key is needed, even if there is none.
        """
        self._keys = keys
        self._known = known
        self._open = known and not closed and not keys

    def judge(self, secret: str, digest: bytes) -> Key | Failure | None:
        """The key whose secret a client shows, or why it is not let in; None where no keys are asked for.

        `digest` is what is kept of that secret.
        """
        if self._open and not secret.startswith(PREFIX):
            return None
        now_ms = time.time() * 1000
        key = self._keys.find_by(digest, now_ms)
        if key is not None:
            unusable = key.unusable(now_ms) if key.stored else ""
            return _unauthorized(unusable) if unusable else key
        if self._keys.was_rotated(secret, now_ms):
            return _unauthorized(_ROTATED)
        if not self._known:
            return _KEYS_UNKNOWN
        return _unauthorized(_MISTYPED if is_mistyped(secret) else _UNKNOWN if secret else _NO_KEY)


def _unauthorized(message: str) -> Failure:
    return Failure(code="invalid_api_key", message=message, status=401, kind="authentication_error", retryable=False)

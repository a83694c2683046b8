"""KeyRing: all keys of clients in memory, by the digests of their secrets."""

import hmac
import math
from collections.abc import Iterable
from typing import NamedTuple

from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.key_secret import digest_of
from penstock.providers.secret import Secret

# The name of the key with which `penstock chat` calls the gateway in its own process, and the source of its secret.
CHAT = "penstock-chat"
_NO_DIGEST = bytes(32)


def configured(given: Iterable[Secret]) -> list[ClientKey]:
    """The keys of the configuration."""
    return [_configured(secret, number) for number, secret in enumerate(given, 1)]


def _configured(secret: Secret, number: int) -> ClientKey:
    name = CHAT if secret.source == CHAT else f"configured-{number}"
    return ClientKey(id=name, name=name, configured=True, digest=digest_of(secret.reveal()))


class _LiveSecret(NamedTuple):
    digest: bytes
    key: ClientKey
    until_ms: float


class KeyRing:
    """Keys by the digests of their secrets, current and previous ones."""

    def __init__(self, keys: Iterable[ClientKey]) -> None:
        keys = list(keys)
        before = [_LiveSecret(key.previous, key, key.previous_until_ms or 0) for key in keys if key.previous]
        present = [_LiveSecret(key.digest, key, math.inf) for key in keys]
        self._secrets = {secret.digest: secret for secret in (*before, *present)}

    def with_keys(self, keys: Iterable[ClientKey]) -> "KeyRing":
        """A ring with further keys. Those of this ring win."""
        joined = KeyRing(keys)
        joined._secrets |= self._secrets
        return joined

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def digests(self) -> list[bytes]:
        """The digests of all secrets."""
        return [digest for digest in self._secrets if digest]

    def find(self, digest: bytes, now_ms: float) -> ClientKey | None:
        """The key with a secret of this digest. Takes the same time for every wrong secret (timing attacks)."""
        secret = self._secrets.get(digest)
        same = hmac.compare_digest(digest, secret.digest if secret is not None else _NO_DIGEST)
        return secret.key if same and secret is not None and now_ms < secret.until_ms else None

    def rotated(self, given: str, now_ms: float) -> ClientKey | None:
        """The key of which this is the previous secret, which is no longer valid."""
        return self.expired(digest_of(given), now_ms)

    def expired(self, digest: bytes, now_ms: float) -> ClientKey | None:
        """The key whose previous secret, which is no longer valid, has this digest."""
        secret = self._secrets.get(digest)
        return secret.key if secret is not None and secret.until_ms <= now_ms else None

"""Access keys for clients that sign their requests as AWS does: an id and a secret, derived from a key of the gateway.

To verify a signature the gateway needs the secret that made it, and of its keys it has only digests. So the pair is
derived from the digest of a key's secret, with the secret of the configuration (`[server] access_key_secret`): without
that one, the digests in the ledger sign nothing. A rotated key has another pair.
"""

import base64
import hmac
from collections.abc import Iterable

from msgspec import Struct

PREFIX = "PSAK"
# Characters after the prefix. The ids of AWS have 20 characters, too.
_ID = 16


class AccessKey(Struct, frozen=True):
    """The pair that a client signs with."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"AccessKey({self.id!r})"  # without the secret


def access_key(secret: str, digest: bytes) -> AccessKey:
    """The pair of the key whose secret has this digest. `secret` is that of the configuration."""
    id, derived = (hmac.digest(secret.encode(), purpose + digest, "sha256") for purpose in (b"id\0", b"secret\0"))
    return AccessKey(f"{PREFIX}{base64.b32encode(id).decode()[:_ID]}", base64.urlsafe_b64encode(derived).decode()[:43])


class AccessKeys:
    """The pairs of all keys, by their ids."""

    def __init__(self, secret: str, digests: Iterable[bytes]) -> None:
        self._digests = {access_key(secret, digest).id: digest for digest in digests}
        self._secret = secret

    def find(self, id: str) -> tuple[AccessKey, bytes] | None:
        """The pair with that id, and the digest of its key's secret."""
        digest = self._digests.get(id)
        return None if digest is None else (access_key(self._secret, digest), digest)

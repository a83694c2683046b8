"""AnswerIds: the ids of kept answers. An id names its call, provider account and client, and cannot be forged.

    <prefix><call: 12 bytes><issuer: 4 bytes><owner: 6 bytes><HMAC: 20 bytes, as base64url>

Clients of one gateway share its providers' accounts, so an id alone must not give access. It is valid only with the key
of the client that got it. The key of the HMAC is stored with the kept answers: everything that serves these answers,
on any machine, has it, and an id of other answers is never valid.
"""

import base64
import hashlib
import hmac
import re

from penstock.gateway.keys.client_key import ClientKey

_CALL, _ISSUER, _OWNER, _MAC = 12, 4, 6, 20
_TEXT_MAC = 32
_PAYLOAD = _CALL + _ISSUER + _OWNER
# 42 bytes are exactly 56 characters of base64url: each id has only one spelling.
_CHARACTERS = 56
_BODY = re.compile(rf"[A-Za-z0-9_-]{{{_CHARACTERS}}}")


class AnswerIds:
    """Makes and verifies ids with one secret."""

    def __init__(self, secret: bytes, prefix: str) -> None:
        self._secret = secret
        self._prefix = prefix

    def owner(self, key: ClientKey | None) -> str:
        """The identity of a client in the store: by its key; all clients without a key are one.

        A key of the configuration is identified by its secret. Its name is its place in a list, which may change. Users
        with a JWT share the key of their team, so each of them is identified by the name in the token, too.
        """
        if key is None:
            return ""
        owner = f"configured-{self._digest(b'key', key.digest)[:8].hex()}" if key.configured else key.id
        return f"{owner}/{self._digest(b'user', key.subject.encode())[:16].hex()}" if key.subject else owner

    def make(self, call_id: str, issuer: str, owner: str) -> str:
        """The id of the answer to a call. `issuer` identifies the provider's account, in hexadecimal."""
        payload = _fixed(call_id.rpartition("_")[2], _CALL) + _fixed(issuer, _ISSUER) + self._owner_tag(owner)
        signed = payload + self._mac(payload)
        return self._prefix + base64.urlsafe_b64encode(signed).decode()

    def is_valid(self, id: str, owner: str) -> bool:
        """Whether this gateway gave the id to this owner."""
        body = id.removeprefix(self._prefix)
        if not id.startswith(self._prefix) or not _BODY.fullmatch(body):
            return False
        signed = base64.urlsafe_b64decode(body)
        payload, mac = signed[:_PAYLOAD], signed[_PAYLOAD:]
        genuine = hmac.compare_digest(mac, self._mac(payload))
        return genuine and hmac.compare_digest(payload[-_OWNER:], self._owner_tag(owner))

    def seal(self, text: str, owner: str) -> str:
        """A text as only this owner can send it back."""
        data = text.encode(errors="surrogatepass")
        return self._prefix + base64.urlsafe_b64encode(self._text_mac(data, owner) + data).decode()

    def unseal(self, sealed: str, owner: str) -> str | None:
        """The text that was sealed for this owner; None if it was not, or was changed."""
        try:
            signed = base64.b64decode(sealed.removeprefix(self._prefix), altchars=b"-_", validate=True)
        except ValueError:
            return None
        mac, data = signed[:_TEXT_MAC], signed[_TEXT_MAC:]
        genuine = hmac.compare_digest(mac, self._text_mac(data, owner))
        return data.decode(errors="surrogatepass") if genuine else None

    def _text_mac(self, data: bytes, owner: str) -> bytes:
        return self._digest(b"text", self._digest(b"owner", owner.encode()) + data)

    def _owner_tag(self, owner: str) -> bytes:
        return self._digest(b"owner", owner.encode())[:_OWNER]

    def _mac(self, payload: bytes) -> bytes:
        return self._digest(b"answer", self._prefix.encode() + payload)[:_MAC]

    def _digest(self, purpose: bytes, data: bytes) -> bytes:
        return hmac.digest(self._secret, purpose + b"\0" + data, "sha256")


def issuer_of(id: str) -> str:
    """The provider account that an id names, in hexadecimal; empty if the id has another form. It is not verified."""
    body = id[-_CHARACTERS:]
    return base64.urlsafe_b64decode(body)[_CALL : _CALL + _ISSUER].hex() if _BODY.fullmatch(body) else ""


def _fixed(hexadecimal: str, size: int) -> bytes:
    """`size` bytes: a hexadecimal number of that length as it is, any other text as the beginning of its digest."""
    try:
        data = bytes.fromhex(hexadecimal)
    except ValueError:
        data = b""
    return data if len(data) == size else hashlib.sha256(hexadecimal.encode()).digest()[:size]

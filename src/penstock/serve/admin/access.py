"""Access: who is let in. The token opens everything; a link that is used once makes a session, which is as good.

A link and a session are each a time, a chance value and a seal (an HMAC) over both: nothing has to be kept of them, and
every worker knows its own. Only that a link has been used is noted, as a file that can be made once.

- The key of links is new with every start, and in a file that only the gateway's user can read (`place.py`): whoever
  can read it may let themselves in, by `penstock open`. A link is good for 15 minutes.
- The key of sessions is made of the token: another token ends them all. A session is good for 12 hours.
"""

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

COOKIE = "penstock_session"
# What the page says with everything that changes something: a form of somebody else's page cannot.
PAGE_HEADER = "x-penstock-page"
LINK_S = 15 * 60
SESSION_S = 12 * 60 * 60
_LONGEST = 200


class Access:
    """Lets in, or not. `used` is the folder in which links are noted that were used, by whichever worker."""

    def __init__(self, link_key: str, used: Path) -> None:
        self._link_key = link_key.encode()
        self._used = used
        self._digest = b""
        self._session_key = b""

    def use(self, token: str) -> None:
        """This is the token from now on."""
        self._digest = _digest(token)
        self._session_key = hmac.digest(token.encode("utf-8", "replace"), b"penstock session", "sha256")

    def has_token(self, headers: Mapping[str, str]) -> bool:
        """Whether the token is shown."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(_digest(given.strip()), self._digest)
        return same and scheme.lower() == "bearer"

    def has_session(self, headers: Mapping[str, str]) -> bool:
        """Whether a session is shown."""
        # By hand: other programs of this machine put cookies there too, whatever their ports, and in any shape.
        cookies = (cookie.strip().partition("=") for cookie in headers.get("cookie", "").split(";"))
        now = time.time()
        return any(_unseal(value, self._session_key, now) is not None for name, _, value in cookies if name == COOKIE)

    def redeem(self, link: str) -> str:
        """The cookie that a link is good for; empty if it is good for nothing, or was used."""
        now = time.time()
        name = _unseal(link, self._link_key, now)
        if name is None or not self._mark(name, now):
            return ""
        session = _seal(now + SESSION_S, self._session_key)
        return f"{COOKIE}={session}; Path=/; Max-Age={SESSION_S}; HttpOnly; SameSite=Lax"

    def _mark(self, name: str, now: float) -> bool:
        """Note that a link is used; False if it was before. What is too old to be used again is forgotten."""
        with suppress(OSError):
            for noted in self._used.iterdir():
                if noted.stat().st_mtime < now - 2 * LINK_S:
                    noted.unlink()
        try:
            os.close(os.open(self._used / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError:
            return False  # it was used; or nobody could tell if it had been
        return True


def is_own(headers: Mapping[str, str]) -> bool:
    """Whether a request comes from no page at all, or from one of this very origin."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    return "origin" not in headers or _names_us(headers)


def proves_page(headers: Mapping[str, str]) -> bool:
    """Whether what is asked comes from our own page for certain: a session alone does not say who uses it."""
    return headers.get(PAGE_HEADER) == "1" and _names_us(headers)


def _names_us(headers: Mapping[str, str]) -> bool:
    """Whether the page that asks came from where it asks; what stands between may have spoken TLS with it."""
    scheme, _, place = headers.get("origin", "").partition("://")
    return scheme in ("http", "https") and place != "" and place == headers.get("host")


def new_link(link_key: str) -> str:
    """The secret of a link that is good from now on."""
    return _seal(time.time() + LINK_S, link_key.encode())


def _seal(until_s: float, key: bytes) -> str:
    """A time, a chance value, and the seal over both."""
    words = f"{int(until_s):x}.{secrets.token_hex(16)}"
    return f"{words}.{hmac.digest(key, words.encode(), 'sha256').hex()}"


def _unseal(text: str, key: bytes, now: float) -> str | None:
    """The chance value, if the seal is ours and the time has not come; else None."""
    words, _, seal = text[:_LONGEST].rpartition(".")
    right = hmac.digest(key, words.encode("utf-8", "replace"), "sha256").hex()
    if not hmac.compare_digest(seal.encode("utf-8", "replace"), right.encode()):
        return None
    until, _, name = words.partition(".")
    return name if int(until, 16) > now else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()

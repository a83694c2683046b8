"""Access: authentication of the admin API. A request needs the admin token or a session cookie; both allow everything.

A one-time link (`penstock open`) creates a session. A link and a session are each an expiry time and a nonce, signed
with an HMAC. So no worker stores them, and every worker can verify those of another. Only the use of a link is stored,
as a file that can be created once.

- The key of links is new with every start, and is in a file that only the gateway's user can read (`endpoint.py`). A
  user who can read that file can create links, with `penstock open`. A link is valid for 15 minutes.
- The key of sessions is derived from the token, so a new token ends all sessions. A session is valid for 12 hours.
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
# The page sends this header with every change. A form of another origin's page cannot set a header (CSRF).
PAGE_HEADER = "x-penstock-page"
LINK_S = 15 * 60
SESSION_S = 12 * 60 * 60
_MAX_CHARS = 200


class Access:
    """Verifies credentials. `used` is the directory in which all workers record the links that were used."""

    def __init__(self, link_key: str, used: Path, *, secure: bool = False) -> None:
        """`secure`: browsers send the cookie over TLS only."""
        self._secure = "; Secure" if secure else ""
        self._link_key = link_key.encode()
        self._used = used
        self._digest = b""
        self._session_key = b""

    def use(self, token: str) -> None:
        """Set the admin token."""
        self._digest = _digest(token)
        self._session_key = hmac.digest(token.encode("utf-8", "replace"), b"penstock session", "sha256")

    def has_token(self, headers: Mapping[str, str]) -> bool:
        """Whether the request has the admin token."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(_digest(given.strip()), self._digest)
        return same and scheme.lower() == "bearer"

    def has_session(self, headers: Mapping[str, str]) -> bool:
        """Whether the request has a valid session cookie."""
        # Parsed by hand: cookies ignore ports, so those of other local programs arrive too, in any syntax.
        cookies = (cookie.strip().partition("=") for cookie in headers.get("cookie", "").split(";"))
        now = time.time()
        return any(_verify(value, self._session_key, now) is not None for name, _, value in cookies if name == COOKIE)

    def redeem(self, link: str) -> str:
        """Exchange a link for a session. Returns the cookie; empty if the link is invalid, expired or used."""
        now = time.time()
        name = _verify(link, self._link_key, now)
        if name is None or not self._record_use(name, now):
            return ""
        session = _sign(now + SESSION_S, self._session_key)
        return f"{COOKIE}={session}; Path=/; Max-Age={SESSION_S}; HttpOnly; SameSite=Lax{self._secure}"

    def _record_use(self, name: str, now: float) -> bool:
        """Record that a link is used. Returns False if it was used before. Removes the records of expired links."""
        with suppress(OSError):
            for record in self._used.iterdir():
                if record.stat().st_mtime < now - 2 * LINK_S:
                    record.unlink()
        try:
            os.close(os.open(self._used / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError:
            return False  # it was used, or its use cannot be recorded
        return True


def is_own(headers: Mapping[str, str]) -> bool:
    """Whether a request was sent by no page, or by a page of this origin (same-origin check against CSRF)."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    return "origin" not in headers or _origin_is_host(headers)


def proves_page(headers: Mapping[str, str]) -> bool:
    """Whether our own page sent a request. A cookie does not prove it: browsers attach it for any page (CSRF)."""
    return headers.get(PAGE_HEADER) == "1" and _origin_is_host(headers)


def _origin_is_host(headers: Mapping[str, str]) -> bool:
    """Whether the Origin equals the Host. The scheme may be https, because a proxy in front may terminate TLS."""
    scheme, _, authority = headers.get("origin", "").partition("://")
    return scheme in ("http", "https") and authority != "" and authority == headers.get("host")


def new_link(link_key: str) -> str:
    """The secret of a new link."""
    return _sign(time.time() + LINK_S, link_key.encode())


def _sign(until_s: float, key: bytes) -> str:
    """An expiry time, a nonce, and the HMAC of both."""
    payload = f"{int(until_s):x}.{secrets.token_hex(16)}"
    return f"{payload}.{hmac.digest(key, payload.encode(), 'sha256').hex()}"


def _verify(text: str, key: bytes, now: float) -> str | None:
    """The nonce, if the HMAC is valid and the time has not passed; otherwise None."""
    payload, _, signature = text[:_MAX_CHARS].rpartition(".")
    expected = hmac.digest(key, payload.encode("utf-8", "replace"), "sha256").hex()
    if not hmac.compare_digest(signature.encode("utf-8", "replace"), expected.encode()):
        return None
    until, _, name = payload.partition(".")
    return name if int(until, 16) > now else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()

"""Access: authentication of the admin API, by the admin token, an API token, a session cookie, or a trusted proxy.

A one-time link (`penstock open`) creates a session of an administrator. A link and a session are each an expiry time
and a nonce, signed with an HMAC. So no worker stores them, and every worker can verify those of another. Only the use
of a link and the end of a session are stored, each as a file that can be created once.

A user who signs in gets a cookie of the same form, signed with another key; the session itself is in the
book, by a digest of the nonce. So are API tokens, by their digest. `identify` returns what is to be looked up there.

A proxy that the configuration lists in `[admin] proxies` can name the user in the header `[admin] user_header`. From
any other address this header is ignored, also from those of `[server] proxies`, which name the client's address only.

- The key of links is new with every start, and is in a file that only the gateway's user can read (`endpoint.py`). A
  user who can read that file can create links, with `penstock open`. A link is valid for 15 minutes.
- The key of these sessions is derived from the token, so a new token ends all of them. A session is valid for 12 hours,
  also after a restart. That it has ended is recorded in the state directory, so it is not valid again after one.
"""

import hmac
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from penstock.gateway.config import AdminSettings, Config
from penstock.gateway.keys.key_secret import digest_of, is_mistyped
from penstock.gateway.people.roles import Principal
from penstock.gateway.people.tokens import TOKEN_PREFIX
from penstock.serve.edge import TrustedProxies

COOKIE = "penstock_session"
# The page sends this header with every change. A form of another origin's page cannot set a header (CSRF).
PAGE_HEADER = "x-penstock-page"
LINK_S = 15 * 60
SESSION_S = 12 * 60 * 60
_MAX_CHARS = 200
_MAX_GROUPS = 1_000
ADMIN_TOKEN = Principal(name="admin token", via="admin token", role="admin")
LINK = Principal(name="link", via="session", role="admin")


class StoredCredential(NamedTuple):
    """A credential that has to be looked up in the book, by its digest."""

    kind: Literal["token", "session"]
    digest: bytes


class Access:
    """Verifies credentials. All workers record in `used` the links that were used, and in `ended` the sessions that
    have ended; the second directory must outlive the gateway."""

    def __init__(self, link_key: str, used: Path, ended: Path, *, secure: bool = False) -> None:
        """`secure`: browsers send the cookie over TLS only."""
        self._tls = secure
        self.secure = ""
        """The attribute of cookies that browsers send over TLS only."""
        self.login_key = b""
        """Signs what a browser keeps while its user signs in."""
        self._link_key = link_key.encode()
        self._used = used
        self._ended = ended
        self._digest = b""
        self._session_key = b""
        self._login_key = b""
        self._proxies = TrustedProxies(())
        self._identity_proxies = TrustedProxies(())
        self._settings = AdminSettings()

    def use(self, token: str, config: Config | None = None) -> None:
        """Set the admin token, and what the configuration says about users."""
        self._digest = digest_of(token)
        self._session_key = _derived(token, b"penstock session")
        self._login_key = _derived(token, b"penstock login session")
        self.login_key = _derived(token, b"penstock sign-in")
        https = config is not None and config.admin.url.startswith("https://")
        self.secure = "; Secure" if self._tls or https else ""
        if config is not None:
            self._proxies = TrustedProxies(config.server.proxies)
            self._identity_proxies = TrustedProxies(config.admin.proxies)
            self._settings = config.admin

    def identify(self, headers: Mapping[str, str], peer: str = "") -> Principal | StoredCredential | None:
        """The user of a request, or the credential to look up; None if there is none that could be valid."""
        if self.has_token(headers):
            return ADMIN_TOKEN
        secret = _bearer(headers)
        if secret.startswith(TOKEN_PREFIX) and not is_mistyped(secret, TOKEN_PREFIX):
            return StoredCredential("token", digest_of(secret))
        return self._of_cookie(headers) or self._of_proxy(headers, peer)

    def has_token(self, headers: Mapping[str, str]) -> bool:
        """Whether the request has the admin token."""
        return hmac.compare_digest(digest_of(_bearer(headers)), self._digest)

    def origin(self, headers: Mapping[str, str]) -> str:
        """The address of the admin API and its page, as clients see it. The Host header was checked."""
        if self._settings.url:
            return self._settings.url.rstrip("/")
        return f"{'https' if self._tls else 'http'}://{headers.get('host', '')}"

    def address_of(self, headers: Mapping[str, str], peer: str) -> str:
        """The address of a client, behind trusted proxies."""
        return self._proxies.client(peer, headers)

    def _of_cookie(self, headers: Mapping[str, str]) -> Principal | StoredCredential | None:
        now = time.time()
        for value in cookies(headers, COOKIE):
            nonce = verify(value, self._session_key, now)
            if nonce is not None and not self._has_ended(nonce):
                return LINK
            nonce = verify(value, self._login_key, now)
            if nonce is not None:
                return StoredCredential("session", digest_of(nonce))
        return None

    def _of_proxy(self, headers: Mapping[str, str], peer: str) -> Principal | None:
        settings = self._settings
        name = headers.get(settings.user_header.lower(), "") if settings.user_header else ""
        if not is_user_name(name) or not self._identity_proxies.trusts(peer):
            return None
        groups = headers.get(settings.groups_header.lower(), "").split(",", _MAX_GROUPS)
        return Principal.of(name, "proxy", settings.group_roles.grants(group.strip() for group in groups))

    def new_login(self, length_s: float) -> tuple[str, bytes]:
        """The cookie of a user who has signed in, and the digest by which its session is stored."""
        value = sign(time.time() + length_s, self._login_key)
        nonce = verify(value, self._login_key, time.time()) or ""
        return self._cookie(value, int(length_s)), digest_of(nonce)

    def end_link_session(self, headers: Mapping[str, str]) -> None:
        """End the session of a link."""
        now = time.time()
        for value in cookies(headers, COOKIE):
            nonce = verify(value, self._session_key, now)
            if nonce is not None:
                self._record(self._ended, nonce, now - 2 * SESSION_S)

    @property
    def no_cookie(self) -> str:
        """The header that deletes the cookie of a session."""
        return self._cookie("", 0)

    def _cookie(self, value: str, length_s: int) -> str:
        return f"{COOKIE}={value}; Path=/; Max-Age={length_s}; HttpOnly; SameSite=Lax{self.secure}"

    def _has_ended(self, nonce: str) -> bool:
        return (self._ended / nonce).exists()

    def redeem(self, link: str) -> str:
        """Exchange a link for a session. Returns the cookie; empty if the link is invalid, expired or used."""
        now = time.time()
        name = verify(link, self._link_key, now)
        if name is None or not self._record(self._used, name, now - 2 * LINK_S):
            return ""
        return self._cookie(sign(now + SESSION_S, self._session_key), SESSION_S)

    def _record(self, folder: Path, name: str, expired_s: float) -> bool:
        """Record that a link is used, or that a session has ended. Returns False if that was recorded before.

        Removes the records that are older than `expired_s`.
        """
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            for record in folder.iterdir():
                if record.stat().st_mtime < expired_s:
                    record.unlink()
        try:
            os.close(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
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
    return sign(time.time() + LINK_S, link_key.encode())


def is_user_name(name: str) -> bool:
    """Whether a text can be the name of a user: not one that a token, a link or a user with an id could have."""
    reserved = name.startswith("token:") or name in (ADMIN_TOKEN.name, LINK.name) or "<" in name or ">" in name
    return 0 < len(name) <= _MAX_CHARS and name.isprintable() and name == name.strip() and not reserved


def cookies(headers: Mapping[str, str], wanted: str) -> list[str]:
    """The values of all cookies with a name.

    Parsed by hand: cookies ignore ports, so those of other local programs arrive too, in any syntax.
    """
    given = (cookie.strip().partition("=") for cookie in headers.get("cookie", "").split(";"))
    return [value for name, _, value in given if name == wanted]


def sign(until_s: float, key: bytes, text: str = "") -> str:
    """An expiry time, a text or else a nonce, and the HMAC of both."""
    payload = f"{int(until_s):x}.{text or secrets.token_hex(16)}"
    return f"{payload}.{hmac.digest(key, payload.encode(), 'sha256').hex()}"


def verify(signed: str, key: bytes, now: float) -> str | None:
    """The text or nonce, if the HMAC is valid and the time has not passed; otherwise None."""
    payload, _, signature = signed.rpartition(".")
    expected = hmac.digest(key, payload.encode("utf-8", "replace"), "sha256").hex()
    if not hmac.compare_digest(signature.encode("utf-8", "replace"), expected.encode()):
        return None
    until, _, text = payload.partition(".")
    return text if int(until, 16) > now else None


def _bearer(headers: Mapping[str, str]) -> str:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def _derived(token: str, purpose: bytes) -> bytes:
    return hmac.digest(token.encode("utf-8", "replace"), purpose, "sha256")

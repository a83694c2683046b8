"""Google: access tokens for Vertex AI, from a service account or the application-default credentials.

google-auth finds the credentials (GOOGLE_APPLICATION_CREDENTIALS, gcloud, the machine's own account) and gets the
tokens, in a thread. A token is used by all calls. Shortly before it expires, the next request starts a refresh and
still uses it. Calls wait for a refresh only if there is no valid token; there is one refresh at a time.

This module needs the packages google-auth and requests (the extra `google`), and is imported only if a provider has
`auth = "google"`.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC
from functools import partial
from typing import Any

import google.auth
import requests
from google.auth.transport.requests import Request
from msgspec import Struct

from penstock.http.client import UpstreamError

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
# As google-auth does: a machine's own account has no newer token before.
_EARLY_S = 225.0
# After a failed refresh of a token that is still valid.
_PAUSE_S = 10.0
# Of a request for a token; and of a call that waits for one. google-auth tries again a few times.
_REQUEST_S, _WAIT_S = 10.0, 30.0
_NO_TOKEN = (
    "the gateway has no access token for this provider; its operator must set GOOGLE_APPLICATION_CREDENTIALS to the "
    "file of a service account, or run: gcloud auth application-default login"
)
# The codes of RFC 6749. What else an error says may quote credentials.
_CODES = (
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "access_denied",
)


class AccessToken(Struct, frozen=True):
    """An access token, and the headers of requests with it."""

    token: str
    lines: bytes
    expires: float

    def __repr__(self) -> str:
        return "AccessToken(***)"


class GoogleCredentials:
    """The application-default credentials of this process. `warn` gets what the operator should know."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._source: Any = None  # of google-auth
        self._current = AccessToken("", b"", 0.0)
        self._refreshing: asyncio.Task[str] | None = None
        self._paused_until = 0.0

    @property
    def fresh(self) -> bool:
        """Whether there is a valid token."""
        return time.time() < self._current.expires

    async def refresh(self) -> None:
        """Wait for a token if there is no valid one; raises `UpstreamError`."""
        if self.fresh:
            return
        task = self._begin()
        await asyncio.wait((task,), timeout=_WAIT_S)
        reason = task.result() if task.done() else "no answer"
        if reason:
            raise UpstreamError("upstream_auth", f"{_NO_TOKEN} ({reason})")

    def headers(self, url: str, body: bytes) -> bytes:  # noqa: ARG002 - a token is for every request
        """The lines of the headers with the token. Starts a refresh if it expires soon."""
        if time.time() > self._current.expires - _EARLY_S and time.monotonic() >= self._paused_until:
            self._begin()
        return self._current.lines

    def secrets(self) -> tuple[str, ...]:
        """The token."""
        return (self._current.token,)

    def _begin(self) -> asyncio.Task[str]:
        """The refresh that is in progress, or a new one. Its result is why it failed."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
        return self._refreshing

    async def _refresh(self) -> str:
        try:
            self._current = await asyncio.to_thread(self._load)
        except Exception as error:  # noqa: BLE001 - of whichever kind of credentials
            self._source = None  # its file may be replaced
            reason = _described(error)
            if self.fresh:
                self._paused_until = time.monotonic() + _PAUSE_S
                self._warn(f"an access token of Google was not refreshed, the old one is used: {reason}")
            return reason
        return ""

    def _load(self) -> AccessToken:
        if self._source is None:
            self._source, _ = google.auth.default(scopes=[_SCOPE])
        source, headers = self._source, dict[str, str]()
        with requests.Session() as session:
            source.refresh(partial(Request(session), timeout=_REQUEST_S))
        source.apply(headers)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        expires = source.expiry.replace(tzinfo=UTC).timestamp() if source.expiry is not None else float("inf")
        return AccessToken(source.token, lines.encode("latin-1"), expires)


def _described(error: Exception) -> str:
    """The kind of an error, and its code if it is one of OAuth."""
    text = str(error)
    return ": ".join((type(error).__name__, *(code for code in _CODES if code in text)))

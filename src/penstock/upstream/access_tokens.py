"""Access tokens: requests that carry a token which expires, and is got from an identity service.

A thread gets the tokens. It finds the credentials anew for each token, because their files may be replaced. A token is
used by all calls. Shortly before it expires, the next request starts a refresh and still uses it. Calls wait for a
refresh only if there is no valid token; there is one refresh at a time.
"""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from penstock.http.upstream_connection import UpstreamError

# Some identity services, such as that of a virtual machine, have no newer token before.
_EARLY_S = 225.0
# After a refresh of a valid token that failed, or brought the same one.
_PAUSE_S = 10.0
# Of a call that waits for a token. The libraries try again a few times.
_WAIT_S = 30.0
# The codes of RFC 6749, and those of Entra ID. What else an error says may quote credentials.
_CODE = re.compile(
    r"\b(?:invalid_(?:request|client|grant|scope)|unauthorized_client|unsupported_grant_type|access_denied|AADSTS\d+)\b"
)


class AccessToken(Struct, frozen=True):
    """An access token, and the headers of requests with it."""

    token: str
    lines: bytes
    expires: float

    def __repr__(self) -> str:
        return "AccessToken(***)"


class TokenSource(Protocol):
    """Where tokens come from. It is called in a thread, once at a time."""

    name: str
    """Whose tokens they are, for messages."""
    remedy: str
    """What the operator must do if there is no token."""

    def load(self) -> AccessToken:
        """Find the credentials, and get a token. What it raises depends on the library."""


class TokenCredentials:
    """Authorizes requests with tokens of one source. `warn` gets what the operator should know."""

    def __init__(self, source: TokenSource, warn: Callable[[str], None]) -> None:
        self._source = source
        self._warn = warn
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
            no_token = "the gateway has no access token for this provider; its operator must"
            raise UpstreamError("upstream_auth", f"{no_token} {self._source.remedy} ({reason})")

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
            loaded = await asyncio.to_thread(self._source.load)
        except Exception as error:  # noqa: BLE001 - of whichever kind of credentials
            reason = ": ".join((type(error).__name__, *dict.fromkeys(_CODE.findall(str(error)))))
            if self.fresh:
                self._paused_until = time.monotonic() + _PAUSE_S
                self._warn(f"an access token of {self._source.name} was not refreshed, the old one is used: {reason}")
            return reason
        if loaded.token == self._current.token:  # there is no newer one yet
            self._paused_until = time.monotonic() + _PAUSE_S
        self._current = loaded
        return ""

"""Requests that are authorized when they are sent: with a signature, or with an access token that expires.

Finding or refreshing credentials may read files and ask other services, so a thread does it, before a connection is
opened. The headers are made for each attempt.
"""

from typing import Protocol

from penstock.http.client import UpstreamConnection
from penstock.upstream.remote import Remote, RemoteEndpoint


class RequestCredentials(Protocol):
    """Credentials that authorize each request."""

    @property
    def fresh(self) -> bool:
        """Whether a request can be authorized now, without a refresh."""

    async def refresh(self) -> None:
        """Load or refresh the credentials if need be; raises `UpstreamError`."""

    def headers(self, url: str, body: bytes) -> bytes:
        """The lines of the headers that authorize this request."""

    def secrets(self) -> tuple[str, ...]:
        """The values that must not be disclosed."""


class AuthorizedRemote:
    """Makes endpoints of a provider whose requests are authorized by such credentials."""

    def __init__(self, remote: Remote, credentials: RequestCredentials) -> None:
        self._remote = remote
        self._credentials = credentials

    def endpoint(self, url: str, headers: dict[str, str]) -> "AuthorizedEndpoint":
        """The endpoint at a URL; every request to it has these headers, and those of the credentials."""
        return AuthorizedEndpoint(self._remote.endpoint(url, headers), url, self._credentials)


class AuthorizedEndpoint:
    """One URL to which authorized requests are sent."""

    def __init__(self, endpoint: RemoteEndpoint, url: str, credentials: RequestCredentials) -> None:
        self._endpoint = endpoint
        self._url = url
        self._credentials = credentials

    def request(self, body: bytes, headers: bytes = b"") -> bytes:
        """The bytes of a whole request with this body, authorized now."""
        return self._endpoint.request(body, headers + self._credentials.headers(self._url, body))

    def secrets(self) -> tuple[str, ...]:
        """The values of the credentials that must not be disclosed."""
        return self._credentials.secrets()

    def idle_connection(self) -> UpstreamConnection | None:
        """A connection that was kept; none while the credentials need a refresh, which `open` does."""
        return self._endpoint.idle_connection() if self._credentials.fresh else None

    async def open(self, timeout_s: float) -> UpstreamConnection:
        """Refresh the credentials if need be, and open a new connection; raises `UpstreamError`."""
        await self._credentials.refresh()
        return await self._endpoint.open(timeout_s)

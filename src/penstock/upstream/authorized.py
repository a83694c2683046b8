"""Requests that are authorized when they are sent: with a signature, or with an access token that expires.

Finding or refreshing credentials may read files and ask other services, so a thread does it, before a connection is
opened. The headers are made for each attempt.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from penstock.http.upstream_connection import RequestBytes, UpstreamConnection
from penstock.providers.provider import Provider
from penstock.upstream.access_tokens import TokenCredentials
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

    def request(self, body: bytes, headers: bytes = b"") -> RequestBytes:
        """The bytes of a whole request with this body, authorized now."""
        return self._endpoint.request(body, headers + self._credentials.headers(self._url, body))

    async def large_request(self, body: bytes, headers: bytes = b"") -> RequestBytes:
        """The bytes of a request with a large body, signed in a thread: that takes a millisecond per megabyte."""
        await self._credentials.refresh()
        return await asyncio.to_thread(self.request, body, headers)

    @property
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


def credentials_of(provider: Provider, warn: Callable[[str], None]) -> RequestCredentials:
    """The credentials that authorize requests to a provider without a key. Each kind needs the extra of its name.

    `warn` gets what the operator should know.
    """
    return _BY_AUTH[provider.auth](provider, warn)


def _aws(provider: Provider, _: Callable[[str], None]) -> RequestCredentials:
    from penstock.upstream.aws import AwsCredentials  # noqa: PLC0415 - an extra

    return AwsCredentials(provider.profile)


def _google(provider: Provider, warn: Callable[[str], None]) -> RequestCredentials:
    from penstock.upstream.google import GoogleTokens  # noqa: PLC0415 - an extra

    return TokenCredentials(GoogleTokens(provider.scope), warn)


def _azure(provider: Provider, warn: Callable[[str], None]) -> RequestCredentials:
    from penstock.upstream.azure import AzureTokens  # noqa: PLC0415 - an extra

    return TokenCredentials(AzureTokens(provider.scope), warn)


_BY_AUTH = {"aws": _aws, "google": _google, "azure": _azure}

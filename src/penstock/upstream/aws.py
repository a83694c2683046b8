"""AWS: requests that are signed with AWS credentials (Signature Version 4), for Amazon Bedrock.

botocore finds the credentials (environment, profile, role, container, instance) and makes the signature. Finding or
refreshing credentials may read files and ask other services, so a thread does it, before a connection is opened. A
signature is made for each attempt, because it contains the time.

This module needs the package botocore (the extra `aws`), and is imported only if a provider has `auth = "aws"`.
"""

import asyncio
import re
from typing import Any, Protocol
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError
from botocore.session import Session

from penstock.http.client import UpstreamConnection, UpstreamError
from penstock.upstream.remote import Remote, RemoteEndpoint

_SERVICE = "bedrock"
_REGION = re.compile(r"\.([a-z]{2}(?:-[a-z]+)+-\d+)\.")
_DEFAULT_REGION = "us-east-1"
_NO_CREDENTIALS = (
    "the gateway has no AWS credentials for this provider; its operator must set AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, a profile, or a role"
)
# The header that every request to an endpoint has, and that the signature covers.
_CONTENT_TYPE = "application/json"


class Credentials(Protocol):
    """The credentials of botocore: an access key, its secret, and perhaps a session token."""

    access_key: str
    secret_key: str
    token: str | None


class AwsCredentials:
    """The credentials of one profile, or of the usual chain. A thread loads and refreshes them."""

    def __init__(self, profile: str = "") -> None:
        self._session = Session(profile=profile or None)
        self._source: Any = None  # of botocore
        self.current: Credentials | None = None
        self.region = _DEFAULT_REGION
        """The region that the profile or the environment names, for addresses that name none."""

    @property
    def fresh(self) -> bool:
        """Whether there are credentials that need no refresh."""
        needs_refresh = getattr(self._source, "refresh_needed", None)
        return self.current is not None and not (needs_refresh is not None and needs_refresh())

    async def refresh(self) -> None:
        """Load or refresh the credentials; raises `UpstreamError`."""
        if self.fresh:
            return
        try:
            self.current = await asyncio.to_thread(self._load)
        except (BotoCoreError, OSError, ValueError) as error:
            # Its text may quote what a program or a file says, so only its kind is reported.
            raise UpstreamError("upstream_auth", f"{_NO_CREDENTIALS} ({type(error).__name__})") from None
        if self.current is None:
            raise UpstreamError("upstream_auth", _NO_CREDENTIALS)

    def _load(self) -> Credentials | None:
        self.region = self._session.get_config_variable("region") or _DEFAULT_REGION
        source = self._source = self._source or self._session.get_credentials()
        return source.get_frozen_credentials() if source is not None else None


class SignedRemote:
    """Makes endpoints of a provider whose requests are signed with AWS credentials."""

    def __init__(self, remote: Remote, credentials: AwsCredentials) -> None:
        self._remote = remote
        self._credentials = credentials

    def endpoint(self, url: str, headers: dict[str, str]) -> "SignedEndpoint":
        """The endpoint at a URL; every request to it has these headers, and a signature."""
        return SignedEndpoint(self._remote.endpoint(url, headers), url, self._credentials)


class SignedEndpoint:
    """One URL to which signed requests are sent."""

    def __init__(self, endpoint: RemoteEndpoint, url: str, credentials: AwsCredentials) -> None:
        self._endpoint = endpoint
        self._url = url
        self._credentials = credentials
        named = _REGION.search(urlsplit(url).hostname or "")
        self._region = named[1] if named is not None else ""

    def request(self, body: bytes, headers: bytes = b"") -> bytes:
        """The bytes of a whole request with this body, signed now."""
        signed = AWSRequest("POST", self._url, data=body, headers={"content-type": _CONTENT_TYPE})
        region = self._region or self._credentials.region
        SigV4Auth(self._credentials.current, _SERVICE, region).add_auth(signed)
        lines = [
            f"{name.lower()}: {value}\r\n" for name, value in signed.headers.items() if name.lower() != "content-type"
        ]
        return self._endpoint.request(body, headers + "".join(lines).encode("latin-1"))

    def idle_connection(self) -> UpstreamConnection | None:
        """A connection that was kept; none while the credentials need a refresh, which `open` does."""
        return self._endpoint.idle_connection() if self._credentials.fresh else None

    async def open(self, timeout_s: float) -> UpstreamConnection:
        """Refresh the credentials if need be, and open a new connection; raises `UpstreamError`."""
        await self._credentials.refresh()
        return await self._endpoint.open(timeout_s)

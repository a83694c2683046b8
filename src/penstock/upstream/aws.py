"""AWS: requests that are signed with AWS credentials (Signature Version 4), for Amazon Bedrock.

botocore finds the credentials (environment, profile, role, container, instance) and makes the signature. A signature
is made for each attempt, because it contains the time.

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

from penstock.http.upstream_connection import UpstreamError

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

    def headers(self, url: str, body: bytes) -> bytes:
        """The lines of the headers of this request, signed now."""
        signed = AWSRequest("POST", url, data=body, headers={"content-type": _CONTENT_TYPE})
        named = _REGION.search(urlsplit(url).hostname or "")
        SigV4Auth(self.current, _SERVICE, named[1] if named is not None else self.region).add_auth(signed)
        lines = [
            f"{name.lower()}: {value}\r\n" for name, value in signed.headers.items() if name.lower() != "content-type"
        ]
        return "".join(lines).encode("latin-1")

    def secrets(self) -> tuple[str, ...]:
        """The secret of the access key, and the session token."""
        return tuple(filter(None, (self.current.secret_key, self.current.token))) if self.current is not None else ()

    def _load(self) -> Credentials | None:
        self.region = self._session.get_config_variable("region") or _DEFAULT_REGION
        source = self._source = self._source or self._session.get_credentials()
        return source.get_frozen_credentials() if source is not None else None

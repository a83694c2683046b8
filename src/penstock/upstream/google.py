"""Google: access tokens for Vertex AI, from a service account or the application-default credentials.

google-auth finds the credentials (GOOGLE_APPLICATION_CREDENTIALS, gcloud, the machine's own account) and gets the
tokens.

This module needs the packages google-auth and requests (the extra `google`), and is imported only if a provider has
`auth = "google"`.
"""

from datetime import UTC
from functools import partial
from typing import Any

import google.auth
import requests
from google.auth.transport.requests import Request

from penstock.upstream.access_tokens import AccessToken

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
# Of a request for a token. google-auth tries again a few times.
_REQUEST_S = 10.0


class GoogleTokens:
    """Tokens for the application-default credentials of this process."""

    name = "Google"
    remedy = (
        "set GOOGLE_APPLICATION_CREDENTIALS to the file of a service account, or run: gcloud auth "
        "application-default login"
    )

    def __init__(self, scope: str = "") -> None:
        self._scope = scope or _SCOPE

    def load(self) -> AccessToken:
        """Find the credentials, and get a token."""
        credentials: Any = google.auth.default(scopes=[self._scope])[0]
        headers = dict[str, str]()
        with requests.Session() as session:
            credentials.refresh(partial(Request(session), timeout=_REQUEST_S))
        credentials.apply(headers)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        expires = credentials.expiry.replace(tzinfo=UTC).timestamp() if credentials.expiry is not None else float("inf")
        return AccessToken(credentials.token, lines.encode("latin-1"), expires)

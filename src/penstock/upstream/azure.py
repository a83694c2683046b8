"""Azure: access tokens of Microsoft Entra ID, for Azure OpenAI and for Claude in Microsoft Foundry.

azure-identity finds the credentials and gets the tokens: for a service principal with a secret or a certificate, by
workload identity federation, for the managed identity of the machine, or with the Azure CLI.

This module needs the package azure-identity (the extra `azure`), and is imported only if a provider has
`auth = "azure"`.
"""

import logging

import requests
from azure.core.pipeline.transport import RequestsTransport
from azure.identity import DefaultAzureCredential
from requests.adapters import HTTPAdapter

from penstock.upstream.access_tokens import AccessToken

_SCOPE = "https://cognitiveservices.azure.com/.default"
# Of a request for a token, and of a program such as the Azure CLI. azure-identity tries again a few times.
_REQUEST_S = 10
# Loggers that quote what identity services answer.
_LOGGERS = ("azure", "msal")


class _ClosingAdapter(HTTPAdapter):
    """Closes its connections with its session. Errors of azure-identity would keep them until garbage is collected."""

    def close(self) -> None:
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            for key in manager.pools.keys():  # noqa: SIM118 - urllib3 has no iterator of them
                manager.pools[key].close()
        super().close()


class AzureTokens:
    """Tokens for one scope, for the identity that the environment of this process names."""

    name = "Entra ID"
    remedy = (
        "set AZURE_TENANT_ID and AZURE_CLIENT_ID with AZURE_CLIENT_SECRET, AZURE_CLIENT_CERTIFICATE_PATH or "
        "AZURE_FEDERATED_TOKEN_FILE, give the machine a managed identity, or run: az login"
    )

    def __init__(self, scope: str = "") -> None:
        for name in _LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)  # `TokenCredentials` reports failures
        self._scope = scope or _SCOPE

    def load(self) -> AccessToken:
        """Find the credentials, and get a token."""
        with requests.Session() as session:
            for scheme in ("http://", "https://"):
                session.mount(scheme, _ClosingAdapter())
            transport = RequestsTransport(
                session=session, session_owner=False, connection_timeout=_REQUEST_S, read_timeout=_REQUEST_S
            )
            credential = DefaultAzureCredential(transport=transport, process_timeout=_REQUEST_S)
            found = credential.get_token(self._scope)
        return AccessToken(found.token, f"authorization: Bearer {found.token}\r\n".encode("latin-1"), found.expires_on)

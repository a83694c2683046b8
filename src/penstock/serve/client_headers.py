"""The headers of clients with keys and credentials, and those that a provider gets with a client's own credential.

A client sends one key: that of the gateway, in the header that its SDK uses. If it sends `x-penstock-key`, that header
alone has the gateway's key, and what is in the headers of SDKs is a credential of the client's own for a provider. So
neither is ever tried as the other: without `x-penstock-key`, no header is forwarded as a credential, and with it, no
other header authenticates the client.
"""

from collections.abc import Mapping
from urllib.parse import parse_qs

from penstock.gateway.record.client_credentials import ClientCredentials

GATEWAY_KEY = "x-penstock-key"
_BEARER = "authorization"
_GOOGLE = "x-goog-api-key"
_KEYS = ("x-api-key", "api-key", _GOOGLE)
# What a provider gets with the client's own credential, besides the headers that the client's dialect forwards: which
# account of the login is meant, and which program asks, because subscriptions are limited to programs.
_WITH_CREDENTIAL = (
    *("chatgpt-account-id", "openai-organization", "openai-project", "x-goog-user-project"),
    *("user-agent", "x-app", "originator", "version"),
)
# The path below which all paths of the Gemini API are.
_MODELS = "/models"


def read_keys(headers: Mapping[str, str], path: str, query: str) -> tuple[str, ClientCredentials | None]:
    """The gateway's key, which is empty if there is none, and the client's own credentials."""
    given = _credentials(headers, path, query)
    if GATEWAY_KEY not in headers:
        return next(iter(given.values()), ""), None
    account = {name: headers[name] for name in _WITH_CREDENTIAL if name in headers}
    return headers[GATEWAY_KEY].strip(), ClientCredentials(given, account) if given else None


def _credentials(headers: Mapping[str, str], path: str, query: str) -> dict[str, str]:
    """The keys in the headers of SDKs, by header. An empty one does not hide the others."""
    scheme, _, token = headers.get(_BEARER, "").partition(" ")
    given = {_BEARER: token.strip() if scheme.lower() == "bearer" else ""}
    given |= {name: headers.get(name, "") for name in _KEYS}
    if "key=" in query and (path == _MODELS or path.startswith(f"{_MODELS}/")):  # as clients of the Gemini API do
        given[_GOOGLE] = given[_GOOGLE] or parse_qs(query).get("key", [""])[0]
    return {name: secret for name, secret in given.items() if secret}

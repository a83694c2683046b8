"""Microsoft's side of access tokens: Entra ID for service principals, and the endpoint of a managed identity."""

import ssl
import time
from pathlib import Path
from typing import Any

import trustme
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from tests.upstream.token_server import Form, TokenServer

ENTRA = "login.microsoftonline.com"
TENANT, CLIENT = "11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-000000000000"
TOKEN = "eyJ.canary-entra-token-"
SECRET = "canary-client-secret~0123456789"
FEDERATED = "canary.federated.token"
HEADER = "canary-identity-header"
SCOPE = "https://cognitiveservices.azure.com/.default"
# What azure-identity reads, and a test must not take over from this machine.
VARIABLES = (
    *("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH"),
    *("AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST", "AZURE_TOKEN_CREDENTIALS", "AZURE_USERNAME"),
    *("IDENTITY_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT", "IMDS_ENDPOINT"),
)


class EntraServer(TokenServer):
    """Entra ID behind a proxy, with a certificate of its own CA; and a managed identity, over HTTP."""

    token = TOKEN

    def __init__(self, folder: Path) -> None:
        self.scope = SCOPE
        self._folder = folder
        self._authority = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert(ENTRA).configure_cert(context)
        own = self._authority.issue_cert("gateway.example", key_type=trustme.KeyType.RSA)
        self._certificate = own.private_key_and_cert_chain_pem.bytes()
        self._public_key = RSAKey.import_key(own.cert_chain_pems[0].bytes())
        super().__init__(context)

    def service_principal(self, secret: str = SECRET) -> dict[str, str]:
        """The variables of a service principal with a secret."""
        return self._entra() | {"AZURE_CLIENT_SECRET": secret}

    def certificate(self) -> dict[str, str]:
        """The variables of a service principal with a certificate."""
        return self._entra() | {"AZURE_CLIENT_CERTIFICATE_PATH": self._file("client.pem", self._certificate)}

    def workload(self) -> dict[str, str]:
        """The variables of workload identity federation."""
        return self._entra() | {"AZURE_FEDERATED_TOKEN_FILE": self._file("federated", FEDERATED.encode())}

    def managed_identity(self) -> dict[str, str]:
        """The variables of a machine with a managed identity."""
        return {"IDENTITY_ENDPOINT": f"{self.url}/identity", "IDENTITY_HEADER": HEADER}

    def _entra(self) -> dict[str, str]:
        bundle = self._file("ca.pem", self._authority.cert_pem.bytes())
        proxied = {"HTTPS_PROXY": self.url, "REQUESTS_CA_BUNDLE": bundle}
        return {"AZURE_TENANT_ID": TENANT, "AZURE_CLIENT_ID": CLIENT, **proxied}

    def _file(self, name: str, content: bytes) -> str:
        (self._folder / name).write_bytes(content)
        return str(self._folder / name)

    def answer(self, path: str, form: Form, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """The metadata of the tenant, or a token. An error quotes what was sent, as no error should."""
        if path == "/identity":
            return self._of_machine(form, headers)
        base = f"https://{ENTRA}/{TENANT}"
        if path == "/common/discovery/instance":
            return 200, {"tenant_discovery_endpoint": f"{base}/v2.0/.well-known/openid-configuration", "metadata": []}
        if path == f"/{TENANT}/v2.0/.well-known/openid-configuration":
            authorize, token = f"{base}/oauth2/v2.0/authorize", f"{base}/oauth2/v2.0/token"
            return 200, {"issuer": f"{base}/v2.0", "authorization_endpoint": authorize, "token_endpoint": token}
        assert path == f"/{TENANT}/oauth2/v2.0/token"
        self.asked += 1
        usual = (form["grant_type"], form["client_id"], form["scope"]) == ("client_credentials", CLIENT, self.scope)
        if self.broken or not usual or not self._is_valid(form):
            return 401, {"error": "invalid_client", "error_description": f"AADSTS7000215: Invalid: {form}"}
        return 200, {"token_type": "Bearer", "expires_in": self.life_s, "access_token": self.next_token()}

    def _of_machine(self, form: Form, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.asked += 1
        sent = {name.lower(): value for name, value in headers.items()}.get("x-identity-header")
        if self.broken or sent != HEADER or form["resource"] != self.scope.removesuffix("/.default"):
            return 400, {"error": "invalid_request", "error_description": f"Invalid: {form} {headers}"}
        expires = str(int(time.time()) + self.life_s)
        return 200, {"access_token": self.next_token(), "expires_on": expires, "token_type": "Bearer"}

    def _is_valid(self, form: Form) -> bool:
        if form.get("client_secret") == SECRET or form.get("client_assertion") == FEDERATED:
            return True
        try:
            assertion = form.get("client_assertion", "")
            claims = jwt.decode(assertion, self._public_key, algorithms=["RS256", "PS256"]).claims
        except (JoseError, ValueError):
            return False
        return (claims["iss"], claims["sub"]) == (CLIENT, CLIENT)

"""Google's side of access tokens: a service account with an RSA key, and a token endpoint that verifies its JWTs."""

import base64
import json
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.upstream.token_server import Form, TokenServer

EMAIL = "weir@a-project.iam.gserviceaccount.com"
AUDIENCE = "https://oauth2.googleapis.com/token"  # wherever the endpoint is
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN = "ya29.canary-access-token-"


class TokenEndpoint(TokenServer):
    """Gives the tokens `ya29.canary-access-token-1`, `…-2` and so on."""

    token = TOKEN

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(65537, 2048)
        super().__init__()

    def answer(self, path: str, form: Form, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:  # noqa: ARG002
        """A token for a valid assertion. An error quotes what was sent, as no error should."""
        self.asked += 1
        assertion = form["assertion"]
        if self.broken or form["grant_type"] != GRANT or not self._is_valid(assertion):
            return 400, {"error": "invalid_grant", "error_description": f"not valid: {assertion}"}
        return 200, {"access_token": self.next_token(), "expires_in": self.life_s, "token_type": "Bearer"}

    def _is_valid(self, assertion: str) -> bool:
        signed, _, signature = assertion.rpartition(".")
        try:
            self.key.public_key().verify(_decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            return False
        claims = json.loads(_decoded(signed.partition(".")[2]))
        return (claims["iss"], claims["aud"], claims["scope"]) == (EMAIL, AUDIENCE, SCOPE)

    def service_account(self, file: Path, key: rsa.RSAPrivateKey | None = None) -> str:
        """Write the file of the service account, perhaps with another key; returns a part of the private key."""
        pem = (key or self.key).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        account = {
            "type": "service_account",
            "project_id": "a-project",
            "private_key_id": "0001",
            "private_key": pem.decode(),
            "client_email": EMAIL,
            "token_uri": f"{self.url}/token",
        }
        file.write_text(json.dumps(account), encoding="utf-8")
        return pem.decode().splitlines()[5]


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

"""Google's side of access tokens: a service account with an RSA key, and a token endpoint that verifies its JWTs."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

EMAIL = "weir@a-project.iam.gserviceaccount.com"
AUDIENCE = "https://oauth2.googleapis.com/token"  # wherever the endpoint is
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
GRANT = ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
TOKEN = "ya29.canary-access-token-"
HOUR_S, SOON_S = 3600, 200


class TokenEndpoint:
    """Gives the tokens `ya29.canary-access-token-1`, `…-2` and so on. `life_s` is how long the next ones are valid."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(65537, 2048)
        self.life_s = HOUR_S
        self.broken = False
        self.asked = 0
        self.given = 0
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
                status, fields = endpoint.answer(form)
                body = json.dumps(fields).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """A token for a valid assertion. An error quotes what was sent, as no error should."""
        self.asked += 1
        (assertion,) = form["assertion"]
        if self.broken or form["grant_type"] != GRANT or not self._is_valid(assertion):
            return 400, {"error": "invalid_grant", "error_description": f"not valid: {assertion}"}
        self.given += 1
        return 200, {"access_token": f"{TOKEN}{self.given}", "expires_in": self.life_s, "token_type": "Bearer"}

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
            "token_uri": self.url,
        }
        file.write_text(json.dumps(account), encoding="utf-8")
        return pem.decode().splitlines()[5]


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

"""SigningKeys: the public keys with which an identity provider signs its tokens (JWKS), fetched by a thread.

The keys are fetched at the start, every five minutes, and when a token names a key that is not known, at most every ten
seconds. While the provider does not answer, the last keys stay in use. Needs the extra `oidc`.
"""

import json
import threading
from collections.abc import Callable
from typing import Any

import requests
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

_REFRESH_S = 300.0
# An unknown key id costs a request to the provider, and anybody can send one.
_MIN_INTERVAL_S = 10.0
_TIMEOUT_S = 10.0
_MAX_BYTES = 1_000_000
DISCOVERY = "/.well-known/openid-configuration"


class SigningKeys:
    """The keys of one issuer. `keys` is replaced by the thread, and read by any other."""

    def __init__(
        self, issuer: str, jwks: str, warn: Callable[[str], object], min_interval_s: float = _MIN_INTERVAL_S
    ) -> None:
        self._issuer = issuer
        self._jwks = jwks
        self._warn = warn
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._failed = False
        self._recent = False
        self.keys: KeySet | None = None
        """None until they were fetched."""
        self._min_interval_s = min_interval_s
        self._thread = threading.Thread(target=self._run, daemon=True, name="penstock-signing-keys")
        self._thread.start()

    def refresh(self) -> bool:
        """Fetch the keys now, because a token names one that is not known. Returns False if they were just fetched."""
        self._wake.set()
        return not self._recent

    def close(self) -> None:
        """End the thread. It may still wait for the provider."""
        self._closed.set()
        self._wake.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.clear()
            try:
                self.keys = self._fetch()
                self._failed = False
            except (requests.RequestException, JoseError, ValueError, KeyError, TypeError, OSError) as error:
                if not self._failed:
                    self._warn(f"the signing keys of {self._issuer} cannot be fetched: {type(error).__name__}")
                self._failed = True
            self._recent = True
            if self._closed.wait(self._min_interval_s):
                return
            self._recent = False
            self._wake.wait(max(0.0, (_REFRESH_S if self.keys is not None else 0.0) - self._min_interval_s))

    def _fetch(self) -> KeySet:
        url = self._jwks
        if not url:
            found = fetch_json(self._issuer.rstrip("/") + DISCOVERY)
            if found["issuer"] != self._issuer:
                raise ValueError("the discovery document is that of another issuer")
            url = found["jwks_uri"]
        # A symmetric key has no place in a public document.
        keys = [key for key in fetch_json(url)["keys"] if isinstance(key, dict) and key.get("kty") != "oct"]
        return KeySet.import_key_set({"keys": keys})


def fetch_json(url: str) -> Any:
    """A JSON document of an identity provider. Redirects are not followed."""
    with requests.get(url, timeout=_TIMEOUT_S, allow_redirects=False, stream=True) as response:
        if response.status_code != 200:
            raise ValueError(f"the status is {response.status_code}")
        body = response.raw.read(_MAX_BYTES + 1, decode_content=True)
        if len(body) > _MAX_BYTES:
            raise ValueError("the document is too large")
        return json.loads(body)

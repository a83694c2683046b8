"""The ID tokens of a sign-in: only one for this client and this sign-in, signed by the provider, is accepted."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from joserfc.jwk import RSAKey

from penstock.gateway.config.people import OidcSettings
from penstock.serve.admin.openid import ERRORS, OpenIdProvider
from tests.serve.identity import OTHER, IdentityProvider, signed_with_public_key, unsigned


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


def verify(provider: IdentityProvider, token: str) -> dict[str, Any]:
    openid = OpenIdProvider(OidcSettings(issuer=provider.url, client_id="penstock"))
    metadata = {"jwks_uri": f"{provider.url}/jwks"}
    return openid._verify({"id_token": token, "access_token": "a"}, "the-nonce", metadata)


def id_token(provider: IdentityProvider, key: RSAKey | None = None, **other: Any) -> str:
    claims: dict[str, Any] = {"nonce": "the-nonce", "iat": int(time.time())} | other
    return provider.token(key, **claims)


def test_a_valid_token_has_the_claims_of_the_user(provider: IdentityProvider) -> None:
    assert verify(provider, id_token(provider))["sub"] == "ann"


FORGED = {
    "another nonce": lambda provider: id_token(provider, nonce="other"),
    "no nonce": lambda provider: id_token(provider, nonce=None),
    "another client": lambda provider: id_token(provider, aud="other"),
    "another authorised party": lambda provider: id_token(provider, aud=["penstock", "other"], azp="other"),
    "another issuer": lambda provider: id_token(provider, iss="https://id.example.com"),
    "expired": lambda provider: id_token(provider, exp=int(time.time()) - 60),
    "another access token": lambda provider: id_token(provider, at_hash="AAAA"),
    "another key": lambda provider: id_token(provider, OTHER),
    "no signature": lambda provider: unsigned(provider, "none"),
    "HMAC with the public key": signed_with_public_key,
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_forged_token_is_refused_at_sign_in(forge: Any, provider: IdentityProvider) -> None:
    with pytest.raises(ERRORS):
        verify(provider, forge(provider))


def test_the_browser_is_sent_with_a_challenge_of_its_own(provider: IdentityProvider) -> None:
    openid = OpenIdProvider(OidcSettings(issuer=provider.url, client_id="penstock"))
    openid._metadata = (time.monotonic(), {"authorization_endpoint": f"{provider.url}/auth"})
    (url, first), (_, second) = (openid.begin("http://127.0.0.1/login/callback") for _ in range(2))
    assert "code_challenge_method=S256" in url
    assert f"nonce={first.nonce}" in url
    assert first.verifier not in url
    assert not set(first[:3]) & set(second[:3])

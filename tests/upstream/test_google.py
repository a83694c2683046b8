"""Access tokens of Google: a service account, reuse, refresh before and after expiry, failures."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from penstock.errors import ConfigError
from penstock.gateway.config import Config, load
from penstock.http.upstream_connection import UpstreamError
from penstock.upstream.access_tokens import TokenCredentials
from penstock.upstream.google import GoogleTokens
from tests.upstream.google import TOKEN, TokenEndpoint
from tests.upstream.token_server import SOON_S, idle, sent_token

PROJECT = {"GOOGLE_CLOUD_PROJECT": "a-project"}


@pytest.fixture(scope="module")
def running_endpoint() -> Iterator[TokenEndpoint]:
    with TokenEndpoint() as running:
        yield running


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the environment names."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    return tmp_path / "account.json"


@pytest.fixture
def endpoint(running_endpoint: TokenEndpoint, account: Path) -> TokenEndpoint:
    running_endpoint.reset()
    running_endpoint.service_account(account)
    return running_endpoint


def sent(credentials: TokenCredentials) -> str:
    """The number of the token with which a request is sent."""
    return sent_token(credentials).removeprefix(TOKEN)


def test_all_calls_use_one_token(endpoint: TokenEndpoint) -> None:
    async def work() -> list[str]:
        credentials = TokenCredentials(GoogleTokens(), pytest.fail)
        await asyncio.gather(*(credentials.refresh() for _ in range(9)))
        await credentials.refresh()
        assert credentials.fresh
        return [sent(credentials) for _ in range(3)]

    assert asyncio.run(work()) == ["1", "1", "1"]
    assert endpoint.asked == 1


def test_a_token_that_expires_soon_is_used_while_it_is_refreshed(endpoint: TokenEndpoint) -> None:
    async def work() -> list[str]:
        credentials = TokenCredentials(GoogleTokens(), pytest.fail)
        endpoint.life_s = SOON_S
        await credentials.refresh()
        endpoint.life_s = 3600
        used = [sent(credentials), sent(credentials)]
        await idle()
        used.append(sent(credentials))
        await idle()
        return used

    assert asyncio.run(work()) == ["1", "1", "2"]
    assert endpoint.asked == 2


def test_an_expired_token_is_not_used(endpoint: TokenEndpoint) -> None:
    async def work() -> str:
        credentials = TokenCredentials(GoogleTokens(), pytest.fail)
        endpoint.life_s = 0
        await credentials.refresh()
        endpoint.life_s = 3600
        assert not credentials.fresh
        await credentials.refresh()
        return sent(credentials)

    assert asyncio.run(work()) == "2"


def test_a_valid_token_survives_a_failed_refresh(endpoint: TokenEndpoint) -> None:
    warnings: list[str] = []

    async def work() -> list[str]:
        credentials = TokenCredentials(GoogleTokens(), warnings.append)
        endpoint.life_s = SOON_S
        await credentials.refresh()
        endpoint.broken = True
        used = [sent(credentials)]
        await idle()
        return [*used, sent(credentials)]

    assert asyncio.run(work()) == ["1", "1"]
    assert warnings[0] == (
        "an access token of Google was not refreshed, the old one is used: RefreshError: invalid_grant"
    )


def test_without_a_valid_token_the_call_fails_until_the_file_is_corrected(
    endpoint: TokenEndpoint, account: Path
) -> None:
    private = endpoint.service_account(account, rsa.generate_private_key(65537, 2048))

    async def work() -> tuple[UpstreamError, str]:
        credentials = TokenCredentials(GoogleTokens(), pytest.fail)
        with pytest.raises(UpstreamError, match="must set GOOGLE_APPLICATION_CREDENTIALS") as failed:
            await credentials.refresh()
        assert not credentials.fresh
        endpoint.service_account(account)
        await credentials.refresh()
        return failed.value, sent(credentials)

    error, used = asyncio.run(work())
    assert (error.code, used) == ("upstream_auth", "1")
    assert error.message.endswith("(RefreshError: invalid_grant)")  # not what the endpoint quotes
    assert private not in error.message


@pytest.mark.parametrize("content", [None, "not json", '{"type": "service_account"}', '{"type": "weir"}'])
def test_an_unusable_file_is_reported_without_its_content(account: Path, content: str | None) -> None:
    if content is not None:
        account.write_text(content, encoding="utf-8")
    with pytest.raises(UpstreamError, match=r"application-default login \(\w+\)$"):
        asyncio.run(TokenCredentials(GoogleTokens(), pytest.fail).refresh())


def config(folder: Path, text: str, **env: str) -> Config:
    (folder / "penstock.toml").write_text(text, encoding="utf-8")
    return load(folder / "penstock.toml", env)


@pytest.mark.parametrize(
    ("location", "start"),
    [
        ("", "https://aiplatform.googleapis.com/v1/projects/a-project/locations/global"),
        ("global", "https://aiplatform.googleapis.com/v1/projects/a-project/locations/global"),
        ("us-east5", "https://us-east5-aiplatform.googleapis.com/v1/projects/a-project/locations/us-east5"),
    ],
)
def test_the_project_and_the_location_are_in_the_address(location: str, start: str, tmp_path: Path) -> None:
    text = "[providers.vertex]\n[providers.vertex-anthropic]\n"
    found = config(tmp_path, text, **PROJECT, GOOGLE_CLOUD_LOCATION=location)
    assert (found.warnings, found.missing) == ((), ())
    gemini, claude = found.providers["vertex"], found.providers["vertex-anthropic"]
    assert gemini.url("gemini-2.5-pro") == (
        f"{start}/publishers/google/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
    )
    assert claude.url("claude-opus-4-5@20251101") == (
        f"{start}/publishers/anthropic/models/claude-opus-4-5%4020251101:streamRawPredict"
    )


def test_a_key_replaces_the_tokens_of_a_built_in_provider(tmp_path: Path) -> None:
    text = '[providers.vertex]\napi_key = "a-key-of-some-length"\n'
    provider = config(tmp_path, text, **PROJECT).providers["vertex"]
    assert (provider.auth, provider.credentials()) == ("key", {"authorization": "Bearer a-key-of-some-length"})
    with pytest.raises(ConfigError, match="leave out api_key and keys"):
        config(tmp_path, f'{text}auth = "google"\n', **PROJECT)


def test_a_token_is_not_sent_in_the_open(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="in the open over http://"):
        config(tmp_path, '[providers.vertex]\nbase_url = "http://a.example/v1"\n')


def test_a_route_names_the_provider_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'vertex' is not there: write \[providers.vertex\]"):
        config(tmp_path, '[routes.a]\ntargets = ["vertex/gemini-2.5-pro"]\n', **PROJECT)

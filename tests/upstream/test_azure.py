"""Access tokens of Entra ID: every kind of identity, reuse, refresh before and after expiry, failures."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.gateway.config import Config, load
from penstock.http.upstream_connection import UpstreamError
from penstock.upstream.access_tokens import TokenCredentials
from penstock.upstream.azure import AzureTokens
from tests.upstream.azure import FEDERATED, HEADER, SECRET, TOKEN, VARIABLES, EntraServer
from tests.upstream.token_server import SOON_S, idle, sent_token

Setter = Callable[[dict[str, str]], None]
IDENTITIES = {
    "a secret": EntraServer.service_principal,
    "a certificate": EntraServer.certificate,
    "workload identity federation": EntraServer.workload,
    "a managed identity": EntraServer.managed_identity,
}
ENDPOINT = {"AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com"}


@pytest.fixture(scope="module")
def running_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EntraServer]:
    with EntraServer(tmp_path_factory.mktemp("entra")) as running:
        yield running


@pytest.fixture
def server(running_server: EntraServer) -> EntraServer:
    running_server.reset()
    return running_server


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Setter:
    """Sets variables of the process; without others, there is no identity. Programs such as az are not found."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def set_all(variables: dict[str, str]) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_all


def sent(credentials: TokenCredentials) -> str:
    """The number of the token with which a request is sent."""
    return sent_token(credentials).removeprefix(TOKEN)


@pytest.mark.parametrize("identity", IDENTITIES)
def test_every_identity_gets_a_token_for_all_calls_until_it_expires(
    identity: str, server: EntraServer, use: Setter
) -> None:
    use(IDENTITIES[identity](server))

    async def work() -> list[str]:
        credentials = TokenCredentials(AzureTokens(), pytest.fail)
        server.life_s = 0
        await credentials.refresh()
        assert not credentials.fresh
        server.life_s = 3600
        await asyncio.gather(*(credentials.refresh() for _ in range(9)))
        return [sent(credentials) for _ in range(3)]

    assert asyncio.run(work()) == ["2", "2", "2"]
    assert server.asked == 2


@pytest.mark.parametrize("identity", IDENTITIES)
def test_a_token_that_expires_soon_is_used_while_it_is_refreshed(
    identity: str, server: EntraServer, use: Setter
) -> None:
    use(IDENTITIES[identity](server))

    async def work() -> list[str]:
        credentials = TokenCredentials(AzureTokens(), pytest.fail)
        server.life_s = SOON_S
        await credentials.refresh()
        server.life_s = 3600
        used = [sent(credentials), sent(credentials)]
        await idle()
        used += [sent(credentials), sent(credentials)]
        await idle()
        return used

    assert asyncio.run(work()) == ["1", "1", "2", "2"]
    assert server.asked == 2


def test_a_service_that_has_no_newer_token_is_not_asked_by_every_call(server: EntraServer, use: Setter) -> None:
    use(server.managed_identity())

    async def work() -> list[str]:
        credentials = TokenCredentials(AzureTokens(), pytest.fail)
        server.life_s, server.cached = SOON_S, True
        await credentials.refresh()
        used = []
        for _ in range(5):
            used.append(sent(credentials))
            await idle()
        return used

    assert asyncio.run(work()) == ["1"] * 5
    assert server.asked == 2


def test_a_valid_token_survives_a_failed_refresh(server: EntraServer, use: Setter) -> None:
    use(server.service_principal())
    warnings: list[str] = []

    async def work() -> list[str]:
        credentials = TokenCredentials(AzureTokens(), warnings.append)
        server.life_s = SOON_S
        await credentials.refresh()
        server.broken = True
        used = [sent(credentials)]
        await idle()
        return [*used, sent(credentials)]

    assert asyncio.run(work()) == ["1", "1"]
    (warning,) = warnings
    assert warning == (
        "an access token of Entra ID was not refreshed, the old one is used: ClientAuthenticationError: AADSTS7000215"
    )


def test_what_a_failure_quotes_is_neither_reported_nor_logged(
    server: EntraServer, use: Setter, capfd: pytest.CaptureFixture[str]
) -> None:
    use(server.service_principal("canary-wrong-secret"))
    handler, root = logging.StreamHandler(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with pytest.raises(UpstreamError, match="must set AZURE_TENANT_ID") as failed:
            asyncio.run(TokenCredentials(AzureTokens(), pytest.fail).refresh())
        logging.getLogger("weir").error("a line of the log")
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert failed.value.code == "upstream_auth"
    assert failed.value.message.endswith("or run: az login (ClientAuthenticationError: AADSTS7000215)")
    written = "".join(capfd.readouterr()) + failed.value.message
    assert "a line of the log" in written
    for secret in ("canary-wrong-secret", TOKEN, SECRET, FEDERATED, HEADER):
        assert secret not in written


def test_corrected_credentials_are_used_by_the_next_call(server: EntraServer, use: Setter) -> None:
    use(server.service_principal("canary-wrong-secret"))

    async def work() -> str:
        credentials = TokenCredentials(AzureTokens(), pytest.fail)
        with pytest.raises(UpstreamError):
            await credentials.refresh()
        use(server.service_principal())
        await credentials.refresh()
        return sent(credentials)

    assert asyncio.run(work()) == "1"


def test_the_scope_can_be_another_one(server: EntraServer, use: Setter, monkeypatch: pytest.MonkeyPatch) -> None:
    use(server.service_principal())
    monkeypatch.setattr(server, "scope", "https://ai.azure.com/.default")
    asyncio.run(TokenCredentials(AzureTokens("https://ai.azure.com/.default"), pytest.fail).refresh())
    with pytest.raises(UpstreamError):
        asyncio.run(TokenCredentials(AzureTokens(), pytest.fail).refresh())


def config(folder: Path, text: str, **env: str) -> Config:
    (folder / "penstock.toml").write_text(text, encoding="utf-8")
    return load(folder / "penstock.toml", ENDPOINT | env)


def test_no_key_is_sent_beside_a_token(tmp_path: Path) -> None:
    found = config(tmp_path, '[providers.azure]\nauth = "azure"\n', AZURE_OPENAI_API_KEY="a-key-of-some-length")
    assert (found.warnings, found.missing) == ((), ())
    assert found.providers["azure"].credentials() == {}


def test_a_token_and_a_key_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leave out api_key and keys"):
        config(tmp_path, '[providers.azure]\nauth = "azure"\napi_key = "a-key-of-some-length"\n')


def test_a_token_is_not_sent_in_the_open(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="in the open over http://"):
        config(tmp_path, '[providers.azure]\nauth = "azure"\nbase_url = "http://a.example"\n')

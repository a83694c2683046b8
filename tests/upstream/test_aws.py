"""Requests that are signed with AWS credentials: the same signature as botocore's own client, credentials, failures."""

import asyncio
import json
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import botocore.auth
import pytest
from botocore.session import Session

from penstock.errors import ConfigError
from penstock.gateway.config import Config, load
from penstock.http.limits import UpstreamLimits
from penstock.http.pool import Pool
from penstock.http.upstream_connection import RequestBytes, UpstreamError
from penstock.upstream.authorized import AuthorizedEndpoint, AuthorizedRemote
from penstock.upstream.aws import AwsCredentials
from penstock.upstream.remote import Remote

MODEL = "us.amazon.nova-pro-v1:0"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
NOW = datetime(2026, 11, 17, 8, tzinfo=UTC)
MESSAGES: list[Any] = [{"role": "user", "content": [{"text": "Grüße"}]}]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials but those of a test, and no request to find any."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: NOW)


def give_key(monkeypatch: pytest.MonkeyPatch, token: str = "") -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    if token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)


def config(folder: Path, text: str) -> Config:
    file = folder / "penstock.toml"
    file.write_text(text, encoding="utf-8")
    return load(file, {"AWS_REGION": "eu-west-3"})


def endpoint(folder: Path, credentials: AwsCredentials) -> AuthorizedEndpoint:
    provider = config(folder, '[providers.bedrock]\nauth = "aws"\n').providers["bedrock"]

    async def make() -> AuthorizedEndpoint:
        remote = Remote(Pool(UpstreamLimits(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)), {})
        return AuthorizedRemote(remote, credentials).endpoint(provider.url(MODEL), provider.credentials())

    return asyncio.run(make())


def headers_of(request: RequestBytes) -> dict[str, str]:
    assert isinstance(request, bytes)
    lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    assert len({line.partition(":")[0] for line in lines}) == len(lines)
    return dict(line.split(": ", 1) for line in lines)


def by_botocore() -> Any:
    """The request that botocore's own client sends."""
    client = Session().create_client("bedrock-runtime", region_name="eu-west-3")
    seen: list[Any] = []

    def stop(request: Any, **_: object) -> None:
        seen.append(request)
        raise InterruptedError

    client.meta.events.register("before-send.bedrock-runtime.*", stop)
    with pytest.raises(InterruptedError):
        client.converse_stream(modelId=MODEL, messages=MESSAGES)
    return seen[0]


@pytest.mark.parametrize("token", ["", "a-session-token"])
def test_the_signature_is_that_of_botocores_client(token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_key(monkeypatch, token)
    wanted = by_botocore()
    credentials = AwsCredentials()
    asyncio.run(credentials.refresh())
    request = endpoint(tmp_path, credentials).request(wanted.body, b"x-more: 1\r\n")
    sent = headers_of(request)
    assert isinstance(request, bytes)
    head, _, body = request.partition(b"\r\n\r\n")
    path = wanted.url.partition(".com")[2]
    assert head.startswith(f"POST {path} HTTP/1.1\r\nhost: bedrock-runtime.eu-west-3.amazonaws.com\r\n".encode())
    assert json.loads(body) == {"messages": MESSAGES}
    assert sent["authorization"] == wanted.headers["Authorization"].decode()
    assert sent["x-amz-date"] == "20261117T080000Z"
    assert sent.get("x-amz-security-token", "") == token
    assert sent["x-more"] == "1"
    assert SECRET.encode() not in request


def test_every_attempt_is_signed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_key(monkeypatch)
    credentials = AwsCredentials()
    asyncio.run(credentials.refresh())
    signed = endpoint(tmp_path, credentials)
    first = headers_of(signed.request(b"{}"))
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: NOW.replace(hour=9))
    second = headers_of(signed.request(b"{}"))
    assert (first["x-amz-date"], second["x-amz-date"]) == ("20261117T080000Z", "20261117T090000Z")
    assert first["authorization"] != second["authorization"]


def test_a_large_request_is_signed_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    class Credentials(AwsCredentials):
        def headers(self, url: str, body: bytes) -> bytes:
            threads.append(threading.current_thread())
            return super().headers(url, body)

    give_key(monkeypatch)
    signed = endpoint(tmp_path, Credentials())
    large = asyncio.run(signed.large_request(b"{}", b"x-more: 1\r\n"))  # which loads the credentials
    assert threads != [threading.main_thread()]
    assert large == signed.request(b"{}", b"x-more: 1\r\n")


def test_a_profile_has_its_own_credentials(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        f"[blue]\naws_access_key_id = AKIDBLUE\naws_secret_access_key = {SECRET}\n", encoding="utf-8"
    )
    credentials = AwsCredentials("blue")
    asyncio.run(credentials.refresh())
    assert credentials.current is not None
    assert credentials.current.access_key == "AKIDBLUE"


@pytest.mark.parametrize("profile", ["", "nobody"])
def test_without_credentials_the_call_fails_before_a_connection_is_opened(profile: str, tmp_path: Path) -> None:
    signed = endpoint(tmp_path, AwsCredentials(profile))
    assert signed.idle_connection() is None
    with pytest.raises(UpstreamError, match="has no AWS credentials") as failed:
        asyncio.run(signed.open(1.0))
    assert failed.value.code == "upstream_auth"


class ExpiringCredentials:
    """Credentials of botocore that expire: each refresh gives the next ones."""

    def __init__(self) -> None:
        self.needs_refresh = True
        self.given = 0

    def refresh_needed(self) -> bool:
        return self.needs_refresh

    def get_frozen_credentials(self) -> int:
        self.needs_refresh = False
        self.given += 1
        return self.given


def test_credentials_are_refreshed_only_when_they_expire() -> None:
    credentials = AwsCredentials()
    credentials._source = source = ExpiringCredentials()
    assert not credentials.fresh
    asyncio.run(credentials.refresh())
    asyncio.run(credentials.refresh())
    assert (credentials.fresh, source.given) == (True, 1)
    source.needs_refresh = True
    assert not credentials.fresh
    asyncio.run(credentials.refresh())
    assert source.given == 2


def test_a_provider_has_a_key_or_aws_credentials(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leave out api_key and keys"):
        config(tmp_path, '[providers.bedrock]\nauth = "aws"\napi_key = "a-key-of-some-length"\n')
    assert config(tmp_path, '[providers.bedrock]\nauth = "aws"\nprofile = "blue"\n').missing == ()

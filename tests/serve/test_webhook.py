"""The webhook of budget warnings: its signature, its retries, and what it must not reveal or reach."""

import asyncio
import json
import re
import time
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.gateway.config import load
from penstock.gateway.config.settings import BudgetSettings
from penstock.http.limits import UpstreamLimits
from penstock.http.pool import Pool
from penstock.providers.secret import Secret
from penstock.serve.webhook import Webhook, signed_headers
from penstock.upstream.remote import Remote
from tests.serve.webhooks import WARNING, documented

SECRET = "canary-of-a-webhook-secret"


def test_the_documented_code_verifies_the_signature() -> None:
    is_genuine, body, now = documented(), b'{"percent":80}', int(time.time())
    headers = signed_headers(SECRET.encode(), body, now)
    assert is_genuine(SECRET, headers, body)
    assert not is_genuine("other", headers, body)
    assert not is_genuine(SECRET, headers, body + b" ")
    assert not is_genuine(SECRET, headers | {"penstock-timestamp": str(now - 1)}, body)
    assert not is_genuine(SECRET, signed_headers(SECRET.encode(), body, now - 3_600), body)


async def deliver(url: str, statuses: list[int], *, warnings: int = 1) -> tuple[list[bytes], list[str], list[str]]:
    """Send warnings to a receiver that answers with these statuses; returns its requests, the results and the log."""
    requests: list[bytes] = []
    results: list[str] = []
    log: list[str] = []
    done = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length
        requests.append(head + await reader.readexactly(int(length[1])))
        writer.write(b"HTTP/1.1 %d x\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n" % statuses.pop(0))
        writer.close()

    def count(result: str) -> None:
        results.append(result)
        if len(results) == warnings:
            done.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def metadata(_host: str, _port: int) -> list[str]:
        return ["169.254.169.254"]

    webhook = Webhook(Remote(Pool(UpstreamLimits(), resolver=metadata), {}), log.append, count, waits_s=(0, 0))
    webhook.use(BudgetSettings(webhook=Secret(url.format(port), "url"), webhook_secret=Secret(SECRET, "secret")))
    for _ in range(warnings):
        webhook.send(WARNING)
    await asyncio.wait_for(done.wait(), 60)
    webhook.close()
    server.close()
    assert all(SECRET.encode() not in request for request in requests)
    assert SECRET not in "".join(log)
    return requests, results, log


def test_a_delivery_is_retried_and_confirmed() -> None:
    requests, results, log = asyncio.run(deliver("http://127.0.0.1:{}/hook?code=1", [500, 302, 204]))
    assert (len(requests), results, log) == (3, ["delivered"], [])
    head, _, body = requests[-1].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /hook?code=1 HTTP/1.1\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert documented()(SECRET, headers, body)
    sent = json.loads(body)
    assert (sent["type"], sent["percent"], sent["subject"]) == ("budget.warning", 50, "acme")
    assert (sent["budget"], sent["spent"], sent["at"]) == ("1.00", "0.50", "2026-11-15T00:00:00Z")
    assert {request.partition(b"\r\n\r\n")[2] for request in requests} == {body}


def test_it_gives_up_after_the_last_retry_and_continues() -> None:
    requests, results, log = asyncio.run(deliver("http://127.0.0.1:{}/", [500, 500, 503, 200], warnings=2))
    assert (len(requests), results) == (4, ["failed", "delivered"])
    assert len(log) == 1
    assert "503" in log[0]


def test_a_name_of_a_metadata_service_is_not_called() -> None:
    requests, results, log = asyncio.run(deliver("http://hook.example.com:{}/canary", []))
    assert (requests, results) == ([], ["failed"])
    assert "upstream_forbidden_address" in log[0]
    assert "canary" not in log[0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('webhook = "https://alerts.example.com"', "needs webhook_secret"),
        ('webhook = "alerts.example.com"\nwebhook_secret = "s"', "has no scheme"),
        ('webhook = "https://a.example"\nwebhook_secret = "s"\n[ledger]\nenabled = false', "needs the ledger"),
    ],
)
def test_a_wrong_configuration_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(f"[budgets]\n{text}\n")
    with pytest.raises(ConfigError, match=problem):
        load(file, {})


def test_url_and_secret_are_masked(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[budgets]\nwebhook = "https://a.example/canary-1"\nwebhook_secret = "canary-2"\n')
    config = load(file, {})
    assert {"https://a.example/canary-1", "canary-2"} <= set(config.secrets())
    assert "canary" not in repr(config.budgets)

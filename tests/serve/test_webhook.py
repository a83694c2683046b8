"""The webhook of budget warnings: its signature, its retries, and what it must not reveal or reach."""

import asyncio
import json
import re
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec import structs

from penstock.amounts import DAY_MS, moment
from penstock.errors import ConfigError
from penstock.gateway.config import load
from penstock.gateway.config.ledger import signing_key
from penstock.gateway.config.settings import BudgetSettings
from penstock.gateway.keys import changes as key_changes
from penstock.gateway.keys.terms import KeyTerms
from penstock.gateway.limits.warnings import BudgetWarning
from penstock.gateway.people.audit import Actor
from penstock.gateway.people.limit_requests import (
    LimitRequest,
    Raised,
    RefusalTerms,
    RequestTerms,
    new_request,
    refused,
)
from penstock.http.limits import UpstreamLimits
from penstock.http.pool import Pool
from penstock.providers.secret import Secret
from penstock.serve.webhook import Webhook, signed_headers
from penstock.stores.book.sqlite import SqliteBook
from penstock.upstream.remote import Remote
from tests.serve.webhooks import WARNING, documented

# The example of the libraries of Standard Webhooks.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
WAITING = structs.replace(WARNING, delivery="waiting", at_ms=time.time_ns() // 1_000_000)


def test_the_documented_code_verifies_the_signature() -> None:
    is_genuine, body, now = documented(), b'{"percent":80}', int(time.time())
    headers = signed_headers(signing_key(SECRET), "msg_1", now, body)
    assert is_genuine(SECRET, headers, body)
    assert not is_genuine("whsec_b3RoZXI=", headers, body)
    assert not is_genuine(SECRET, headers, body + b" ")
    assert not is_genuine(SECRET, headers | {"webhook-timestamp": str(now - 1)}, body)
    assert not is_genuine(SECRET, headers | {"webhook-id": "msg_2"}, body)
    assert not is_genuine(SECRET, signed_headers(signing_key(SECRET), "msg_1", now - 3_600, body), body)


def test_the_signature_is_that_of_the_libraries_of_standard_webhooks() -> None:
    """The example in the tests of all its libraries: the secret, id, timestamp, body and signature are theirs."""
    body = b'{"test": 2432232314}'
    assert signed_headers(signing_key(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


class Sent(NamedTuple):
    requests: list[bytes]
    results: list[str]
    log: list[str]
    stored: list[BudgetWarning]


async def deliver(folder: Path, url: str, statuses: list[int], *warnings: BudgetWarning, asked: int = 0) -> Sent:
    """Send warnings, and requests for more that wait, to a receiver that answers with these statuses."""
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
        if len(results) - results.count("retried") == len(warnings) + asked:
            done.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def metadata(_host: str, _port: int) -> list[str]:
        return ["169.254.169.254"]

    remote, open_book = Remote(Pool(UpstreamLimits(), resolver=metadata), {}), partial(SqliteBook.open, folder / "l.db")
    webhook = Webhook(remote, open_book, log.append, count, waits_s=(0, 0))
    with closing(open_book()) as book:
        webhook.use(BudgetSettings(webhook=Secret(url.format(port), "url"), webhook_secret=Secret(SECRET, "secret")))
        book.claim_warnings(warnings)
        webhook.wake()
        await asyncio.wait_for(done.wait(), 60)
        await webhook.close()
        server.close()
        stored = book.warnings(9)
    assert all(SECRET.encode() not in request for request in requests)
    assert SECRET not in "".join(log)
    return Sent(requests, results, log, stored)


def test_a_delivery_is_retried_and_confirmed(tmp_path: Path) -> None:
    sent_to = "http://127.0.0.1:{}/hook?code=1"
    requests, results, log, stored = asyncio.run(deliver(tmp_path, sent_to, [500, 302, 204], WAITING))
    assert (len(requests), results, log) == (3, ["retried", "retried", "delivered"], [])
    assert [each.delivery for each in stored] == ["delivered"]
    head, _, body = requests[-1].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /hook?code=1 HTTP/1.1\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert documented()(SECRET, headers, body)
    sent = json.loads(body)
    assert (sent["type"], sent["percent"], sent["subject"]) == ("budget.warning", 50, "acme")
    assert (sent["budget"], sent["spent"], sent["at"]) == ("1.00", "0.50", moment(WAITING.at_ms))
    assert {request.partition(b"\r\n\r\n")[2] for request in requests} == {body}
    assert {re.findall(rb"webhook-id: (msg_[0-9a-f]{32})\r\n", request)[0] for request in requests} == {
        headers["webhook-id"].encode()
    }


def test_a_request_for_more_is_sent_until_it_is_answered(tmp_path: Path) -> None:
    now = time.time_ns() // 1_000_000
    with closing(SqliteBook.open(tmp_path / "l.db")) as book:
        book.actor = Actor("ann <8f3e>", "API token")
        key = key_changes.create(book, KeyTerms(name="ci", budget=1), now).key

        def ask(reason: str) -> LimitRequest:
            terms = RequestTerms(key=key.id, budgets={"month": 5}, reason=reason)
            return book.limit_requests.ask(
                lambda subject: new_request(terms, book.actor.who, subject, now), key=key.id, team="", now_ms=now
            )

        answered, asked = ask("no more needed"), ask("a demo")
        book.limit_requests.answer(
            answered.id,
            lambda request, _: Raised(refused(request, RefusalTerms(), "lead", now), None, None),
            now + 1,
        )
    sent = asyncio.run(deliver(tmp_path, "http://127.0.0.1:{}/", [500, 200, 204], WAITING, asked=1))
    assert (sent.results.count("delivered"), sent.results.count("retried"), sent.log) == (2, 1, [])
    bodies = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in sent.requests]
    assert {body["id"] for body in bodies} == {WAITING.id, asked.id}, "the answered one is not sent"
    (body,) = [each for each in bodies if each["id"] == asked.id]
    assert (body["type"], body["who"], body["key"], body["reason"]) == ("limits.request", "ann", key.id, "a demo")
    assert body["wanted"]["budgets"] == {"month": "5.00"}
    with closing(SqliteBook.open(tmp_path / "l.db")) as book:
        assert book.limit_requests.take(now + DAY_MS, now + DAY_MS) is None, "it is sent once"


def test_it_gives_up_after_the_last_retry_and_continues(tmp_path: Path) -> None:
    later = structs.replace(WAITING, percent=80, at_ms=WAITING.at_ms + 1)
    statuses = [500, 200, 500, 503]
    requests, results, log, stored = asyncio.run(deliver(tmp_path, "http://127.0.0.1:{}/", statuses, WAITING, later))
    assert (len(requests), results) == (4, ["retried", "delivered", "retried", "failed"])
    assert len(log) == 1
    assert "503" in log[0]
    assert {each.percent: each.delivery for each in stored} == {50: "failed", 80: "delivered"}


def test_a_name_of_a_metadata_service_is_not_called(tmp_path: Path) -> None:
    requests, results, log, _ = asyncio.run(deliver(tmp_path, "http://hook.example.com:{}/canary", [], WAITING))
    assert (requests, results) == ([], ["retried", "retried", "failed"])
    assert "upstream_forbidden_address" in log[0]
    assert "canary" not in log[0]


def test_a_warning_that_waited_for_a_week_is_given_up(tmp_path: Path) -> None:
    old = structs.replace(WAITING, at_ms=WAITING.at_ms - 8 * DAY_MS)
    requests, results, log, stored = asyncio.run(deliver(tmp_path, "http://127.0.0.1:{}/", [200], old))
    assert (requests, results, [each.delivery for each in stored]) == ([], ["failed"], ["failed"])
    assert "waited for too long" in log[0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('webhook = "https://alerts.example.com"', "needs webhook_secret"),
        ('webhook = "alerts.example.com"\nwebhook_secret = "s"', "has no scheme"),
        ('webhook = "https://a.example"\nwebhook_secret = "s"', "whsec_ and 24 to 64 random bytes"),
        ('webhook = "https://a.example"\nwebhook_secret = "whsec_c2hvcnQ="', "whsec_ and 24 to 64 random bytes"),
        (f'webhook = "https://a.example"\nwebhook_secret = "{SECRET[6:]}"', "whsec_ and 24 to 64 random bytes"),
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
    file.write_text(f'[budgets]\nwebhook = "https://a.example/canary-1"\nwebhook_secret = "whsec_{"canary+2" * 4}"\n')
    config = load(file, {})
    assert {"https://a.example/canary-1", f"whsec_{'canary+2' * 4}"} <= set(config.secrets())
    assert "canary" not in repr(config.budgets)

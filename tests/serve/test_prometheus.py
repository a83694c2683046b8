"""A real Prometheus scrapes a gateway under mixed traffic, and every panel of the dashboard has correct data."""

import asyncio
import http.client
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.gateway.billing.accounting import entry_of
from penstock.gateway.config import LedgerSettings
from penstock.gateway.keys.key_secret import digest_of
from penstock.gateway.keys.keys import Key
from penstock.serve.telemetry.metric_specs import FAMILIES
from penstock.serve.telemetry.metrics import Metrics
from penstock.stores.book.open import open_book
from tests.faults.client import body, post
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import ERROR_BODY, HELLO, REST, WORLD, spare, stream, unstreamed
from tests.faults.upstream import JSON, Upstream, chunk, hang, head, last_chunk, rst, sleep, status, until_read
from tests.serve.collectors import Collector
from tests.serve.prometheus import Prometheus, complaints, program
from tests.serve.scrapes import parse, value
from tests.serve.support import AdminClient, call

KEY = "sk-of-somebody-who-may-spend"
DASHBOARD = json.loads((Path(__file__).parents[2] / "docs" / "grafana.json").read_text(encoding="utf-8"))
TARGETS = [(panel, target) for panel in DASHBOARD["panels"] for target in panel["targets"]]
# Nothing waits for the book here, no response or content is to be kept, no store is lost, and no webhook is configured.
MAY_BE_ZERO = {
    "sum(penstock_ledger_queue)",
    "max by (provider, model) (penstock_circuit_breaker_open)",
    "sum(penstock_ledger_spooled)",
    "sum by (reason) (rate(penstock_responses_not_kept_total[$__rate_interval]))",
    "sum by (reason) (rate(penstock_content_dropped_total[$__rate_interval]))",
    "sum by (reason) (rate(penstock_rejected_requests_total[$__rate_interval]))",
    "sum by (store, to) (rate(penstock_limits_store_changes_total[$__rate_interval]))",
    "sum by (result) (rate(penstock_budget_webhooks_total[$__rate_interval]))",
}
TWO_KEYS = """
[providers.keyed]
base_url = "URL"
keys = [{ name = "first", api_key = "sk-first-of-two", rpm = 1 }, { name = "second", api_key = "sk-second-of-two" }]
"""
SCRIPTS = {
    "main/good": [
        head(),
        sleep(0.06),
        chunk(HELLO),
        until_read(),
        sleep(0.03),
        chunk(WORLD),
        sleep(0.03),
        chunk(REST),
        last_chunk(),
    ],
    "main/odd": stream(HELLO, WORLD, REST.replace(b"data: [DONE]\n\n", b"")),
    "main/cut": [head(), chunk(HELLO), rst()],
    "main/broken": [head(), chunk(HELLO), chunk(b"data: " + ERROR_BODY + b"\n\n"), last_chunk()],
    "hasty-gap/idle": [head(), chunk(HELLO), hang()],
    "main/endless": [head(), chunk(HELLO), hang()],
    "pair-0-a": [status(503, JSON, ERROR_BODY)],
    "pair-0-b": spare(),
    "main/plain": unstreamed(),
    "main/found": stream(HELLO, WORLD, REST.replace(b'"stop"', b'"weird"')),  # a finding
    "main/noted": stream(HELLO, WORLD.replace(b'"delta":{', b'"delta":{"role":"assistant",'), REST),  # a notice
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    program("prometheus")
    with Upstream() as upstream:
        for model, script in SCRIPTS.items():
            upstream.play(script, model.rpartition("/")[2])
        yield upstream


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[AdminClient]:
    folder = tmp_path_factory.mktemp("scraped")
    book = open_book(LedgerSettings(), {"PENSTOCK_STATE": str(folder / "state")})
    book.change_keys(
        lambda *_: [
            Key(id="key_a", name="", digest=digest_of(KEY), hint="", created_ms=1, budget=10**9, period="month")
        ]
    )
    book.close()
    with Collector(status=400) as collector:  # which takes nothing
        configuration = settings(upstream.url, 1, telemetry={"otlp": collector.url, "interval_s": 0.2})
        configuration += TWO_KEYS.replace("URL", upstream.url)
        with Gateway(folder, upstream, configuration, arguments=("--workers", "2")) as gateway:
            yield AdminClient(gateway)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory, served: AdminClient) -> Iterator[Prometheus]:
    with Prometheus(tmp_path_factory.mktemp("prometheus"), served.place, served.state / "admin-token") as prometheus:
        yield prometheus


def traffic(served: AdminClient) -> int:
    """One call of each kind; returns how many were over."""
    gateway = served.gateway
    for model in SCRIPTS:
        if model not in ("main/endless", "main/plain", "main/noted") and "/" in model:
            gateway.ask(model, stream=True)
    gateway.ask("pair-0", stream=True)
    gateway.ask("main/plain", stream=False)
    for _ in range(2):  # one of them finds the first key at its limit
        assert gateway.ask("keyed/good", stream=True).status == 200
    assert gateway.ask("nobody/at-all", stream=True).status == 404
    with gateway.begin("main/endless", stream=True) as leaves:
        leaves.read_until(b"Hello")
    with gateway.client() as client:
        client.send(post(body("main/good", stream=True, max_tokens=9), headers={"Authorization": f"Bearer {KEY}"}))
        assert client.response().done
    with gateway.client() as client:  # not a call: the request is rejected before
        client.send(post(body("main/good", stream=True), headers={"Authorization": "Bearer sk-of-nobody-at-all"}))
        assert client.response().status == 401
    with gateway.client() as client:  # it has a loss: chat completions have no top_k
        client.send(post(messages_body("main/noted", top_k=3), path="/v1/messages"))
        assert client.response("POST").status == 200
    return 14


def messages_body(model: str, **fields: object) -> bytes:
    """A streamed call of a client of Messages."""
    messages = [{"role": "user", "content": "Hello"}]
    return json.dumps({"model": model, "messages": messages, "max_tokens": 9, "stream": True, **fields}).encode()


def scrape(served: AdminClient) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {served.token}"})
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def test_every_panel_shows_what_happened_and_no_counter_goes_down(served: AdminClient, prometheus: Prometheus) -> None:
    gateway = served.gateway
    over = traffic(served)
    prometheus.until(f"sum(penstock_requests_total) == {over}")
    open_stream = gateway.begin("main/endless", stream=True)  # one that is under way all the while
    open_stream.read_until(b"Hello")
    gateway.signal(signal.SIGHUP)
    gateway.says("the configuration was reloaded")
    over += traffic(served)
    prometheus.until(f"sum(penstock_requests_total) == {over}")
    prometheus.until("sum(penstock_streams_open) == 1")
    for panel, target in TARGETS:
        shows(prometheus, panel, target)
    os.kill(gateway.workers()[0], signal.SIGKILL)
    gateway.says("another one takes its place")
    over += traffic(served)
    open_stream.close()  # cut by the kill, or by us: it is over either way
    prometheus.until(f"sum(penstock_requests_total) == {over + 1}")
    time.sleep(1)
    assert prometheus.ask("sum(penstock_requests_total)")[0][1] == over + 1
    for family in FAMILIES:
        for name in {"counter": [""], "histogram": ["_bucket", "_count", "_sum"]}.get(family.kind, []):
            assert prometheus.ask(f"resets({family.name}{name}[1m])"), name
            assert prometheus.ask(f"resets({family.name}{name}[1m]) > 0") == []


def shows(prometheus: Prometheus, panel: Any, target: Any) -> None:
    """A panel has a line for each thing that its legend tells apart, and in its unit."""
    # Without a choice, a variable is `.*`.
    expression = re.sub(r"\$(?:instance|provider|route|team)", ".*", target["expr"].replace("$__rate_interval", "1m"))
    may_be_zero = re.sub(r"\{[^}]*\}", "", target["expr"]) in MAY_BE_ZERO
    found = prometheus.until(expression if may_be_zero else f"{expression} > 0")
    reported = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    for labels, number in found:
        assert labels.keys() == reported, expression
        assert all(labels.values()), (expression, labels)
        if panel["fieldConfig"]["defaults"]["unit"] == "s":
            assert number < 5, (expression, number)  # what takes milliseconds here, in seconds
        if panel["fieldConfig"]["defaults"]["unit"] == "percentunit":
            assert number <= 1, (expression, number)
    if "outcome" in reported:
        assert {labels["outcome"] for labels, _ in found} == OUTCOMES
    if "penstock_stream_end_total" in expression:
        assert {labels["reason"] for labels, _ in found} == {"done", "client_gone", "truncated", "idle", "failed"}


OUTCOMES = {"completed", "truncated", "failed", "timed_out", "cancelled", "refused"}


# Names that a client may make up, to break the text or to fill it.
HOSTILE = (
    'a"b',
    "a\\b",
    "a\nb 1",
    "a\r\nb",
    'x"} 1\n# TYPE penstock_forged_total counter\npenstock_forged_total{a="',
    "a\u2028b",
    "a\x85b",
    "a\x00b",
    "\ud800",
    "\u202eb",
    "{{outcome}}",
    "$__rate_interval",
    "other",
    " ",
    "ü" * 5_000,
)


@pytest.mark.parametrize("tool", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["ours", "promtool"])
def test_what_hostile_clients_name_stays_few_and_readable(tmp_path: Path, tool: bool) -> None:
    if tool:
        program("promtool")
    models = [f"main/{name}{number}" for number in range(20) for name in HOSTILE]
    text = asyncio.run(tell(tmp_path, models))
    samples = parse(text)
    assert "penstock_forged_total" not in samples
    assert value(samples, "penstock_requests_total") == 4 * len(models)
    for label in ("route", "model"):
        assert len({dict(labels)[label] for labels in samples["penstock_requests_total"]}) == 100
    assert len(text) < 2_500_000
    if tool:
        assert complaints(text) == ""


async def tell(folder: Path, models: list[str]) -> str:
    """What two workers tell together: each has had every call twice, and only one of the two was answered."""
    workers = [Metrics(dict, folder) for _ in range(2)]
    for model in models:
        for worker in workers:
            for answered in (False, True):
                made = call(model, answered=answered)
                worker.settled(made, entry_of(made, lambda *_: 7))
    for worker in workers:
        worker.close()
    return (await workers[0].text()).decode()


def test_promtool_has_nothing_against_a_scrape(served: AdminClient) -> None:
    program("promtool")
    traffic(served)
    text = scrape(served)
    assert complaints(text) == ""
    missing = {
        family.name for family in FAMILIES if not re.search(rf"^{family.name}(_bucket)?[{{ ]", text, re.MULTILINE)
    }
    assert missing == set()
    assert complaints("# TYPE penstock_wrong counter\npenstock_wrong 1\n")  # it would say so

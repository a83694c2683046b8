"""Metrics by route, model and outcome; exemplars; and what the processes and the configuration are doing."""

import asyncio
import http.client
import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from penstock.core.hub.usage import Tokens
from penstock.gateway.billing.accounting import entry_of
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.record.trace import Trace
from penstock.serve.telemetry.label_values import MAX_BY_LABEL
from penstock.serve.telemetry.metrics import Metrics
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import ERROR_BODY, HELLO, unstreamed, whole
from tests.faults.upstream import JSON, Upstream, chunk, hang, head, status
from tests.serve.scrapes import PRICES, Samples, ask, of_worker, parse, scrape, served, settled, sockets, value
from tests.serve.support import AdminClient, call

DURATION = "penstock_request_duration_seconds"
FIRST = "penstock_time_to_first_chunk_seconds"
COOLING = "penstock_circuit_breaker_open"


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


def families(openmetrics: str) -> list[Metric]:
    """Those of a scrape. The parser is strict, and the text must end with `# EOF`."""
    return list(text_string_to_metric_families(openmetrics))  # type: ignore[no-untyped-call]


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short name: that of a socket has room for a hundred characters."""
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as folder:
        yield Path(folder)


def test_durations_tell_routes_models_outcomes_and_streams_apart(tmp_path: Path, upstream: Upstream) -> None:
    upstream.play(whole(), "pair-0-a")
    upstream.play(unstreamed(), "plain")
    upstream.play([status(500, JSON, ERROR_BODY)], "broken")
    with served(tmp_path, settings(upstream.url, 2, **PRICES)) as gateway:
        assert ask(gateway.port, "pair-0").done
        assert ask(gateway.port, "main/plain", stream=False).status == 200
        assert ask(gateway.port, "main/broken").status == 502
        samples = settled(gateway, 3)
    streamed = {"route": "pair-0", "provider": "main", "model": "pair-0-a", "outcome": "completed", "stream": "true"}
    plain = {**streamed, "route": "main/plain", "model": "plain", "stream": "false"}
    assert set(samples[f"{DURATION}_count"]) == {
        frozenset(labels.items())
        for labels in (streamed, plain, {**streamed, "route": "other", "model": "other", "outcome": "failed"})
    }
    for labels in (streamed, plain):
        assert value(samples, f"{DURATION}_count", **labels) == 1
        assert value(samples, f"{FIRST}_count", **labels) == 1
        # The clock of the event loop has a resolution of a millisecond, and the first content may come in less.
        assert 0 <= value(samples, f"{FIRST}_sum", **labels) <= value(samples, f"{DURATION}_sum", **labels) < 30
    assert value(samples, f"{FIRST}_count", outcome="failed") == 0


def test_cost_by_team_and_key_is_exact_and_bounded(tmp_path: Path) -> None:
    keys = MAX_BY_LABEL["key"] + 50

    async def count() -> Samples:
        workers = [Metrics(dict, tmp_path) for _ in range(2)]
        for number in range(keys):
            for worker in workers:
                made = call("main/m", answered=True)
                made.key = ClientKey(id=f"key_{number}", name=f"name {number}", team=f"acme/team-{number % 3}")
                entry = entry_of(made, lambda *_: 7)
                priced = tuple(structs.replace(attempt, cost=number + 1) for attempt in entry.attempts)
                worker.settled(made, structs.replace(entry, attempts=priced))
        text = (await workers[0].text()).decode()
        for worker in workers:
            worker.close()
        return parse(text)

    samples = asyncio.run(count())
    series = samples["penstock_team_cost_usd_total"]
    assert sum(series.values()) == pytest.approx(2 * sum(range(1, keys + 1)) * 1e-9, rel=1e-12)
    assert value(samples, "penstock_team_cost_usd_total", team="acme/team-1", key="name 1") == pytest.approx(4e-9)
    assert len({dict(labels)["key"] for labels in series}) == MAX_BY_LABEL["key"] + 1
    assert value(samples, "penstock_team_cost_usd_total", key="other") > 0


def test_caches_are_counted_by_route_and_what_they_saved_or_lost() -> None:
    async def count() -> Samples:
        metrics = Metrics(dict)
        for tokens, saved in (
            (Tokens(input=9, cached=5, cache_write=2), 3_000),
            (Tokens(input=9, cache_write=4), -500),
        ):
            made = call("main/m", answered=True)
            entry = entry_of(made, lambda *_: 7)
            cached = tuple(structs.replace(attempt, tokens=tokens, saved=saved) for attempt in entry.attempts)
            metrics.settled(made, structs.replace(entry, attempts=cached))
        return parse((await metrics.text()).decode())

    samples = asyncio.run(count())
    of = {"route": "main/m", "provider": "main", "model": "m"}
    assert value(samples, "penstock_cache_tokens_total", **of, kind="read") == 5
    assert value(samples, "penstock_cache_tokens_total", **of, kind="written") == 6
    assert value(samples, "penstock_cache_saved_usd_total", **of, kind="saved") == pytest.approx(3_000e-9)
    assert value(samples, "penstock_cache_saved_usd_total", **of, kind="lost") == pytest.approx(500e-9)


def test_buckets_have_the_trace_of_a_call_as_their_example() -> None:
    async def count() -> tuple[str, str]:
        metrics = Metrics(dict)
        for trace, seconds in (Trace("a" * 32), 0.3), (Trace("b" * 32, sampled=False), 4.0), (None, 40.0):
            made = call("main/m", answered=True)
            made.trace, made.progress.total_s = trace, seconds
            metrics.settled(made, entry_of(made, lambda *_: 7))
        return (await metrics.text()).decode(), (await metrics.text(exemplars=True)).decode()

    plain, openmetrics = asyncio.run(count())
    assert "trace_id" not in plain
    examples = {
        (sample.name, sample.labels["le"]): sample.exemplar
        for family in families(openmetrics)
        for sample in family.samples
        if sample.exemplar is not None
    }
    assert {name: (example.labels, example.value) for name, example in examples.items()} == {
        (f"{DURATION}_bucket", "0.5"): ({"trace_id": "a" * 32}, 0.3),
        (f"{FIRST}_bucket", "0.5"): ({"trace_id": "a" * 32}, 0.5),
    }
    assert all(abs(float(example.timestamp or 0) - time.time()) < 60 for example in examples.values())


def test_a_scrape_gets_the_format_that_it_asks_for(tmp_path: Path, upstream: Upstream) -> None:
    with served(tmp_path, settings(upstream.url, 1)) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.metrics_port)) as connection:
            accept = b"accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5\r\n"
            connection.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + accept + b"\r\n")
            head, _, text = b"".join(iter(lambda: connection.recv(65_536), b"")).partition(b"\r\n\r\n")
        assert b"content-type: application/openmetrics-text; version=1.0.0" in head
        names = {family.name for family in families(text.decode())}
        assert {"penstock_requests", "penstock_build_info", "process_cpu_seconds"} <= names
        assert parse(gateway.text()).keys() >= {"penstock_build_info", "process_cpu_seconds_total"}


def test_a_target_that_cools_down_is_reported(tmp_path: Path, upstream: Upstream) -> None:
    upstream.play([status(429, {**JSON, "retry-after": "60"}, ERROR_BODY)], "pair-0-a")
    upstream.play(whole(), "pair-0-b")
    with served(tmp_path, settings(upstream.url, 2)) as gateway:
        assert set(gateway.scrape()[COOLING].values()) == {0}
        assert ask(gateway.port, "pair-0").done
        samples = settled(gateway, 1)
        assert value(samples, COOLING, provider="main", model="pair-0-a") == 1
        assert value(samples, COOLING) == 1


@pytest.mark.slow
def test_workers_report_themselves_and_the_last_reload(tmp_path: Path, home: Path, upstream: Upstream) -> None:
    environment = {"TMPDIR": str(home)}
    arguments = ("--workers", "2")
    with Gateway(
        tmp_path, upstream, settings(upstream.url, 1), arguments=arguments, environment=environment
    ) as gateway:

        def scraped() -> Samples:
            return parse(scrape(of_worker(sockets(home)[0])))

        def until(number: float, name: str) -> Samples:
            deadline = time.monotonic() + 30
            while value(samples := scraped(), name) != number:
                assert time.monotonic() < deadline, samples[name]
                time.sleep(0.05)
            return samples

        deadline = time.monotonic() + 30
        while len((samples := scraped())["process_open_fds"]) < 2:  # the other worker may still be starting
            assert time.monotonic() < deadline
        for name in ("resident_memory_bytes", "open_fds", "max_fds", "start_time_seconds", "cpu_seconds_total"):
            series = samples[f"process_{name}"]
            assert {dict(labels)["worker"] for labels in series} == {"0", "1"}, name
            assert all(number > 0 for number in series.values())
        assert value(samples, "process_resident_memory_bytes") > 20_000_000
        assert all(abs(time.time() - began) < 300 for began in samples["process_start_time_seconds"].values())
        assert value(samples, "penstock_build_info") == 1
        reloaded = value(samples, "penstock_config_last_reload_success_timestamp_seconds")
        assert abs(time.time() - reloaded) < 300

        file = gateway.file
        before = file.read_text()
        file.write_text("[server]\nport = 'x'\n")
        gateway.signal(signal.SIGHUP)
        samples = until(0, "penstock_config_last_reload_successful")
        assert value(samples, "penstock_config_last_reload_success_timestamp_seconds") == reloaded
        file.write_text(before)
        gateway.signal(signal.SIGHUP)
        until(1, "penstock_config_last_reload_successful")
        cpu = value(scraped(), "process_cpu_seconds_total")
        os.kill(gateway.workers()[0], signal.SIGKILL)
        gateway.says("another one takes its place")
        assert value(scraped(), "process_cpu_seconds_total") >= cpu


@pytest.mark.slow
def test_streams_that_a_restart_cuts_are_scraped_before_the_process_ends(tmp_path: Path, upstream: Upstream) -> None:
    """Prometheus learns of them by its next scrape, or never: the counters end with the process."""
    model = upstream.play([head(), chunk(HELLO), hang()])
    with Gateway(tmp_path, upstream, settings(upstream.url, 1, server={"drain_s": 0.3})) as gateway:
        admin = AdminClient(gateway)
        assert admin.ask("GET", "/metrics")[0] == 200
        client = gateway.begin(f"main/{model}", stream=True)
        client.read_until(b"Hello")
        gateway.signal(signal.SIGTERM)
        assert client.response().error["code"] == "gateway_draining"
        time.sleep(2)  # longer than a process that is not scraped would take to end
        connection = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=30)
        connection.request("GET", "/metrics", headers={"authorization": f"Bearer {admin.token}"})
        samples = parse(connection.getresponse().read().decode())
        connection.close()
        assert value(samples, "penstock_stream_end_total", reason="drained") == 1
        assert gateway.wait() == 0
        client.close()

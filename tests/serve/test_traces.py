"""Traces: what a collector receives about calls, and that it can neither delay nor stop them."""

import itertools
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.gateway.record.attempt import GAP_BOUNDS
from penstock.gateway.record.trace import trace_of
from penstock.serve.telemetry import histograms, spans
from penstock.serve.telemetry.histograms import DURATION, FIRST_CHUNK, HISTOGRAMS, PER_CHUNK, TOKEN_USAGE
from penstock.serve.telemetry.traces import MAX_QUEUED
from tests.faults.client import AUTHORIZED, RawClient, Response, body, post
from tests.faults.gateway import CANARIES, Gateway, settings
from tests.faults.scripts import ERROR_BODY, HELLO, REST, WORLD, spare, stream, unstreamed, whole
from tests.faults.upstream import JSON, Upstream, chunk, head, last_chunk, sleep, status, until_read
from tests.promptness import in_time, prompt
from tests.serve.attributes import attribute_names
from tests.serve.collectors import Collector, Hanging, attributes, dead_url
from tests.serve.scrapes import Served, served, value
from tests.streams import says, sse

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
SERVER, CLIENT = 2, 3
ERROR = 2


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


def configuration(upstream: Upstream, url: str, **fields: object) -> str:
    return settings(upstream.url, 2, telemetry={"otlp": url, "interval_s": 0.2, **fields})


def ask(gateway: Served, model: str, headers: dict[str, str] | None = None, **fields: object) -> Response:
    with RawClient(gateway.port) as client:
        fields = {"stream": True, **fields}
        client.send(post(body(model, **fields), headers={**AUTHORIZED, **(headers or {})}))  # type: ignore[arg-type]
        return client.response()


def test_a_call_is_a_span_with_its_attempts_under_it(tmp_path: Path, upstream: Upstream, collector: Collector) -> None:
    upstream.play([status(503, JSON, ERROR_BODY)], "pair-0-a")
    upstream.play(
        [head(), chunk(HELLO), until_read(), sleep(0.03), chunk(WORLD), chunk(REST), last_chunk()], "pair-0-b"
    )
    with served(tmp_path, configuration(upstream, collector.url)) as gateway:
        began = time.time_ns()
        response = ask(gateway, "pair-0", TRACEPARENT, temperature=0.5, max_tokens=9, seed=7)
        collector.until(lambda: len(collector.spans) >= 3)
        ended = time.time_ns()
    own, first, second = collector.spans
    assert [span.kind for span in collector.spans] == [SERVER, CLIENT, CLIENT]
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    assert (own.parent_span_id.hex(), first.parent_span_id, second.parent_span_id) == (PARENT, own.span_id, own.span_id)
    assert len({own.span_id, first.span_id, second.span_id}) == 3
    assert [span.name for span in collector.spans] == ["POST /v1/chat/completions", "chat pair-0-a", "chat pair-0-b"]
    assert [span.status.code for span in collector.spans] == [0, ERROR, 0]
    assert began <= own.start_time_unix_nano + 50_000_000
    assert own.start_time_unix_nano <= first.start_time_unix_nano <= first.end_time_unix_nano
    assert first.end_time_unix_nano <= second.end_time_unix_nano <= own.end_time_unix_nano + 5_000_000 <= ended + 10**7
    found = attributes(own.attributes)
    assert found["http.response.status_code"] == 200
    assert found["penstock.request.id"] == response.request_id
    assert (found["penstock.route"], found["penstock.attempts"]) == ("pair-0", 2)
    assert found["penstock.outcome"] == "completed"
    failed, good = attributes(first.attributes), attributes(second.attributes)
    assert failed["error.type"]
    assert failed["http.response.status_code"] == 503
    port = int(upstream.url.rpartition(":")[2].partition("/")[0])
    assert {name: good[name] for name in good if not name.startswith("penstock.")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "spare",
        "gen_ai.request.model": "pair-0-b",
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.seed": 7,
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.model": "sluice-1",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.response.time_to_first_chunk": good["gen_ai.response.time_to_first_chunk"],
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 3,
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": port,
    }
    assert 0 <= good["gen_ai.response.time_to_first_chunk"] < 60
    assert good["penstock.longest_gap"] > 0.02
    assert collector.resources[0]["service.name"] == "penstock"


def test_histograms_are_the_four_of_the_conventions(tmp_path: Path, upstream: Upstream, collector: Collector) -> None:
    upstream.play([head(), chunk(HELLO), until_read(), sleep(0.03), chunk(WORLD), chunk(REST), last_chunk()], "good")
    upstream.play(unstreamed(), "plain")
    with served(tmp_path, configuration(upstream, collector.url)) as gateway:
        for _ in range(5):
            ask(gateway, "main/good")
        ask(gateway, "main/plain", stream=False)
    points = {metric.name: list(metric.histogram.data_points) for metric in collector.metrics}
    units = {metric.name: metric.unit for metric in collector.metrics}
    assert units == {name: unit for name, (unit, _, _) in HISTOGRAMS.items()}
    assert all(metric.histogram.aggregation_temporality == 2 for metric in collector.metrics)  # cumulative
    counts = {name: sum(point.count for point in found) for name, found in points.items()}
    assert counts[DURATION] == 6
    assert counts[FIRST_CHUNK] == 5
    assert counts[TOKEN_USAGE] == 12
    (gaps,) = points[PER_CHUNK]
    assert gaps.count >= 10
    assert sum(gaps.bucket_counts[2:]) >= 5
    assert 0.1 < gaps.sum < 60
    assert not gaps.HasField("min")
    tokens = {attributes(point.attributes)["gen_ai.token.type"]: point for point in points[TOKEN_USAGE]}
    assert tokens.keys() == {"input", "output"}
    assert sum(point.sum for point in points[TOKEN_USAGE]) == 6 * (5 + 3)
    for name, found in points.items():
        assert all(tuple(point.explicit_bounds) == HISTOGRAMS[name][2] for point in found)


def test_a_call_without_a_trace_begins_one(tmp_path: Path, upstream: Upstream, collector: Collector) -> None:
    upstream.play(whole(), "good")
    with served(tmp_path, configuration(upstream, collector.url)) as gateway:
        for header in ({}, {"traceparent": "rubbish"}, {"traceparent": f"00-{'0' * 32}-{PARENT}-01"}):
            ask(gateway, "main/good", header)
    owns = [span for span in collector.spans if span.kind == SERVER]
    assert len({span.trace_id for span in owns}) == 3
    assert not any(span.parent_span_id for span in owns)


def test_what_no_one_samples_is_not_reported(tmp_path: Path, upstream: Upstream, collector: Collector) -> None:
    upstream.play(whole(), "good")
    with served(tmp_path, configuration(upstream, collector.url)) as gateway:
        ask(gateway, "main/good", {"traceparent": f"00-{TRACE}-{PARENT}-00"})
    assert collector.spans == []
    assert collector.metrics  # but counted


@pytest.mark.parametrize("propagate", [True, False])
def test_a_provider_learns_of_the_trace_only_if_it_should_be(
    tmp_path: Path, upstream: Upstream, collector: Collector, propagate: bool
) -> None:
    upstream.play(whole(), "good")
    with served(tmp_path, configuration(upstream, collector.url, propagate=propagate)) as gateway:
        ask(gateway, "main/good", TRACEPARENT)
    (request,) = [request for connection in upstream.connections for request in connection.requests]
    reported = re.findall(rb"\r\ntraceparent: 00-(\w+)-(\w+)-01\r\n", request)
    (client,) = [span for span in collector.spans if span.kind == CLIENT]
    assert reported == ([(TRACE.encode(), client.span_id.hex().encode())] if propagate else [])


def test_a_collector_gets_neither_content_nor_secrets(tmp_path: Path, upstream: Upstream, collector: Collector) -> None:
    upstream.play(stream(HELLO, WORLD, REST), "good")
    upstream.play([status(401, JSON, CANARIES[0].encode())], "bad")
    with served(tmp_path, configuration(upstream, collector.url)) as gateway:
        ask(gateway, "main/good", user="canary-of-a-user", metadata={"a": "canary-of-a-tag"}, stop=["canary-of-a-stop"])
        ask(gateway, "main/bad")
    assert len(collector.spans) == 4
    for secret in (*CANARIES, "canary", "Hello", "world", "messages"):
        assert secret.encode() not in collector.received


@pytest.mark.parametrize("content", [False, True])
def test_a_collector_gets_no_credential_of_a_client(
    tmp_path: Path, upstream: Upstream, collector: Collector, content: bool
) -> None:
    """Not even where content is reported, and the client and the model write it into that."""
    own = "sk-ant-oat01-canary-of-the-subscription-51f0"
    upstream.play(stream(HELLO, sse(says(f" {own} ")), REST), "good")
    upstream.play([status(401, JSON, ERROR_BODY.replace(b"overloaded", own.encode()))], "bad")
    text = settings(
        upstream.url, 0, server={"keys": []}, telemetry={"otlp": collector.url, "interval_s": 0.2, "content": content}
    ).replace("[providers.main]", '[providers.main]\nclient_credentials = { subscription = "free" }', 1)
    with served(tmp_path, text) as gateway, RawClient(gateway.port) as client:
        headers = {"Host": "localhost", "Authorization": f"Bearer {own}", "x-penstock-key": "any"}
        for model in ("good", "bad"):
            fields = {"messages": [{"role": "user", "content": f"My token is {own}"}], "user": own}
            client.send(post(body(f"main/{model}", stream=True, **fields), headers))
            client.response()
        collector.until(lambda: len(collector.spans) >= 4)
    assert own.encode() in upstream.requests("good")[0]
    assert own.encode() not in collector.received


@pytest.mark.parametrize("streamed", [True, False])
def test_content_is_reported_to_who_asks_for_it(
    tmp_path: Path, upstream: Upstream, collector: Collector, streamed: bool
) -> None:
    words = [chunk(sse(says(f" word{number}"))) for number in range(9)]
    apart = [op for word in words for op in (word, sleep(0.002))]
    upstream.play([head(), chunk(HELLO), *apart, chunk(REST), last_chunk()], "good")
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}, {"type": "image_url", "image_url": "x"}]},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "4"},
    ]
    with served(tmp_path, configuration(upstream, collector.url, content=True)) as gateway:
        response = ask(gateway, "main/good", stream=streamed, messages=messages)
    assert response.text == "Hello" + "".join(f" word{number}" for number in range(9))
    own, client = (attributes(span.attributes) for span in collector.spans)
    assert not [name for name in own if "messages" in name]
    assert json.loads(client["gen_ai.input.messages"]) == [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}, {"type": "image"}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "f", "arguments": "{}"}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "4"}]},
    ]
    assert json.loads(client["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": response.text}], "finish_reason": "stop"}
    ]


def test_calls_that_end_together_are_reported_together(
    tmp_path: Path, upstream: Upstream, collector: Collector
) -> None:
    upstream.play(whole(), "good")
    with served(tmp_path, configuration(upstream, collector.url)) as gateway:
        for _ in range(12):
            ask(gateway, "main/good")
        collector.until(lambda: len(collector.spans) == 24)
    assert len(collector.resources) < 12  # one for each message


def dropped(gateway: Served) -> float:
    return value(gateway.scrape(), "penstock_telemetry_dropped_total")


def waits(gateway: Served, spans: int) -> None:
    deadline = time.monotonic() + 30
    while dropped(gateway) < spans:
        assert time.monotonic() < deadline, dropped(gateway)
        time.sleep(0.05)


@pytest.mark.slow
def test_a_dead_collector_costs_spans_and_nothing_else(tmp_path: Path, upstream: Upstream) -> None:
    upstream.play(whole(), "good")
    with served(tmp_path, configuration(upstream, dead_url())) as gateway:
        for _ in range(5):
            assert ask(gateway, "main/good").done
        waits(gateway, 2)  # after some tries; the others still wait
        assert dropped(gateway) <= 10
    assert "does not accept spans" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_a_collector_that_refuses_too(tmp_path: Path, upstream: Upstream, collector: Collector) -> None:
    upstream.play(whole(), "good")
    collector.status = 400
    with served(tmp_path, configuration(upstream, collector.url)) as gateway:
        assert ask(gateway, "main/good").done
        waits(gateway, 2)
        collector.status = 200
        asked, deadline = 1, time.monotonic() + 30
        while not collector.spans:  # for a while it is left alone, and what comes then is dropped
            assert time.monotonic() < deadline
            assert ask(gateway, "main/good").done
            asked += 1
            time.sleep(0.3)
        assert dropped(gateway) + len(collector.spans) <= 2 * asked
        waits(gateway, 4)
    assert "accepts spans again" in (tmp_path / "log").read_text()


@pytest.mark.slow
@prompt
def test_a_collector_that_hangs_slows_no_one(tmp_path: Path, upstream: Upstream) -> None:
    upstream.play(spare(), "good")
    with Hanging() as hanging:
        with served(tmp_path, configuration(upstream, hanging.url)) as gateway:
            began = time.monotonic()
            for _ in range(30):
                assert ask(gateway, "main/good").done
            in_time(time.monotonic() - began, 3.0)
            time.sleep(0.5)  # by now it hangs with what it took
            assert ask(gateway, "main/good").done
            assert gateway.app is not None
            traces = gateway.app.settlement.traces
            assert traces is not None
            (settled,) = itertools.islice(_waiting(traces), 1)
            for _ in range(MAX_QUEUED + 50):  # as if so many calls had come
                traces.settled(settled.call, settled.entry)
            assert dropped(gateway) >= 50
            stopping = time.monotonic()
        in_time(time.monotonic() - stopping, 4.0)


def _waiting(traces: Any) -> Any:
    return list(traces._queue.queue)


@pytest.mark.slow
@prompt
def test_it_ends_in_time_with_a_collector_that_hangs(tmp_path: Path, upstream: Upstream) -> None:
    upstream.play(whole(), "good")
    with Hanging() as hanging:
        gateway = Gateway(tmp_path, upstream, configuration(upstream, hanging.url))
        with gateway:
            gateway.ask("main/good", stream=True)
            began = time.monotonic()
            assert gateway.stop() == 0
            in_time(time.monotonic() - began, 4.0)


# The names of the conventions, as their documents have them.
SPECIFIED = {
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.request.stream",
    "gen_ai.request.max_tokens",
    "gen_ai.request.temperature",
    "gen_ai.request.top_p",
    "gen_ai.request.top_k",
    "gen_ai.request.seed",
    "gen_ai.request.choice.count",
    "gen_ai.request.stop_sequences",
    "gen_ai.request.frequency_penalty",
    "gen_ai.request.presence_penalty",
    "gen_ai.response.id",
    "gen_ai.response.model",
    "gen_ai.response.finish_reasons",
    "gen_ai.response.time_to_first_chunk",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.reasoning.output_tokens",
    "gen_ai.token.type",
    "gen_ai.client.operation.duration",
    "gen_ai.client.operation.time_to_first_chunk",
    "gen_ai.client.operation.time_per_output_chunk",
    "gen_ai.client.token.usage",
    "http.request.method",
    "http.route",
    "http.response.status_code",
    "error.type",
    "server.address",
    "server.port",
}
# Their buckets.
SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
PROVIDERS = {
    "azure.ai.inference",
    "azure.ai.openai",
    "aws.bedrock",
    "gcp.gemini",
    "gcp.vertex_ai",
    "mistral_ai",
    "moonshot_ai",
    "x_ai",
}


def test_every_name_is_one_of_the_conventions_or_ours() -> None:
    texts = {*attribute_names(spans), *attribute_names(histograms)} - set(spans.PROVIDERS.values())
    assert {text for text in texts if not text.startswith("penstock.")} == SPECIFIED - {"gen_ai.request.stop_sequences"}
    assert set(spans.PROVIDERS.values()) == PROVIDERS
    assert histograms.TIME_BOUNDS == GAP_BOUNDS
    assert (histograms.TIME_BOUNDS, histograms.TOKEN_BOUNDS) == (SECONDS, TOKENS)


@pytest.mark.parametrize(
    ("header", "continued"),
    [
        (f"00-{TRACE}-{PARENT}-01", True),
        (f"cc-{TRACE}-{PARENT}-01-what-comes", True),
        (f"00-{TRACE}-{PARENT}-01-more", False),
        (f"ff-{TRACE}-{PARENT}-01", False),
        (f"00-{TRACE.upper()}-{PARENT}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        ("", False),
    ],
)
def test_a_traceparent_is_read_as_the_w3c_says(header: str, continued: bool) -> None:
    trace = trace_of(header)
    assert (trace.id == TRACE, trace.parent == PARENT) == (continued, continued)
    assert re.fullmatch(r"[0-9a-f]{32}", trace.id)

"""Prometheus metrics: of calls of every kind, of one worker and of several, also of workers that die."""

import asyncio
import os
import random
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.core.hub.losses import Loss
from penstock.core.hub.usage import Usage
from penstock.gateway.billing.accounting import entry_of
from penstock.gateway.config import LedgerSettings
from penstock.gateway.keys.key_secret import digest_of
from penstock.gateway.keys.keys import Key
from penstock.gateway.record.entry import AttemptEntry, Entry, Tokens
from penstock.serve.telemetry.counters import OTHER, SharedCounters, read_all, total
from penstock.serve.telemetry.entry_counts import EntryCounts
from penstock.serve.telemetry.label_values import LabelValues
from penstock.serve.telemetry.metric_specs import BY_NAME, FAMILIES, MAX_SERIES
from penstock.serve.telemetry.metrics import Metrics
from penstock.stores.book.open import open_book
from tests.faults.client import CLIENT_KEY, RawClient, body, post
from tests.faults.gateway import CANARIES, Gateway, settings
from tests.faults.scripts import ERROR_BODY, HELLO, REST, WORLD, spare, stream, unstreamed, whole
from tests.faults.upstream import JSON, Upstream, chunk, hang, head, last_chunk, rst, sleep, status, until_read
from tests.promptness import cpu_s, in_time, prompt
from tests.serve.scrapes import (
    PRICES,
    REQUESTS,
    Samples,
    Served,
    ask,
    of_worker,
    parse,
    scrape,
    served,
    settled,
    sockets,
    value,
)
from tests.serve.support import call
from tests.streams import finishes, sse


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def gateway(tmp_path: Path, upstream: Upstream) -> Iterator[Served]:
    with served(tmp_path, settings(upstream.url, 2, **PRICES)) as made:
        yield made


def test_a_call_is_reported_in_every_family(gateway: Served, upstream: Upstream) -> None:
    upstream.play([head(), chunk(HELLO), until_read(), sleep(0.03), chunk(WORLD), chunk(REST), last_chunk()], "good")
    assert ask(gateway.port, "main/good").done
    samples = settled(gateway, 1)
    labels = {"route": "main/good", "model": "good", "provider": "main", "status_class": "2xx", "outcome": "completed"}
    labels["surface"] = "chat"
    assert samples[REQUESTS] == {frozenset(labels.items()): 1}
    assert value(samples, "penstock_stream_end_total", reason="done") == 1
    assert value(samples, "penstock_upstream_attempts_total", provider="main", result="completed") == 1
    assert value(samples, "penstock_tokens_total", direction="input", estimated="false", model="good") == 5
    assert value(samples, "penstock_tokens_total", direction="output", estimated="false") == 3
    assert value(samples, "penstock_cost_usd_total", provider="main", model="good") == pytest.approx(0.011)
    assert value(samples, "penstock_time_to_first_chunk_seconds_count", provider="main") == 1
    gaps = value(samples, "penstock_chunk_gap_seconds_count", provider="main")
    assert gaps >= 2
    assert value(samples, "penstock_chunk_gap_seconds_bucket", provider="main", le="+Inf") == gaps
    assert value(samples, "penstock_chunk_gap_seconds_bucket", provider="main", le="0.02") < gaps
    assert 0.025 < value(samples, "penstock_chunk_gap_seconds_sum", provider="main") < 60
    assert 0 < value(samples, "penstock_gateway_overhead_seconds_sum") < 10
    assert value(samples, "penstock_streams_open") == 0
    deadline = time.monotonic() + 30
    while not value(samples, "penstock_ledger_commit_seconds_count") and time.monotonic() < deadline:
        samples = gateway.scrape()
    assert value(samples, "penstock_ledger_commit_seconds_count") >= 1
    assert {"penstock_ledger_queue", "penstock_ledger_spooled"} <= samples.keys()


ENDS = {
    "done": (whole(), 200, "completed"),
    "truncated": ([head(), chunk(HELLO), rst()], 200, "truncated"),
    "failed": ([head(), chunk(HELLO), chunk(b"data: " + ERROR_BODY + b"\n\n"), last_chunk()], 200, "failed"),
    "idle": ([head(), chunk(HELLO), hang()], 200, "timed_out"),
}


@pytest.mark.parametrize("reason", ENDS)
def test_a_stream_ends_for_one_reason(gateway: Served, upstream: Upstream, reason: str) -> None:
    script, _, outcome = ENDS[reason]
    upstream.play(script, "model")
    ask(gateway.port, "hasty-gap/model" if reason == "idle" else "main/model")
    samples = settled(gateway, 1)
    assert value(samples, "penstock_stream_end_total", reason=reason) == 1
    assert value(samples, "penstock_stream_end_total") == 1
    assert value(samples, REQUESTS, outcome=outcome, status_class="2xx") == 1


def test_what_is_known_beforehand_begins_at_nothing(gateway: Served) -> None:
    samples = gateway.scrape()
    reasons = {"done", "client_gone", "truncated", "idle", "cut", "drained", "failed"}
    assert samples["penstock_stream_end_total"] == {frozenset({("reason", reason)}): 0 for reason in reasons}
    for family in FAMILIES:
        if not family.labels:
            name = f"{family.name}_count" if family.kind == "histogram" else family.name
            assert samples[name].keys() == {frozenset()}
            assert family.kind != "counter" or samples[name][frozenset()] == 0


def test_a_client_that_leaves_is_reported(gateway: Served, upstream: Upstream) -> None:
    upstream.play([head(), chunk(HELLO), hang()], "endless")
    with RawClient(gateway.port) as client:
        client.send(post(body("main/endless", stream=True)))
        client.read_until(b"Hello")
        assert value(gateway.scrape(), "penstock_streams_open") == 1
    samples = settled(gateway, 1)
    assert value(samples, "penstock_stream_end_total", reason="client_gone") == 1
    assert value(samples, "penstock_tokens_total", estimated="true") > 0
    assert value(samples, "penstock_streams_open") == 0


def test_a_fallback_is_reported_with_both_attempts(gateway: Served, upstream: Upstream) -> None:
    upstream.play([status(503, JSON, ERROR_BODY)], "pair-0-a")
    upstream.play(spare(), "pair-0-b")
    assert ask(gateway.port, "pair-0").done
    samples = settled(gateway, 1)
    assert value(samples, "penstock_fallbacks_total", route="pair-0") == 1
    assert value(samples, "penstock_upstream_attempts_total", provider="main", result="failed") == 1
    assert value(samples, "penstock_upstream_attempts_total", provider="spare", result="completed") == 1
    assert value(samples, REQUESTS, route="pair-0", provider="spare", model="pair-0-b") == 1


def test_repairs_are_reported_by_provider_and_code(gateway: Served, upstream: Upstream) -> None:
    upstream.play(stream(HELLO, WORLD, REST.replace(b"data: [DONE]\n\n", b"")), "odd")
    ask(gateway.port, "main/odd")
    assert value(settled(gateway, 1), "penstock_repairs_total", provider="main", code="no-done") == 1


def test_notices_are_distinguished_from_repairs(gateway: Served, upstream: Upstream) -> None:
    upstream.play(stream(HELLO, WORLD, sse(finishes(), finishes()), REST), "habit")
    assert ask(gateway.port, "main/habit").done
    samples = settled(gateway, 1)
    assert value(samples, "penstock_notices_total", provider="main", code="finish-repeated") == 2
    assert value(samples, "penstock_notices_total") == 2
    assert value(samples, "penstock_repairs_total") == 0


def test_unstreamed_answers_and_refusals_are_calls_too(gateway: Served, upstream: Upstream) -> None:
    upstream.play(unstreamed(), "plain")
    assert ask(gateway.port, "main/plain", stream=False).status == 200
    assert ask(gateway.port, "nobody/at-all").status == 404
    samples = settled(gateway, 2)
    assert value(samples, REQUESTS, outcome="refused", status_class="4xx", route=OTHER, provider="") == 1
    assert value(samples, "penstock_stream_end_total") == 0


def test_no_secret_and_no_content_is_reported(gateway: Served, upstream: Upstream) -> None:
    upstream.play(whole(), "good")
    ask(gateway.port, "main/good", user="canary-of-a-user", metadata={"canary": "canary-of-a-tag"})
    for model in (CLIENT_KEY, f"main/{CLIENT_KEY}"):
        assert ask(gateway.port, model).status == 400
    settled(gateway, 1)
    text = gateway.text()
    assert "canary" not in text
    assert "Hello" not in text
    assert not [secret for secret in CANARIES if secret in text]


@pytest.mark.slow  # a gateway with a ledger compiles the prices on a new machine
def test_what_is_left_of_a_budget_is_reported(tmp_path: Path, upstream: Upstream) -> None:
    secret = "sk-of-somebody-who-may-spend"
    book = open_book(LedgerSettings(), {"PENSTOCK_STATE": str(tmp_path / "state")})
    book.change_keys(
        lambda *_: [
            Key(
                id="key_a", name="", digest=digest_of(secret), hint="", created_ms=1, budget=110_000_000, period="month"
            )
        ]
    )
    book.close()
    upstream.play(whole(), "good")
    labels = {"kind": "key", "name": "key_a", "period": "month"}
    with served(tmp_path, settings(upstream.url, 2, **PRICES)) as gateway:
        assert value(gateway.scrape(), "penstock_budget_remaining_ratio", **labels) == 1
        with RawClient(gateway.port) as client:
            client.send(
                post(body("main/good", stream=True, max_tokens=9), headers={"Authorization": f"Bearer {secret}"})
            )
            assert client.response().done
        samples = settled(gateway, 1)
        assert value(samples, "penstock_budget_remaining_ratio", **labels) == pytest.approx(0.9)
        assert secret not in gateway.text()


async def _count(folder: Path | None, models: list[str], *, answered: bool) -> str:
    metrics = Metrics(dict, folder)
    for model in models:
        made = call(model, answered=answered)
        metrics.settled(made, entry_of(made, lambda *_: 7))
    return (await metrics.text()).decode()


def test_calls_are_counted_by_the_api_of_their_client() -> None:
    apis = ["chat", "messages", "messages", "responses"]

    async def count() -> Samples:
        metrics = Metrics(dict)
        for api in apis:
            made = call("main/m", answered=True)
            made.surface, made.progress.status, made.progress.overhead_s, made.progress.losses = (
                api,
                200,
                0.1,
                [Loss("stop-dropped")],
            )
            metrics.settled(made, entry_of(made, lambda *_: 7))
            alike = call("main/m", answered=True)
            alike.surface, alike.progress.status, alike.progress.overhead_s = api, 200, 0.1
            alike.progress.attempts[0].usage = Usage(input=8, output=18)
            metrics.settled(alike, entry_of(alike, lambda *_: 7))
        return parse((await metrics.text()).decode())

    samples = asyncio.run(count())
    assert {api: value(samples, REQUESTS, surface=api) for api in apis} == {"chat": 2, "messages": 4, "responses": 2}
    assert value(samples, "penstock_losses_total", surface="messages") == 2


def test_entries_of_a_known_kind_are_counted_like_the_first_of_it() -> None:
    """Also when a name has become known, or has found no room, since the kind was first counted."""
    random_source = random.Random(1)

    def attempt() -> AttemptEntry:
        return AttemptEntry(
            provider=random_source.choice("pq"),
            model=random_source.choice(["m", "n", *map(str, range(150))]),
            outcome=random_source.choice(["completed", "failed"]),
            code=random_source.choice(["", "upstream_error"]),
            measure=random_source.choice(["reported", "estimated"]),
            tokens=Tokens(input=random_source.choice([0, 3]), output=random_source.choice([0, 5])),
            cost=random_source.choice([None, 0, 7]),
        )

    entries = [
        Entry(
            id=str(number),
            at_ms=0,
            model=f"p/{random_source.randrange(150)}",
            outcome=random_source.choice(["completed", "refused"]),
            status=random_source.choice([0, 200, 503]),
            team=random_source.choice(["", "red"]),
            attempts=tuple(attempt() for _ in range(random_source.randrange(3))),
        )
        for number in range(3_000)
    ]
    remembering, forgetting = ((SharedCounters(), LabelValues()) for _ in range(2))
    counts = EntryCounts(*remembering)
    for entry in entries:
        key = random_source.choice(["", "ci"])
        counts.add(entry, key)
        EntryCounts(*forgetting).add(entry, key)
    assert remembering[0].counts() == forgetting[0].counts()


def test_budgets_of_very_many_keys_do_not_hold_the_event_loop() -> None:
    threads: list[str] = []

    def budgets() -> dict[tuple[str, str, str], float]:
        threads.append(threading.current_thread().name)
        return {("key", f"key {number}", "month"): number / 4_000 for number in range(4_000)}

    async def scrape() -> Samples:
        metrics = Metrics(dict)
        metrics.budgets = budgets
        return parse((await metrics.text()).decode())

    samples = asyncio.run(scrape())["penstock_budget_remaining_ratio"]
    assert threads != ["MainThread"]
    assert len(samples) == MAX_SERIES
    assert max(samples.values()) == (MAX_SERIES - 1) / 4_000, "`other` has the least of the others"


def test_a_call_is_counted_at_once(tmp_path: Path) -> None:
    """Other workers read the counters of a worker that does not respond, or that was killed."""

    async def count() -> float:
        metrics = Metrics(dict, tmp_path)
        made = call("main/m", answered=True)
        for _ in range(3):
            metrics.settled(made, entry_of(made, lambda *_: 7))
        counted = total(read_all(tmp_path))
        return sum(numbers[0] for (name, _), numbers in counted.items() if name == REQUESTS)

    assert asyncio.run(count()) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("answered", "shared"), [(True, True), (False, False)])
def test_a_hundred_thousand_models_stay_few(tmp_path: Path, answered: bool, shared: bool) -> None:
    chance = random.Random(5)
    models = [f"main/{chance.randbytes(8).hex()}" for _ in range(100_000)]
    began = time.process_time()
    text = asyncio.run(_count(tmp_path if shared else None, models, answered=answered))
    assert (time.process_time() - began) / len(models) < cpu_s(0.0005)
    samples = parse(text)
    assert value(samples, REQUESTS) == len(models)
    for series in samples.values():
        for label in ("route", "model", "provider"):
            assert len({dict(labels).get(label) for labels in series}) <= 100
    names = {dict(labels)["route"] for labels in samples[REQUESTS]}
    assert len(names) == (100 if answered else 1)
    assert len(text) < 1_000_000


def test_a_family_has_so_many_series_and_no_more(tmp_path: Path) -> None:
    counters = SharedCounters(tmp_path)
    for number in range(3 * MAX_SERIES):
        counters.add(BY_NAME["penstock_repairs_total"], (f"p{number}", "code"))
        counters.observe(BY_NAME["penstock_chunk_gap_seconds"], (f"p{number}",), 0.5)
    (counts,) = read_all(tmp_path)
    repairs = {labels: numbers for (name, labels), numbers in counts.items() if name == "penstock_repairs_total"}
    assert len(repairs) == MAX_SERIES
    assert repairs[OTHER, OTHER] == [2 * MAX_SERIES + 1]
    assert sum(map(sum, repairs.values())) == 3 * MAX_SERIES
    assert counts == counters.counts()


@pytest.mark.slow
def test_a_worker_goes_on_with_what_another_has_left(tmp_path: Path) -> None:
    family = BY_NAME["penstock_fallbacks_total"]
    first, second = SharedCounters(tmp_path), SharedCounters(tmp_path)
    first.add(family, ("a",))
    second.add(family, ("a",))
    second.add(family, ("b",))
    pid = os.fork()
    if not pid:  # a third, which counts and is killed
        SharedCounters(tmp_path).add(family, ("c",), 5)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert len(list(tmp_path.glob("*.values"))) == 3
    successor = SharedCounters(tmp_path)
    successor.add(family, ("c",))
    assert len(list(tmp_path.glob("*.values"))) == 3
    sums = total(read_all(tmp_path))
    assert {labels: numbers for (_, labels), numbers in sums.items()} == {("a",): [2], ("b",): [1], ("c",): [6]}


def _count_without_room(folder: Path) -> None:
    """Count in a process whose files may not grow, for a while."""
    family = BY_NAME["penstock_fallbacks_total"]
    counters, names = SharedCounters(folder), LabelValues(folder)
    counters.add(family, (names.of("route", "a"),))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for room in (0, 10):  # nothing of a line, and half of one
        resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "0.keys").stat().st_size + room, hard))
        counters.add(family, ("lost",))
        counters.add(family, (names.of("route", "a"),))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    counters.add(family, (names.of("route", "b"),))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    counters.add(family, (names.of("route", "c"),), 5)


@pytest.mark.slow
def test_a_full_disk_costs_a_series_and_no_call(tmp_path: Path) -> None:
    family = BY_NAME["penstock_fallbacks_total"]
    pid = os.fork()
    if not pid:
        status = 1
        try:
            _count_without_room(tmp_path)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    (counts,) = read_all(tmp_path)
    assert counts == {(family.name, ("a",)): [3], (family.name, ("c",)): [5]}


# Several workers.


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short name: that of a socket has room for a hundred characters."""
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def workers(tmp_path: Path, home: Path, upstream: Upstream) -> Iterator[Gateway]:
    configuration = settings(upstream.url, 2, server={"drain_s": 1.0}, **PRICES)
    made = Gateway(tmp_path, upstream, configuration, arguments=("--workers", "2"), environment={"TMPDIR": str(home)})
    with made:
        sockets(home)
        yield made


def test_any_worker_tells_of_all_even_of_those_that_were_killed(
    home: Path, upstream: Upstream, workers: Gateway
) -> None:
    upstream.play(whole(), "good")
    made = 0
    before: Samples = {}
    for killed in range(3):
        for _ in range(20):
            assert workers.ask("main/good", stream=True).done
            made += 1
        living = sockets(home)
        for path in living * 2:
            deadline = time.monotonic() + 30
            while value(samples := parse(scrape(of_worker(path))), REQUESTS, route="main/good") != made:
                assert time.monotonic() < deadline  # a worker that is slow to respond is read from its file
            assert value(samples, "penstock_tokens_total", direction="input") == 5 * made
            assert value(samples, "penstock_cost_usd_total") == pytest.approx(0.011 * made)
            _never_down(before, samples)
            before = samples
        if killed < 2:
            os.kill(int(living[killed % 2].stem), signal.SIGKILL)
            (left,) = [path for path in living if path != living[killed % 2]]
            _never_down(before, parse(scrape(of_worker(left))))  # while one is missing
            workers.says("another one takes its place")
            sockets(home)
    assert len(list(home.glob("penstock-*/workers/*.values"))) == 2


def _never_down(before: Samples, after: Samples) -> None:
    gauges = {family.name for family in FAMILIES if family.kind in ("sum", "least", "most")}
    for name, series in before.items():
        if name not in gauges:
            for labels, number in series.items():
                assert after[name].get(labels, -1) >= number, (name, labels)


def test_gauges_are_the_sums_of_all_workers(home: Path, upstream: Upstream, workers: Gateway) -> None:
    upstream.play([head(), chunk(HELLO), hang()], "endless")
    clients = [workers.begin("main/endless", stream=True) for _ in range(12)]
    for client in clients:
        client.read_until(b"Hello")
    for path in sockets(home):
        assert value(parse(scrape(of_worker(path))), "penstock_streams_open") == 12
    for client in clients:
        client.close()


@prompt
def test_a_worker_that_hangs_is_left_out(home: Path, upstream: Upstream, workers: Gateway) -> None:
    upstream.play(whole(), "good")
    before = value(parse(scrape(of_worker(sockets(home)[0]))), REQUESTS)
    for _ in range(10):
        workers.ask("main/good", stream=True)
    stopped, asked = sockets(home)
    assert value(parse(scrape(of_worker(asked))), REQUESTS) == before + 10
    os.kill(int(stopped.stem), signal.SIGSTOP)
    try:
        began = time.monotonic()
        samples = parse(scrape(of_worker(asked)))
        in_time(time.monotonic() - began, 2.0)
        assert value(samples, REQUESTS) == before + 10  # its counts are reported all the same
    finally:
        os.kill(int(stopped.stem), signal.SIGCONT)


def test_a_call_whose_worker_was_killed_is_reported_as_the_ledger_tells_it(
    home: Path, upstream: Upstream, workers: Gateway
) -> None:
    upstream.play([head(), chunk(HELLO), hang()], "endless")
    clients = [workers.begin("main/endless", stream=True) for _ in range(6)]
    for client in clients:
        client.read_until(b"Hello")
    workers.expected = 0
    for path in sockets(home):
        os.kill(int(path.stem), signal.SIGKILL)
    deadline = time.monotonic() + 30
    samples: Samples = {}
    while value(samples, REQUESTS, outcome="orphaned") < 6:
        assert time.monotonic() < deadline, samples.get(REQUESTS)
        with suppress(OSError):  # of one that is about to go
            samples = parse(scrape(of_worker(sockets(home)[0])))
    assert value(samples, REQUESTS) == 6
    assert value(samples, "penstock_upstream_attempts_total", result="orphaned") == 6
    assert value(samples, "penstock_tokens_total", direction="input", estimated="true") > 0
    for client in clients:
        client.close()


def test_no_one_else_can_enter_where_workers_meet(home: Path, workers: Gateway) -> None:
    folder = sockets(home)[0].parent
    assert workers.port
    assert (folder.stat().st_mode & 0o777, folder.parent.stat().st_mode & 0o777) == (0o700, 0o700)

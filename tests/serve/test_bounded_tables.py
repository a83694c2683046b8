"""Every table of a gateway that is keyed by input of a client or a provider has a bound, whatever names they send.

Each row fills its table through the interface that the names come in by. `docs/bounds.md` has the same list.
"""

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from penstock.core.fast.openings import OpeningTemplate
from penstock.core.hub.events import TextDelta
from penstock.core.hub.failure import Failure
from penstock.core.hub.usage import Tokens
from penstock.core.stream import StreamReader
from penstock.gateway import mask
from penstock.gateway.billing.accounting import entry_of
from penstock.gateway.billing.price_table import PriceTable
from penstock.gateway.billing.prices import PriceBook
from penstock.gateway.billing.tags import clean_tags
from penstock.gateway.calls.breakers import MAX_TARGETS, BreakerTable
from penstock.gateway.calls.plan import CallKind, Plans
from penstock.gateway.calls.routing import TargetHealth
from penstock.gateway.config import Config, Target, load
from penstock.gateway.limits.output_estimate import BytesPerToken
from penstock.gateway.mask import masked
from penstock.gateway.record.attempt import MAX_STALLS, STALL_S, Attempt, EventGaps
from penstock.gateway.record.call import Call, Progress
from penstock.gateway.record.transcript import Transcript
from penstock.replay.library import Library, LibraryCapture, fields_of, request_key
from penstock.serve import responses
from penstock.serve.live.live_calls import LiveCalls, LiveFilter
from penstock.serve.rejections import MAX_ROWS, Rejection, Rejections
from penstock.serve.telemetry.counters import SharedCounters
from penstock.serve.telemetry.histograms import Histograms
from penstock.serve.telemetry.label_values import MAX_VALUES, LabelValues
from penstock.serve.telemetry.metric_specs import MAX_SERIES, REQUESTS
from penstock.stores.content.end_users import MAX_KNOWN, EndUsers
from penstock.stores.content.sql_users import ClaimedPseudonyms
from tests.streams import begins, says, sse

TEXT = """
[providers.acme]
base_url = "https://acme.example/v1"
api_key = "sk-acme-0123456789"
embeddings = "/embeddings"
[prices."acme/*"]
input = 1.0
output = 2.0
"""
# What may still be added when a table is full: a dict that is resized, say.
_SLACK = 100_000


class Table(NamedTuple):
    """One table: what comes with a name that was never seen before; how many names it holds; and how many at most."""

    use: Callable[[str], object]
    size: Callable[[], int]
    most: int


def _config(folder: Path) -> Config:
    file = folder / "penstock.toml"
    file.write_text(TEXT)
    return load(file, {})


def _call(model: str) -> Call:
    """A call that a made-up model has answered."""
    attempt = Attempt("acme", model, sent=True, status=200, ending="completed", commit_s=0.1)
    attempt.tokens = Tokens(input=3, output=5)
    call = Call("id", f"acme/{model}", True, 0.0, progress=Progress(attempts=[attempt], status=200, ending="completed"))
    call.progress.commit_s = 0.1
    return call


def breakers(folder: Path) -> Table:
    table = BreakerTable()
    use, _ = _failing(folder, table)
    return Table(use, lambda: len(table), MAX_TARGETS)


def breaker_keys(folder: Path) -> Table:
    use, health = _failing(folder, BreakerTable())
    return Table(use, lambda: len(health._keys), MAX_TARGETS)


def _failing(folder: Path, table: BreakerTable) -> tuple[Callable[[str], object], TargetHealth]:
    """A function that lets a target fail, and the state that it changes."""
    config = _config(folder)
    health = TargetHealth(config.retries, lambda: 1.0, lambda: 1.0, table)
    failure = Failure(code="upstream_rate_limited", message="", status=429)

    def use(name: str) -> None:
        target = Target.parse(f"acme/{name}", config.providers)
        health.failed(target, failure)
        health.broke(target, failure)

    return use, health


def plans(kind: CallKind) -> Callable[[Path], Table]:
    def make(folder: Path) -> Table:
        plans = Plans(_config(folder), kind, recorded=False)
        return Table(lambda name: plans[f"acme/{name}"], lambda: len(plans), 1_000)

    return make


def quotes(folder: Path) -> Table:
    config = _config(folder)
    book = PriceBook(PriceTable(version="test", sellers=()), {"acme/*": config.prices["acme/*"]})
    provider = config.providers["acme"]
    return Table(lambda name: book.quote(provider, name, 1.0), lambda: len(book._quotes), 4_096)


def ratios(_: Path) -> Table:
    ratios = BytesPerToken()
    return Table(lambda name: ratios.learn(name, 4_000, 1_000), lambda: len(ratios), 1_024)


def label_values(folder: Path) -> Table:
    names = LabelValues(folder)
    return Table(lambda name: names.of("model", name), lambda: len(names._known["model"]), MAX_VALUES)


def series(folder: Path) -> Table:
    counters = SharedCounters(folder)
    labels = ("acme", "acme", "2xx", "completed")
    return Table(
        lambda name: counters.add(REQUESTS, ("chat", name, *labels)), lambda: len(counters.counts()), MAX_SERIES
    )


def histograms(_: Path) -> Table:
    made = Histograms(lambda _: ("acme.example", 443))

    def use(name: str) -> None:
        call = _call(name)
        made.settled(call, entry_of(call, lambda *_: 5))

    return Table(use, lambda: len(list(made)), 2_000)


def header_lines(_: Path) -> Table:
    cached = responses._answered_by
    return Table(lambda name: cached("acme", name), lambda: cached.cache_info().currsize, 1_024)


def references(_: Path) -> Table:
    cached = mask._character
    return Table(
        lambda name: masked(f"&{name[-9:]};", ["sk-acme-0123456789"]), lambda: cached.cache_info().currsize, 1_024
    )


def escapes(_: Path) -> Table:
    cached, secrets = mask._decoded, mask.Secrets(["sk-acme-0123456789"])
    return Table(lambda name: secrets.may_be_in(f"&{name[-9:]};"), lambda: cached.cache_info().currsize, 1_024)


def captures(folder: Path) -> Table:
    entries = [
        LibraryCapture(folder / f"{n}", (f"{n}",), request_key(fields_of(_body(f"{n}")), "openai_chat"))
        for n in range(10)
    ]
    library = Library(entries)
    return Table(lambda name: library.choose(_body(name)), lambda: len(library._turns), 2 * len(entries) + 1)


def _body(name: str) -> bytes:
    return msgspec.json.encode({"model": name, "messages": [{"role": "user", "content": name}]})


def views(_: Path) -> Table:
    live = LiveCalls({}, lambda _: 0)
    return Table(lambda name: live.snapshot(LiveFilter(find=name)), lambda: len(live._pages), 64)


def tags(_: Path) -> Table:
    given: dict[str, str] = {}
    return Table(lambda name: given.update({name: name}), lambda: len(clean_tags(given, {}, ())), 16)


def transcript(_: Path) -> Table:
    made = Transcript()

    def use(name: str) -> None:
        made.append([TextDelta(int(name), "x")])

    return Table(use, lambda: len(made.parts()), 256)


def stalls(_: Path) -> Table:
    gaps = EventGaps()
    return Table(lambda name: gaps.note(STALL_S + int(name), 0.0), lambda: len(gaps.stalls), MAX_STALLS)


class _UsersOfMemory:
    """A content store that gives each user the proposed pseudonym."""

    @property
    def users(self) -> "_UsersOfMemory":
        return self

    def claim(self, proposed: Mapping[str, str], _further: Mapping[str, str]) -> ClaimedPseudonyms:
        return ClaimedPseudonyms(proposed, 0)

    def erasures(self) -> int:
        return 0


def pseudonyms(_: Path) -> Table:
    users = EndUsers(lambda work, then: then(work(_UsersOfMemory())))
    return Table(lambda name: users.find(name, lambda _: None), lambda: users.size, MAX_KNOWN)


def rejections(_: Path) -> Table:
    table = Rejections(lambda _: None, lambda _: None, time.monotonic)
    rejection = Rejection(Failure(code="invalid_api_key", message=""), "unknown_key")
    return Table(lambda name: table.add(rejection, name), lambda: len(table), MAX_ROWS)


TABLES: dict[str, Callable[[Path], Table]] = {
    "circuit breakers": breakers,
    "keys of circuit breakers": breaker_keys,
    "plans of streamed chats": plans("streamed"),
    "plans of whole chats": plans("whole"),
    "plans of embeddings": plans("embeddings"),
    "quotes": quotes,
    "bytes per token": ratios,
    "values of a metric's label": label_values,
    "series of a metric": series,
    "series for a collector": histograms,
    "header lines": header_lines,
    "HTML references": references,
    "escapes in errors": escapes,
    "turns of captures": captures,
    "views of running calls": views,
    "pseudonyms of users": pseudonyms,
    "rejected requests": rejections,
    "tags of a call": tags,
    "blocks of a transcript": transcript,
    "stalls of an attempt": stalls,
}


@pytest.mark.slow
@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
def test_a_table_has_a_bound(tmp_path: Path, make: Callable[[Path], Table]) -> None:
    async def check() -> None:
        table = make(tmp_path)
        for number in range(3 * table.most):
            table.use(f"{number:090}")
        assert 0 < table.size() <= table.most

    asyncio.run(check())


# What these are filled from is the test's own, and grows.
_NO_TABLES = ("tags of a call", "stalls of an attempt")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TABLES if name not in _NO_TABLES])
def test_a_table_that_is_full_takes_no_more_memory(tmp_path: Path, name: str) -> None:
    """Nor is there another one behind it that grows."""

    async def kept() -> tuple[int, int]:
        table = TABLES[name](tmp_path)
        sizes = []
        numbers = iter(range(1_000_000))
        for _ in range(2):
            for _ in range(2 * table.most):
                table.use(f"{next(numbers):090}")
            await asyncio.sleep(0.06)  # for what is done together, soon
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
        return sizes[0], sizes[1]

    tracemalloc.start()
    try:
        before, after = asyncio.run(kept())
    finally:
        tracemalloc.stop()
    assert after - before < _SLACK


@pytest.mark.parametrize("place", ["system_fingerprint", "service_tier", "model"])
def test_what_is_learnt_of_a_target_is_small_whatever_its_answers_begin_with(place: str) -> None:
    """There is one opening for each plan. A pattern of a megabyte would take seconds to make, too."""
    opening = OpeningTemplate()
    long = {place: "x" * 400_000}
    tracemalloc.start()
    try:
        reader = StreamReader(opening_template=opening)
        for event in (begins(), says("a"), says("b")):
            reader.feed(sse(event | long))
        del reader, event
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000

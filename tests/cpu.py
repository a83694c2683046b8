"""What provider events and requests cost in CPU time, and a search for those that cost most, in every dialect.

A *pattern* is a unit that is repeated inside a shell: `{}` in a list of choices, `1e308,` in a field that has no
meaning, `%41` in an error. First each of the smallest units (atoms) is tried in each shell. Then patterns are made by a
grammar, mutated, and those that cost most are mutated again. To try a pattern is to measure it at growing sizes, as
long as it may come near the limit: atoms up to a megabyte, as long as the time that follows from the last two sizes
does; others up to a few kilobytes, unless their time grows faster than their size. The worst of these are grown, too.
The garbage collector is off meanwhile, because it makes some runs slow that are not to blame; the worst are measured
again with it (`worst_size`). An event is measured by the longest callback of a real relay that reads it, in
the turns in which `http/upstream_connection.py` hands it over. Half of the patterns are translated to another dialect.
"""

import asyncio
import gc
import math
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from types import FrameType
from typing import TypeAlias

from penstock import StreamReader, StreamWriter
from penstock.core.dialects.dialect import Destination, RequestError
from penstock.core.dialects.registry import DEFAULT_DIALECT, DIALECTS, surface_dialect, upstream_dialect
from penstock.core.stream import MAX_EVENT
from penstock.gateway.billing.tags import clean_tags
from penstock.gateway.limits.demand import chat_demand, embeddings_demand
from penstock.gateway.record.attempt import Attempt, AttemptControl
from penstock.gateway.record.call import Call
from penstock.gateway.record.embeddings_request import parse_embeddings
from penstock.gateway.record.failure import from_status, redacted
from penstock.gateway.record.timeouts import AttemptTimeouts
from penstock.gateway.relay.outcome import Outcome
from penstock.gateway.relay.relay import Relay
from penstock.http.upstream_connection import LONGEST_TURN, Receiver, turn_size
from tests.cpu_shells import ATOMS, BEGINNINGS, ERRORS, EVENTS, FRAMING, NUMBER, REQUESTS

TURN = 2_048  # as in `http/upstream_connection.py`
MB = 1_000_000
LARGEST_EVENT = 990_000
_DESTINATION = Destination(model="n")
SECRETS = ("sk-a-provider-key-of-some-length", "another-header-that-is-secret")


@dataclass(frozen=True)
class Pattern:
    """A unit that is repeated inside a shell, up to so many bytes."""

    kind: str
    shell: str
    unit: bytes
    size: int
    how: str = "streamed"
    dialect: str = DEFAULT_DIALECT
    other: str = ""
    """The dialect of the other side, if it is translated: of the client (events), or of the provider (requests)."""

    def data(self) -> bytes:
        """What is sent."""
        before, _, behind = _shells(self.kind, self.dialect)[self.shell].partition(b"%b")
        before, behind = before.replace(b"%%", b"%"), behind.replace(b"%%", b"%")
        count = max((self.size - len(before) - len(behind)) // max(len(self.unit), 1), 1)
        if NUMBER in self.unit:
            first, *rest = self.unit.split(NUMBER)
            units = b"".join(first + b"".join(b"%x" % number + part for part in rest) for number in range(count))
        else:
            units = self.unit * count
        return before + units + behind

    def __str__(self) -> str:
        way = f"{self.dialect} to {self.other}" if self.other else self.dialect
        return f"{self.kind}: {self.shell}, {self.how}, {way}, {self.size:,} bytes of {self.unit[:60]!r}"


def _shells(kind: str, dialect: str) -> dict[str, bytes]:
    return ERRORS if kind == "error" else {"event": EVENTS, "request": REQUESTS}[kind][dialect]


@dataclass(frozen=True)
class Cost:
    """Milliseconds of CPU time without interruption, and the result of reading."""

    ms: float
    outcome: str


class _Connection:
    aligned_chunks = ()
    on_chunk: Callable[[bytes, bytes], bool] | None = None

    def __init__(self) -> None:
        self.receiver: Receiver | None = None

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def redirect(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def abandon(self, receiver: Receiver) -> None: ...


class _Client:
    def __init__(self, *, stream: bool) -> None:
        self.stream = stream

    def begin(self) -> None: ...

    def write(self, data: bytes, /) -> None: ...

    def hold(self, data: bytes, /) -> None: ...

    def chunk_writer(self) -> None: ...

    def end(self, data: bytes) -> None: ...

    def answer(self, body: bytes) -> None: ...


_TIMEOUT = AttemptTimeouts(first_event_s=60, gap_s=60, heartbeat_s=0, total_s=900, max_body=MAX_EVENT)


async def cost_of_event(
    data: bytes, how: str = "streamed", dialect: str = DEFAULT_DIALECT, client_dialect: str = ""
) -> Cost:
    """The longest time that a relay takes for these bytes without returning to the event loop."""
    outcomes: list[Outcome] = []
    stream = how not in ("unstreamed", "whole")
    call = Call("req_1", "m", stream=stream, started=asyncio.get_running_loop().time())
    attempt = Attempt("p", "m", SECRETS, dialect)
    call.progress.attempts.append(attempt)
    call.progress.control = AttemptControl(attempt)
    if how == "kept":
        call.progress.control.keep_transcript()
    client = _Client(stream=stream)
    writer = StreamWriter(client_dialect or dialect)
    relay = Relay(call, client, StreamReader(dialect), writer, _TIMEOUT, outcomes.append)
    connection = _Connection()
    relay.attach(connection)
    packed = how == "packed"
    relay.on_head(200, {"content-encoding": "gzip"} if packed else {})
    if packed:
        packer = zlib.compressobj(wbits=31)
        data = packer.compress(BEGINNINGS[dialect] + data) + packer.flush()
    elif how not in ("alone", "whole"):
        relay.on_data(BEGINNINGS[dialect])
    reads, at = [], 0
    while at < len(data):
        read = data[at : at + LONGEST_TURN]
        reads.append(read[: turn_size(read)])
        at += len(reads[-1])
    receiver = connection.receiver or relay
    steps: list[Callable[[], None]] = [*(partial(receiver.on_data, read) for read in reads), receiver.on_end]
    longest = 0.0
    for step in steps:
        began = time.thread_time()
        step()
        longest = max(longest, time.thread_time() - began)
        turns = 0
        while packed and attempt.ending is None and turns < 1_000:  # what the relay does in turns of its own
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)
            turns += 1
    return Cost(longest * 1000, attempt.code or str(attempt.ending))


def cost_of_request(
    data: bytes, how: str = "streamed", dialect: str = DEFAULT_DIALECT, provider_dialect: str = DEFAULT_DIALECT
) -> Cost:
    """How long it holds the event loop to read a request and to write it for a provider, for each megabyte begun."""
    began = time.thread_time()
    try:
        if how == "embeddings":
            embeddings = parse_embeddings(data)
            embeddings_demand(embeddings)
            embeddings.members.edited(_DESTINATION.members)
        else:
            surface, upstream = surface_dialect(dialect), upstream_dialect(provider_dialect)
            request = surface.read_request(data, {}, surface.path)
            if not request.has_many_values:  # else a thread does the rest
                demand = chat_demand(request, upstream.limits(request, _DESTINATION))
                clean_tags(demand.tags, {}, SECRETS)
                upstream.write_request(request, _DESTINATION)
        outcome = "read"
    except RequestError as refused:
        outcome = refused.failure.code
    return Cost((time.thread_time() - began) * 1000 / max(len(data) / MB, 1), outcome)


def cost_of_error(data: bytes, dialect: str = DEFAULT_DIALECT, client_dialect: str = "") -> Cost:
    """The time to read the body of a provider's error, to mask secrets in it, and to write it for the client."""
    began = time.thread_time()
    failure = redacted(from_status(400, {}, data[:65_536], dialect), SECRETS)
    own = dialect if dialect in _DIALECTS["surface"] else DEFAULT_DIALECT
    surface_dialect(client_dialect or own).write_error(failure, "req_1")
    return Cost((time.thread_time() - began) * 1000, failure.code)


def calls_of(work: Callable[[], object], function: object = None) -> int:
    """How many calls, of Python's functions and of C's, this takes: on a busy machine as many as on any other.

    With `function`, one that is written in C, only calls of that are counted.
    """
    count = 0

    def profile(_frame: FrameType, event: str, called: object) -> None:
        nonlocal count
        if (event == "c_call" and function in (None, called)) or (event == "call" and function is None):
            count += 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


async def cost_of(pattern: Pattern, data: bytes = b"") -> Cost:
    """What a pattern costs. `data` is what is sent, if it is known."""
    data = data or pattern.data()
    if pattern.kind == "event":
        return await cost_of_event(data, pattern.how, pattern.dialect, pattern.other)
    if pattern.kind == "request":
        return cost_of_request(data, pattern.how, pattern.dialect, pattern.other or pattern.dialect)
    return cost_of_error(data, pattern.dialect, pattern.other)


_DIALECTS = {
    "surface": [name for name, dialect in DIALECTS.items() if dialect.surface is not None],
    "upstream": [name for name, dialect in DIALECTS.items() if dialect.upstream is not None],
}
_WAYS = {
    "event": ("streamed", "streamed", "streamed", "unstreamed", "alone", "alone", "whole", "kept", "packed"),
    "request": ("streamed", "embeddings"),
    "error": ("streamed",),
}
_SMALL = {"event": (400, 400, 800, 2_040), "request": (4_000, 16_000), "error": (4_000, 16_000)}
_UNCOUNTED = 65_000  # just below what `core/dialects/bodies.py` decodes without an estimate
_GROWN = {
    "event": (16_000, 64_000, 250_000, 500_000, LARGEST_EVENT),
    "request": (_UNCOUNTED, 250_000, MB, 4 * MB),
    "error": (65_536,),
}
# Smaller ones are compared by what they would take at this size.
_COMPARED = {"event": TURN, "request": MB, "error": 65_536}
LIMITS_MS = {"event": 20.0, "request": 15.0, "error": 20.0}
"""The limits that Penstock promises: for an event of up to a megabyte, for each megabyte of a request, for an error."""
# What would come so near to its limit is tried at the next size.
_NEAR = 0.6
# A small pattern that grows faster than this power of its size, and takes so many milliseconds, is tried at all sizes.
_SUPERLINEAR = 1.3
_NOTABLE_MS = 0.3
_ELITE = 160
_OF_ONE_SHELL = 6
# Dialect, shell, unit, how, and the dialect of the other side.
Key: TypeAlias = tuple[str, str, bytes, str, str]
Found: TypeAlias = dict[Key, tuple[float, "Pattern", str]]
_GROW_EVERY = 1_000
_GROWN_AT_ONCE = 4
_COLLECT_EVERY = 500


def _best(found: Found) -> Found:
    """The most expensive patterns, but only a few of each shell, so that the candidates stay diverse."""
    best: Found = {}
    shells: Counter[tuple[str, str]] = Counter()
    for key, value in sorted(found.items(), key=lambda item: -item[1][0]):
        shells[key[:2]] += 1
        if shells[key[:2]] <= _OF_ONE_SHELL and len(best) < _ELITE:
            best[key] = value
    return best


async def climb(pattern: Pattern) -> list[tuple[Pattern, bytes, Cost]]:
    """What a pattern costs at growing sizes: up to its own, or beyond if its time grows faster than its size."""
    size, limit = pattern.size, LIMITS_MS[pattern.kind]
    large = size > _SMALL[pattern.kind][-1]
    found: list[tuple[Pattern, bytes, Cost]] = []
    for each in (size // 16, size // 4, size // 2, size) if large else (size // 4, size, *_GROWN[pattern.kind]):
        sized = replace(pattern, size=each)
        data = sized.data()
        cost = await cost_of(sized, data)
        found.append((sized, data, cost))
        if len(found) > 1 and each != size // 2:
            (_, smaller, before), (_, larger, now) = found[-2:]
            ratio = math.log(max(len(larger) / len(smaller), 1.01))
            power = min(max(math.log(max(now.ms, 1e-6) / max(before.ms, 1e-6)) / ratio, 1.0), 2.0)
            at_most = now.ms * max(size / each, 1.0) ** power
            if at_most < _NEAR * limit if large else (power < _SUPERLINEAR or now.ms < _NOTABLE_MS):
                break
    return found


async def worst_size(pattern: Pattern) -> tuple[Pattern, Cost]:
    """The size at which a pattern costs most, and what it costs then at least."""
    found: list[tuple[Pattern, Cost]] = []
    for size in (*_SMALL[pattern.kind][-1:], TURN, *_GROWN[pattern.kind]):
        sized = replace(pattern, size=size)
        found.append((sized, min([await cost_of(sized) for _ in range(3)], key=lambda cost: cost.ms)))
    return max(found, key=lambda item: item[1].ms)


def sweep() -> Iterator[Pattern]:
    """Each atom in each shell, at the greatest size, with a comma behind it where it is in a list or an object.

    Requests are also tried in translation, at the greatest size that is read without an estimate of its cost.
    """
    for dialect, events in EVENTS.items():
        own = {shell for shell in events if dialect == DEFAULT_DIALECT or shell not in FRAMING}
        yield from _each("event", dialect, own, LARGEST_EVENT)
    for dialect, requests in REQUESTS.items():
        others = _others("request", dialect)
        if dialect in _DIALECTS["upstream"]:
            yield from _each("request", dialect, requests, MB)
        for other in others:
            yield from _each("request", dialect, requests, _UNCOUNTED, other)
    for dialect in _DIALECTS["upstream"]:
        yield from _each("error", dialect, ERRORS, 65_536)


def _each(kind: str, dialect: str, shells: Iterable[str], size: int, other: str = "") -> Iterator[Pattern]:
    for shell in shells:
        apart = b'"%b"' not in _shells(kind, dialect)[shell]
        for atom in ATOMS:
            if kind != "request" or not apart:
                yield Pattern(kind, shell, atom, size, dialect=dialect, other=other)
            if apart:
                yield Pattern(kind, shell, atom + b",", size, dialect=dialect, other=other)


def _others(kind: str, dialect: str) -> list[str]:
    """The dialects that the other side may have, apart from this one."""
    return [other for other in _DIALECTS["upstream" if kind == "request" else "surface"] if other != dialect]


class Search:
    """A hill climb over patterns, starting with `first`; reproducible by its seed, except for the measured times."""

    def __init__(self, seed: int, first: Iterable[Pattern] = ()) -> None:
        self._random = Random(seed)
        self._first = iter(first)
        self.tried = 0
        self.worst: dict[str, Found] = {kind: {} for kind in _WAYS}
        self._least = dict.fromkeys(_WAYS, 0.0)
        self._grown: set[Key] = set()

    async def run(self, cases: int) -> None:
        """Try so many more."""
        until = self.tried + cases
        gc.disable()
        try:
            while self.tried < until:
                kind = self._random.choices(("event", "request", "error"), (75, 20, 5))[0]
                await self._try(next(self._first, None) or self._next(kind))
                if self.tried % _GROW_EVERY == 0:
                    await self._grow()
                if self.tried % _COLLECT_EVERY == 0:
                    gc.collect()
        finally:
            gc.enable()

    def add(self, worst: Mapping[str, Found], tried: int) -> None:
        """Add what another search has found."""
        self.tried += tried
        for kind, found in worst.items():
            own = self.worst[kind]
            own |= {key: each for key, each in found.items() if key not in own or own[key][0] < each[0]}

    def ranking(self, kind: str) -> list[tuple[float, Pattern, str]]:
        """What costs most, of one kind; at a size at which it was tried."""
        return sorted(self.worst[kind].values(), key=lambda found: -found[0])

    async def _try(self, pattern: Pattern) -> None:
        self.tried += 1
        for sized, data, cost in (await climb(pattern))[1:]:  # the first only shows the growth
            await self._note(sized, data, cost)

    async def _note(self, pattern: Pattern, data: bytes, cost: Cost) -> None:
        worst = self.worst[pattern.kind]
        scale = max(_COMPARED[pattern.kind] / len(data), 1)  # a unit may be longer than the size
        if cost.ms * scale > self._least[pattern.kind]:  # again: it may have been the machine
            cost = min([cost, *[await cost_of(pattern, data) for _ in range(2)]], key=lambda cost: cost.ms)
        key, score = self._key(pattern), cost.ms * scale
        if key not in worst or score > worst[key][0]:
            worst[key] = (score, pattern, cost.outcome)
        if len(worst) > 2 * _ELITE:
            self.worst[pattern.kind] = kept = _best(worst)
            self._least[pattern.kind] = min(score for score, _, _ in kept.values())

    def _next(self, kind: str) -> Pattern:
        random, worst = self._random, self.worst[kind]
        if len(worst) < _ELITE or random.random() < 0.3:
            unit = b"".join(random.choices(ATOMS, k=random.choice((1, 1, 2, 2, 3, 4))))
            dialects = {"event": list(EVENTS), "request": list(REQUESTS)}.get(kind, _DIALECTS["upstream"])
            dialect = random.choice(dialects)
            pattern = Pattern(kind, random.choice(list(_shells(kind, dialect))), unit, 0, dialect=dialect)
        else:
            pattern = random.choice(list(worst.values()))[1]
            pattern = replace(pattern, unit=self._mutated(pattern.unit))
            if random.random() < 0.3:
                pattern = replace(pattern, shell=random.choice(list(_shells(kind, pattern.dialect))))
        if (
            random.random() < 0.4
            and pattern.shell not in ("text", "a string", "arguments")
            and pattern.unit[-1:] != b","
        ):
            pattern = replace(pattern, unit=pattern.unit + b",")
        others = _others(kind, pattern.dialect)
        same = kind != "request" or pattern.dialect in _DIALECTS["upstream"]
        other = random.choice(others) if others and (not same or random.random() < 0.5) else ""
        return replace(pattern, size=random.choice(_SMALL[kind]), how=random.choice(_WAYS[kind]), other=other)

    def _mutated(self, unit: bytes) -> bytes:
        random = self._random
        at, end = sorted(random.choices(range(len(unit) + 1), k=2))
        match random.randrange(7):
            case 0:
                return unit[:at] + random.choice(ATOMS) + unit[at:]
            case 1:
                return (unit[:at] + unit[end:]) or b"{}"
            case 2:
                return unit[:at] + random.choice(ATOMS) + unit[end:]
            case 3:
                return (unit + random.choice(ATOMS))[:5_000]
            case 4:
                return unit[:at] + bytes((random.randrange(256),)) + unit[at:]
            case 5:
                return unit[:at] + NUMBER + unit[at:]
            case _:
                return (unit[:at] + unit[at:end] * random.choice((2, 3, 8)) + unit[end:])[:5_000]

    async def _grow(self) -> None:
        """Try the worst at greater sizes, where that was not done."""
        for kind in _WAYS:
            new = [found for found in self.ranking(kind) if self._key(found[1]) not in self._grown][:_GROWN_AT_ONCE]
            for _, pattern, _ in new:
                self._grown.add(self._key(pattern))
                await self._try(replace(pattern, size=_GROWN[kind][-1]))

    def _key(self, pattern: Pattern) -> Key:
        return pattern.dialect, pattern.shell, pattern.unit, pattern.how, pattern.other

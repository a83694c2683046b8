"""What provider events and requests cost in CPU time, and a search for those that cost most.

A *pattern* is a unit that is repeated inside a shell: `{}` in a list of choices, `1e308,` in a field that has no
meaning, `%41` in an error. First each of the smallest units (atoms) is tried in each shell, at a megabyte. Then
patterns are made by a grammar, mutated, and those that cost most are mutated again: most are tried at a few kilobytes,
and the worst are grown to a megabyte. An event is measured by the longest callback of a real relay that reads it, in
the turns in which `http/client.py` hands it over.
"""

import asyncio
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TypeAlias

from penstock import StreamReader, StreamWriter
from penstock.core.dialects.dialect import Destination, RequestError
from penstock.core.dialects.registry import DEFAULT_DIALECT, surface_dialect, upstream_dialect
from penstock.core.failure import Failure
from penstock.core.stream import MAX_EVENT
from penstock.gateway.billing.tags import clean_tags
from penstock.gateway.calls.call import Attempt, Call
from penstock.gateway.calls.embeddings_request import parse_embeddings
from penstock.gateway.calls.failure import from_status, redacted
from penstock.gateway.limits.demand import chat_demand, embeddings_demand
from penstock.gateway.relay.control import AttemptControl
from penstock.gateway.relay.ports import AttemptTimeouts
from penstock.gateway.relay.relay import Relay
from penstock.http.client import Receiver, turn_size
from tests.streams import begins, sse

TURN = 2_048  # as in `http/client.py`
MB = 1_000_000
LARGEST_EVENT = 990_000
_SURFACE, _UPSTREAM = surface_dialect(DEFAULT_DIALECT), upstream_dialect(DEFAULT_DIALECT)
_DESTINATION = Destination(model="n")
SECRETS = ("sk-a-provider-key-of-some-length", "another-header-that-is-secret")

_CHUNK = (
    b'{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"sluice-1","choices":[%b]%b}'
)
_CHOICE = b'{"index":0,"delta":{%b},"finish_reason":null%b}'
_CALL = b'"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":%b}}]'


def _in_delta(inner: bytes) -> bytes:
    return b"data: %b\n\n" % (_CHUNK % (_CHOICE % (inner, b""), b""))


# What surrounds the repeated units; `%b` is their place.
EVENTS: dict[str, bytes] = {
    "an event": b"data: %b\n\n",
    "an event that breaks off": b"data: %bx\n\n",
    "an event that is cut": b"data: %b",
    "an event in several lines": b"data: {\ndata: %b\ndata: }\n\n",
    "a stream": b"%b",
    "an array": b"[{},%b",
    "a list": b"data: [%b{}]\n\n",
    "a string": b'data: "%b"\n\n',
    "an object": b'data: {%b"":0}\n\n',
    "an error": b'data: {"error":[%b0]}\n\n',
    "an error's words": b'data: {"error":{"message":"%b"}}\n\n',
    "an error event": b"event: error\ndata: {%b}\n\n",
    "choices": b"data: " + _CHUNK % (b"%b{}", b"") + b"\n\n",
    "a field of the chunk": b"data: " + _CHUNK % (b"", b',"x":[%b0]') + b"\n\n",
    "fields of the chunk": b"data: " + _CHUNK % (b"", b',%b"x":0') + b"\n\n",
    "a choice's index": b"data: " + _CHUNK % (b'{"index":[%b0]}', b"") + b"\n\n",
    "usage": b"data: " + _CHUNK % (b"", b',"usage":{%b"x":0}') + b"\n\n",
    "log probabilities": b"data: "
    + _CHUNK % (_CHOICE % (b'"content":"a"', b',"logprobs":{"content":[%b0]}'), b"")
    + b"\n\n",
    "a message": b"data: "
    + _CHUNK % (b'{"index":0,"message":{"content":[%b""]},"finish_reason":"stop"}', b"")
    + b"\n\n",
    "text": _in_delta(b'"content":"%b"'),
    "text of a part": _in_delta(b'"content":[{"type":"text","text":"%b"}]'),
    "parts of content": _in_delta(b'"content":[%b""]'),
    "fields of a delta": _in_delta(b'%b"x":0'),
    "a field of a delta": _in_delta(b'"x":[%b0]'),
    "an object in a delta": _in_delta(b'"x":{%b"x":0}'),
    "text of reasoning": _in_delta(b'"reasoning_content":"%b"'),
    "reasoning": _in_delta(b'"reasoning_details":[%b0]'),
    "thoughts": _in_delta(b'"content":[{"type":"thinking","thinking":[%b0]}]'),
    "fields of a tool call": _in_delta(b'"tool_calls":[{"index":0,%b"id":"a"}]'),
    "tool calls": _in_delta(b'"tool_calls":[%b{}]'),
    "arguments": _in_delta(_CALL % b'"%b"'),
    "arguments as an object": _in_delta(_CALL % b'{"a":[%b0]}'),
    "input as an object": _in_delta(
        b'"tool_calls":[{"index":0,"id":"a","type":"custom","custom":{"name":"f","input":{"a":[%b0]}}}]'
    ),
}
_ASKED = b'{"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true,%b}'
REQUESTS: dict[str, bytes] = {
    "a field": _ASKED % b'"x":[%b0]',
    "fields": _ASKED % b'%b"x":0',
    "a string": _ASKED % b'"x":"%b"',
    "metadata": _ASKED % b'"metadata":{%b"x":"y"}',
    "a user": _ASKED % b'"user":"%b"',
    "tools": _ASKED % b'"tools":[%b{}]',
    "a key that stands twice": _ASKED % b'"stream":true,"x":[%b0]',
    "messages": b'{"model":"m","messages":[%b{"role":"user","content":"Hi"}]}',
    "parts": b'{"model":"m","messages":[{"role":"user","content":[%b"Hi"]}]}',
    "text": b'{"model":"m","messages":[{"role":"user","content":"%b"}]}',
    "a body": b"%b",
    "input": b'{"model":"m","input":[%b0]}',
}
ERRORS: dict[str, bytes] = {
    "an error body": b'{"error":{"message":"no","x":[%b0]}}',
    "words of an error body": b'{"error":{"message":"%b"}}',
    "an error body in words": b"%b",
}
# The least things that texts are made of.
_ATOMS = (
    b"{}",
    b"[]",
    b"{",
    b"[",
    b"}",
    b"]",
    b",",
    b":",
    b'"',
    b'""',
    b'"a"',
    b"0",
    b"1",
    b"-1",
    b"1.5",
    b"1e23",
    b"1e308",
    b"5e-324",
    b"9007199254740993.0",
    b"null",
    b"true",
    b"NaN",
    b"Infinity",
    b"\\",
    b"\\\\",
    b'\\"',
    b"\\n",
    b"\\u0041",
    b"\\ud83d",
    b"\\ud83d\\ude00",
    b"\xff",
    b"\xc3\xa9",
    b"\xe2\x80\xa8",
    b"\t",
    b"\x01",
    b" ",
    b"\n",
    b"\r",
    b"\r\n",
    b"data:",
    b"data: ",
    b"event: error\n",
    b"event:x\n",
    b":\n",
    b"id:1\n",
    b"[DONE]",
    b"data: [DONE]\n\n",
    b"%41",
    b"&amp;",
    b"%2541",
    b"sk-a-provider",
    b"data:{}\n\n",
    b"{}\n",
    b"1" * 400,
    b"1" * 4000,
    b"x",
    b"xxxxxxxx",
    b'{"a":0}',
    b'"a":0',
    b'"a":{}',
    b'{"index":0}',
    b'{"index":1,"delta":{}}',
    b'{"delta":{"content":"a"}}',
    b'{"type":"text","text":"a"}',
    b'{"text":"a"}',
    b'{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}',
    b'{"id":"b","function":{"name":"g"}}',
    b'{"index":0,"function":{"arguments":"{"}}',
    b'{"choices":[]}',
    b'{"choices":[{"delta":{"content":"a"}}]}',
    b'{"error":"a"}',
    b'{"message":"a"}',
    b'{"usage":{"prompt_tokens":1}}',
    b'"usage":null',
    b'{"role":"user","content":"Hi"}',
    b'{"token":"Hello","logprob":-0.31725305,"bytes":[72,101,108,108,111],"top_logprobs":[]}',
    b'{"finish_reason":"stop"}',
)
# A number that differs each time.
_NUMBER = b"\0"


@dataclass(frozen=True)
class Pattern:
    """A unit that is repeated inside a shell, up to so many bytes."""

    kind: str
    shell: str
    unit: bytes
    size: int
    how: str = "streamed"

    def data(self) -> bytes:
        """What is sent."""
        shell = {"event": EVENTS, "request": REQUESTS, "error": ERRORS}[self.kind][self.shell]
        before, _, behind = shell.partition(b"%b")
        before, behind = before.replace(b"%%", b"%"), behind.replace(b"%%", b"%")
        count = max((self.size - len(before) - len(behind)) // max(len(self.unit), 1), 1)
        if _NUMBER in self.unit:
            first, *rest = self.unit.split(_NUMBER)
            units = b"".join(first + b"".join(b"%x" % number + part for part in rest) for number in range(count))
        else:
            units = self.unit * count
        return before + units + behind

    def __str__(self) -> str:
        return f"{self.kind}: {self.shell}, {self.how}, {self.size:,} bytes of {self.unit[:60]!r}"


@dataclass(frozen=True)
class Cost:
    """Milliseconds of CPU time without interruption, and the result of reading."""

    ms: float
    outcome: str


class _Connection:
    aligned_chunks = ()
    on_chunk: Callable[[bytes, bytes], bool] | None = None

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def abandon(self, receiver: Receiver) -> None: ...


class _Client:
    def __init__(self, *, stream: bool) -> None:
        self.stream = stream

    def begin(self) -> None: ...

    def write(self, data: bytes, /) -> None: ...

    def chunk_writer(self) -> None: ...

    def end(self, data: bytes) -> None: ...

    def answer(self, body: bytes) -> None: ...


_TIMEOUT = AttemptTimeouts(first_event_s=60, gap_s=60, heartbeat_s=0, total_s=900, max_body=MAX_EVENT)
_BEGINNING = sse(begins())


async def cost_of_event(data: bytes, how: str = "streamed") -> Cost:
    """The longest time that a relay takes for these bytes without returning to the event loop."""
    failures: list[Failure | None] = []
    call = Call("req_1", "m", stream=how != "unstreamed", started=asyncio.get_running_loop().time())
    attempt = Attempt("p", "m", secrets=SECRETS)
    call.attempts.append(attempt)
    call.control = AttemptControl(attempt)
    if how == "kept":
        call.control.keep_transcript()
    client = _Client(stream=how != "unstreamed")
    relay = Relay(call, client, StreamReader(), StreamWriter(), _TIMEOUT, failures.append)
    relay.attach(_Connection())
    packed = how == "packed"
    relay.on_head(200, {"content-encoding": "gzip"} if packed else {})
    if packed:
        packer = zlib.compressobj(wbits=31)
        data = packer.compress(_BEGINNING + data) + packer.flush()
    elif how != "alone":
        relay.on_data(_BEGINNING)
    reads = []
    while data:
        size = turn_size(data)
        reads.append(data[:size])
        data = data[size:]
    steps: list[Callable[[], None]] = [*(partial(relay.on_data, read) for read in reads), relay.on_end]
    longest = 0.0
    for step in steps:
        began = time.process_time()
        step()
        longest = max(longest, time.process_time() - began)
        turns = 0
        while packed and attempt.ending is None and turns < 1_000:  # what the relay does in turns of its own
            began = time.process_time()
            await asyncio.sleep(0)
            longest = max(longest, time.process_time() - began)
            turns += 1
    return Cost(longest * 1000, attempt.code or str(attempt.ending))


def cost_of_request(data: bytes, how: str = "streamed") -> Cost:
    """What it takes to read a request and to write it for a provider, for each megabyte begun."""
    began = time.process_time()
    try:
        if how == "embeddings":
            embeddings = parse_embeddings(data)
            embeddings_demand(embeddings)
            embeddings.members.edited(_DESTINATION.members)
        else:
            chat = _SURFACE.read_request(data, {}, _SURFACE.path)
            demand = chat_demand(chat, _UPSTREAM.limits(chat, _DESTINATION))
            clean_tags(demand.tags, {}, SECRETS)
            _UPSTREAM.write_request(chat, _DESTINATION)
        outcome = "read"
    except RequestError as refused:
        outcome = refused.failure.code
    return Cost((time.process_time() - began) * 1000 / max(len(data) / MB, 1), outcome)


def cost_of_error(data: bytes) -> Cost:
    """The time to read the body of a provider's error, to mask secrets in it, and to write it for the client."""
    began = time.process_time()
    failure = redacted(from_status(400, {}, data[:65_536]), SECRETS)
    _SURFACE.write_error(failure, "req_1")
    return Cost((time.process_time() - began) * 1000, failure.code)


async def cost_of(pattern: Pattern) -> Cost:
    """What a pattern costs."""
    data = pattern.data()
    if pattern.kind == "event":
        return await cost_of_event(data, pattern.how)
    return cost_of_request(data, pattern.how) if pattern.kind == "request" else cost_of_error(data)


_WAYS = {
    "event": ("streamed", "streamed", "streamed", "unstreamed", "alone", "alone", "kept", "packed"),
    "request": ("streamed", "embeddings"),
    "error": ("streamed",),
}
_SMALL = {"event": (400, 400, 800, 2_040), "request": (4_000, 16_000), "error": (4_000, 16_000)}
_GROWN = {
    "event": (16_000, 64_000, 250_000, 500_000, LARGEST_EVENT),
    "request": (250_000, MB, 4 * MB),
    "error": (65_536,),
}
_SWEPT = {"event": LARGEST_EVENT, "request": MB, "error": 65_536}
# Smaller ones are compared by what they would take at this size.
_COMPARED = {"event": TURN, "request": MB, "error": 65_536}
_ELITE = 80
_OF_ONE_SHELL = 6
Found: TypeAlias = dict[tuple[str, bytes, str], tuple[float, "Pattern", str]]
_GROW_EVERY = 2_000
_GROWN_AT_ONCE = 4


def _best(found: Found) -> Found:
    """The most expensive patterns, but only a few of each shell, so that the candidates stay diverse."""
    best: Found = {}
    shells: Counter[str] = Counter()
    for key, value in sorted(found.items(), key=lambda item: -item[1][0]):
        shells[key[0]] += 1
        if shells[key[0]] <= _OF_ONE_SHELL and len(best) < _ELITE:
            best[key] = value
    return best


async def worst_size(pattern: Pattern) -> tuple[Pattern, Cost]:
    """The size at which a pattern costs most, and what it costs then at least."""
    found: list[tuple[Pattern, Cost]] = []
    for size in (*_SMALL[pattern.kind][-1:], TURN, *_GROWN[pattern.kind]):
        sized = replace(pattern, size=size)
        found.append((sized, min([await cost_of(sized) for _ in range(3)], key=lambda cost: cost.ms)))
    return max(found, key=lambda item: item[1].ms)


def sweep() -> Iterator[Pattern]:
    """Each atom in each shell, at the greatest size, with and without a comma behind it."""
    for kind, shells in (("event", EVENTS), ("request", REQUESTS), ("error", ERRORS)):
        for shell in shells:
            for atom in _ATOMS:
                yield Pattern(kind, shell, atom, _SWEPT[kind])
                yield Pattern(kind, shell, atom + b",", _SWEPT[kind])


class Search:
    """A hill climb over patterns, starting with `first`; reproducible by its seed, except for the measured times."""

    def __init__(self, seed: int, first: Iterable[Pattern] = ()) -> None:
        self._random = Random(seed)
        self._first = iter(first)
        self.tried = 0
        self.worst: dict[str, dict[tuple[str, bytes, str], tuple[float, Pattern, str]]] = {kind: {} for kind in _WAYS}
        self._least = dict.fromkeys(_WAYS, 0.0)
        self._grown: set[tuple[str, bytes, str]] = set()

    async def run(self, cases: int) -> None:
        """Try so many more."""
        until = self.tried + cases
        while self.tried < until:
            kind = self._random.choices(("event", "request", "error"), (75, 20, 5))[0]
            await self._try(next(self._first, None) or self._next(kind))
            if self.tried % _GROW_EVERY == 0:
                await self._grow(until)

    def ranking(self, kind: str) -> list[tuple[float, Pattern, str]]:
        """What costs most, of one kind; at a size at which it was tried."""
        return sorted(self.worst[kind].values(), key=lambda found: -found[0])

    async def _try(self, pattern: Pattern) -> None:
        cost = await cost_of(pattern)
        self.tried += 1
        worst = self.worst[pattern.kind]
        scale = max(_COMPARED[pattern.kind] / len(pattern.data()), 1)  # a unit may be longer than the size
        if cost.ms * scale > self._least[pattern.kind]:  # again: it may have been the machine
            cost = min([cost, await cost_of(pattern), await cost_of(pattern)], key=lambda cost: cost.ms)
        key, score = self._key(pattern), cost.ms * scale
        if key not in worst or score > worst[key][0]:
            worst[key] = (score, pattern, cost.outcome)
        if len(worst) > 2 * _ELITE:
            self.worst[pattern.kind] = kept = _best(worst)
            self._least[pattern.kind] = min(score for score, _, _ in kept.values())

    def _next(self, kind: str) -> Pattern:
        random, worst = self._random, self.worst[kind]
        shells = {"event": EVENTS, "request": REQUESTS, "error": ERRORS}[kind]
        if len(worst) < _ELITE or random.random() < 0.3:
            unit = b"".join(random.choices(_ATOMS, k=random.choice((1, 1, 2, 2, 3, 4))))
            pattern = Pattern(kind, random.choice(list(shells)), unit, 0)
        else:
            pattern = random.choice(list(worst.values()))[1]
            pattern = replace(pattern, unit=self._mutated(pattern.unit))
            if random.random() < 0.3:
                pattern = replace(pattern, shell=random.choice(list(shells)))
        if (
            random.random() < 0.4
            and pattern.shell not in ("text", "a string", "arguments")
            and pattern.unit[-1:] != b","
        ):
            pattern = replace(pattern, unit=pattern.unit + b",")
        return replace(pattern, size=random.choice(_SMALL[kind]), how=random.choice(_WAYS[kind]))

    def _mutated(self, unit: bytes) -> bytes:
        random = self._random
        at, end = sorted(random.choices(range(len(unit) + 1), k=2))
        match random.randrange(7):
            case 0:
                return unit[:at] + random.choice(_ATOMS) + unit[at:]
            case 1:
                return (unit[:at] + unit[end:]) or b"{}"
            case 2:
                return unit[:at] + random.choice(_ATOMS) + unit[end:]
            case 3:
                return (unit + random.choice(_ATOMS))[:5_000]
            case 4:
                return unit[:at] + bytes((random.randrange(256),)) + unit[at:]
            case 5:
                return unit[:at] + _NUMBER + unit[at:]
            case _:
                return (unit[:at] + unit[at:end] * random.choice((2, 3, 8)) + unit[end:])[:5_000]

    async def _grow(self, until: int) -> None:
        """Try the worst at greater sizes, where that was not done."""
        for kind in _WAYS:
            new = [found for found in self.ranking(kind) if self._key(found[1]) not in self._grown][:_GROWN_AT_ONCE]
            for _, pattern, _ in new:
                self._grown.add(self._key(pattern))
                for size in _GROWN[kind]:
                    if self.tried < until:
                        await self._try(replace(pattern, size=size))

    def _key(self, pattern: Pattern) -> tuple[str, bytes, str]:
        return pattern.shell, pattern.unit, pattern.how

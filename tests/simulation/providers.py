"""Providers: one server for all APIs, whose answer to each request follows from the plan.

It plays scripts of the fault tests (`tests/faults/upstream.py`): those of their catalogue, and generated ones.
"""

import gzip
import re
from collections import defaultdict
from random import Random
from typing import Any

from tests.faults.broken import BROKEN as BROKEN_ROWS
from tests.faults.dialects import PROVIDERS
from tests.faults.tolerated import TOLERATED as TOLERATED_ROWS
from tests.faults.upstream import (
    EVENT_STREAM,
    JSON,
    Connection,
    Op,
    chunk,
    fin,
    hang,
    head,
    last_chunk,
    rst,
    sleep,
    status,
)
from tests.simulation.answers import Answer, body_of, events_of, generated
from tests.simulation.plan import WHOLE, Behaviour, CallPlan

_MARK = re.compile(rb"call-(\d+)-")
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_DIALECT = re.compile(rb" /([a-z_]+)/")
_TYPES = {
    "ollama": {"content-type": "application/x-ndjson"},
    "bedrock_converse": {"content-type": "application/vnd.amazon.eventstream"},
}
_STATUSES = (400, 401, 403, 404, 408, 409, 413, 422, 429, 429, 500, 500, 502, 503, 504, 529)
# Rows of the catalogue that send for ever, or megabytes: they show bounds, and take as long here as anywhere.
_HEAVY = re.compile(r"U2[4-9]|endless|for ever|giant|flood|MB|40 KB|byte by byte|header", re.IGNORECASE)


class Served:
    """What a provider did with one request."""

    def __init__(self, call: CallPlan, dialect: str, behaviour: Behaviour) -> None:
        self.call = call
        self.dialect = dialect
        self.kind = behaviour.kind
        self.row = ""
        self.text: str | None = None
        """All text of the answer; None if no client may get a completed one."""
        self.whole = False
        """Whether the answer is whole, so that it must be completed if nothing else goes wrong."""
        self.damaged = False
        """Whether the text was changed in a way that no reader can notice."""
        self.calls: tuple[tuple[str, str], ...] = ()
        self.usage: tuple[int, int] | None = None
        """The tokens that it reports; None if they are not known, or a lie."""
        self.sent = False
        """Whether all bytes were handed to the network."""
        self.at_s = 0.0


class Providers:
    """What the connections share."""

    def __init__(self, calls: dict[int, CallPlan], clock: Any) -> None:
        self._calls = calls
        self._clock = clock
        self.served: dict[int, list[Served]] = defaultdict(list)
        self.greeting = None
        self.scripts: dict[str, Any] = {}
        self.connections: list[Any] = []
        self.asked_for: list[Any] = []
        self.open = 0

    def changed(self) -> None:
        """Something has happened."""

    def script(self, request: bytes) -> list[Op]:
        """The answer to a request."""
        found, dialect = _MARK.search(request), _DIALECT.search(request)
        call = self._calls.get(int(found[1])) if found is not None else None
        if call is None or dialect is None:
            return [status(404, JSON, b'{"error": {"message": "no such call"}}')]
        attempts = self.served[call.id]
        number = len(attempts)
        behaviour = call.behaviours[number] if number < len(call.behaviours) else Behaviour("whole", call.id, 0.01, 0.0)
        served = Served(call, dialect[1].decode(), behaviour)
        served.at_s = self._clock()
        attempts.append(served)

        async def done(_: Connection) -> None:
            served.sent = True

        return [*script_of(served, behaviour, request), done]


def script_of(served: Served, behaviour: Behaviour, request: bytes) -> list[Op]:
    """The ops of one answer. It notes in `served` what a client must get of it."""
    chance, dialect, kind = Random(behaviour.seed), served.dialect, behaviour.kind
    first_line = request.partition(b"\r\n")[0]
    streamed = b"stream" in first_line.lower() or re.search(rb'"stream": ?true', request) is not None
    answer = generated(chance, input=max(1, len(request) // 5))
    if kind == "flood":
        answer = Answer(answer.texts * 40, answer.calls, answer.input, answer.output)
    most = served.call.most
    if answer.output > most:  # an honest provider obeys the limit
        answer = Answer(answer.texts[: most // 2 - 10], (), answer.input, most)
    honest = answer
    if kind == "lying":
        answer = Answer(answer.texts, answer.calls, answer.input, chance.choice((1, answer.output * 3 + 1)))
    elif kind == "absurd":
        answer = Answer(answer.texts, answer.calls, 10**14, chance.choice((10**15, answer.output)))
    start = [sleep(behaviour.first_s)]
    if kind == "nested":
        depth = 1_000 if streamed and dialect not in ("gemini", "ollama") else 200  # where it is a text, not a value
        deep = ("get_tide_0", '{"port":' + "[" * depth + "]" * depth + "}")
        answer = honest = Answer(answer.texts, (deep,), answer.input, answer.output)
    served.text, served.calls = honest.text, honest.calls
    served.whole = kind in WHOLE
    if kind in WHOLE and kind != "absurd":
        served.usage = (answer.input, answer.output)
    if kind == "tolerated":
        rows = {name: row for name, row in TOLERATED_ROWS.get(dialect, {}).items() if not _HEAVY.search(name)}
        if rows and streamed:
            served.row = chance.choice(sorted(rows))
            served.text, served.calls, served.usage = rows[served.row].text, (), rows[served.row].usage
            return [*start, *rows[served.row].script]
    if kind == "broken":
        broken = {name: row for name, row in BROKEN_ROWS.get(dialect, {}).items() if not _HEAVY.search(name)}
        if broken and streamed:
            served.row = chance.choice(sorted(broken))
            served.text = None
            return [*start, *broken[served.row].script]
        kind = "cut"
    if kind == "status":
        code = chance.choice(_STATUSES)
        after = {"retry-after": chance.choice(("0", "1", "7"))} if chance.random() < 0.3 else {}
        error = PROVIDERS[dialect].error("busy") if dialect in PROVIDERS else b'{"error":{"code":500,"message":"busy"}}'
        return [*start, status(code, JSON | after, error)]
    if kind == "closes at once":
        return [fin()]
    if kind == "resets at once":
        return [rst()]
    if kind == "silent at first":
        return [hang()]
    if not streamed:
        return [*start, *_body(served, kind, chance, body_of(dialect, answer))]
    return [*start, *_stream(served, behaviour, kind, chance, events_of(dialect, answer))]


def _body(served: Served, kind: str, chance: Random, body: bytes) -> list[Op]:
    """An answer that is not streamed."""
    if kind == "gzip":
        return [status(200, JSON | {"content-encoding": "gzip"}, gzip.compress(body, mtime=0))]
    if kind in WHOLE:
        return [status(200, JSON, body)]
    size = chance.randrange(len(body))
    length = head(200, JSON, framing=f"content-length: {len(body)}")
    ends = {"reset": rst(), "silent": hang(), "garbage": status(200, JSON, body[:size] + b"\0}{" + body[size:])}
    if kind == "ended early":
        return [status(200, JSON, body[:size])]
    if kind == "garbage":
        served.damaged = True  # it may lie in a string
        return [ends["garbage"]]
    return [length, _raw(body[:size]), ends.get(kind, fin())]


def _stream(served: Served, behaviour: Behaviour, kind: str, chance: Random, events: list[bytes]) -> list[Op]:
    """A stream."""
    dialect = served.dialect
    opening = head(200, _TYPES.get(dialect, EVENT_STREAM))
    if kind == "at once":
        return [opening, chunk(b"".join(events)), last_chunk()]
    if kind == "bytewise":
        wire = b"".join(events)[:3_000]
        if len(wire) < sum(map(len, events)):
            return [opening, *map(chunk, events), last_chunk()]
        return [opening, *(chunk(wire[i : i + 3]) for i in range(0, len(wire), 3)), last_chunk()]
    if kind == "gzip":
        packed = gzip.compress(b"".join(events), mtime=0)
        return [
            head(200, _TYPES.get(dialect, EVENT_STREAM) | {"content-encoding": "gzip"}),
            chunk(packed),
            last_chunk(),
        ]
    gap_s = 2.5 if kind == "slow" else behaviour.gap_s
    if kind == "lost event":
        texts = [number for number, event in enumerate(events[1:-3], 1) if b"delta" in event or b"text" in event]
        del events[chance.choice(texts or [1])]
        served.damaged = dialect != "openai_responses"  # whose end repeats the text
    elif kind == "empty event":
        events.insert(chance.randrange(len(events)), b"event: message\n\n" if dialect not in _TYPES else b"")
    elif kind == "failed finish":
        before = events
        for old in (b'"finish_reason":"stop"', b'"stop_reason":"end_turn"', b'"done_reason": "stop"'):
            new = old.replace(b"stop_reason", b"S").replace(b"stop", b"error").replace(b"end_turn", b"error")
            events = [event.replace(old, new.replace(b"S", b"stop_reason")) for event in events]
        if events != before:  # some APIs have no such reason
            served.text = None
    cut = None
    if kind in ("cut", "reset", "ended early", "silent", "garbage", "error event"):
        place = chance.randrange(len(events))
        events, cut = events[:place], events[place]
        part = cut[: chance.randrange(len(cut))] if kind != "error event" else b""
        events.append(part)
    ops: list[Op] = [opening]
    for event in events:
        if event:
            ops.append(chunk(event))
        if gap_s:
            ops.append(sleep(gap_s * chance.random()))
    if kind == "garbage":
        ops += [chunk(b'\n\ndata: {nonsense\n\nevent: \x00\n{"a":\n\n'), last_chunk()]
    elif kind == "error event" and dialect in PROVIDERS:
        ops += [chunk(PROVIDERS[dialect].fails("the engine is overloaded")), last_chunk()]
    elif kind in ("cut", "error event"):
        ops.append(fin())
    elif kind == "reset":
        ops.append(rst())
    elif kind == "silent":
        ops.append(hang())
    else:
        ops.append(last_chunk())
    return ops


def _raw(data: bytes) -> Op:
    async def op(connection: Connection) -> None:
        await connection.send(data)

    return op


class ProviderConnection(Connection):
    """A connection of a provider."""

    _upstream: Providers  # type: ignore[assignment]

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._upstream.connections.clear()
        self._upstream.open += 1

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._upstream.open -= 1

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self.busy:
            return
        front, found, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(front)
        size = int(length[1]) if length is not None else 0
        if not found or len(body) < size:
            return
        request, self._received = front + found + body[:size], body[size:]
        self.requests = [request]
        self._play(self._upstream.script(request))

    def unread(self) -> bool:
        if self._transport is None:
            return False
        endpoint = self._transport._endpoint  # type: ignore[attr-defined]
        return bool(endpoint.out._used or endpoint.out.unsent_size)

"""Three providers with outages, rate limits and slow starts, by a script: `python -m bench.routing.scripted_provider`.

It prints its port. The targets are at /a/v1, /b/v1 and /c/v1. `POST /start/SCRIPT/SECONDS/SEED` begins a script, and
`GET /bill` has how many answers each target has begun, which it bills.

| from | `mixed` |
|---|---|
| 0 % | all answer: `a` after 120 ms, `b` after 60 ms, `c` after 40 ms, half of them later by up to as much again |
| 25 % | `a` is down: of two calls one gets 503 at once, and one no answer at all |
| 50 % | `b` takes five calls per second; further ones get 429 with `Retry-After: 1` |
| 70 % | `c` needs 1.5 s for its first event |
| 90 % | all answer |

In `down`, `a` is down all the time.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable

from bench.routing.load import INPUT, OUTPUT

_FIRST_S = {"a": 0.12, "b": 0.06, "c": 0.04}
_SLOW_S = 1.5
_PER_SECOND = 5
_DELTAS, _GAP_S = 5, 0.01
_PHASES: dict[str, tuple[tuple[float, str], ...]] = {
    "mixed": ((0.0, "calm"), (0.25, "outage"), (0.5, "limits"), (0.7, "slow"), (0.9, "calm")),
    "down": ((0.0, "outage"),),
}
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_ENVELOPE = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
_USAGE = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}


class Script:
    """What the targets do at a time since the start."""

    def __init__(self, name: str, seconds: float, seed: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._phases, self._seconds, self._clock = _PHASES[name], seconds, clock
        self._began = clock()
        self._random = random.Random(seed)
        self._taken: Counter[int] = Counter()
        self.bill: Counter[str] = Counter()

    @property
    def phase(self) -> str:
        """The present phase."""
        share = (self._clock() - self._began) / self._seconds
        return [name for since, name in self._phases if share >= since][-1]

    def reply(self, target: str) -> tuple[int, float]:
        """The status of the next call to a target, and when its first event comes; 0 if no answer comes at all."""
        phase, chance = self.phase, self._random.random()
        if phase == "outage" and target == "a":
            return (503 if chance < 0.5 else 0), 0.0
        if phase == "limits" and target == "b":
            second = int(self._clock())
            self._taken[second] += 1
            if self._taken[second] > _PER_SECOND:
                return 429, 0.0
        if phase == "slow" and target == "c":
            return 200, _SLOW_S
        return 200, _FIRST_S[target] * (1 + max(0.0, chance - 0.5) * 2)


class Provider:
    """Serves the targets of a script."""

    def __init__(self) -> None:
        self._script = Script("mixed", 1.0, 0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ", 2)[1].decode()
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                await reader.readexactly(int(lengths[0].split(b":")[1]) if lengths else 0)
                await self._answer(path, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, writer: asyncio.StreamWriter) -> None:
        match path.strip("/").split("/"):
            case ["start", name, seconds, seed]:
                self._script = Script(name, float(seconds), int(seed))
                await _send(writer, 200, b"{}")
            case ["bill"]:
                await _send(writer, 200, json.dumps(self._script.bill).encode())
            case [target, *_] if target in _FIRST_S:
                await self._chat(target, writer)
            case _:
                await _send(writer, 404, b"{}")

    async def _chat(self, target: str, writer: asyncio.StreamWriter) -> None:
        script = self._script
        status, first_s = script.reply(target)
        if status == 0:
            await asyncio.sleep(3_600)
        if status != 200:
            await _send(writer, status, b'{"error":{"message":"not now"}}', b"retry-after: 1\r\n" * (status == 429))
            return
        script.bill[target] += 1
        await asyncio.sleep(first_s)
        writer.write(_HEAD)
        for number in range(_DELTAS):
            delta = {"role": "assistant", "content": f"word {number} "}
            await _event(writer, {**_ENVELOPE, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
            await asyncio.sleep(_GAP_S)
        await _event(writer, {**_ENVELOPE, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        await _event(writer, {**_ENVELOPE, "choices": [], "usage": _USAGE})
        writer.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        await writer.drain()


async def _event(writer: asyncio.StreamWriter, event: dict[str, object]) -> None:
    writer.write(_chunk(b"data: %b\n\n" % json.dumps(event).encode()))
    await writer.drain()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _send(writer: asyncio.StreamWriter, status: int, body: bytes, headers: bytes = b"") -> None:
    head = b"HTTP/1.1 %d -\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
    writer.write(head % (status, headers, len(body)) + body)
    await writer.drain()


async def main() -> None:
    """Serve until the process is ended."""
    server = await asyncio.start_server(Provider().serve, "127.0.0.1", 0, backlog=1_024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())

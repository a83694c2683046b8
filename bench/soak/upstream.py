"""A provider on loopback whose models each answer, or fail, in one way: `KIND~ANYTHING` is a model of that kind."""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

TEXT = "All the words of an answer that is whole, one after another."
WORDS = TEXT.split()
# How long a stalled provider is silent: longer than the gateway's timeouts.
_SILENT_S = 3.0

Json: TypeAlias = dict[str, object]
Answer: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]


def event(delta: Json, finish: str | None = None, **fields: object) -> bytes:
    """One event of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    envelope = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "soak"}
    return b"data: %b\n\n" % json.dumps(envelope | {"choices": [choice]} | fields).encode()


BEGIN = event({"role": "assistant", "content": ""})
SPOKEN = [event({"content": word if not place else f" {word}"}) for place, word in enumerate(WORDS)]
FINISH = event({}, "stop")
USAGE = {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}
BILL = event({}, None, choices=[], usage=USAGE)
DONE = b"data: [DONE]\n\n"
LARGE = [event({"content": "x" * 1_000})] * 300
LARGE_TEXT = "x" * 300_000


def head(status: int = 200, kind: str = "text/event-stream") -> bytes:
    return b"HTTP/1.1 %d Whatever\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % (status, kind.encode())


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def plain(status: int, body: object) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = f"HTTP/1.1 {status} Whatever\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    return lines.encode() + data


def sends(*pieces: bytes, pause_s: float = 0.0, end: bytes = b"0\r\n\r\n") -> Answer:
    """A stream of these events, each in a chunk of its own."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(head())
        for piece in pieces:
            writer.write(chunk(piece))
            await writer.drain()
            if pause_s:
                await asyncio.sleep(pause_s)
        writer.write(end)
        await writer.drain()

    return answer


def says(data: bytes) -> Answer:
    """A whole response, as it is."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return answer


def resets(first: Answer | None = None) -> Answer:
    """A connection reset, perhaps after something else."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        if first is not None:
            await first(writer)
            await asyncio.sleep(0.03)  # a reset overtakes what the peer has not read yet
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    return answer


def then_silent(first: Answer) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        await first(writer)
        await asyncio.sleep(_SILENT_S)
        writer.close()

    return answer


def completion(text: str) -> Json:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    named = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "soak"}
    return named | {"choices": [choice], "usage": USAGE}


CALL = [
    event({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}]}),
    *[event({"tool_calls": [{"index": 0, "function": {"arguments": part}}]}) for part in ('{"a"', ": [1, ", "2]}")],
    event({}, "tool_calls"),
]
ANSWERS: dict[str, Answer] = {
    "stream": sends(BEGIN, *SPOKEN, FINISH, BILL, DONE, pause_s=0.02),
    "burst": sends(b"".join((BEGIN, *SPOKEN, FINISH, BILL, DONE))),
    "whole": says(plain(200, completion(TEXT))),
    "large": sends(BEGIN, *LARGE, FINISH, BILL, DONE),
    "large-whole": says(plain(200, completion(LARGE_TEXT))),
    "tools": sends(BEGIN, *CALL, BILL, DONE),
    "repaired": sends(BEGIN, b": comment\n\n", *SPOKEN, FINISH.rstrip() + b"\n" + BILL),
    "fails": says(plain(500, {"error": {"message": "overloaded", "code": "overloaded"}})),
    "limited": says(plain(429, {"error": {"message": "slow down"}})),
    "unknown": says(plain(404, {"error": {"message": "no such model", "code": "model_not_found"}})),
    "page": says(plain(200, b"<html><body>Bad gateway</body></html>")),
    "empty": sends(),
    "reset": resets(),
    "cut": resets(sends(BEGIN, *SPOKEN[:5], end=b"")),
    "truncated": sends(BEGIN, *SPOKEN[:5]),
    "error-frame": sends(BEGIN, *SPOKEN[:5], b'data: {"error": {"message": "the engine broke", "code": 500}}\n\n'),
    "malformed": sends(BEGIN, *SPOKEN[:5], b'data: {"choices": [{"delta": {"con\n\n', *SPOKEN[5:], FINISH, DONE),
    "stalled": then_silent(sends(BEGIN, *SPOKEN[:5], end=b"")),
}


async def serve() -> asyncio.Server:
    """The provider, listening on some port."""
    return await asyncio.start_server(_connected, "127.0.0.1", 0, limit=1_000_000)


async def _connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, EOFError, asyncio.CancelledError):  # the last of them ends with the loop
        while not writer.is_closing():
            lines = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(lines.partition(b"content-length:")[2].partition(b"\r\n")[0])
            model = json.loads(await reader.readexactly(size))["model"]
            await ANSWERS[model.partition("~")[0]](writer)
    writer.close()

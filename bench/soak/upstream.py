"""A provider on loopback whose models each answer, or fail, in one way: `KIND~ANYTHING` is a model of that kind.

It offers all three APIs. Its answers are written as chat completions, and translated for the others.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from penstock import Accumulator, StreamReader, StreamWriter

CHAT, MESSAGES, RESPONSES = "openai_chat", "anthropic_messages", "openai_responses"
TEXT = "All the words of an answer that is whole, one after another."
WORDS = TEXT.split()
# How long a stalled provider is silent: longer than the gateway's timeouts.
_SILENT_S = 6.0

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
SPEECH = (BEGIN, *SPOKEN, FINISH, BILL, DONE)
# What a provider sends in the middle of a stream that fails.
_ERRORS = {
    CHAT: b'data: {"error": {"message": "the engine broke", "code": 500}}\n\n',
    MESSAGES: b'event: error\ndata: {"type": "error", "error": {"type": "api_error", "message": "it broke"}}\n\n',
    RESPONSES: b'event: error\ndata: {"type": "error", "error": {"code": "server_error", "message": "it broke"}}\n\n',
}


def in_dialect(dialect: str, *events: bytes) -> list[bytes]:
    """The events of a whole chat stream in another dialect: what each of them becomes, and the end."""
    if dialect == CHAT:
        return list(events)
    reader, writer = StreamReader(), StreamWriter(dialect)
    pieces = [writer.write(reader.feed(event)) for event in events]
    return [*filter(None, pieces), writer.write(reader.close())]


def body(dialect: str, text: str) -> bytes:
    """A whole response."""
    reader, answer = StreamReader(), Accumulator()
    answer.extend(reader.feed(json.dumps(completion(text)).encode()))
    answer.extend(reader.close())
    return plain(200, StreamWriter(dialect).write_body(answer.completion))


def _answers(dialect: str) -> dict[str, Answer]:
    speech = in_dialect(dialect, *SPEECH)
    part = speech[:6]
    return {
        "stream": sends(*speech, pause_s=0.02),
        "burst": sends(b"".join(speech)),
        "whole": says(body(dialect, TEXT)),
        "large": sends(*in_dialect(dialect, BEGIN, *LARGE, FINISH, BILL, DONE)),
        "large-whole": says(body(dialect, LARGE_TEXT)),
        "tools": sends(*in_dialect(dialect, BEGIN, *CALL, BILL, DONE)),
        "repaired": sends(b": comment\n\n", *speech[:-1], speech[-1].rstrip() + b"\n"),
        "fails": says(plain(500, {"error": {"message": "overloaded", "code": "overloaded"}})),
        "limited": says(plain(429, {"error": {"message": "slow down"}})),
        "unknown": says(plain(404, {"error": {"message": "no such model", "code": "model_not_found"}})),
        "page": says(plain(200, b"<html><body>Bad gateway</body></html>")),
        "empty": sends(),
        "reset": resets(),
        "cut": resets(sends(*part, end=b"")),
        "truncated": sends(*part),
        "error-frame": sends(*part, _ERRORS[dialect]),
        "malformed": sends(*part, b'data: {"choices": [{"delta": {"con\n\n', *speech[6:]),
        "stalled": then_silent(sends(*part, end=b"")),
    }


# By the end of the path that is called.
ANSWERS = {
    b"/chat/completions": _answers(CHAT),
    b"/messages": _answers(MESSAGES),
    b"/responses": _answers(RESPONSES),
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
            answers = ANSWERS[lines.split(b" ", 2)[1].removeprefix(b"/v1")]
            await answers[model.partition("~")[0]](writer)
    writer.close()

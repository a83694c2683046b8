"""Thousands of concurrent calls that share answers: each gets the answer to its own request, and none of another key.

The provider answers each request with the tag in it and with a number of its own, and breaks off some answers. Some of
the clients disconnect in the middle.
"""

import asyncio
import itertools
import json
import random
import re
import socket
from collections import defaultdict
from pathlib import Path

import pytest

from tests.faults.client import CLIENT_KEY
from tests.faults.gateway import settings
from tests.faults.upstream import Upstream
from tests.serve.in_process import InProcessGateway

KEYS = (CLIENT_KEY, "sk-second-client-of-the-gateway", "sk-third-client-of-the-gateway")
_AT_ONCE = 100
_WAIT_S = 60.0
_TAG = re.compile(rb"tag-[0-9]+-end")
_ANSWER = re.compile(r"<(tag-\d+-end) (\d+)>")


class TaggedProvider:
    """Answers with the tag of the request, and the number of the answer."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._numbers = itertools.count(1)
        self.requests = 0
        self.broken: set[str] = set()
        self.writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                assert length is not None
                await self._answer(await reader.readexactly(int(length[1])), writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.transport.abort()

    async def _answer(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        self.requests += 1
        tag, number = _TAG.findall(body)[0].decode(), str(next(self._numbers))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        breaks = self._chance.random() < 0.02
        for piece in ("<", tag, " ", number, ">"):
            if breaks and piece == ">":
                self.broken.add(number)
                writer.transport.abort()
                raise ConnectionResetError
            _send(writer, {"choices": [{"index": 0, "delta": {"content": piece}}]})
            await writer.drain()
            await asyncio.sleep(self._chance.random() * 0.01)
        usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
        _send(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        _send(writer, {"choices": [], "usage": usage})
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()


def _send(writer: asyncio.StreamWriter, fields: dict[str, object]) -> None:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", **fields}
    data = f"data: {json.dumps(chunk)}\n\n".encode()
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


async def ask(port: int, key: str, tag: int, *, leaves: bool) -> bytes | None:
    """The response; None if the client has left."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        fields = {"model": "shared", "stream": True, "messages": [{"role": "user", "content": f"tag-{tag}-end"}]}
        body = json.dumps(fields).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n"
        writer.write(f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        if leaves:
            await reader.readuntil(b"data: ")
            writer.transport.abort()
            return None
        return await reader.read()
    finally:
        writer.close()


async def attack(running: InProcessGateway, listening: socket.socket, count: int, seed: int) -> TaggedProvider:
    chance = random.Random(seed)
    provider = TaggedProvider(chance)
    owners: dict[str, set[str]] = defaultdict(set)
    free = asyncio.Semaphore(_AT_ONCE)

    async def one() -> None:
        key, tag, leaves = chance.choice(KEYS), chance.randrange(count // 20), chance.random() < 0.1
        async with free:
            response = await ask(running.port, key, tag, leaves=leaves)
        if response is None or b"no_healthy_target" in response:  # it cools down after too many broken answers
            return
        events = [line[6:] for line in response.replace(b"\r\n", b"\n").splitlines() if line.startswith(b"data: {")]
        deltas = [each["delta"].get("content", "") for event in events for each in json.loads(event).get("choices", ())]
        text = "".join(deltas)
        found = _ANSWER.fullmatch(text if text.endswith(">") else f"{text}>")
        assert found is not None, response
        assert found[1] == f"tag-{tag}-end", response
        owners[found[2]].add(key)
        whole = b"data: [DONE]" in response
        assert whole is (found[2] not in provider.broken), response
        assert not (found[2] in provider.broken and b"\r\nage: " in response), "a broken answer was kept"

    server = await asyncio.start_server(provider.serve, sock=listening)
    async with asyncio.timeout(_WAIT_S):
        await asyncio.gather(*(one() for _ in range(count)))
    server.close()
    for writer in provider.writers:
        writer.transport.abort()
    await asyncio.sleep(0.1)  # until the connections have noticed it
    assert owners
    assert all(len(keys) == 1 for keys in owners.values()), "an answer has crossed keys"
    return provider


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_answer_crosses(tmp_path: Path, count: int) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        attack_on(tmp_path, listening, count)


def attack_on(folder: Path, listening: socket.socket, count: int) -> None:
    port = listening.getsockname()[1]
    route = {"targets": ["main/m"], "coalesce": "key", "cache_answers": "key", "cache_answers_s": 0.5}
    text = settings(f"http://127.0.0.1:{port}/v1", 1, server={"keys": KEYS}, **{"routes.shared": route})
    with Upstream() as upstream, InProcessGateway(folder, upstream, text) as running:
        provider = asyncio.run(attack(running, listening, count, seed=36))
        running.expected = count
        entries = running.quiet()
    assert len(entries) == count
    copies = [entry for entry in entries if entry.attempts and entry.attempts[-1].price in ("shared", "cache")]
    paid = [entry for entry in entries if entry not in copies and entry.attempts]
    assert sum(entry.cost or 0 for entry in copies) == 0
    assert sum(len(entry.attempts) for entry in paid) == provider.requests
    assert {entry.attempts[-1].price for entry in copies} == {"shared", "cache"}
    assert len(copies) > count // 10

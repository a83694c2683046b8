"""A provider of Messages with a prompt cache, by the rules that Anthropic documents:

1. The prompt is the tools, the system prompt and the blocks of the messages, in this order. A prefix is cached by all
   of its bytes; marks are no part of it.
2. Entries are written at breakpoints only, at most four, and only of a prompt of the least size. They live for five
   minutes after they were written or read.
3. A breakpoint reads the longest entry that ends at it, or at one of the 20 blocks before it.
4. What is read costs a tenth of the input, what is written a quarter more than it.

Tokens are a quarter of the bytes. Answers are from a script, and the time is what the caller says.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Json = dict[str, Any]
LIFETIME_S = 300.0
LOOKBACK = 20
MAX_BREAKPOINTS = 4
BYTES_PER_TOKEN = 4


class PromptCache:
    """The entries of a prompt cache, by the digest of a prefix."""

    def __init__(self, clock: Callable[[], float], least: int) -> None:
        self._clock = clock
        self._least = least
        self._entries: dict[bytes, float] = {}  # when they expire

    def read(self, body: Json) -> Json:
        """The input tokens of a request as the API reports them: what is new, read and written."""
        prefixes, marked = list(_prefixes(body)), _marked(body)
        assert len(marked) <= MAX_BREAKPOINTS, "a request may have four breakpoints"
        now, read = self._clock(), 0
        for place in marked:
            for digest, tokens in prefixes[max(0, place - LOOKBACK) : place + 1]:
                if self._entries.get(digest, 0.0) > now:
                    read = max(read, tokens)
                    self._entries[digest] = now + LIFETIME_S
        written = read
        for place in marked:
            digest, tokens = prefixes[place]
            if tokens >= self._least:
                self._entries[digest] = now + LIFETIME_S
                written = max(written, tokens)
        total = prefixes[-1][1]
        return {
            "input_tokens": total - written,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written - read,
        }


def _blocks(body: Json) -> Iterator[tuple[str, Json]]:
    for tool in body.get("tools", []):
        yield "tool", tool
    for block in body.get("system", []):
        yield "system", block
    for message in body["messages"]:
        for block in message["content"]:
            yield message["role"], block


def _prefixes(body: Json) -> Iterator[tuple[bytes, int]]:
    digest, size = blake2b(digest_size=16), 0
    for kind, block in _blocks(body):
        data = json.dumps([kind, {name: value for name, value in block.items() if name != "cache_control"}]).encode()
        digest.update(data)
        size += len(data)
        yield digest.digest(), size // BYTES_PER_TOKEN


def _marked(body: Json) -> list[int]:
    return [place for place, (_, block) in enumerate(_blocks(body)) if "cache_control" in block]


@contextmanager
def serving(cache: PromptCache, answer: Callable[[Json], list[Json]]) -> Iterator[tuple[str, list[Json]]]:
    """The address of the provider, and the usage of its answers so far. `answer` has the blocks of an answer."""
    usages: list[Json] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            usage, blocks = cache.read(body), answer(body)
            usages.append(usage)
            calls = any(block["type"] == "tool_use" for block in blocks)
            data = json.dumps(
                {
                    "id": f"msg_{len(usages)}",
                    "type": "message",
                    "role": "assistant",
                    "model": body["model"],
                    "content": blocks,
                    "stop_reason": "tool_use" if calls else "end_turn",
                    "stop_sequence": None,
                    "usage": usage | {"output_tokens": len(json.dumps(blocks)) // BYTES_PER_TOKEN},
                }
            ).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", usages
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

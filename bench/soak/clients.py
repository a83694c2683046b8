"""Clients that call a gateway in many ways, and judge each answer: it is complete, or reports that it is not."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeAlias

from bench.soak.upstream import LARGE_TEXT, TEXT

KEY = "key-of-the-soak"
ANSWER_S = 30.0
# Names that clients make up are up to so long.
_LONGEST_NAME = 200
_SHARE_OF_REPEATED = 0.2

# How a call ends: with all of the answer; with an error after a part of it; with an error status; or because the client
# leaves, before the answer or within it. A malformed event may be repaired or be an error.
Ending: TypeAlias = Literal["whole", "broken", "refused", "either", "leaves", "leaves-later"]


class Kind(NamedTuple):
    """One kind of call. `weight` says how often it is made."""

    model: str
    ending: Ending
    weight: float
    stream: bool = True
    text: str = TEXT


KINDS: dict[str, Kind] = {
    "stream": Kind("main/stream", "whole", 16),
    "burst": Kind("main/burst", "whole", 16),
    "unstreamed": Kind("main/whole", "whole", 14, stream=False),
    "large": Kind("main/large", "whole", 4, text=LARGE_TEXT),
    "large unstreamed": Kind("main/large-whole", "whole", 4, stream=False, text=LARGE_TEXT),
    "tool call": Kind("main/tools", "whole", 5, text=""),
    "repaired": Kind("main/repaired", "whole", 5),
    "fallback": Kind("fallback", "whole", 4),
    "status 500": Kind("main/fails~", "refused", 8),
    "status 429": Kind("main/limited~", "refused", 4),
    "status 404": Kind("main/unknown~", "refused", 2),
    # Often enough that the tables of names of unstreamed calls, one for each API, are full after some minutes.
    "HTML page": Kind("main/page~", "refused", 10, stream=False),
    "no events": Kind("main/empty~", "refused", 2),
    "reset at once": Kind("main/reset~", "refused", 2),
    "reset later": Kind("main/cut~", "broken", 4),
    "truncated": Kind("main/truncated~", "broken", 3),
    "truncated, unstreamed": Kind("main/truncated~", "refused", 1, stream=False),
    "error frame": Kind("main/error-frame~", "broken", 3),
    "malformed event": Kind("main/malformed~", "either", 2),
    "stalled": Kind("main/stalled~", "broken", 0.3),
    "client leaves": Kind("main/stream", "leaves", 2),
    "client leaves later": Kind("main/stream", "leaves-later", 2),
}


class Api(NamedTuple):
    """How a client asks in one API, and what an answer is to it."""

    path: str
    fields: dict[str, object]
    body_text: Callable[[Any], str]
    """The text of an unstreamed answer."""
    delta_text: Callable[[Any], str]
    """The text of an event."""
    marks: tuple[bytes, ...]
    """What is in streams that claim to be complete, and in no others."""
    input: str = "messages"


def _chat_delta(event: Any) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in event.get("choices", ()))


def _messages_delta(event: Any) -> str:
    return str(event["delta"].get("text", "")) if event.get("type") == "content_block_delta" else ""


def _responses_delta(event: Any) -> str:
    return str(event["delta"]) if event.get("type") == "response.output_text.delta" else ""


def _responses_text(body: Any) -> str:
    return "".join(part["text"] for item in body["output"] for part in item.get("content", ()))


APIS: dict[str, Api] = {
    "chat": Api(
        "chat/completions",
        {},
        lambda body: str(body["choices"][0]["message"]["content"]),
        _chat_delta,
        (b"[DONE]", b'"finish_reason":"'),
    ),
    "messages": Api(
        "messages",
        {"max_tokens": 1_000},
        lambda body: "".join(block.get("text", "") for block in body["content"]),
        _messages_delta,
        (b"message_stop", b'"stop_reason":"'),
    ),
    "responses": Api("responses", {}, _responses_text, _responses_delta, (b"response.completed",), "input"),
}
# How often each is used by a client, and by a provider.
_SHARES = (2, 1, 1)
_PROVIDERS = {"chat": "main", "messages": "main-messages", "responses": "main-responses"}


_DONE = b"data: [DONE]\n\n"


class Answer(NamedTuple):
    """What a client has read."""

    status: int
    body: bytes
    api: str = "chat"

    @property
    def code(self) -> str:
        """Of the error that it is, or ends with."""
        events = self.body.removesuffix(_DONE)  # after which Responses say `[DONE]`, also behind a failure
        last = events.rsplit(b"data: ", 1)[-1] if self.status == 200 else self.body
        with suppress(ValueError):
            value = json.loads(last)
            error = value.get("error") or (value.get("response") or {}).get("error")
            return str(error.get("code") or error["type"]) if isinstance(error, dict) else ""
        return ""

    def text(self, *, stream: bool) -> str:
        """What the model said."""
        api = APIS[self.api]
        if not stream:
            return api.body_text(json.loads(self.body))
        lines = [line for line in self.body.split(b"\n") if line.startswith(b"data: {")]
        return "".join(api.delta_text(json.loads(line.removeprefix(b"data: "))) for line in lines)

    @property
    def finished(self) -> bool:
        """Whether it claims to be complete."""
        body = self.body.replace(b" ", b"")
        return any(mark in body for mark in APIS[self.api].marks)


class Client:
    """Makes one call after another until it is stopped."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._chance = random.Random(seed)
        self._kinds = list(KINDS)
        self._weights = [kind.weight for kind in KINDS.values()]
        self.calls: Counter[str] = Counter()
        self.pairs: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, until: asyncio.Event) -> None:
        """Call until the event is set."""
        while not until.is_set():
            (name,) = self._chance.choices(self._kinds, self._weights)
            try:
                async with asyncio.timeout(ANSWER_S):
                    problem = await self._call(KINDS[name])
            except (TimeoutError, OSError, asyncio.IncompleteReadError, ValueError) as error:
                problem = f"no readable answer: {error!r}"
            self.calls[name] += 1
            if problem:
                self.wrong.append(f"{name}: {problem}")
                self._close()
        self._close()

    async def _call(self, kind: Kind) -> str:
        """Make a call; returns what is wrong with its answer."""
        if self._connection is None:
            self._connection = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._connection
        api, provider = self._chance.choices(list(APIS), _SHARES, k=2)
        self.pairs[f"client of {api}, provider of {provider}"] += 1
        writer.write(self._request(kind, api, provider))
        if kind.ending == "leaves":
            await asyncio.sleep(0.1 + self._chance.random() * 0.05)  # so that the gateway has the request
            self._close()
            return ""
        status, body = await self._read(reader, whole=kind.ending != "leaves-later")
        if kind.ending == "leaves-later":
            self._close()
            return ""
        return judge(kind, Answer(status, body, api))

    def _request(self, kind: Kind, name: str, provider: str) -> bytes:
        chance, api = self._chance, APIS[name]
        model = kind.model.replace("main/", f"{_PROVIDERS[provider]}/")
        if model.endswith("~") and chance.random() > _SHARE_OF_REPEATED:
            model += f"{chance.getrandbits(64):x}" + "n" * chance.randrange(_LONGEST_NAME - 60)
        fields = {
            "model": model,
            "stream": kind.stream,
            api.input: [{"role": "user", "content": "Say something. " * chance.randrange(1, 50)}],
            "user": f"user-{chance.getrandbits(40)}",
            "metadata": {f"tag-{chance.randrange(1_000)}": f"{chance.getrandbits(40)}"},
            **api.fields,
        }
        body = json.dumps(fields).encode()
        lines = f"POST /v1/{api.path} HTTP/1.1\r\nhost: soak\r\nauthorization: Bearer {KEY}\r\n"
        return f"{lines}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body

    async def _read(self, reader: asyncio.StreamReader, *, whole: bool) -> tuple[int, bytes]:
        lines = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(lines.split(b" ", 2)[1])
        if b"transfer-encoding: chunked" not in lines:
            size = int(lines.partition(b"content-length:")[2].partition(b"\r\n")[0])
            return status, await reader.readexactly(size)
        pieces = []
        while size := int(await reader.readline(), 16):
            pieces.append((await reader.readexactly(size + 2))[:-2])
            if not whole:
                break
        else:
            await reader.readline()
        return status, b"".join(pieces)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection[1].close()
            self._connection = None


def judge(kind: Kind, answer: Answer) -> str:
    """What is wrong with an answer to a call of this kind; empty if nothing is."""
    received = f"status {answer.status} {answer.code}, {answer.body[-200:]!r}"
    if answer.status != 200:
        # A target that fails again and again cools down.
        return "" if kind.ending != "whole" and answer.code else received
    if answer.code:
        return received if answer.finished or kind.ending == "whole" else ""
    if kind.stream and not answer.finished:
        return f"neither finished nor failed: {received}"
    if kind.ending not in ("whole", "either"):
        return f"passed for complete: {received}"
    if answer.text(stream=kind.stream) != kind.text and kind.ending == "whole":
        return f"other text: {received}"
    return ""

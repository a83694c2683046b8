"""Clients of all four APIs, and what they read. The readers share nothing with Penstock's."""

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct, field

from tests.simulation.plan import CallPlan, ClientPlan
from tests.simulation.world import World

KEYS = ("key-of-all", "key-with-a-budget-1", "key-with-a-budget-2", "key-with-a-budget-3")
PATHS = {
    "openai_chat": "/v1/chat/completions",
    "anthropic_messages": "/v1/messages",
    "openai_responses": "/v1/responses",
    "gemini": "/v1beta/models/{model}:{method}",
}
# The longest that a call may take: longer than all attempts at their limits of time.
LONGEST_S = 400.0


class Got(Struct):
    """What a client got of an answer."""

    text: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    finished: bool = False
    """Whether the answer says that it is whole."""
    error: str = ""
    problem: str = ""
    """How the answer breaks its API; empty if it does not."""


class Result(Struct):
    """One request, as the client knows it."""

    call: CallPlan
    began_s: float
    gateway: str = ""
    asked: bool = False
    """Whether the whole request was written."""
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = False
    """Whether the body ended as HTTP wants it."""
    cut: str = ""
    """How the connection ended before that."""
    reused: bool = False
    """Whether it was sent on a connection that had been idle."""
    stalled: bool = False
    """Whether the network has stopped to carry anything on its connection."""
    left: bool = False
    """Whether the client has closed it."""
    ended_s: float = 0.0
    got: Got = field(default_factory=Got)

    @property
    def request_id(self) -> str:
        return self.headers.get("x-request-id", "")


def request_of(call: CallPlan) -> bytes:
    """The bytes of a request."""
    user = f"call-{call.id}-"
    prompt = user + " Say it." + " tide" * (call.prompt // 5)
    model = call.target
    path = PATHS[call.surface]
    tags = {"metadata": {"call": user}}
    tool = {"type": "object", "properties": {"port": {"type": "string"}}}
    body: dict[str, Any] = {"model": model, "stream": call.stream}
    match call.surface:
        case "openai_chat":
            body |= {"messages": [{"role": "user", "content": prompt}], "max_tokens": call.most, "user": user} | tags
            body["tools"] = [{"type": "function", "function": {"name": "get_tide_0", "parameters": tool}}]
        case "anthropic_messages":
            body |= {"messages": [{"role": "user", "content": prompt}], "max_tokens": call.most}
            body |= {"metadata": {"user_id": user}, "tools": [{"name": "get_tide_0", "input_schema": tool}]}
        case "openai_responses":
            body |= {"input": prompt, "max_output_tokens": call.most} | tags
            body["tools"] = [{"type": "function", "name": "get_tide_0", "parameters": tool, "strict": False}]
        case _:
            path = path.format(
                model=model, method="streamGenerateContent?alt=sse" if call.stream else "generateContent"
            )
            body = {"contents": [{"role": "user", "parts": [{"text": prompt}]}]}
            body["generationConfig"] = {"maxOutputTokens": call.most}
            body["tools"] = [{"functionDeclarations": [{"name": "get_tide_0", "parameters": tool}]}]
    content = json.dumps(body).encode()
    key = f"Authorization: Bearer {KEYS[call.key]}"
    length = len(content)
    match call.nonsense:
        case "no json":
            content = content[:-7]
            length = len(content)
        case "no key":
            key = "X-Nothing: here"
        case "wrong key":
            key = "Authorization: Bearer wrong"
        case "no model":
            content = content.replace(b"_", b"-")
        case "long head":
            key += "\r\nX-Long: " + "y" * 70_000
        case "half a body":
            length += 10
        case "nested":
            content = content[:-1] + b', "x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"
            length = len(content)
        case "half a head":
            return f"POST {path} HTTP/1.1\r\nHost: x\r\n{key}\r\nContent-".encode()
        case "bytes":
            return b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 7 + b"\r\n\r\n"
        case _:
            pass  # as it should be
    lines = [f"POST {path} HTTP/1.1", "Host: gateway", key, "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode() + content


class _Connection(asyncio.Protocol):
    """A connection of a client."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.ended = ""
        self.transport: Any = None
        self.stalled = False
        self._waiting: asyncio.Future[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if len(self.buffer) > 65_536:
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self.ended = self.ended or "closed"
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = self.ended or ("reset" if exc is not None else "closed")
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def more(self) -> bool:
        """Wait for more bytes; returns whether any can come."""
        size = len(self.buffer)
        self.transport.resume_reading()
        while len(self.buffer) == size and not self.ended:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return len(self.buffer) > size

    async def take(self, size: int) -> bytes:
        while len(self.buffer) < size and await self.more():
            pass
        taken = bytes(self.buffer[:size])
        del self.buffer[:size]
        return taken

    async def line(self, end: bytes) -> bytes | None:
        while (at := self.buffer.find(end)) < 0:
            if not await self.more():
                return None
        return (await self.take(at + len(end)))[: -len(end)]


class Client:
    """Plays the plan of one client."""

    def __init__(self, world: World, plan: ClientPlan, addresses: Callable[[], list[tuple[str, int]]]) -> None:
        self._world = world
        self._plan = plan
        self._addresses = addresses
        self._idle: dict[tuple[str, int], _Connection] = {}
        self.results: list[Result] = []

    async def run(self) -> None:
        for call in self._plan.calls:
            await asyncio.sleep(call.pause_s)
            if call.rush:
                await asyncio.sleep(60.0 - self._world.now % 60.0)
            await self._ask(call)
        for connection in self._idle.values():
            connection.transport.close()

    async def _ask(self, call: CallPlan) -> None:
        addresses = self._addresses()
        address = addresses[call.gateway % len(addresses)]
        result = Result(call, self._world.now, gateway=address[0])
        self.results.append(result)
        connection = self._idle.pop(address, None)
        if connection is not None and (connection.ended or not call.again):
            connection.transport.close()
            connection = None
        result.reused = connection is not None
        if connection is None:
            try:
                async with asyncio.timeout(5.0):
                    _, connection = await asyncio.get_running_loop().create_connection(_Connection, *address)
            except (OSError, TimeoutError):
                result.cut = "refused"
                return
        assert isinstance(connection, _Connection)
        try:
            async with asyncio.timeout(LONGEST_S):
                await self._exchange(call, connection, result)
        except TimeoutError:
            result.cut = "never ended"
            connection.transport.abort()
        result.ended_s = self._world.now
        result.stalled = connection.transport._endpoint.out.stalled
        if (
            result.complete
            and not connection.ended
            and result.headers.get("connection") != "close"
            and not call.nonsense
        ):
            self._idle[address] = connection
        else:
            connection.transport.close()
        result.got = read(call, result)
        self._world.note(f"client {self._plan.number} call {call.id}: {result.status} {result.cut} {len(result.body)}")

    async def _exchange(self, call: CallPlan, connection: _Connection, result: Result) -> None:
        data = request_of(call)
        if call.oddity == "pipelines":
            connection.transport.write(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
            await self._answer(call, connection, Result(call, 0.0))
        if call.oddity == "slow":
            connection.transport.write(data[:100])
            await asyncio.sleep(min(call.after, 2.0))
            data = data[100:]
        connection.transport.write(data)
        result.asked = True
        if call.oddity == "half-closes":
            await asyncio.sleep(call.after)
            connection.transport.write_eof()
        if call.oddity in ("leaves", "resets"):
            try:
                async with asyncio.timeout(call.after):
                    await self._answer(call, connection, result)
            except TimeoutError:
                result.left = True
                if call.oddity == "resets":
                    connection.transport._endpoint.linger_reset = True
                connection.transport.abort()
            return
        await self._answer(call, connection, result)
        result.left = call.oddity == "half-closes"

    async def _answer(self, call: CallPlan, connection: _Connection, result: Result) -> None:
        while True:
            raw = await connection.line(b"\r\n\r\n")
            if raw is None:
                result.cut = connection.ended
                return
            first, *lines = raw.decode("latin-1").split("\r\n")
            result.status = int(first.split(" ")[1])
            if result.status >= 200:
                break
        result.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        pieces: list[bytes] = []
        if result.headers.get("transfer-encoding") == "chunked":
            while True:
                line = await connection.line(b"\r\n")
                if line is None:
                    break
                size = int(line, 16)
                piece = await connection.take(size + 2)
                pieces.append(piece[:size])
                if call.oddity == "slow":
                    await asyncio.sleep(call.after * 0.1)
                elif call.oddity == "stalls" and not connection.stalled:
                    connection.stalled = True
                    await asyncio.sleep(call.after * 10)
                if len(piece) < size + 2:
                    break
                if not size:
                    result.complete = True
                    break
        else:
            length = int(result.headers.get("content-length", "0"))
            pieces.append(await connection.take(length))
            result.complete = len(pieces[0]) == length
        result.body = b"".join(pieces)
        if not result.complete:
            result.cut = connection.ended


# Reading.


def read(call: CallPlan, result: Result) -> Got:
    """What an answer says, in the API of the client."""
    got = Got()
    if not result.status or call.nonsense in ("bytes", "half a head"):
        return got
    streamed = result.headers.get("content-type", "").startswith("text/event-stream")
    try:
        if not streamed:
            if result.complete:
                _read_body(call.surface, json.loads(result.body), got)
        else:
            _READERS[call.surface](_events(result), got)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        got.problem = f"{type(error).__name__}: {error}"
    return got


def _events(result: Result) -> Iterable[Any]:
    """The data of each event of a stream, which must be framed without a flaw."""
    whole, _, rest = result.body.replace(b"\r\n", b"\n").rpartition(b"\n\n")
    if rest and result.complete:
        raise ValueError(f"the last event has no end: {rest[-80:]!r}")
    for block in whole.split(b"\n\n") if whole else ():
        lines = [line for line in block.decode().strip("\n").split("\n") if not line.startswith(":")]
        if not lines:
            continue
        data = [line[6:] for line in lines if line.startswith("data: ")]
        if len(data) != 1 or len(lines) > 2:
            raise ValueError(f"an event without one line of data: {block[:80]!r}")
        yield data[0] if data[0] == "[DONE]" else json.loads(data[0])


def _error(value: Any, got: Got) -> bool:
    error = value.get("error") if isinstance(value, dict) else None
    if error:
        got.error = str(error.get("message") if isinstance(error, dict) else error)
    return bool(error)


def _read_chat(events: Iterable[Any], got: Got) -> None:
    arguments: dict[int, list[str]] = {}
    finish = ""
    for event in events:
        if got.finished or got.error:
            raise ValueError("something follows the end")
        if event == "[DONE]":
            got.finished = bool(finish)
            continue
        if _error(event, got):
            continue
        for choice in event["choices"]:
            got.text += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls") or ():
                found = arguments.setdefault(call["index"], ["", ""])
                found[0] += call["function"].get("name") or ""
                found[1] += call["function"].get("arguments") or ""
            finish = choice.get("finish_reason") or finish
    got.calls = [(name, parsed(text)) for name, text in arguments.values()]


def _read_messages(events: Iterable[Any], got: Got) -> None:
    calls: dict[int, list[str]] = {}
    stopped = ""
    for event in events:
        if got.finished or got.error:
            raise ValueError("something follows the end")
        match event["type"]:
            case "content_block_start" if event["content_block"]["type"] == "tool_use":
                calls[event["index"]] = [event["content_block"]["name"], ""]
            case "content_block_delta":
                got.text += event["delta"].get("text", "")
                if event["index"] in calls:
                    calls[event["index"]][1] += event["delta"]["partial_json"]
            case "message_delta":
                stopped = event["delta"].get("stop_reason") or ""
            case "message_stop":
                got.finished = bool(stopped)
            case "error":
                got.error = event["error"]["message"]
            case _:
                pass  # nothing of it is compared
    got.calls = [(name, parsed(text)) for name, text in calls.values()]


def _read_responses(events: Iterable[Any], got: Got) -> None:
    calls: dict[str, list[str]] = {}
    number = -1
    ended = False
    for event in events:
        if event == "[DONE]":
            continue
        if ended:
            raise ValueError("something follows the end")
        number += 1
        if event["sequence_number"] != number:
            raise ValueError(f"the number {event['sequence_number']} in the place of {number}")
        match event["type"]:
            case "response.output_text.delta":
                got.text += event["delta"]
            case "response.output_item.added" if event["item"]["type"] == "function_call":
                calls[event["item"]["id"]] = [event["item"]["name"], ""]
            case "response.function_call_arguments.delta":
                calls[event["item_id"]][1] += event["delta"]
            case "response.completed":
                got.finished = ended = True
            case "response.failed" | "response.incomplete":
                got.error = got.error or "failed"
                ended = True
            case "error":
                got.error = str(event.get("message") or event.get("error"))
            case _:
                pass  # nothing of it is compared
    got.calls = [(name, parsed(text)) for name, text in calls.values()]


def _read_gemini(events: Iterable[Any], got: Got) -> None:
    for event in events:
        if got.error:
            raise ValueError("something follows the error")
        if _error(event, got):
            continue
        _add_candidate(event, got)


def _add_candidate(answer: Any, got: Got) -> None:
    for candidate in answer.get("candidates") or ():
        for part in (candidate.get("content") or {}).get("parts") or ():
            got.text += part.get("text", "")
            if "functionCall" in part:
                got.calls.append((part["functionCall"]["name"], part["functionCall"].get("args", {})))
        got.finished = got.finished or bool(candidate.get("finishReason"))


def _read_body(surface: str, body: Any, got: Got) -> None:
    if _error(body, got):
        return
    match surface:
        case "openai_chat":
            message = body["choices"][0]["message"]
            got.text = message["content"] or ""
            calls = [each["function"] for each in message.get("tool_calls") or ()]
            got.calls = [(each["name"], parsed(each["arguments"])) for each in calls]
            got.finished = bool(body["choices"][0]["finish_reason"])
        case "anthropic_messages":
            got.text = "".join(block.get("text", "") for block in body["content"])
            got.calls = [(each["name"], each["input"]) for each in body["content"] if each["type"] == "tool_use"]
            got.finished = bool(body["stop_reason"])
        case "openai_responses":
            for item in body["output"]:
                if item["type"] == "function_call":
                    got.calls.append((item["name"], parsed(item["arguments"])))
                else:
                    got.text += "".join(part.get("text", "") for part in item.get("content") or ())
            got.finished = body["status"] == "completed"
        case _:
            _add_candidate(body, got)


def parsed(text: str) -> Any:
    """The value of a JSON text; the text, if it is none or too deep."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_READERS: dict[str, Callable[[Iterable[Any], Got], None]] = {
    "openai_chat": _read_chat,
    "anthropic_messages": _read_messages,
    "openai_responses": _read_responses,
    "gemini": _read_gemini,
}

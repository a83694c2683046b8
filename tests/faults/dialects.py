"""What the fault tests need of a dialect: what its providers send (`PROVIDERS`), and how its clients ask (`CLIENTS`).

A fault of the transport is the same in every dialect; only the bytes around it differ. So the tables of faults
(`broken.py`, `tolerated.py`) are functions of a `Provider`, and the tests read answers in common terms. Another dialect
is one more row in each of the two tables, and its rows of faults that only it has.

The tests play every row where client and provider both speak chat completions. For the other pairs they play the rows
of which the outcome depends on the dialects (`is_played`), and with `PENSTOCK_FULL_TABLES=1` all. Of a dialect that
only providers speak here, chat clients get every row, and other clients a share of the others' sample (`played`).
"""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests import bedrock, cohere, messages, ollama, responses, streams
from tests.event_streams import exception, message
from tests.faults.client import Response, body, post
from tests.faults.upstream import EVENT_STREAM, JSON, Op, Script, chunk, fin, head, last_chunk, send, status
from tests.open_responses import problems
from tests.tables import FULL, share

TEXT = "Hello, world"
_DONE = "data: [DONE]\n\n"
OVERLOADED = "the engine is overloaded"


@dataclass(frozen=True)
class Provider:
    """The pieces of an answer with five tokens in and three out, and what else a provider may send."""

    dialect: str
    begin: bytes
    """Everything before the first text."""
    says: Callable[..., bytes]
    """One event with this text, and with further members."""
    finish: bytes
    """The finish reason."""
    bill: bytes
    """The usage, where an event of its own has it."""
    end: bytes
    """The event that marks the end."""
    fails: Callable[[str], bytes]
    """An error as an event, with this message."""
    error: Callable[[str], bytes]
    """An error as a body."""
    body: Callable[[str], bytes]
    """A whole answer that is not streamed."""
    busy: bytes
    """An error event that stands for a 429."""
    suffix: str = ""
    """How the names of its providers end."""
    reports_input_first: bool = False
    """Whether the tokens of the input are reported before the first text."""
    finish_is_last: bool = False
    """Whether an answer is whole, with its usage, once its finish has come."""
    end_is_whole: bool = False
    """Whether the event that marks the end has the finish reason, and the whole answer once more."""
    framing: Literal["sse", "json-lines", "event-stream"] = "sse"
    beat: bytes = b": processing\n\n"
    """What it sends while nothing happens; empty if it has no such thing."""
    junk: bytes = b"data: {nonsense\n\n"
    """An event that is no JSON."""
    unmarked: tuple[str, ...] = ("no-done",)
    """The repairs of an answer that is whole but for its end."""
    only_providers: bool = False
    """Whether most clients of the fault tests speak another dialect (`cloud_clients.py` has the others)."""

    @property
    def hello(self) -> bytes:
        """The beginning and the first word."""
        return self.begin + self.says("Hello")

    @property
    def world(self) -> bytes:
        """The rest of the text."""
        return self.says(", world")

    @property
    def rest(self) -> bytes:
        """What follows the text."""
        return self.finish + self.bill + self.end

    @property
    def wire(self) -> bytes:
        """A whole answer."""
        return self.hello + self.world + self.rest

    @property
    def behind_the_finish(self) -> bytes:
        """The finish, and a part of the event that follows it: a body that ends here ends as HTTP wants it."""
        following = self.bill or self.end
        return self.finish + following[: min(40, len(following) - 4)]

    def cut_behind_the_finish(self) -> dict[str, tuple[Script, str]]:
        """Streams that end in the event behind the finish, and the text of each."""
        if not (self.bill or self.end):
            return {}
        cut = self.hello + self.behind_the_finish
        text = TEXT if self.end_is_whole else "Hello"  # the finish may repeat the text, and have the rest of it
        gzipped = EVENT_STREAM | {"content-encoding": "gzip"}
        return {
            "U16 ends in an event behind the finish": (stream(self.hello, self.behind_the_finish), text),
            "U16 ends there, until the connection closes": ([head(framing=""), send(cut), fin()], text),
            "U16 ends there, in HTTP/1.0": (
                [send(b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + cut), fin()],
                text,
            ),
            "U16 ends there, of known length": ([status(200, EVENT_STREAM, cut)], text),
            "U16 ends there, of a length that is too short": (
                [head(framing=f"content-length: {len(cut)}"), send(self.hello + self.rest), fin()],
                text,
            ),
            "U16 ends there, steady before": (
                stream(self.hello, *[self.says(".") for _ in range(9)], self.behind_the_finish),
                "Hello" + "." * 9,
            ),
            "U16 ends there, with a heartbeat before": (
                stream(self.hello, self.beat + self.behind_the_finish),
                text,
            ),
            "U43 gzip, cut behind the finish": ([status(200, gzipped, cut_gzip(cut))], text),
            "U43 gzip that ends there": ([status(200, gzipped, gzip.compress(cut))], text),
        }

    def whole(self) -> list[Op]:
        """A whole answer, in a few chunks."""
        return stream(self.hello, self.world, self.rest)

    def unstreamed(self) -> list[Op]:
        """A whole answer in one body."""
        return [status(200, JSON, self.body(TEXT))]


def stream(*data: bytes) -> list[Op]:
    """A stream as it should be: these bytes, each in a chunk of its own."""
    return [head(), *map(chunk, data), last_chunk()]


def cut_gzip(data: bytes) -> bytes:
    """Data at the beginning of a gzip stream that has no end."""
    compressor = zlib.compressobj(wbits=31)
    return compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)


def _chat_body(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "sluice-1",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": streams.counts(5, 3),
    }
    return json.dumps(answer).encode()


def _chat_error(message: str) -> bytes:
    error = {"message": message, "type": "server_error", "param": None, "code": "overloaded"}
    return json.dumps({"error": error}).encode()


CHAT = Provider(
    dialect="openai_chat",
    begin=streams.sse(streams.begins()),
    says=lambda text, **fields: streams.sse(streams.says(text, **fields)),
    finish=streams.sse(streams.finishes()),
    bill=streams.sse(streams.bill(**streams.counts(5, 3))),
    end=streams.sse(streams.DONE),
    fails=lambda message: b"data: " + _chat_error(message) + b"\n\n",
    error=_chat_error,
    body=_chat_body,
    busy=streams.sse({"error": {"message": "slow down", "code": 429}}),
)


def _message(text: str) -> bytes:
    message = messages.begins(usage={"input_tokens": 5, "output_tokens": 3})["message"]
    content = [{"type": "text", "text": text}]
    return json.dumps(message | {"content": content, "stop_reason": "end_turn"}).encode()


MESSAGES = Provider(
    dialect="anthropic_messages",
    begin=messages.wire(messages.begins(usage={"input_tokens": 5, "output_tokens": 1}), messages.opens()),
    says=lambda text, **fields: messages.wire(messages.says(text) | fields),
    finish=messages.wire(messages.closes(), messages.finishes(usage={"output_tokens": 3})),
    bill=b"",
    end=messages.wire(messages.STOPS),
    fails=lambda message: messages.wire(messages.error(message, "api_error")),
    error=lambda message: json.dumps(messages.error(message, "api_error")).encode(),
    body=_message,
    busy=messages.wire(messages.error("slow down", "rate_limit_error")),
    suffix="-messages",
    reports_input_first=True,
    finish_is_last=True,
)
_ITEM = responses.message(responses.part(TEXT))
_BILL = responses.USAGE | {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}
_MESSAGE = responses.says_all(TEXT)


def _unnumbered(*events: responses.Json) -> bytes:
    """Events without numbers, as some servers send them: so any piece may follow any other."""
    return b"".join(map(responses.named, events))


RESPONSES = Provider(
    dialect="openai_responses",
    begin=_unnumbered(*responses.begins(), *_MESSAGE[:2]),
    says=lambda text, **fields: _unnumbered(responses.says(text, **fields)),
    finish=_unnumbered(*_MESSAGE[3:]),
    bill=b"",
    end=_unnumbered(responses.completes(_ITEM, usage=_BILL)),
    fails=lambda message: _unnumbered(responses.error(message, "server_error")),
    error=_chat_error,
    body=lambda text: json.dumps(
        responses.response("completed", responses.message(responses.part(text)), usage=_BILL)
    ).encode(),
    busy=_unnumbered(responses.error("slow down", "rate_limit_exceeded")),
    suffix="-responses",
    end_is_whole=True,
)
OLLAMA = Provider(
    dialect=ollama.DIALECT,
    begin=ollama.wire(ollama.message()),
    says=lambda text, **fields: ollama.wire(ollama.message(text) | fields),
    finish=ollama.wire(ollama.message() | ollama.ends(input=5, output=3)),
    bill=b"",
    end=b"",
    fails=lambda message: ollama.wire({"error": message}),
    error=lambda message: json.dumps({"error": message}).encode(),
    body=lambda text: ollama.body(ollama.message(text), input=5, output=3),
    busy=b"",
    suffix="-ollama",
    finish_is_last=True,
    framing="json-lines",
    beat=b"\n",
    junk=b'{"nonsense": }\n',
    only_providers=True,
)
_COHERE_BILL = cohere.usage(5, 3)
COHERE = Provider(
    dialect=cohere.DIALECT,
    begin=cohere.wire(cohere.BEGIN, cohere.says_all()[0]),
    says=lambda text, **fields: cohere.wire(cohere.says(text) | fields),
    finish=cohere.wire(cohere.closes(), cohere.ends(counts=_COHERE_BILL)),
    bill=b"",
    end=cohere.DONE,
    fails=lambda message: cohere.wire(cohere.ends("ERROR", {}, error=message)),
    error=lambda message: json.dumps({"id": "e1", "message": message}).encode(),
    body=lambda text: cohere.body(counts=_COHERE_BILL, content=[cohere.text(text)]),
    busy=b"",
    suffix="-cohere",
    finish_is_last=True,
    unmarked=(),
    only_providers=True,
)
_BEDROCK_BILL = bedrock.USAGE | {"inputTokens": 5, "outputTokens": 3, "totalTokens": 8}
BEDROCK = Provider(
    dialect=bedrock.DIALECT,
    begin=bedrock.BEGIN,
    says=lambda text, **_: bedrock.says(text),
    finish=bedrock.block("Stop") + bedrock.stops(),
    bill=bedrock.bill(_BEDROCK_BILL),
    end=b"",
    fails=lambda message: exception("modelStreamErrorException", message),
    error=lambda message: json.dumps({"message": message}).encode(),
    body=lambda text: bedrock.body({"text": text}, usage=_BEDROCK_BILL),
    busy=exception("throttlingException", "slow down"),
    suffix="-bedrock",
    finish_is_last=True,
    framing="event-stream",
    beat=b"",
    junk=message(b"{nonsense", event_type="contentBlockDelta", message_type="event"),
    only_providers=True,
)
PROVIDERS = {provider.dialect: provider for provider in (CHAT, MESSAGES, RESPONSES, OLLAMA, COHERE, BEDROCK)}


@dataclass
class MessagesResponse(Response):
    """An answer to a client of Messages, in the terms of `Response`."""

    @property
    def events(self) -> list[Any]:
        """The data of each event; each has its name, and the framing is flawless. Comments are ignored."""
        assert self.body == b"" or self.body.endswith(b"\n\n"), f"the last event has no end: {self.body[-80:]!r}"
        found = []
        for block in self.body.decode().split("\n\n")[:-1]:
            if block.startswith(":"):
                continue
            name, data = block.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
        return found

    @property
    def done(self) -> bool:
        return bool(self.events[-1]["type"] == "message_stop")

    @property
    def error(self) -> Any:
        """The error, in the members of a chat error: Penstock's code is at the end of the message."""
        if self.streamed:
            errors = [event for event in self.events if event["type"] == "error"]
            assert errors in ([], self.events[-1:]), "something follows the error"
        else:
            errors = [self.json] if self.json["type"] == "error" else []
        if not errors:
            return None
        assert set(errors[0]) == {"type", "error", "request_id"}
        code = re.search(r"\((\w+)\)$", errors[0]["error"]["message"])
        return {"code": code and code[1], "request_id": errors[0]["request_id"], **errors[0]["error"]}

    @property
    def text(self) -> str:
        if self.streamed:
            return "".join(event["delta"].get("text", "") for event in self._of("content_block_delta"))
        return "".join(block["text"] for block in self.json["content"])

    @property
    def finish(self) -> str | None:
        """The finish reason of chat that the stop reason corresponds to."""
        found = [event["delta"] for event in self._of("message_delta")] if self.streamed else [self.json]
        assert len(found) <= 1
        return {"end_turn": "stop"}[found[0]["stop_reason"]] if found else None

    @property
    def usage(self) -> tuple[int, int] | None:
        if self.streamed:
            reports = [self._of("message_start")[0]["message"]["usage"], self._of("message_delta")[0]["usage"]]
        else:
            reports = [self.json["usage"]]
        merged = {name: count for report in reports for name, count in report.items()}
        return (merged["input_tokens"], merged["output_tokens"]) if merged["output_tokens"] else None

    def _of(self, type: str) -> list[Any]:
        return [event for event in self.events if event["type"] == type]


@dataclass
class ResponsesResponse(Response):
    """An answer to a client of Responses, in the terms of `Response`."""

    @property
    def events(self) -> list[Any]:
        """The data of each event; each has its name, its number and its members, and the framing is flawless."""
        assert self.body == b"" or self.body.endswith(b"\n\n"), f"the last event has no end: {self.body[-80:]!r}"
        found = []
        for block in self.body.decode().removesuffix(_DONE).split("\n\n")[:-1]:
            name, data = block.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
            assert problems(found[-1]) == []
        assert [event["sequence_number"] for event in found] == [*range(len(found))]
        return found

    @property
    def done(self) -> bool:
        return bool(self.events[-1]["type"] == "response.completed") and self.body.decode().endswith(_DONE)

    @property
    def error(self) -> Any:
        if not self.streamed:
            return self.json.get("error")
        errors = [event["error"] for event in self._of("error")]
        failed = self._of("response.failed")
        assert len(errors) == len(failed) <= 1
        assert not errors or [event["type"] for event in self.events[-2:]] == ["error", "response.failed"]
        assert not errors or failed[0]["response"]["error"]["message"].startswith(errors[0]["message"])
        return errors[0] if errors else None

    @property
    def text(self) -> str:
        if not self.streamed:
            return "".join(part["text"] for item in self.json["output"] for part in item["content"])
        return "".join(event["delta"] for event in self._of("response.output_text.delta"))

    @property
    def finish(self) -> str | None:
        """The finish reason of chat that the status corresponds to."""
        statuses = {"completed": "stop", "failed": None, "in_progress": None}
        return statuses[self._response["status"]]

    @property
    def usage(self) -> tuple[int, int] | None:
        found = self._response["usage"]
        return (found["input_tokens"], found["output_tokens"]) if found and found["output_tokens"] else None

    @property
    def _response(self) -> Any:
        return [event for event in self.events if "response" in event][-1]["response"] if self.streamed else self.json

    def _of(self, type: str) -> list[Any]:
        return [event for event in self.events if event["type"] == type]


@dataclass(frozen=True)
class Client:
    """How a client of one dialect asks, and how it reads what it gets."""

    dialect: str
    path: str
    heartbeat: re.Pattern[bytes]
    response: type[Response]
    fields: Mapping[str, object] = field(default_factory=dict)
    """What every request has besides the model, `stream` and `messages`."""
    statuses: Mapping[int, int] = field(default_factory=dict)
    """By the status of a provider: what this client gets instead of what chat clients get."""
    codes: Mapping[str, str] = field(default_factory=dict)
    """By Penstock's code and by the status of a provider: the code in the body that this client gets."""
    messages: str = "messages"
    """The member that has the prompt."""

    def content(self, model: str, *, stream: bool, **fields: object) -> bytes:
        """The body of a request."""
        content = body(model, stream=stream, **{**self.fields, **fields})
        return content.replace(b'"messages"', f'"{self.messages}"'.encode(), 1)

    def request(self, model: str, *, stream: bool, **fields: object) -> bytes:
        """A whole request."""
        return post(self.content(model, stream=stream, **fields), path=self.path)

    def read(self, response: Response) -> Response:
        """The same answer, read as one of this dialect."""
        return self.response(**vars(response))


CHAT_CLIENT = Client("openai_chat", "/v1/chat/completions", re.compile(rb": penstock\n\n"), Response)
MESSAGES_CLIENT = Client(
    "anthropic_messages",
    "/v1/messages",
    re.compile(rb'event: ping\ndata: {"type":"ping"}\n\n'),
    MessagesResponse,
    fields={"max_tokens": 100},
    statuses={529: 529},
)
RESPONSES_CLIENT = Client(
    "openai_responses",
    "/v1/responses",
    re.compile(rb'event: response.in_progress\ndata: {"type":"response.in_progress",.*}\n\n'),
    ResponsesResponse,
    codes={
        "upstream_rate_limited": "rate_limit_exceeded",
        "503": "server_is_overloaded",
        "529": "server_is_overloaded",
    },
    messages="input",
)
CLIENTS = {client.dialect: client for client in (CHAT_CLIENT, MESSAGES_CLIENT, RESPONSES_CLIENT)}


@dataclass(frozen=True)
class Pair:
    """A client of one dialect and a provider of the same or another one."""

    client: Client
    provider: Provider

    @property
    def same(self) -> bool:
        """Whether both speak one dialect."""
        return self.client.dialect == self.provider.dialect

    def __str__(self) -> str:
        return f"{self.client.dialect} client, {self.provider.dialect} provider"


_PAIRS = [Pair(client, provider) for client in CLIENTS.values() for provider in PROVIDERS.values()]
PAIRS = [pair for pair in _PAIRS if not pair.provider.only_providers]
PROVIDER_PAIRS = [pair for pair in _PAIRS if pair.provider.only_providers]
"""Those with a provider of a dialect that none of these clients speaks."""
WITH_CHAT_CLIENTS = [pair for pair in PROVIDER_PAIRS if pair.client == CHAT_CLIENT]
CHAT_ONLY, MESSAGES_ONLY = Pair(CHAT_CLIENT, CHAT), Pair(MESSAGES_CLIENT, MESSAGES)
RESPONSES_ONLY = Pair(RESPONSES_CLIENT, RESPONSES)


def is_played(pair: Pair, *, sampled: bool) -> bool:
    """Whether a row is played for a pair; `sampled`: its outcome depends on the dialects."""
    return sampled or pair == CHAT_ONLY or FULL


def played(pair: Pair, number: int, rows: Collection[str], sample: Collection[str]) -> Sequence[str]:
    """The rows that are played for a pair of this number; `sample`: those whose outcome depends on the dialects."""
    if pair.client == CHAT_CLIENT:
        return [*rows]
    return share(number, [name for name in rows if FULL or name in sample])


def same_or_translated(pair: Pair) -> bool:
    """Whether a pair stands for others: of one dialect, or with a chat provider."""
    return is_played(pair, sampled=pair.same or pair.provider == CHAT)

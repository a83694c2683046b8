"""What a client is asked to do, and what it reports; the same for all clients, so that one test judges them all.

A *voice* is a client and the way in which it is used. Each voice gets an `Ask`, sends it to the gateway, and returns a
`Report`. Clients differ in how much of an answer they show: `Voice.shows` reduces the expected answer to what that
client shows, and to nothing less.
"""

import json
from typing import Protocol

import msgspec
from msgspec import Struct

from tests.judges.cases import Case, Seen, SeenCall
from tests.streams import Json, fold, read

QUESTION: list[Json] = [{"role": "user", "content": "Say hello."}]
_ANYTHING: Json = {"type": "object", "properties": {}}
TOOLS: list[Json] = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": _ANYTHING}}
    for name in ("weather", "time")
]


class Ask(Struct, frozen=True, kw_only=True):
    """The task of a client."""

    way: str
    base_url: str
    key: str
    model: str
    messages: list[Json] = msgspec.field(default_factory=QUESTION.copy)
    tools: list[Json] = []
    include_usage: bool = True
    max_retries: int = 0
    timeout_s: float = 10.0


class Failure(Struct, frozen=True):
    """An error that the client raised; the status is that of the answer, if it had one."""

    name: str
    message: str
    status: int | None
    code: str | None


class Report(Struct, frozen=True):
    """The result of an ask: an answer or an error, and what was received before it."""

    seen: Seen | None
    sent_text: str
    """The text that the application had been handed when it ended."""
    error: Failure | None
    statuses: list[int]
    """Of every HTTP answer that the client got: more than one if it tried again."""
    headers: dict[str, str]
    """Of the last HTTP answer."""


class Judge(Protocol):
    """A client that can be asked."""

    def ask(self, ask: Ask) -> Report:
        """Put it to the gateway."""


class Voice(Struct, frozen=True):
    """A client, and the way in which it is used."""

    client: str
    way: str
    streams: bool = True

    def __str__(self) -> str:
        return f"{self.client} {self.way}"

    def shows(self, seen: Seen) -> Seen:
        """What of an answer this voice can show."""
        return _SHOWN[self.client](seen)


def _all(seen: Seen) -> Seen:
    return seen


def _parsed(seen: Seen) -> Seen:
    """Arguments of calls are parsed by the client."""
    choices = {
        index: msgspec.structs.replace(choice, calls=[_parsed_call(call) for call in choice.calls])
        for index, choice in seen.choices.items()
    }
    return msgspec.structs.replace(seen, choices=choices, usage=_three(seen.usage))


def _parsed_call(call: SeenCall) -> SeenCall:
    arguments = json.dumps(json.loads(call.arguments), ensure_ascii=False, separators=(",", ":"))
    return msgspec.structs.replace(call, arguments=arguments)


def _three(usage: dict[str, object] | None) -> dict[str, object] | None:
    """The figures that every client shows."""
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    return None if usage is None else {name: usage[name] for name in names}


def _without_envelope(seen: Seen) -> Seen:
    """It has no field for `created`, and puts an id of its own where the answer's was, if it came as a stream."""
    return msgspec.structs.replace(_parsed(seen), id="", created=0)


_SHOWN = {
    "openai-python": _all,
    "openai-node": _all,
    "vercel": _parsed,
    "langchain": _without_envelope,
}

VOICES = [
    *(Voice("openai-python", way) for way in ("create", "create async", "stream", "stream async")),
    *(Voice("openai-python", way, streams=False) for way in ("plain", "plain async")),
    *(Voice("openai-node", way) for way in ("create", "stream")),
    Voice("openai-node", "plain", streams=False),
    *(Voice("vercel", way) for way in ("fullStream", "textStream")),
    Voice("vercel", "generateText", streams=False),
    *(Voice("langchain", way) for way in ("stream", "astream")),
    *(Voice("langchain", way, streams=False) for way in ("invoke", "ainvoke")),
]
STREAMED = [voice for voice in VOICES if voice.streams]
PLAIN = [voice for voice in VOICES if not voice.streams]
FIRST = [STREAMED[0], PLAIN[0]]
"""The voices that play every case of a table (`tests/tables.py`)."""


def meaning(wire: bytes, *, include_usage: bool = True) -> Seen:
    """What a client should see of bytes of a provider."""
    return Case("", wire, fold(read(wire)), include_usage).expected

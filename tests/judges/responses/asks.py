"""What a client of the Responses API is asked to send, and what it reports; the same for all of them.

An ask is in the words of no client: each judge puts it into the idiom of its own. Where the answer calls tools and the
ask has `results`, the client sends them back as its documentation says, and reports both turns.
"""

import msgspec
from msgspec import Struct

from tests.judges.gateway.asks import Failure
from tests.messages import Json

# What every judge declares where the ask has `schema`.
SCHEMA: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}


class Ask(Struct, frozen=True, kw_only=True):
    """The task of a client."""

    way: str
    base_url: str
    key: str
    model: str
    system: str = ""
    parts: list[Json] = msgspec.field(default_factory=lambda: [{"text": "Say hello."}])
    """The user's message: `{"text": …}` or `{"image": …}`, a PNG in base64."""
    tools: list[str] = []
    """Names of tools, each with the parameter `city`."""
    results: dict[str, str] = {}
    """What each tool returns."""
    schema: bool = False
    """Whether the answer has to have the fields of `SCHEMA`."""
    reasoning: bool = False
    kept: bool = False
    """Whether a client that reasons leaves earlier answers to the gateway, which is its default."""
    max_tokens: int | None = None
    max_retries: int = 0
    timeout_s: float = 10.0


class SeenCall(Struct, frozen=True):
    """A call of a tool; its arguments are decoded."""

    id: str
    name: str
    arguments: Json


class Seen(Struct, frozen=True, kw_only=True):
    """One answer, as the client shows it; None for what it does not show."""

    id: str | None
    model: str | None
    text: str = ""
    reasoning: str | None = ""
    refusal: str | None = ""
    calls: list[SeenCall] = []
    status: str | None = "completed"
    reason: str | None = None
    """Why the answer is incomplete."""
    usage: dict[str, int] | None = None
    items: list[str] | None = None
    """The types of the output items, in order."""
    parsed: Json | None = None
    """The answer as the client has decoded it by the schema."""


class Report(Struct, frozen=True):
    """What came of an ask."""

    turns: list[Seen]
    sent_text: str
    """The text that the application had been handed when it ended."""
    error: Failure | None
    statuses: list[int]
    """Of every HTTP response that the client got."""
    headers: dict[str, str]
    """Of the last HTTP response."""


class Voice(Struct, frozen=True):
    """A client, and the way in which it is used."""

    client: str
    way: str
    streams: bool = True

    def __str__(self) -> str:
        return f"{self.client} {self.way}"

    def shows(self, seen: Seen) -> Seen:
        """What of an answer this client can show."""
        if self.client == "vercel":  # it takes a refusal for text
            seen = msgspec.structs.replace(seen, text=seen.text + (seen.refusal or ""))
        return msgspec.structs.replace(seen, **dict.fromkeys(_HIDDEN.get(self.client, ())))


# What the clients that are no SDK of OpenAI's have no place for.
_HIDDEN = {"vercel": ("refusal", "status", "items"), "langchain": ("items",), "pydantic-ai": ("status", "items")}

VOICES = [
    *(Voice("openai-python", way) for way in ("create", "create async", "stream", "stream async")),
    *(Voice("openai-python", way, streams=False) for way in ("create plain", "parse async")),
    *(Voice("openai-node", way) for way in ("create", "stream")),
    *(Voice("openai-node", way, streams=False) for way in ("create plain", "parse")),
    Voice("vercel", "fullStream"),
    Voice("vercel", "generateText", streams=False),
    Voice("langchain", "stream"),
    Voice("langchain", "astream"),
    Voice("langchain", "invoke", streams=False),
    Voice("pydantic-ai", "run_stream"),
    Voice("pydantic-ai", "run", streams=False),
]
STREAMED = [voice for voice in VOICES if voice.streams]
PLAIN = [voice for voice in VOICES if not voice.streams]
FIRST = [STREAMED[0], PLAIN[0]]
"""The voices that play every case of a table (`tests/tables.py`)."""

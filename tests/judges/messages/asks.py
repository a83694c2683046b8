"""What a client of Anthropic's API is asked to do, and what it reports; the same for all clients.

An ask is independent of any client: each judge translates it into its own API. If the answer calls tools and the ask
has `results`, the client sends them back as its documentation says, and reports both turns.
"""

import msgspec
from msgspec import Struct

from tests.messages import Json

# The content of the provider's stream as a client shows it; `usage` has the four counts of the API.
Usage = dict[str, int]


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
    results: dict[str, list[Json]] = {}
    """What each tool returns, in parts; one that is not named here fails with `no such city`."""
    thinking: bool = False
    stop: list[str] = []
    max_tokens: int = 2_000
    max_retries: int = 0
    timeout_s: float = 10.0


class SeenCall(Struct, frozen=True):
    """A call of a tool; its input is decoded by the client."""

    id: str
    name: str
    input: Json


class Seen(Struct, frozen=True, kw_only=True):
    """One answer, as the client shows it; None for what it does not show."""

    id: str | None
    model: str | None
    text: str = ""
    thinking: str = ""
    signature: str | None = ""
    calls: list[SeenCall] = []
    stop: str | None = "end_turn"
    stop_sequence: str | None = None
    usage: Usage | None = None
    blocks: list[str] | None = None
    """The types of the content blocks, in order."""


class Failure(Struct, frozen=True):
    """An error that the client raised; the status is that of the response, if the client tells."""

    name: str
    message: str
    status: int | None
    type: str | None


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
        return msgspec.structs.replace(seen, **dict.fromkeys(_HIDDEN.get(self.client, ())))


# The AI SDK and LangChain have a shape of their own for an answer; LangChain gives it an id of its own, too.
_HIDDEN = {"vercel": ("blocks",), "langchain": ("id", "blocks")}

VOICES = [
    *(Voice("anthropic-python", way) for way in ("create", "create async", "stream", "stream async")),
    *(Voice("anthropic-python", way, streams=False) for way in ("plain", "plain async")),
    *(Voice("anthropic-node", way) for way in ("create", "stream")),
    Voice("anthropic-node", "plain", streams=False),
    Voice("vercel", "fullStream"),
    Voice("vercel", "generateText", streams=False),
    Voice("langchain", "stream"),
    Voice("langchain", "astream"),
    Voice("langchain", "invoke", streams=False),
]
STREAMED = [voice for voice in VOICES if voice.streams]
PLAIN = [voice for voice in VOICES if not voice.streams]
FIRST = [STREAMED[0], PLAIN[0]]
"""The voices that play every case of a table (`tests/tables.py`)."""

"""The same answers as streams of a chat completions provider and of a Messages provider.

The expected `Seen` is written by hand. Where the two providers differ, it shows the difference.
"""

import json

from msgspec import Struct

from tests.faults.upstream import JSON, Op, chunk, head, last_chunk, status
from tests.judges.messages.asks import Seen, SeenCall
from tests.messages import answer, begins, calls_all, closes, finishes, opens, says_all, signs, thinks
from tests.streams import DONE, Json, bill, by_event, calls, counts, delta, piece, sse
from tests.streams import begins as chat_begins
from tests.streams import finishes as chat_finishes
from tests.streams import says as chat_says

# A PNG of one pixel.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LISBON, ROME = '{"city":"Lisbon 🌞"}', '{"city":"Rome"}'
SIGNATURE = "c2lnbmVkIGJ5IENsYXVkZQ=="
USAGE = {"input": 12, "output": 5, "cache_read": 8}
CHAT_USAGE = counts(20, 5, prompt_tokens_details={"cached_tokens": 8})
CLAUDE_BEGINS = begins(usage={"input_tokens": 12, "cache_read_input_tokens": 8, "output_tokens": 1})
CALLS = [
    SeenCall("call_a", "weather", {"city": "Lisbon 🌞"}),
    SeenCall("call_b", "time", {"city": "Rome"}),
]


class Answer(Struct, frozen=True, kw_only=True):
    """One answer by both providers, and what a client of Anthropic's API sees of each."""

    chat: bytes
    claude: bytes
    seen: Seen
    seen_of_claude: Seen

    def wire(self, provider: str) -> bytes:
        """The provider's bytes."""
        return self.claude if provider == "claude" else self.chat

    def expected(self, provider: str) -> Seen:
        """What a client sees."""
        return self.seen_of_claude if provider == "claude" else self.seen


def chat(*events: Json, finish: str = "stop") -> bytes:
    """A stream of chat completions."""
    return sse(chat_begins(), *events, chat_finishes(finish), bill(**CHAT_USAGE), DONE)


def claude(*events: Json, reason: str = "end_turn", **fields: object) -> bytes:
    """A stream of Messages."""
    usage = {"input_tokens": 12, "cache_read_input_tokens": 8, "output_tokens": 5}  # LangChain reads it here only
    return answer(*events, begin=CLAUDE_BEGINS, finish=finishes(reason, usage, **fields))


def seen(*blocks: str, stop: str = "end_turn", **fields: object) -> Seen:
    """What a client sees of the chat provider's answer."""
    return Seen(id="chatcmpl-1", model="sluice-1", stop=stop, usage=USAGE, blocks=list(blocks), **fields)  # type: ignore[arg-type]


def of_claude(*blocks: str, stop: str = "end_turn", **fields: object) -> Seen:
    """What a client sees of Claude's answer."""
    return Seen(id="msg_w1", model="weir-3", stop=stop, usage=USAGE, blocks=list(blocks), **fields)  # type: ignore[arg-type]


ANSWERS = {
    "text": Answer(
        chat=chat(chat_says("Hello"), chat_says(", wörld 🌞")),
        claude=claude(*says_all("Hello", ", wörld 🌞")),
        seen=seen("text", text="Hello, wörld 🌞"),
        seen_of_claude=of_claude("text", text="Hello, wörld 🌞"),
    ),
    "thinking": Answer(
        chat=chat(delta({"reasoning_content": "Let me "}), delta({"reasoning_content": "see."}), chat_says("42")),
        claude=claude(
            opens(0, "thinking"),
            thinks("Let me "),
            thinks("see."),
            signs(SIGNATURE),
            closes(0),
            *says_all("42", index=1),
        ),
        seen=seen("thinking", "text", thinking="Let me see.", text="42"),
        seen_of_claude=of_claude("thinking", "text", thinking="Let me see.", signature=SIGNATURE, text="42"),
    ),
    "max_tokens": Answer(
        chat=chat(chat_says("Once upon a"), finish="length"),
        claude=claude(*says_all("Once upon a"), reason="max_tokens"),
        seen=seen("text", text="Once upon a", stop="max_tokens"),
        seen_of_claude=of_claude("text", text="Once upon a", stop="max_tokens"),
    ),
    "a refusal": Answer(
        chat=chat(delta({"refusal": "I cannot "}), delta({"refusal": "do that."})),
        claude=claude(*says_all("I cannot do that."), reason="refusal"),
        seen=seen("text", text="I cannot do that.", stop="refusal"),
        seen_of_claude=of_claude("text", text="I cannot do that.", stop="refusal"),
    ),
    "a content filter": Answer(
        chat=chat(chat_says("How to"), finish="content_filter"),
        claude=claude(*says_all("How to"), reason="refusal"),
        seen=seen("text", text="How to", stop="refusal"),
        seen_of_claude=of_claude("text", text="How to", stop="refusal"),
    ),
    # Chat completions do not say which stop sequence it was, nor that it was one.
    "a stop sequence": Answer(
        chat=chat(chat_says("one two")),
        claude=claude(*says_all("one two"), reason="stop_sequence", stop_sequence="three"),
        seen=seen("text", text="one two"),
        seen_of_claude=of_claude("text", text="one two", stop="stop_sequence", stop_sequence="three"),
    ),
    "an empty answer": Answer(
        chat=chat(),
        claude=claude(),
        seen=seen(),
        seen_of_claude=of_claude(),
    ),
}

TWO_CALLS = Answer(
    chat=chat(
        delta({"reasoning_content": "Both."}),
        chat_says("I shall look."),
        calls(piece(0, "call_a", "weather", "")),
        calls(piece(0, arguments=LISBON[:9])),
        calls(piece(1, "call_b", "time", ROME[:5])),
        calls(piece(0, arguments=LISBON[9:])),
        calls(piece(1, arguments=ROME[5:])),
        finish="tool_calls",
    ),
    claude=claude(
        opens(0, "thinking"),
        thinks("Both."),
        signs(SIGNATURE),
        closes(0),
        *says_all("I shall look.", index=1),
        *calls_all(LISBON, 2, id="call_a", name="weather"),
        *calls_all(ROME, 3, id="call_b", name="time"),
        reason="tool_use",
    ),
    seen=seen(
        "thinking", "text", "tool_use", "tool_use",
        thinking="Both.", text="I shall look.", calls=CALLS, stop="tool_use",
    ),
    seen_of_claude=of_claude(
        "thinking", "text", "tool_use", "tool_use",
        thinking="Both.", signature=SIGNATURE, text="I shall look.", calls=CALLS, stop="tool_use",
    ),
)  # fmt: skip


def streamed(wire: bytes) -> list[Op]:
    """A provider that streams these bytes, an event at a time."""
    return [head(), *(chunk(event) for event in by_event(wire) if event), last_chunk()]


def body(provider: str) -> list[Op]:
    """A provider that answers `Hi` in one body, though it was asked for a stream or not."""
    if provider == "claude":
        message: Json = {
            "id": "msg_w1",
            "type": "message",
            "role": "assistant",
            "model": "weir-3",
            "content": [{"type": "text", "text": "Hi"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 12, "cache_read_input_tokens": 8, "output_tokens": 5},
        }
    else:
        choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
        message = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "sluice-1"}
        message |= {"choices": [choice], "usage": CHAT_USAGE}
    return [status(200, JSON, json.dumps(message).encode())]

"""The answers of `tests/judges/answers.py` as a provider of the Responses API streams them, and what its clients see.

The expected `Seen` is written out by hand. Where the three providers differ, that is the table of differences.
"""

from msgspec import Struct, structs

from tests import messages, responses, streams
from tests.judges import answers
from tests.judges.answers import CLAUDE_BEGINS, LISBON, ROME
from tests.judges.responses.asks import Seen, SeenCall
from tests.messages import Json

PROVIDERS = ("main", "claude", "responses")
"""Providers of chat completions, of Messages and of Responses."""
SEAL = "gAAAAABsZWFs"
USAGE = {"input": 20, "cached": 8, "output": 5, "reasoning": 0}
REPORTED: Json = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 8},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 25,
}
CALLS = [SeenCall("call_a", "weather", {"city": "Lisbon 🌞"}), SeenCall("call_b", "time", {"city": "Rome"})]
MODELS = {"main": "sluice-1", "claude": "weir-3", "responses": "weir-3"}
WEATHER: Json = {"city": "Lisbon 🌞", "degrees": 21}
WEATHER_TEXT = '{"city":"Lisbon 🌞","degrees":21}'


class Answer(Struct, frozen=True, kw_only=True):
    """One answer by three providers, and what a client of the Responses API sees of it."""

    wires: dict[str, bytes]
    seen: Seen
    of_claude: Json = {}
    """What a client sees of Claude's answer instead."""

    def expected(self, provider: str) -> Seen:
        """What a client sees. The id is Penstock's own."""
        differs = self.of_claude if provider == "claude" else {}
        return structs.replace(self.seen, model=MODELS[provider], **differs)


def wire(*events: Json, finish: Json | None = None) -> bytes:
    """A stream of Responses."""
    last = finish or responses.completes(*responses.items_of(events), usage=REPORTED)
    last["response"]["usage"] = REPORTED
    return responses.answer(*events, finish=last)


def seen(*items: str, **fields: object) -> Seen:
    """What a client sees of an answer with these items."""
    return Seen(id=None, model=None, usage=USAGE, items=list(items), **fields)  # type: ignore[arg-type]


def answer(name: str, streamed: bytes, seen: Seen, **of_claude: object) -> Answer:
    """An answer whose other wires are in the table of chat completions and Messages."""
    other = answers.TWO_CALLS if name == "two calls" else answers.ANSWERS[name]
    return Answer(
        wires={"main": other.chat, "claude": other.claude, "responses": streamed}, seen=seen, of_claude=of_claude
    )


def refuses(*texts: str) -> list[Json]:
    """A message that is a refusal."""
    whole: Json = {"type": "refusal", "refusal": "".join(texts)}
    place: Json = {"content_index": 0}
    return [
        responses.added(0, responses.message(status="in_progress")),
        responses.of_item("content_part.added", 0, "msg_1", **place, part=whole | {"refusal": ""}),
        *(responses.of_item("refusal.delta", 0, "msg_1", **place, delta=text) for text in texts),
        responses.of_item("refusal.done", 0, "msg_1", **place, refusal=whole["refusal"]),
        responses.of_item("content_part.done", 0, "msg_1", **place, part=whole),
        responses.done(0, responses.message(whole)),
    ]


def stopped(reason: str, *texts: str) -> bytes:
    """An answer that is incomplete."""
    events = responses.says_all(*texts)
    events[-1]["item"]["status"] = "incomplete"
    return wire(*events, finish=responses.stops(reason, *responses.items_of(events)))


ANSWERS = {
    "text": answer("text", wire(*responses.says_all("Hello", ", wörld 🌞")), seen("message", text="Hello, wörld 🌞")),
    "thinking": answer(
        "thinking",
        wire(*responses.thinks_all(["Let me ", "see."], seal=SEAL), *responses.says_all("42", index=1)),
        seen("reasoning", "message", reasoning="Let me see.", text="42"),
    ),
    "max_tokens": answer(
        "max_tokens",
        stopped("max_output_tokens", "Once upon a"),
        seen("message", text="Once upon a", status="incomplete", reason="max_output_tokens"),
    ),
    # Claude says why it stopped, not which part of its text is the refusal.
    "a refusal": answer(
        "a refusal",
        wire(*refuses("I cannot ", "do that.")),
        seen("message", refusal="I cannot do that."),
        refusal="",
        text="I cannot do that.",
        status="incomplete",
        reason="content_filter",
    ),
    "a content filter": answer(
        "a content filter",
        stopped("content_filter", "How to"),
        seen("message", text="How to", status="incomplete", reason="content_filter"),
    ),
    "an empty answer": answer("an empty answer", wire(), seen()),
}
TWO_CALLS = answer(
    "two calls",
    wire(
        *responses.thinks_all(["Both."], seal=SEAL),
        *responses.says_all("I shall look.", index=1),
        *responses.calls_all(LISBON, 2, "fc_a", call_id="call_a", name="weather"),
        *responses.calls_all(ROME, 3, "fc_b", call_id="call_b", name="time"),
    ),
    seen(
        "reasoning", "message", "function_call", "function_call",
        reasoning="Both.", text="I shall look.", calls=CALLS,
    ),
)  # fmt: skip

HELLO = {
    "main": streams.sse(streams.begins(), streams.says("Hello")),
    "claude": messages.wire(CLAUDE_BEGINS, messages.opens(), messages.says("Hello")),
    "responses": responses.wire(*responses.begins(), *responses.says_all("Hello")[:3]),
}
"""How each provider's stream begins."""


def says(provider: str, *texts: str) -> bytes:
    """An answer with this text."""
    if provider == "main":
        return answers.chat(*map(streams.says, texts))
    return answers.claude(*messages.says_all(*texts)) if provider == "claude" else wire(*responses.says_all(*texts))


def calls(provider: str, *made: tuple[str, str, str]) -> bytes:
    """An answer with these calls: the id, the name and the arguments of each."""
    if provider == "main":
        pieces = [streams.calls(streams.piece(number, *call)) for number, call in enumerate(made)]
        return answers.chat(*pieces, finish="tool_calls")
    if provider == "claude":
        blocks = [messages.calls_all(text, at, id=id, name=name) for at, (id, name, text) in enumerate(made)]
        return answers.claude(*(event for block in blocks for event in block), reason="tool_use")
    items = [
        responses.calls_all(text, at, f"fc_{id}", call_id=id, name=name) for at, (id, name, text) in enumerate(made)
    ]
    return wire(*(event for item in items for event in item))

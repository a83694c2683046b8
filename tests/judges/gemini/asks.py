"""What a client of Gemini's API is asked to do, and what it reports: as for Anthropic's API, in Gemini's terms."""

from base64 import b64encode
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from tests import gemini as gem
from tests.judges import answers
from tests.judges.answers import LISBON, ROME, USAGE, Answer
from tests.judges.messages.asks import Seen, SeenCall, Voice

PROVIDERS = ("main", "claude", "gem")
"""A provider of chat completions, one of Messages, and one of Gemini."""
SIGNATURE = b64encode(b"signed by Gemini").decode()
_COUNTS = {"promptTokenCount": 20, "cachedContentTokenCount": 8, "candidatesTokenCount": 5, "totalTokenCount": 25}
_ENVELOPES = {"main": ("chatcmpl-1", "sluice-1"), "claude": ("msg_w1", "weir-3"), "gem": ("gem_w1", "weir-3")}
VOICES = [
    *(Voice("genai-python", way) for way in ("stream", "stream async")),
    Voice("genai-python", "plain", streams=False),
    Voice("genai-node", "stream"),
    Voice("genai-node", "plain", streams=False),
    Voice("vercel", "fullStream"),
    Voice("vercel", "generateText", streams=False),
    Voice("langchain", "stream"),
    Voice("langchain", "invoke", streams=False),
]
STREAMED = [voice for voice in VOICES if voice.streams]
PLAIN = [voice for voice in VOICES if not voice.streams]
FIRST = [STREAMED[0], PLAIN[0]]
"""The voices that play every case of a table (`tests/tables.py`)."""
# Neither the AI SDK nor LangChain shows all of the envelope.
_HIDDEN = {"vercel": ("id", "model"), "langchain": ("id", "model")}


class GeminiAnswer(Struct, frozen=True, kw_only=True):
    """One answer by each provider, and what a client of Gemini's API sees of it."""

    wires: Mapping[str, bytes]
    text: str = ""
    thinking: str = ""
    calls: list[SeenCall] = []
    stop: str = "STOP"

    def shown(self, voice: Voice, provider: str) -> Seen:
        """What a client shows of the answer of a provider. Signatures are checked where they come back."""
        id, model = _ENVELOPES[provider]
        seen = Seen(
            id=id,
            model=model,
            text=self.text,
            thinking=self.thinking,
            signature=None,
            calls=self.calls,
            stop=self.stop,
            usage=USAGE,
        )
        return msgspec.structs.replace(seen, **dict.fromkeys(_HIDDEN.get(voice.client, ())))


def _wires(answer: Answer, *messages: gem.Json, finish: str = "STOP") -> Mapping[str, bytes]:
    own = gem.answer(*messages, finish=gem.finishes(finish, _COUNTS))
    return {"main": answer.chat, "claude": answer.claude, "gem": own}


def _so_far(candidates: int) -> gem.Json:
    """The usage that a message before the last one reports."""
    return _COUNTS | {"candidatesTokenCount": candidates, "totalTokenCount": 20 + candidates}


def _call(id: str, name: str, arguments: str) -> gem.Json:
    return {"functionCall": {"id": id, "name": name, "args": msgspec.json.decode(arguments)}}


ANSWERS = {
    "text": GeminiAnswer(
        wires=_wires(
            answers.ANSWERS["text"], gem.says("Hello", usage=_so_far(1)), gem.says(", wörld 🌞", usage=_so_far(4))
        ),
        text="Hello, wörld 🌞",
    ),
    "thinking": GeminiAnswer(
        wires=_wires(answers.ANSWERS["thinking"], gem.thinks("Let me "), gem.thinks("see."), gem.says("42")),
        text="42",
        thinking="Let me see.",
    ),
    "max_tokens": GeminiAnswer(
        wires=_wires(answers.ANSWERS["max_tokens"], gem.says("Once upon a"), finish="MAX_TOKENS"),
        text="Once upon a",
        stop="MAX_TOKENS",
    ),
    "a content filter": GeminiAnswer(
        wires=_wires(answers.ANSWERS["a content filter"], gem.says("How to"), finish="SAFETY"),
        text="How to",
        stop="SAFETY",
    ),
}
TWO_CALLS = GeminiAnswer(
    wires=_wires(
        answers.TWO_CALLS,
        gem.thinks("Both."),
        gem.says("I shall look."),
        gem.message(
            _call("call_a", "weather", LISBON) | {"thoughtSignature": SIGNATURE}, _call("call_b", "time", ROME)
        ),
    ),
    text="I shall look.",
    thinking="Both.",
    calls=answers.CALLS,
)

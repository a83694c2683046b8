"""The OpenAI chat-completions dialect: the row for the registry."""

from penstock.core.dialects.dialect import PROOF, Detector, Dialect
from penstock.core.dialects.openai_chat.request import NAME
from penstock.core.dialects.openai_chat.request_writer import ChatSettings
from penstock.core.dialects.openai_chat.surface import CHAT_SURFACE
from penstock.core.dialects.openai_chat.text_format import ChatTextFormat
from penstock.core.dialects.openai_chat.upstream import OpenAIChatUpstream
from penstock.core.json.getters import text_of


def rate_frame(value: dict[str, object], event: str) -> int:  # noqa: ARG001
    """`choices`, or the value of `object`. Some providers leave out one of them, and no other API has either."""
    return PROOF if "choices" in value or text_of(value.get("object")).startswith("chat.completion") else 0


OPENAI_CHAT = Dialect(
    name=NAME,
    title="OpenAI chat completions",
    upstream=OpenAIChatUpstream(),
    surface=CHAT_SURFACE,
    detector=Detector(in_frame=rate_frame),
    carried=frozenset(("logprobs", "usage.cache_write", "usage.reasoning")),
    incidental=frozenset(("model", "stream_options")),  # Penstock requests usage from all providers that allow it
    settings=ChatSettings,
    text_format=ChatTextFormat(),
)

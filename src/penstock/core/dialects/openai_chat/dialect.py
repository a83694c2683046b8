"""The OpenAI chat-completions dialect: the row for the registry."""

from penstock.core.dialects.dialect import Dialect
from penstock.core.dialects.openai_chat.detector import OpenAIChatDetector
from penstock.core.dialects.openai_chat.passthrough import CHAT_PASS_THROUGH
from penstock.core.dialects.openai_chat.places import PLACES
from penstock.core.dialects.openai_chat.request import NAME
from penstock.core.dialects.openai_chat.request_writer import ChatSettings
from penstock.core.dialects.openai_chat.surface import OpenAIChatSurface
from penstock.core.dialects.openai_chat.upstream import OpenAIChatUpstream

OPENAI_CHAT = Dialect(
    name=NAME,
    title="OpenAI chat completions",
    upstream=OpenAIChatUpstream(),
    surface=OpenAIChatSurface(),
    detector=OpenAIChatDetector(),
    places=PLACES,
    carried=frozenset(("logprobs", "usage.cache_write")),
    incidental=frozenset(("model", "stream_options")),  # Penstock requests usage from all providers that allow it
    settings=ChatSettings,
    passthrough=CHAT_PASS_THROUGH,
)

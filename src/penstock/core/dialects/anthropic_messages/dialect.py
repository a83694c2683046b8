"""The Anthropic Messages dialect: the row for the registry."""

from penstock.core.dialects.anthropic_messages.detector import AnthropicMessagesDetector
from penstock.core.dialects.anthropic_messages.model_list import AnthropicModelList
from penstock.core.dialects.anthropic_messages.passthrough import MESSAGES_PASS_THROUGH
from penstock.core.dialects.anthropic_messages.places import PLACES
from penstock.core.dialects.anthropic_messages.reader import NAME
from penstock.core.dialects.anthropic_messages.request_writer import MessagesSettings
from penstock.core.dialects.anthropic_messages.surface import AnthropicMessagesSurface
from penstock.core.dialects.anthropic_messages.token_counting import AnthropicTokenCounting
from penstock.core.dialects.anthropic_messages.upstream import AnthropicMessagesUpstream
from penstock.core.dialects.dialect import Dialect

ANTHROPIC_MESSAGES = Dialect(
    name=NAME,
    title="Anthropic Messages",
    upstream=AnthropicMessagesUpstream(),
    surface=AnthropicMessagesSurface(),
    detector=AnthropicMessagesDetector(),
    places=PLACES,
    carried=frozenset(("citation.cited_text", "stop_sequence", "usage.cache_write", "usage.cache_write_1h")),
    settings=MessagesSettings,
    token_counting=AnthropicTokenCounting(),
    model_list=AnthropicModelList(),
    passthrough=MESSAGES_PASS_THROUGH,
)

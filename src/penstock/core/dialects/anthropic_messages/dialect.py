"""The Anthropic Messages dialect: the row for the registry."""

from penstock.core.dialects.anthropic_messages.model_list import AnthropicModelList
from penstock.core.dialects.anthropic_messages.reader import NAME
from penstock.core.dialects.anthropic_messages.request_writer import MessagesSettings
from penstock.core.dialects.anthropic_messages.surface import MESSAGES_SURFACE, MESSAGES_TOKEN_COUNTING
from penstock.core.dialects.anthropic_messages.text_format import MessagesTextFormat
from penstock.core.dialects.anthropic_messages.upstream import AnthropicMessagesUpstream
from penstock.core.dialects.dialect import PROOF, Detector, Dialect
from penstock.core.json.getters import text_of

_EVENTS = ("message_start", "message_delta", "message_stop", "content_block_")


def rate_frame(value: dict[str, object], event: str) -> int:  # noqa: ARG001
    """The type of an event, or of an unstreamed message. Errors and pings are no evidence."""
    type = text_of(value.get("type"))
    if type.startswith(_EVENTS):
        return PROOF
    return PROOF if type == "message" and isinstance(value.get("content"), list) else 0


ANTHROPIC_MESSAGES = Dialect(
    name=NAME,
    title="Anthropic Messages",
    upstream=AnthropicMessagesUpstream(),
    surface=MESSAGES_SURFACE,
    detector=Detector(in_frame=rate_frame),
    carried=frozenset(
        ("citation.cited_text", "stop_sequence", "usage.cache_write", "usage.cache_write_1h", "usage.reasoning")
    ),
    settings=MessagesSettings,
    token_counting=MESSAGES_TOKEN_COUNTING,
    model_list=AnthropicModelList(),
    text_format=MessagesTextFormat(),
)

"""Detects Anthropic Messages by their bytes."""

from penstock.core.dialects.dialect import HINT, PROOF
from penstock.core.json.getters import text_of

_EVENTS = ("message_start", "message_delta", "message_stop", "content_block_")


class AnthropicMessagesDetector:
    """Rates the evidence that an answer is a message."""

    def in_frame(self, value: dict[str, object], event: str) -> int:  # noqa: ARG002
        """The type of an event, or of an unstreamed message. Errors and pings are no evidence."""
        type = text_of(value.get("type"))
        if type.startswith(_EVENTS):
            return PROOF
        return PROOF if type == "message" and isinstance(value.get("content"), list) else 0

    def in_exchange(self, path: str, content_type: str) -> int:  # noqa: ARG002
        """The path that all providers of this API have."""
        return HINT if path.partition("?")[0].endswith("/messages") else 0

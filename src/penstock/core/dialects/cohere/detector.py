"""Detects the dialect of Cohere by its bytes."""

from penstock.core.dialects.dialect import HINT, PROOF
from penstock.core.json.getters import object_of, text_of

_EVENTS = ("message-start", "message-end", "content-start", "content-delta", "content-end", "tool-call-", "tool-plan-")


class CohereDetector:
    """Rates the evidence that an answer is one of `/v2/chat`."""

    def in_frame(self, value: dict[str, object], event: str) -> int:  # noqa: ARG002
        """The type of an event, or an unstreamed answer. Errors are no evidence."""
        if text_of(value.get("type")).startswith(_EVENTS):
            return PROOF
        whole = "finish_reason" in value and object_of(value.get("message")).get("role") == "assistant"
        return PROOF if whole and "choices" not in value else 0

    def in_exchange(self, path: str, content_type: str) -> int:  # noqa: ARG002
        """The path of the endpoint."""
        return HINT if path.partition("?")[0].endswith("/v2/chat") else 0

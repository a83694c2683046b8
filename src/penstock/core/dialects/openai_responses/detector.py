"""Detects OpenAI Responses by their bytes."""

from penstock.core.dialects.dialect import HINT, PROOF
from penstock.core.json.getters import text_of


class OpenAIResponsesDetector:
    """Rates the evidence that an answer is a response."""

    def in_frame(self, value: dict[str, object], event: str) -> int:  # noqa: ARG002
        """The types of its events, or an unstreamed response. An error proves nothing."""
        if text_of(value.get("type")).startswith("response."):
            return PROOF
        return PROOF if value.get("object") == "response" and "output" in value else 0

    def in_exchange(self, path: str, content_type: str) -> int:  # noqa: ARG002
        """The path that providers of this API have."""
        return HINT if path.partition("?")[0].endswith("/responses") else 0

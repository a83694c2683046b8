"""Detects chat completions by their bytes."""

from penstock.core.dialects.dialect import HINT, PROOF
from penstock.core.json.getters import text_of


class OpenAIChatDetector:
    """Rates the evidence that an answer is a chat completion."""

    def in_frame(self, value: dict[str, object], event: str) -> int:  # noqa: ARG002
        """`choices`, or the value of `object`. Some providers leave out one of them, and no other API has either."""
        return PROOF if "choices" in value or text_of(value.get("object")).startswith("chat.completion") else 0

    def in_exchange(self, path: str, content_type: str) -> int:  # noqa: ARG002
        """The path that all providers of this API have."""
        return HINT if path.endswith("/chat/completions") else 0

"""Detects the Gemini dialect by its bytes."""

from penstock.core.dialects.dialect import HINT, PROOF
from penstock.core.dialects.gemini.members import member

_METHODS = (":streamGenerateContent", ":generateContent")


class GeminiDetector:
    """Rates the evidence that an answer is a `GenerateContentResponse`."""

    def in_frame(self, value: dict[str, object], event: str) -> int:  # noqa: ARG002
        """Candidates, a blocked prompt, or Gemini's usage. Errors are no evidence."""
        candidates, feedback = value.get("candidates"), member(value, "promptFeedback")
        if isinstance(candidates, list) and all(isinstance(each, dict) for each in candidates):
            return PROOF
        if isinstance(feedback, dict) and member(feedback, "blockReason") is not None:
            return PROOF
        return HINT if isinstance(member(value, "usageMetadata"), dict) else 0

    def in_exchange(self, path: str, content_type: str) -> int:  # noqa: ARG002
        """The method at the end of the path, which all providers of this API have."""
        return HINT if path.partition("?")[0].endswith(_METHODS) else 0

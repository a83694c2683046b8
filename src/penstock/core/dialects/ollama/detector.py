"""Detects the dialect of Ollama by its bytes."""

from penstock.core.dialects.dialect import HINT, PROOF


class OllamaDetector:
    """Rates the evidence that an answer is one of `/api/chat` or `/api/generate`."""

    def in_frame(self, value: dict[str, object], event: str) -> int:  # noqa: ARG002
        """A line: a time, whether it is the last one, and a message or text. Errors are no evidence."""
        has_text = isinstance(value.get("message"), dict) or isinstance(value.get("response"), str)
        return PROOF if has_text and isinstance(value.get("done"), bool) and "created_at" in value else 0

    def in_exchange(self, path: str, content_type: str) -> int:
        """The path of the endpoint, and the content type of JSON lines."""
        return HINT if path.endswith(("/api/chat", "/api/generate")) or "ndjson" in content_type else 0

"""Detects the dialect of Bedrock's Converse API by its bytes."""

from penstock.core.dialects.bedrock_converse.reader import EVENTS
from penstock.core.dialects.dialect import HINT, PROOF
from penstock.core.json.getters import object_of


class BedrockConverseDetector:
    """Rates the evidence that an answer is one of the Converse API."""

    def in_frame(self, value: dict[str, object], event: str) -> int:
        """The name of an event, or an unstreamed answer. Exceptions are no evidence."""
        if event in EVENTS or (len(value) == 1 and not EVENTS.isdisjoint(value)):
            return PROOF
        return PROOF if "stopReason" in value and "message" in object_of(value.get("output")) else 0

    def in_exchange(self, path: str, content_type: str) -> int:  # noqa: ARG002
        """The operation at the end of the path."""
        return HINT if path.endswith(("/converse-stream", "/converse")) else 0

"""ResponsesTextFormat: the fast path of Responses (`core/fast/__init__.py`).

Deltas of texts and of reasoning are forwarded. All events are numbered, and name their item and part. So a delta is
forwarded only while the writer's own numbers and names are those of the provider. A heartbeat, a repaired item id and
an event that the writer does not write all end that, for the rest of the answer. OpenAI pads deltas with `obfuscation`.
"""

from penstock.core.dialects.openai_responses.plain_body import read_plain_body
from penstock.core.fast.format import Forwardable, PlainBody, SlowRead, TextFormat


class ResponsesTextFormat(TextFormat):
    """Deltas of texts, which are repeated as a whole behind their deltas."""

    path = ("delta",)
    name_path = ("type",)
    padding = "obfuscation"
    counter = "sequence_number"
    keeps_text = True
    writer_follows = True

    def forwardable(self, read: SlowRead) -> Forwardable:  # noqa: ARG002
        """No: the writer writes what the slow path has read, so that its numbers stay right."""
        return "no"

    def read_body(self, data: bytes) -> PlainBody | None:
        """Read an unstreamed answer by typed decoders."""
        return read_plain_body(data)

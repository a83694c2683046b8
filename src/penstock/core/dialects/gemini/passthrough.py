"""The fast path of Gemini: what `core/fast/passthrough.py` needs to know about this dialect.

Messages with one text and perhaps a report of the usage so far are forwarded, the first of an answer too. A message
with a thought, a signature, citations or anything else that becomes an event is read and written anew. So is one with a
finish reason, unless the body ends with it.
"""

from typing import cast

from penstock.core.dialects.gemini.reader import GeminiReader
from penstock.core.fast.format import PassThroughFormat, Path, ReportedUsage, TextEvent
from penstock.core.hub.events import TextDelta


def _text_path(event: TextEvent) -> Path:
    """The path of a text; none for a thought: the writer must know of it, to put its signature where it belongs."""
    return ("candidates", 0, "content", "parts", 0, "text") if isinstance(event, TextDelta) else ()


GEMINI_PASS_THROUGH = PassThroughFormat(
    text_path=_text_path,
    reported=ReportedUsage(
        path=("usageMetadata",),
        reader=lambda reader: cast("GeminiReader", reader),
    ),
)

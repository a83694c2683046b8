"""GeminiTextFormat: the fast path of Gemini (`core/fast/__init__.py`).

Messages with one text and perhaps a report of the usage so far are forwarded, the first of an answer too. A message
with a thought, a signature, citations or anything else that becomes an event is read and written anew. So is one with a
finish reason, unless the body ends with it.
"""

import re

from penstock.core.fast.format import (
    Forwardable,
    FrameKind,
    Path,
    SlowRead,
    TextEvent,
    TextFormat,
    has_odd_line_ends,
    value_at,
)
from penstock.core.hub.events import (
    BlockEnd,
    BlockStart,
    ChoiceStart,
    Event,
    Finish,
    Start,
    TextDelta,
    UsageReport,
)
from penstock.core.hub.grammar import Grammar
from penstock.core.wire.frame import Frame

# What a message with text may also be read as, before its text.
_BORDERS = frozenset((Start, ChoiceStart, BlockStart, BlockEnd))
# A read of whole messages, in the only form that all clients read.
_MESSAGES = re.compile(rb"(?:data: \{[^\r\n]*\}(?:\r\n\r\n|\n\n))+")


class GeminiTextFormat(TextFormat):
    """Messages with one text, each of which may report the usage so far."""

    event = re.compile(rb"data: (\{[^\r\n]*\})(\r\n\r\n|\n\n)")
    report = "usageMetadata"
    keeps_text = True  # citations refer to positions in the whole text

    def text_path(self, event: TextEvent) -> Path:
        """The path of a text; none for a thought: the writer must know of it, to put its signature where it belongs."""
        return ("candidates", 0, "content", "parts", 0, "text") if isinstance(event, TextDelta) else ()

    def kind_of(
        self, frame: Frame, value: object, seen: list[Event], ordered: list[Event], grammar: Grammar
    ) -> FrameKind:
        """The kind of a message. It may also begin the answer or a block, and report usage."""
        usage = grammar.usage
        if not ordered or (usage is not None and usage.corrected() is not usage):
            return "other"  # clients must get another report
        if not self.is_text(frame, value, ordered[-1], grammar) or not _BORDERS.issuperset(map(type, ordered[:-1])):
            return "other"
        deltas = seen[:-1] if isinstance(seen[-1], UsageReport) else seen
        if deltas == ordered:
            return "text"
        finishes = len(seen) > len(ordered) + 1 and isinstance(deltas[-1], Finish) and deltas[:-1] == ordered
        complete = finishes and grammar.whole and grammar.expects_finish
        return "last text" if complete and usage and usage.raw == value_at(value, (self.report,)) else "other"

    def forwardable(self, read: SlowRead) -> Forwardable:
        """Whether the bytes may be forwarded: not if they begin a block, unless it is the first of the answer."""
        if not read.whole or not _MESSAGES.fullmatch(read.data) or has_odd_line_ends(read.data, crlf=True):
            return "no"
        if not read.first and not _BORDERS.isdisjoint(map(type, read.events)):
            return "no"  # the writer must know of the block
        if read.is_text:
            return "yes"
        return "if last" if read.last == "last text" and len(read.items) == read.texts + 1 else "no"

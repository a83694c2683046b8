"""Penstock: reads the streams of any LLM provider, writes one correct stream, and reports every ending truthfully.

    from penstock import Accumulator, StreamReader

    reader, answer = StreamReader("openai_chat"), Accumulator()
    for data in response.iter_bytes():          # or: async for data in response.aiter_bytes()
        answer.extend(reader.feed(data))
    answer.extend(reader.close())
    print(answer.completion.text, answer.completion.usage, answer.completion.ending)

The names below, and `__version__`, are the public API; everything else may change without notice.
"""

from penstock.core.hub.completion import Accumulator, Choice, Completion, RepairCount
from penstock.core.hub.content import (
    Citation,
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    ReasoningSeal,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolChange,
    ToolResult,
)
from penstock.core.hub.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    End,
    Ending,
    Event,
    Extra,
    Fault,
    Finish,
    MediaDelta,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    Seal,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from penstock.core.hub.usage import Usage
from penstock.core.stream import StreamReader
from penstock.core.stream_writer import StreamWriter
from penstock.errors import ClosedReaderError, PenstockError, UnknownDialectError

__all__ = [
    "Accumulator",
    "Annotation",
    "BlockEnd",
    "BlockStart",
    "Choice",
    "ChoiceStart",
    "Citation",
    "ClosedReaderError",
    "Completion",
    "End",
    "Ending",
    "Event",
    "Extra",
    "Fault",
    "Finish",
    "MediaDelta",
    "MediaPart",
    "OpaquePart",
    "Part",
    "PenstockError",
    "ReasoningDelta",
    "ReasoningPart",
    "ReasoningSeal",
    "RefusalDelta",
    "RefusalPart",
    "Repair",
    "RepairCount",
    "Seal",
    "Start",
    "StreamReader",
    "StreamWriter",
    "TextDelta",
    "TextPart",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallStart",
    "ToolChange",
    "ToolResult",
    "UnknownDialectError",
    "Usage",
    "UsageReport",
]

__version__: str
"""The version of the distribution; `0+source` if Penstock runs from source and is not installed."""


def __getattr__(name: str) -> str:
    """Look the version up when it is asked for: reading the metadata takes longer than importing the library."""
    if name != "__version__":
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    from penstock.installation import version  # noqa: PLC0415 - most programs do not ask

    return version() or "0+source"

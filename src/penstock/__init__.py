"""Penstock: every stream in, one correct stream out; every ending told truthfully.

    from penstock import Accumulator, StreamReader

    reader, answer = StreamReader("openai_chat"), Accumulator()
    for data in response.iter_bytes():          # or: async for data in response.aiter_bytes()
        answer.extend(reader.feed(data))
    answer.extend(reader.close())
    print(answer.completion.text, answer.completion.usage, answer.completion.ending)

The names below are the contract; everything else may move without notice.
"""

from penstock.core.completion import Accumulator, Choice, Completion, RepairCount, ToolCall
from penstock.core.events import (
    ChoiceStart,
    End,
    Ending,
    Event,
    Extra,
    Fault,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from penstock.core.stream import StreamReader, StreamWriter
from penstock.core.usage import Usage
from penstock.errors import ClosedReaderError, PenstockError, UnknownDialectError

__all__ = [
    "Accumulator",
    "Choice",
    "ChoiceStart",
    "ClosedReaderError",
    "Completion",
    "End",
    "Ending",
    "Event",
    "Extra",
    "Fault",
    "Finish",
    "PenstockError",
    "ReasoningDelta",
    "RefusalDelta",
    "Repair",
    "RepairCount",
    "Start",
    "StreamReader",
    "StreamWriter",
    "TextDelta",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallStart",
    "UnknownDialectError",
    "Usage",
    "UsageReport",
]

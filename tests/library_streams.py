"""One answer in every dialect, as the public library reads and writes it: without any fact about a call."""

from penstock import (
    ChoiceStart,
    End,
    Event,
    Finish,
    Start,
    StreamReader,
    StreamWriter,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
    UsageReport,
)
from penstock.core.dialects.registry import DIALECTS
from tests.streams import read

INPUT, OUTPUT, CACHED = 20, 5, 8
TEXT, CALL, ARGUMENTS = "High water at 6.", "get_tide", '{"port":"Brest"}'
_ANSWER: list[Event] = [
    Start("id-1", "weir-3", 1_794_902_400),
    ChoiceStart(0, "assistant"),
    TextDelta(0, TEXT),
    ToolCallStart(0, 0, "call_1", CALL),
    ToolCallDelta(0, 0, ARGUMENTS),
    Finish(0, "tool_calls"),
    UsageReport(Usage(input=INPUT, output=OUTPUT, total=INPUT + OUTPUT, cached=CACHED, reasoning=2)),
    End("completed"),
]


def written(dialect: str, events: list[Event], source: str = "") -> bytes:
    """The events as a stream of a dialect."""
    writer = StreamWriter(dialect, source=source, include_usage=True, model="weir-3", created=1_794_902_400)
    return writer.write(events)


def sent(dialect: str) -> list[Event]:
    """The answer as it is read from a provider of this dialect."""
    return read(written(dialect, _ANSWER), reader=StreamReader(dialect))


PAIRS = [(source, dialect) for source in DIALECTS for dialect in DIALECTS]

"""DefectMark: every single defect of a stream with its position in the bytes, for a view that shows both."""

from msgspec import Struct

from penstock import Fault, Repair, StreamReader
from penstock.cli.inspection.defect_locator import DefectLocator
from penstock.cli.text import one_line
from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.hub.repairs import FAULTS, REPAIRS

# Further defects are only counted: a stream may have one in every event.
_MAX_MARKS = 2_000


class DefectMark(Struct, frozen=True):
    """One defect and its position: `length` bytes from `offset` on. Its level is `fault` or one of `repairs.py`."""

    code: str
    level: str
    meaning: str
    what_is_done: str
    offset: int
    line: int
    length: int | None
    detail: str


def mark_defects(data: bytes, dialect: str = DEFAULT_DIALECT) -> tuple[list[DefectMark], int]:
    """The defects of a stream in the order of its bytes, and the number of those that are left out."""
    reader = StreamReader(dialect)
    defects = [event for event in (*reader.feed(data), *reader.close()) if isinstance(event, Repair | Fault)]
    defects.sort(key=lambda event: event.offset)
    locator = DefectLocator(data)
    return sorted((_mark(event, locator) for event in defects[:_MAX_MARKS]), key=lambda mark: mark.offset), max(
        0, len(defects) - _MAX_MARKS
    )


def _mark(event: Repair | Fault, locator: DefectLocator) -> DefectMark:
    if isinstance(event, Fault):
        row, level, detail = FAULTS[event.code], "fault", event.message
    else:
        row, level, detail = REPAIRS[event.code], event.level, event.detail
    span = locator.locate(event)
    return DefectMark(event.code, level, row.wrong, row.done, span.offset, span.line, span.length, one_line(detail))

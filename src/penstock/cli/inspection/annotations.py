"""Marks: every defect of a stream, one by one, where it stands in the bytes; for whoever shows the bytes with them."""

from msgspec import Struct

from penstock import Fault, Repair, StreamReader
from penstock.cli.inspection.defect_locator import DefectLocator
from penstock.cli.text import one_line
from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.repairs import FAULTS, REPAIRS

# More are only counted: a stream may have one in every event.
_MOST = 2_000


class DefectMark(Struct, frozen=True):
    """One defect, and where it is: `length` bytes from `offset` on. Its level is `fault`, `repair` or `notice`."""

    code: str
    level: str
    meaning: str
    what_is_done: str
    offset: int
    line: int
    length: int | None
    detail: str


def marks(data: bytes, dialect: str = DEFAULT_DIALECT) -> tuple[list[DefectMark], int]:
    """The defects of a stream in the order of its bytes, and how many more there are."""
    reader = StreamReader(dialect)
    found = [event for event in (*reader.feed(data), *reader.close()) if isinstance(event, Repair | Fault)]
    found.sort(key=lambda event: event.offset)
    spots = DefectLocator(data, dialect)
    return sorted((_mark(event, spots) for event in found[:_MOST]), key=_place), max(0, len(found) - _MOST)


def _mark(event: Repair | Fault, spots: DefectLocator) -> DefectMark:
    if isinstance(event, Fault):
        row, level, detail = FAULTS[event.code], "fault", event.message
    else:
        row, level, detail = REPAIRS[event.code], event.level, event.detail
    spot = spots.spot(event)
    return DefectMark(event.code, level, row.wrong, row.done, spot.offset, spot.line, spot.length, one_line(detail))


def _place(mark: DefectMark) -> int:
    return mark.offset

"""What is wrong with a stream, in a sentence each: the words of `core/repairs.py` and what this stream adds to them.

And how its dialect was found, in a few words.
"""

from penstock import Fault, RepairCount
from penstock.cli.text import one_line, visible
from penstock.core.dialects.detect import FoundBy
from penstock.core.repairs import FAULTS, REPAIRS

# Faults whose message is a quotation; the messages of all others are our own and say what is wrong.
QUOTING = frozenset(("provider-error", "bad-json", "not-a-stream", "html-page"))

FOUND_BY: dict[FoundBy, str] = {
    "option": "as --dialect says",
    "capture": "as the capture says",
    "events": "by its events",
    "request": "by the path of its request",
    "default": "assumed: no known dialect shows in it",
}


def explain_repair(repair: RepairCount) -> str:
    """What is wrong, and what is particular about it where it was met first."""
    return _sentence(REPAIRS[repair.code].wrong, one_line(repair.detail))


def explain_fault(fault: Fault) -> str:
    """What is wrong, with the provider's own words where it said anything."""
    wrong, message = FAULTS[fault.code].wrong, visible(fault.message)
    return _sentence(wrong, message) if fault.code in QUOTING else message


def _sentence(wrong: str, detail: str) -> str:
    return f"{wrong.removesuffix('.')}: {detail}" if detail else wrong

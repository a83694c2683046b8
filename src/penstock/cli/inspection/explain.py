"""Explains the defects of a stream, each in a sentence: `core/hub/repairs.py` has the text, the stream the details.

Also names how the dialect was detected.
"""

from penstock import Fault, RepairCount
from penstock.cli.text import one_line, visible
from penstock.core.dialects.detect import FoundBy
from penstock.core.hub.repairs import FAULTS, REPAIRS

# Faults whose message is a quotation; the messages of all others are our own and say what is wrong.
QUOTING = frozenset(("provider-error", "bad-json", "not-a-stream", "html-page"))

FOUND_BY: dict[FoundBy, str] = {
    "option": "as --dialect says",
    "capture": "as the capture says",
    "events": "by its events",
    "request": "by the path of its request",
    "default": "assumed: no dialect was detected",
}


def explain_repair(repair: RepairCount) -> str:
    """What is wrong, with the detail of the first occurrence."""
    return _sentence(REPAIRS[repair.code].wrong, one_line(repair.detail))


def explain_fault(fault: Fault) -> str:
    """What is wrong, with the provider's own message if there is one."""
    wrong, message = FAULTS[fault.code].wrong, visible(fault.message)
    return _sentence(wrong, message) if fault.code in QUOTING else message


def _sentence(wrong: str, detail: str) -> str:
    return f"{wrong.removesuffix('.')}: {detail}" if detail else wrong

"""Records of kept content, for the tests of its store."""

import time

from penstock.gateway.content.store import KeptRecord

HOUR = 3_600_000


def record(id: str, parent: str = "", *, owner: str = "key_a", hours: float = 1.0, **parts: str) -> KeptRecord:
    now = time.time_ns() // 1_000_000
    return KeptRecord(
        id=id,
        kind="answer",
        owner=owner,
        at_ms=now,
        until_ms=now + round(hours * HOUR),
        parent=parent,
        parts=parts or {"input": f"in of {id}", "output": f"out of {id}", "answer": "{}"},
    )

"""Records of kept content, and places for them, for the tests of its store."""

import time
from collections.abc import Sequence
from pathlib import Path

from penstock.gateway.content.kept_record import KeptRecord
from penstock.providers.secret import Secret
from penstock.stores.book.schema import Migration
from penstock.stores.content.open import open_file, open_in_postgres
from penstock.stores.content.schema import CONTENT_MIGRATIONS
from penstock.stores.content.sql_content import SqlContent

HOUR = 3_600_000


class ContentPlace:
    """Where a test's content is; it can be opened several times."""

    def __init__(self, file: Path | None, url: str = "") -> None:
        self.file = file
        self._url = url

    def open(self, migrations: Sequence[Migration] = CONTENT_MIGRATIONS) -> SqlContent:
        if self.file is not None:
            return open_file(self.file, migrations)
        return open_in_postgres(Secret(self._url), migrations)


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

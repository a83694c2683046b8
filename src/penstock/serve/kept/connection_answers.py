"""ConnectionAnswers: the last answers of one connection, which only requests on this connection can continue.

A client that asks that nothing is kept (`store: false`) can still continue an answer on the connection that has given
it. The answer is then in the memory of this process, and nowhere else; it is forgotten with the connection, when a
request that continues it fails, or when the connections of this process together take too much memory: then those that
take the most forget first (`gateway/content/recent.py`).
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw

from penstock.core.dialects.dialect import KeptAnswer, StoredAnswers
from penstock.core.json.members import JsonMembers
from penstock.gateway.content.kept_record import KeptRecord
from penstock.gateway.content.recent import RecentRecord, RecentRecords
from penstock.serve.kept.answer_store import INPUT, KIND, OUTPUT
from penstock.serve.kept.keeper import Keeping

# A client continues the last answer, or an earlier one if it wants another instead.
_MOST = 4


class ConnectionAnswers:
    """The answers of one connection. `name` tells it apart in `records`, which all connections share."""

    def __init__(self, records: RecentRecords, name: str, max_size: int) -> None:
        """An answer with its conversation has at most `max_size` bytes."""
        self._records = records
        self._name = name
        self._max_size = max_size
        self._ids: list[str] = []

    def find(self, id: str) -> KeptRecord | None:
        """An answer, with the whole conversation before it as its input."""
        for record in self._records.find(self._name, (id,)):
            if record.input is not None and record.output is not None:
                parts = {INPUT: record.input.decode(), OUTPUT: record.output.decode()}
                return KeptRecord(id=id, kind=KIND, owner=self._name, at_ms=0, until_ms=0, parts=parts)
        return None

    def put(self, id: str, input: bytes, output: bytes) -> None:
        """Add an answer, and forget the oldest one if there are too many."""
        if len(input) + len(output) <= self._max_size:
            self.forget(id)
            self._ids.append(id)
            self._records.put(self._name, RecentRecord(id, (id,), input, output, b""))
        for old in self._ids[:-_MOST]:
            self.forget(old)

    def forget(self, id: str) -> None:
        """Forget an answer, if it is there."""
        if id in self._ids:
            self._ids.remove(id)
            self._records.delete(self._name, id)

    def close(self) -> None:
        """Forget everything."""
        for id in self._ids[:]:
            self.forget(id)


class ConnectionKeeping:
    """Keeps the answer of one call for its connection, if it is not kept for all (`keeping`)."""

    def __init__(
        self, stored: StoredAnswers, answers: ConnectionAnswers, keeping: Keeping | None, previous: str, input: bytes
    ) -> None:
        self._stored = stored
        self._answers = answers
        self._keeping = keeping
        self._previous = previous
        self._input = input

    def overrides(self, issuer: str) -> Mapping[str, object]:
        """The members of the answer that the gateway sets, if this provider account answers."""
        if self._keeping is not None:
            return self._keeping.overrides(issuer)
        return self._stored.overrides("", self._previous)

    def keep(self, data: bytes, then: Callable[[bytes], None]) -> bool:
        """Keep the answer in the last bytes for the client."""
        if self._keeping is not None and self._keeping.keep(data, then):
            return True
        kept = self._stored.read_answer("", self._input, data)
        if kept is not None and kept.output is not None:
            self._answers.put(_id_of(kept), kept.input, kept.output)
        return False


def _id_of(kept: KeptAnswer) -> str:
    return msgspec.json.decode(JsonMembers(kept.answer).values.get("id", Raw(b'""')), type=str)

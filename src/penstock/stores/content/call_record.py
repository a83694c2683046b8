"""CallRecord: the kept content of a call: the request as the client sent it and the answer as a whole, both masked."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from penstock.gateway.content.kept_record import KeptRecord
from penstock.stores.content.sql_content import SqlContent

KIND = "call"
"""The kind of these records. They have no owner: no client can read them."""
_OWNER = ""


class _CallFacts(Struct, frozen=True):
    key: str | None
    user: str | None
    left_out: list[str]


class CallRecord(Struct, frozen=True, kw_only=True):
    """What is kept of a call. `left_out` names what was too large: the request, or the end of the answer."""

    id: str
    at_ms: int
    key: str | None
    user: str | None
    left_out: Sequence[str]
    request: Raw
    answer: Raw
    """A list of messages, one for each choice."""

    def kept(self, keep_ms: int) -> KeptRecord:
        """The record in the store, which expires after that time."""
        facts = _CallFacts(self.key, self.user, list(self.left_out))
        return KeptRecord(
            id=self.id,
            kind=KIND,
            owner=_OWNER,
            at_ms=self.at_ms,
            until_ms=self.at_ms + keep_ms,
            parts={
                "call": msgspec.json.encode(facts).decode(),
                "request": bytes(self.request).decode(),
                "answer": bytes(self.answer).decode(),
            },
            subject=self.user or "",
        )


def call_record(store: SqlContent, id: str) -> CallRecord | None:
    """The content of a call; None if none is kept."""
    record = store.record(KIND, _OWNER, id)
    if record is None:
        return None
    facts = msgspec.json.decode(record.parts["call"], type=_CallFacts)
    return CallRecord(
        id=id,
        at_ms=record.at_ms,
        key=facts.key,
        user=facts.user,
        left_out=facts.left_out,
        request=Raw(record.parts["request"].encode()),
        answer=Raw(record.parts["answer"].encode()),
    )

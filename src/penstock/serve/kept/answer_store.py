"""AnswerStore: where the answers of clients are kept, as the event loop uses it."""

from collections.abc import Sequence
from typing import Protocol

from penstock.gateway.content.kept_record import History, HistoryLimits, KeptRecord
from penstock.stores.content.writer import OnKept

KIND = "answer"
INPUT, OUTPUT, ANSWER = "input", "output", "answer"


class AnswerStore(Protocol):
    """Kept answers. Methods raise why an answer cannot be read, or deleted."""

    whole: bool
    """Whether an answer is kept with the whole conversation before it, and not only with the input that was new."""
    max_record: int | None
    """The bytes of the largest answer that it can keep; None without a limit of its own."""
    missing: str
    """Why there may be no answer with a genuine id, for errors; empty if it was deleted."""

    @property
    def secret(self) -> bytes:
        """The secret of the ids of answers; empty while it is not known."""

    @property
    def trouble(self) -> str:
        """Why answers cannot be kept now; empty while they can."""

    def put(self, record: KeptRecord, then: OnKept) -> None:
        """Keep an answer. `then` is called, now or later."""

    async def record(self, owner: str, id: str) -> KeptRecord | None:
        """An answer."""

    async def history(self, owner: str, id: str, limits: HistoryLimits) -> History:
        """An answer, and those before it if they are apart."""

    async def named(self, owner: str, names: Sequence[str], limits: HistoryLimits) -> tuple[KeptRecord, ...]:
        """The answers with these names."""

    async def delete(self, owner: str, id: str) -> bool:
        """Delete an answer; returns whether it existed."""

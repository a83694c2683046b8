"""AnswerStore: where the answers of clients are kept, as the event loop uses it; and the one of a database."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from penstock.gateway.content.store import History, HistoryLimits, KeptRecord
from penstock.serve.kept.kept_content import KeptContent
from penstock.stores.content.writer import OnKept

KIND = "answer"
INPUT, OUTPUT, ANSWER = "input", "output", "answer"
OnRecords: TypeAlias = Callable[[tuple[KeptRecord, ...] | Exception], None]


class AnswerStore(Protocol):
    """Kept answers. `then` is called with the result, now or later; a method that returns False does not call it,
    because too many reads wait."""

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
        """Keep an answer."""

    def record(self, owner: str, id: str, then: Callable[[KeptRecord | Exception | None], None]) -> bool:
        """Read an answer."""

    def history(self, owner: str, id: str, limits: HistoryLimits, then: Callable[[History | Exception], None]) -> bool:
        """Read an answer, and those before it if they are apart."""

    def named(self, owner: str, names: Sequence[str], limits: HistoryLimits, then: OnRecords) -> bool:
        """Read the answers with these names."""

    def delete(self, owner: str, id: str, then: Callable[[bool | Exception], None]) -> None:
        """Delete an answer, then call `then` with whether it existed."""


class DatabaseAnswers:
    """The `AnswerStore` of a database. An answer continues the one before it, and has only what is new."""

    whole = False
    max_record: int | None = None
    missing = ""

    def __init__(self, content: KeptContent) -> None:
        self._content = content

    @property
    def secret(self) -> bytes:
        """The secret of the ids of answers; empty until the database has been opened."""
        return self._content.secret

    @property
    def trouble(self) -> str:
        """Why the database cannot be written now; empty while it can."""
        return self._content.trouble

    def put(self, record: KeptRecord, then: OnKept) -> None:
        """Write an answer, durably."""
        self._content.put(record, then)

    def record(self, owner: str, id: str, then: Callable[[KeptRecord | Exception | None], None]) -> bool:
        """Read an answer."""
        return self._content.read(lambda store: store.record(KIND, owner, id), then)

    def history(self, owner: str, id: str, limits: HistoryLimits, then: Callable[[History | Exception], None]) -> bool:
        """Read an answer and those before it."""
        return self._content.read(lambda store: store.history(KIND, owner, id, limits), then)

    def named(self, owner: str, names: Sequence[str], limits: HistoryLimits, then: OnRecords) -> bool:
        """Read the answers with these names."""
        return self._content.read(lambda store: store.named(KIND, owner, names, limits), then)

    def delete(self, owner: str, id: str, then: Callable[[bool | Exception], None]) -> None:
        """Delete an answer."""
        self._content.change(lambda store: store.delete(KIND, owner, id), then)

"""CollectedContent: the request and the answer of one call in memory, until they are kept or dropped.

The memory of all calls is bounded (`ContentMemory`): calls beyond it are served as usual, and nothing of them is kept.
"""

from typing import Literal, Protocol, TypeAlias

from penstock.core.hub.completion import Completion

ContentRule: TypeAlias = Literal["never", "failed", "sampled", "always"]
"""Of which calls the request and the answer are kept."""
NotCollected: TypeAlias = Literal["memory", "database", "folder"]
"""Why content that should be kept is dropped: too much of it is in memory, or the database does not work, or the folder
cannot be written (then the database has it)."""


class AnswerSource(Protocol):
    """An object that has the answer so far."""

    @property
    def completion(self) -> Completion:
        """The answer so far."""


class ContentMemory:
    """Counts the characters and bytes of content in memory."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.used = 0

    def take(self, size: int) -> bool:
        """Count more; returns False, and counts nothing, if it would be too much."""
        if self.used + size > self._most:
            return False
        self.used += size
        return True

    def release(self, size: int) -> None:
        """Count less."""
        self.used -= size


class CollectedContent:
    """The content of one call."""

    def __init__(self, rule: ContentRule, request: bytes, user: str, max_answer: int, memory: ContentMemory) -> None:
        """`request` is the body that the client sent, for which memory was taken already; it is empty if it is too
        large. `user` is the end user's name in it.
        """
        self.rule: ContentRule = rule
        self.request = request
        self.user = user
        self.secrets: tuple[str, ...] = ()
        """The client's own credentials, which are masked."""
        self.answer: AnswerSource | None = None
        self.left_out: list[str] = [] if request else ["request"]
        """What is not kept, because it is too large: the request, or the end of the answer."""
        self._memory = memory
        self._max_answer = max_answer
        self._answer_size = 0
        self.size = len(request)
        """The memory that it takes."""

    def restart(self, answer: AnswerSource) -> None:
        """An attempt starts, whose answer this is. The answer of the one before is dropped."""
        self._memory.release(self._answer_size)
        self.size -= self._answer_size
        self._answer_size = 0
        self.left_out = [part for part in self.left_out if part != "answer"]
        self.answer = answer

    def grow(self, size: int) -> bool:
        """Note that the answer gets `size` characters longer. Returns False if these are not to be kept."""
        if "answer" in self.left_out:
            return False
        if self._answer_size + size > self._max_answer or not self._memory.take(size):
            self.left_out.append("answer")
            return False
        self._answer_size += size
        self.size += size
        return True

    def release(self) -> None:
        """Drop everything."""
        self._memory.release(self.size)
        self.size = self._answer_size = 0
        self.request, self.answer = b"", None

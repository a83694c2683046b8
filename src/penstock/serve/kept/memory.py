"""ConversationMemory: bounds the bytes of kept conversations that one process has in memory.

A request of a hundred bytes can continue a conversation of many megabytes, which is in memory until its call ends. So
a read reserves its bytes before it takes place, and is refused if too many are in use; the client may try again.
"""

import threading


class ConversationMemoryError(Exception):
    """Too many bytes of kept conversations are in use."""


class ConversationMemory:
    """Counts the bytes in use. Thread-safe: the database's thread reserves them, other threads release them."""

    def __init__(self) -> None:
        self.limit = 0
        """The maximum. Less than what is in use already delays further reads only."""
        self.used = 0
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """Reserve bytes; a negative size releases some. Raises `ConversationMemoryError` if there are not enough."""
        with self._lock:
            if size > 0 and self.used + size > self.limit:
                raise ConversationMemoryError
            self.used += size


class MemoryShare:
    """The bytes that one request uses. They are released with the last reference to this object.

    The request that has the conversation refers to it, and so do the steps before. None of them has to release it when
    a client disconnects, or a request is refused.
    """

    __slots__ = ("_memory", "_size")

    def __init__(self, memory: ConversationMemory) -> None:
        self._memory = memory
        self._size = 0

    def add(self, size: int) -> None:
        """Reserve more bytes. Raises `ConversationMemoryError`."""
        self._memory.add(size)
        self._size += size

    def __del__(self) -> None:
        self._memory.add(-self._size)

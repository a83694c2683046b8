"""SharedMemory: bytes that all workers of one gateway map, and the lock for those who write to them.

The bytes lie in a file, so that they outlive a worker that dies; so does nothing of its lock.
"""

import errno
import fcntl
import mmap
import os
from pathlib import Path


class SharedMemory:
    """As many bytes as there are in `view`, zeros at first. A context manager: who is inside may write."""

    def __init__(self, path: Path, size: int) -> None:
        """To be made in each worker: a file that was opened before a fork has one lock for all. Raises `OSError`."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with self:
            # Written out: a full disk would end a process that writes to a mapped hole.
            if os.fstat(self._file).st_size < size and os.pwrite(self._file, bytes(size), 0) < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        self.view = memoryview(mmap.mmap(self._file, size))

    def __enter__(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

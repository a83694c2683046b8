"""SharedMemory: a memory-mapped file that all workers of one gateway share, and the lock for writing to it.

The bytes are in a file, so they outlive a worker that dies. The lock is a `flock`, which the kernel releases when its
holder dies, so a killed worker never leaves the memory locked.
"""

import errno
import fcntl
import mmap
import os
from pathlib import Path


class SharedMemory:
    """`view` is the shared memory, initially zeros. As a context manager it holds the lock, which a writer needs."""

    def __init__(self, path: Path, size: int) -> None:
        """Each worker must construct its own: processes that inherit one open file share its lock. Raises `OSError`."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with self:
            # Allocate the file in full: a write to a hole in a mapped file raises SIGBUS when the disk is full.
            if os.fstat(self._file).st_size < size and os.pwrite(self._file, bytes(size), 0) < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        self.view = memoryview(mmap.mmap(self._file, size))

    def __enter__(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

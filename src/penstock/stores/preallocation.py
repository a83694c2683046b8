"""Preallocation: reserves the disk blocks of a file, so that a later write into it cannot fail with a full disk."""

import errno
import os

_BLOCK = 65_536
# The errors of a file system that cannot preallocate, where the C library does not emulate it.
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


def allocate(file: int, size: int) -> None:
    """Extend a file to at least this size, with all blocks allocated. Its content stays.

    macOS has no `posix_fallocate`: there zeros are written after the content of the file.
    """
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, 0, size)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
        else:
            return
    end = os.fstat(file).st_size
    while end < size:
        end += os.pwrite(file, bytes(min(_BLOCK, size - end)), end)

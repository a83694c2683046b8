"""Allocation: gives a file its room on the disk, so that a later write into it cannot find the disk full."""

import errno
import os

_BLOCK = 65_536
# A file system that cannot allocate, where the C library does not do it in its place.
_UNABLE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


def allocate(file: int, size: int) -> None:
    """Make a file at least so long, with all its blocks taken. What is in it stays.

    macOS has no `posix_fallocate`: there zeros are written behind what the file holds.
    """
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, 0, size)
        except OSError as error:
            if error.errno not in _UNABLE:
                raise
        else:
            return
    end = os.fstat(file).st_size
    while end < size:
        end += os.pwrite(file, bytes(min(_BLOCK, size - end)), end)

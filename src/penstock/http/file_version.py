"""The version of a file: what changes when the file is replaced or written, without reading it."""

import os
from typing import TypeAlias

FileVersion: TypeAlias = tuple[int, int, int]


def file_version(path: str) -> FileVersion | None:
    """The file's inode, time of change and size; None if there is no such file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size

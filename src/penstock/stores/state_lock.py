"""The lock on the state folder: only one gateway may use it, because its processes share budgets and limits."""

import fcntl
import os
from pathlib import Path

from penstock.errors import BookError

_FILE = "serving"


def claim(folder: Path) -> int:
    """Lock the folder for this gateway, as long as the returned descriptor, or a copy of it, is open.

    Raises `BookError` if another gateway has locked it, or if it cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(folder / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BookError(
            f"{folder} cannot be used: {error.strerror}; set folder in [ledger], or PENSTOCK_STATE"
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(file, 20, 0).decode("ascii", "replace").strip()
        os.close(file)
        raise BookError(
            f"another gateway (process {pid or 'unknown'}) keeps its ledger in {folder}: stop it, or give this one a "
            "folder of its own by [ledger] folder, or by PENSTOCK_STATE"
        ) from None
    try:
        os.truncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        os.close(file)
        raise BookError(f"{folder / _FILE} cannot be written: {error.strerror}") from error
    return file

"""A gateway's claim on its folder: budgets and limits hold for all its processes together, and for no others."""

import fcntl
import os
from pathlib import Path

from penstock.errors import BookError

_FILE = "serving"


def claim(folder: Path) -> int:
    """Be the one gateway that keeps its accounts in this folder, for as long as this descriptor, or a copy, is open.

    Raises `BookError` where another one does, or nothing can be written there.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = os.open(folder / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BookError(
            f"{folder} cannot be used: {error.strerror}; set folder in [ledger], or PENSTOCK_STATE"
        ) from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(held, 20, 0).decode("ascii", "replace").strip()
        os.close(held)
        raise BookError(
            f"another gateway (process {pid or 'unknown'}) keeps its ledger in {folder}: stop it, or give this one a "
            "folder of its own by [ledger] folder, or by PENSTOCK_STATE"
        ) from None
    try:
        os.truncate(held, 0)
        os.pwrite(held, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        os.close(held)
        raise BookError(f"{folder / _FILE} cannot be written: {error.strerror}") from error
    return held

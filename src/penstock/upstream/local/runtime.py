"""The runtime of models on this machine: whether it can run here, and what to do where it cannot.

It is llama.cpp inside a Python wheel, an extra of Penstock. It is looked for and never imported: it runs in a child
process only (`child.py`), because what goes wrong in it ends its process.
"""

import importlib.util
import os
import platform
from functools import cache
from pathlib import Path

from msgspec import Struct

PACKAGE = "xllamacpp"
INSTALL = "pip install 'penstock[local]'"
# What its wheels for x86 are built for. On a processor without, it loads well and dies at the first call.
_X86 = frozenset(("x86_64", "amd64", "i686", "i386"))
_X86_FEATURES = ("avx2", "fma", "f16c", "bmi2")
_CPUINFO = Path("/proc/cpuinfo")


class Obstacle(Struct, frozen=True):
    """Why a model on this machine cannot answer, and what to do about it."""

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}"


def obstacle() -> Obstacle | None:
    """What keeps the runtime from running here, as far as can be told without running it."""
    if importlib.util.find_spec(PACKAGE) is None:
        return Obstacle("its runtime is not installed", f"install it: {INSTALL}")
    return _processor()


@cache
def _processor() -> Obstacle | None:
    """What keeps this processor from running it."""
    try:
        cpuinfo = _CPUINFO.read_text(errors="replace")
    except OSError:
        return None  # another system, whose processors are asked in other ways
    return missing_features(platform.machine(), cpuinfo)


def missing_features(machine: str, cpuinfo: str) -> Obstacle | None:
    """What an x86 processor lacks, by `/proc/cpuinfo`."""
    if machine.lower() not in _X86:
        return None
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    missing = [feature for feature in _X86_FEATURES if flags and feature not in flags.split()]
    if not missing:
        return None
    reason = f"its runtime needs a processor with {', '.join(_X86_FEATURES)}, and this one lacks {', '.join(missing)}"
    return Obstacle(reason, "run Penstock on another machine, or let a provider answer")


def explained(said: str, status: int) -> Obstacle:
    """What a child process that did not come up has died of, by what it said and its exit status."""
    if "libgomp" in said:
        return Obstacle(
            "its runtime needs libgomp.so.1, which this system lacks",
            "install it: apt-get install libgomp1 (Debian, Ubuntu), dnf install libgomp (Fedora, RHEL)",
        )
    if status == -4:  # SIGILL
        return Obstacle("this processor cannot run its runtime", "run Penstock on another machine")
    if status == -9:
        return Obstacle("the system ended its process, perhaps for want of memory", "free some, or lower its context")
    words = _telling(said)
    return Obstacle(f"it could not be loaded: {words}" if words else f"its process ended with {status}", _TRY_AGAIN)


_TRY_AGAIN = "see that the file is a GGUF model that llama.cpp can run"


def _telling(said: str) -> str:
    """The line that says most: llama.cpp says first what is wrong, and then that therefore nothing works."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for mark in ("gguf_init_from_reader: ", "gguf_init_from_file: ", "error loading model: ", " E ", "failed: "):
        for line in lines:
            if mark in line:
                return line.partition(mark)[2].strip()[:200]
    return lines[-1][:200] if lines else ""


def threads() -> int:
    """How many threads a model gets: half of the processors, since the gateway and its clients need some too.

    With all of them, two threads on two processors that others use as well gave 18 tokens per second; one gave 80.
    """
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, mine // 2)

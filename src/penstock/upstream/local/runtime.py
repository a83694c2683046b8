"""The runtime of local models: checks whether it can run on this machine, and explains why it cannot.

The runtime is llama.cpp in a Python wheel, an optional extra of Penstock. This module only checks that it is installed
and never imports it: it runs in a child process (`child.py`), because a crash in it ends its process.
"""

import importlib.util
import os
import platform
from functools import cache
from pathlib import Path

from msgspec import Struct

from penstock.installation import install_command

PACKAGE = "xllamacpp"
# The features that its x86 wheels are built for. Without them it loads, and crashes at the first call.
_X86 = frozenset(("x86_64", "amd64", "i686", "i386"))
_X86_FEATURES = ("avx2", "fma", "f16c", "bmi2")
_CPUINFO = Path("/proc/cpuinfo")


class Obstacle(Struct, frozen=True):
    """Why a local model cannot answer, and what to do about it."""

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}"


def obstacle() -> Obstacle | None:
    """Why the runtime cannot run on this machine, as far as it is known without running it."""
    if importlib.util.find_spec(PACKAGE) is None:
        return Obstacle("its runtime is not installed", f"install it: {install_command('local')}")
    return _processor_obstacle()


@cache
def _processor_obstacle() -> Obstacle | None:
    """Why this processor cannot run it."""
    try:
        cpuinfo = _CPUINFO.read_text(errors="replace")
    except OSError:
        return None  # not Linux: unknown
    return missing_features(platform.machine(), cpuinfo)


def missing_features(machine: str, cpuinfo: str) -> Obstacle | None:
    """The required features that an x86 processor lacks, according to `/proc/cpuinfo`."""
    if machine.lower() not in _X86:
        return None
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    missing = [feature for feature in _X86_FEATURES if flags and feature not in flags.split()]
    if not missing:
        return None
    reason = f"its runtime needs a processor with {', '.join(_X86_FEATURES)}, and this one lacks {', '.join(missing)}"
    return Obstacle(reason, "run Penstock on another machine, or let a provider answer")


def explain_exit(output: str, status: int) -> Obstacle:
    """Explain why a child process failed to start, from its output and its exit status."""
    if "libgomp" in output:
        return Obstacle(
            "its runtime needs libgomp.so.1, which this system lacks",
            "install it: apt-get install libgomp1 (Debian, Ubuntu), dnf install libgomp (Fedora, RHEL)",
        )
    if status == -4:  # SIGILL
        return Obstacle("this processor cannot run its runtime", "run Penstock on another machine")
    if status == -9:
        return Obstacle("the system ended its process, perhaps for lack of memory", "free some, or lower its context")
    words = _most_specific_line(output)
    return Obstacle(f"it could not be loaded: {words}" if words else f"its process ended with {status}", _TRY_AGAIN)


_TRY_AGAIN = "check that the file is a GGUF model that llama.cpp can run"


def _most_specific_line(output: str) -> str:
    """The most specific line of a log: llama.cpp reports the cause first, and then its consequences."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for mark in ("gguf_init_from_reader: ", "gguf_init_from_file: ", "error loading model: ", " E ", "failed: "):
        for line in lines:
            if mark in line:
                return line.partition(mark)[2].strip()[:200]
    return lines[-1][:200] if lines else ""


def threads() -> int:
    """The number of threads of a model: half of the processors, because the gateway and its clients need some too.

    On two processors under other load, two threads gave 18 tokens per second, and one thread gave 80.
    """
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, processors // 2)

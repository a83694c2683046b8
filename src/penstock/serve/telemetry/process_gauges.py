"""What a worker's process uses, and what it runs: for the metrics of each scrape."""

import os
import resource
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from penstock.installation import version
from penstock.serve.telemetry import metric_specs
from penstock.serve.telemetry.counters import Labels
from penstock.serve.telemetry.metric_specs import MetricSpec

_PROC = Path("/proc/self")
# The place of `starttime` in `/proc/self/stat` after the name of the program.
_STARTED_FIELD = 19


def process_gauges(worker: str) -> dict[MetricSpec, Mapping[Labels, float]]:
    """The gauges of this process. Those that the system does not tell, as on macOS, are missing.

    It lists the open files, which takes milliseconds if there are many thousand: not for the event loop.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = {metric_specs.MAX_FILES: float(most)}
    with suppress(OSError):
        found[metric_specs.OPEN_FILES] = len(os.listdir(_PROC / "fd")) - 1  # without the one that lists them
        found[metric_specs.MEMORY] = int((_PROC / "statm").read_text().split()[1]) * resource.getpagesize()
        found[metric_specs.PROCESS_STARTED] = _started_at()
    return {
        metric_specs.BUILD_INFO: {_build(): 1.0},
        **{family: {(worker,): value} for family, value in found.items()},
    }


@cache
def _build() -> Labels:
    return version() or "", ".".join(map(str, sys.version_info[:3]))


def _started_at() -> float:
    """When this process was started, in seconds since 1970."""
    fields = (_PROC / "stat").read_text().rpartition(")")[2].split()
    since_boot = int(fields[_STARTED_FIELD]) / os.sysconf("SC_CLK_TCK")
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot

"""Configuration of all tests: their tiers (docs/testing.md), their order and their distribution over processes, and the
guard that fast tests start no process.
"""

import atexit
import functools
import gc
import multiprocessing.process
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests.tiers import FIRST, FOLDERS, PROCESSES, TIERS, is_sampled, unit_of

# A shell that runs the tests in the background makes them ignore Ctrl-C. The tested processes must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test writes into the user's own ledger.
os.environ["PENSTOCK_STATE"] = tempfile.mkdtemp(prefix="penstock-tests-")
atexit.register(shutil.rmtree, os.environ["PENSTOCK_STATE"], ignore_errors=True)

# The duration of an example depends on the load of the machine.
settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", settings.get_profile("penstock"), max_examples=25)
settings.load_profile("penstock")

_TESTS = Path(__file__).parent
_SLOW_MODULE = b"\npytestmark = pytest.mark.slow\n"
# Whether the fast tier has all rows of its tables, as scripts/mutants wants it.
_ALL_ROWS = os.environ.get("PENSTOCK_ALL_ROWS", "0") not in ("", "0")
_STARTS = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}


def tier_of(item: pytest.Item) -> str:
    """The tier that a test, its module or its class is marked with; else that of its folder, or of its fixtures."""
    for tier in TIERS:
        if item.get_closest_marker(tier) is not None:
            return tier
    folder = _folder(item.path)
    if folder in FOLDERS:
        return FOLDERS[folder]
    return "slow" if PROCESSES.intersection(getattr(item, "fixturenames", ())) else "fast"


@functools.cache
def _folder(path: Path) -> str:
    return path.relative_to(_TESTS).parts[0] if path.is_relative_to(_TESTS) else ""


def pytest_configure(config: pytest.Config) -> None:
    """With `-m fast`, properties are tried with a quarter of the examples of the whole run."""
    if config.option.markexpr == "fast":
        settings.load_profile("fast")


def pytest_collection() -> None:
    """Collect no garbage while tests are collected: there is little of it among millions of new objects."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep what the collection has made out of every later garbage collection."""
    gc.freeze()
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m fast`, do not even import folders and modules that have no fast test."""
    if config.option.markexpr != "fast":
        return None
    if _folder(collection_path) in FOLDERS:
        return True
    return True if collection_path.suffix == ".py" and _SLOW_MODULE in collection_path.read_bytes() else None


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class) -> Generator[None, object, object]:
    """Mark the rows of a table that the fast tier leaves out as slow; with `-m fast`, do not even keep slow tests."""
    made = yield
    if not isinstance(made, list):
        return made
    rows = [item for item in made if tier_of(item) == "fast"]
    for number, item in enumerate(rows):
        if not _ALL_ROWS and not is_sampled(number, len(rows)):
            item.add_marker("slow")
    return [item for item in rows if tier_of(item) == "fast"] if collector.config.option.markexpr == "fast" else made


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its tier, and put the longest first, so that all processes end at about the same time."""
    ranks: dict[str, tuple[bool, int]] = {}
    for item in items:
        tier, unit = tier_of(item), unit_of(item.nodeid)
        item.add_marker(tier)
        rank = unit in FIRST, TIERS.index(tier)
        ranks[unit] = max(rank, ranks.get(unit, rank))
    items.sort(key=lambda item: ranks[unit_of(item.nodeid)], reverse=True)


class _UnitScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Gives a process whole modules, so that what a module's tests share is started once."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> _UnitScheduling | None:
    """Distribute with `--dist loadfile`, which scripts/test gives."""
    return _UnitScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


class _Guard:
    """Refuses to start a process while a fast test runs."""

    test = ""

    def __init__(self) -> None:
        start = multiprocessing.process.BaseProcess.start

        def guarded(process: multiprocessing.process.BaseProcess) -> None:
            self.refuse("multiprocessing")  # which triggers no audit hook
            start(process)

        multiprocessing.process.BaseProcess.start = guarded  # type: ignore[assignment,method-assign]
        starts = _STARTS
        platform.processor()  # Python starts a process for it, once; libraries ask when a test imports them
        sys.addaudithook(lambda event, _: self.refuse(event) if event in starts else None)

    def refuse(self, event: str) -> None:
        if self.test:
            pytest.fail(f"{self.test} is in the fast tier and starts a process ({event}): mark it as slow")


_guard = _Guard()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _guard.test = item.nodeid if item.get_closest_marker("fast") else ""
    try:
        return (yield)
    finally:
        _guard.test = ""

"""A pytest plugin that notes which functions of the package each test calls, and one that runs chosen tests only.

PENSTOCK_CALLS=FILE  pytest -p tests.mutants.plugin    writes {test: {"s": seconds, "calls": ["file:line", …]}}
PENSTOCK_TESTS=FILE  pytest -p tests.mutants.plugin    runs the tests that the file names, in that order
"""

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from hypothesis import Phase, settings

import penstock

_PACKAGE = str(Path(penstock.__file__).parent) + os.sep
_CALLS = os.environ.get("PENSTOCK_CALLS", "")
_TESTS = os.environ.get("PENSTOCK_TESTS", "")
_TOOL = 4  # any that no debugger, profiler or coverage uses


class Recorder:
    """Notes the functions that are called while a test runs, in all threads."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self._called: set[CodeType] = set()
        self._watch()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """A property that fails here, perhaps because tracing is slow, is not shrunk: that takes minutes."""
        settings.register_profile("recorded", settings.default, phases=(Phase.explicit, Phase.generate))
        settings.load_profile("recorded")

    if sys.version_info >= (3, 12):

        def _watch(self) -> None:
            monitoring = sys.monitoring
            if monitoring.get_tool(_TOOL) is None:
                monitoring.use_tool_id(_TOOL, "penstock")
                monitoring.register_callback(_TOOL, monitoring.events.PY_START, self._note)
                monitoring.set_events(_TOOL, monitoring.events.PY_START)
            monitoring.restart_events()

        def _note(self, code: CodeType, _offset: int) -> object:
            """Note the function, whose further calls are not reported until the next test."""
            self._called.add(code)
            return sys.monitoring.DISABLE

    else:

        def _watch(self) -> None:
            sys.settrace(self._trace)  # a test may have set another
            threading.settrace(self._trace)

        def _trace(self, frame: FrameType, _event: str, _arg: object) -> None:
            self._called.add(frame.f_code)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._called.clear()
        began = time.process_time()
        self._watch()
        result = yield
        codes = [code for code in list(self._called) if code.co_filename.startswith(_PACKAGE)]
        places = {f"{code.co_filename.removeprefix(_PACKAGE)}:{code.co_firstlineno}" for code in codes}
        seconds = round(time.process_time() - began, 4)
        self.tests.setdefault(item.nodeid, {"s": seconds, "calls": sorted(places)})  # unless it has failed
        return result

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self.tests[report.nodeid] = {"failed": True}

    @pytest.hookimpl
    def pytest_sessionfinish(self) -> None:
        sys.settrace(None)
        passed = {test: reported for test, reported in self.tests.items() if "failed" not in reported}
        Path(_CALLS).write_text(json.dumps(passed))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """End the process, though a test that failed has left a thread that waits."""
        shutil.rmtree(os.environ["PENSTOCK_STATE"], ignore_errors=True)  # tests/conftest.py has made it
        sys.stdout.flush()
        os._exit(0)


def pytest_configure(config: pytest.Config) -> None:
    if _CALLS:
        config.pluginmanager.register(Recorder())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _TESTS:
        order = {test: number for number, test in enumerate(json.loads(Path(_TESTS).read_text()))}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in order])
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])

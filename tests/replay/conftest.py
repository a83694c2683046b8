"""Shared by the tests of captures: the gateways of the fault tests; and a report of how exact a replay's times were."""

import pytest

from tests.faults.conftest import start

__all__ = ["start"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report it, and assert nothing: it depends on the machine as much as on the code."""
    errors = sorted(
        error
        for report in terminalreporter.stats.get("passed", [])
        for name, errors in getattr(report, "user_properties", [])
        if name == "timing_errors_ms"
        for error in errors
    )
    if errors:
        median, most = errors[len(errors) // 2], errors[-1]
        terminalreporter.write_line(
            f"replayed at recorded speed: {len(errors)} reads, timing error median {median:.2f} ms, most {most:.2f} ms"
        )

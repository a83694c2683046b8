"""Shared by the fault tests: a gateway with its upstream for the whole run, and the number of cases at its end."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.faults.dialects import PROVIDERS
from tests.faults.gateway import Gateway, Table, settings
from tests.faults.upstream import Upstream


@pytest.fixture(scope="session")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Upstream() as upstream:
        gateway = Gateway(tmp_path_factory.mktemp("gateway"), upstream, settings(upstream.url, 330, PROVIDERS.values()))
        gateway.start()
        yield gateway
        assert gateway.stop() == 0
        gateway.book.check_sums()
        assert not gateway.book.journals(), "a gateway that ended well has left a journal"
        gateway.keeps_secrets()


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Iterator[Gateway]:
    """The gateway that most cases share. After each case, it must have no open call and no open connection."""
    yield shared_gateway
    try:
        shared_gateway.quiet()
    except BaseException:
        shared_gateway.forget()
        raise


Starter = Callable[..., Gateway]


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    """Starts separate gateways, with tables of the configuration as arguments."""
    numbers = itertools.count()
    with ExitStack() as stack:

        def start(*arguments: str, max_files: int | None = None, **tables: Table) -> Gateway:
            upstream = stack.enter_context(Upstream())
            folder = tmp_path_factory.mktemp(f"gateway-{next(numbers)}")
            configuration = settings(upstream.url, 4, PROVIDERS.values(), **tables)
            gateway = Gateway(folder, upstream, configuration, arguments=arguments, max_files=max_files)
            return stack.enter_context(gateway)

        yield start


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    outcomes = {name: _count(terminalreporter, name) for name in ("passed", "failed", "error", "skipped")}
    if sum(outcomes.values()):
        reported = ", ".join(f"{count} {name}" for name, count in outcomes.items() if count)
        terminalreporter.write_line(f"fault cases run: {sum(outcomes.values()) - outcomes['skipped']} ({reported})")


def _count(reporter: pytest.TerminalReporter, outcome: str) -> int:
    ours = [report for report in reporter.stats.get(outcome, []) if "tests/faults/" in getattr(report, "nodeid", "")]
    return len({report.nodeid for report in ours})

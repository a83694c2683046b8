"""Shared by the tests of the local model: its weights, fetched once, and gateways that serve it."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from penstock.errors import WeightsError
from penstock.upstream.local import runtime
from penstock.upstream.local.weights import SMOLLM2, fetch
from tests.faults.upstream import Upstream
from tests.local.served import Served

Serve = Callable[..., Served]


@pytest.fixture(scope="session")
def weights() -> Path:
    """The file in the user's own cache. Without it, or without a runtime, these tests are skipped."""
    if (obstacle := runtime.obstacle()) is not None:
        pytest.skip(f"the model cannot run here: {obstacle}")
    try:
        return fetch(SMOLLM2, os.environ, lambda _done, _total: None)
    except WeightsError as error:
        pytest.skip(f"the weights cannot be had: {error}")


@contextmanager
def starter() -> Iterator[Serve]:
    with ExitStack() as stack:

        def serve(text: str, *arguments: str, log: str = "json", **environment: str) -> Served:
            # Not one of pytest's, whose names are too long for sockets.
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pl-", ignore_cleanup_errors=True))
            upstream = stack.enter_context(Upstream())
            return stack.enter_context(Served(Path(folder), upstream, text, environment, arguments, log))

        yield serve


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves a given configuration: `serve(text, *arguments, log="pretty", VARIABLE=value)`."""
    with starter() as serve:
        yield serve


@pytest.fixture(scope="session")
def shared(weights: Path) -> Iterator[Served]:
    """A gateway with only the local model, for all tests that leave it unchanged."""
    with starter() as serve:
        yield serve("[providers.local]\nslots = 2\nqueue = 8\n", PENSTOCK_CACHE=str(weights.parents[1]))

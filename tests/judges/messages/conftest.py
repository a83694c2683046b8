"""The bench of this API."""

import pytest

from tests.judges.messages.bench import Bench


@pytest.fixture(scope="session")
def bench(messages_bench: Bench) -> Bench:
    return messages_bench

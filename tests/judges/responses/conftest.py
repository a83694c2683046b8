"""The bench of this API."""

import pytest

from tests.judges.responses.bench import Bench


@pytest.fixture(scope="session")
def bench(responses_bench: Bench) -> Bench:
    return responses_bench

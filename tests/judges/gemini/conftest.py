"""The bench of this API."""

import pytest

from tests.judges.gemini.bench import Bench


@pytest.fixture(scope="session")
def bench(gemini_bench: Bench) -> Bench:
    return gemini_bench

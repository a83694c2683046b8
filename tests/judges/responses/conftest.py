"""One bench for the whole run."""

from collections.abc import Iterator

import pytest

from tests.judges.responses.bench import Bench, opened


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with opened(tmp_path_factory.mktemp("judged-responses"), responses={"store": True}) as bench:
        yield bench
        bench.is_at_rest()

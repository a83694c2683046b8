"""One bench of each API for the whole run."""

from collections.abc import Iterator

import pytest

from tests.judges.gemini import bench as gemini
from tests.judges.messages import bench as messages
from tests.judges.responses import bench as responses


@pytest.fixture(scope="session")
def messages_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[messages.Bench]:
    with messages.opened(tmp_path_factory.mktemp("judged-messages")) as bench:
        yield bench
        bench.is_at_rest()


@pytest.fixture(scope="session")
def responses_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[responses.Bench]:
    with responses.opened(tmp_path_factory.mktemp("judged-responses")) as bench:
        yield bench
        bench.is_at_rest()


@pytest.fixture(scope="session")
def gemini_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[gemini.Bench]:
    with gemini.opened(tmp_path_factory.mktemp("judged-gemini")) as bench:
        yield bench
        bench.is_at_rest()

"""A gateway for the tests of the Gemini API."""

from collections.abc import Iterator

import pytest

from tests.faults.upstream import Upstream
from tests.gemini_api.support import GeminiGateway, start


@pytest.fixture(scope="session")
def shared_gemini_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeminiGateway]:
    with Upstream() as upstream:
        with start(tmp_path_factory.mktemp("gemini"), upstream) as gateway:
            yield gateway
        gateway.keeps_secrets()


@pytest.fixture
def gateway(shared_gemini_gateway: GeminiGateway) -> Iterator[GeminiGateway]:
    """The gateway that the tests share. After each test, it must have no open call and no open connection."""
    yield shared_gemini_gateway
    try:
        shared_gemini_gateway.quiet()
    except BaseException:
        shared_gemini_gateway.forget()
        raise

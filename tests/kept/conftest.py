"""A gateway that keeps responses."""

from collections.abc import Iterator

import pytest

from tests.faults.upstream import Upstream
from tests.kept.support import KeepingGateway, start
from tests.stores.conftest import postgres

__all__ = ["gateway", "postgres", "shared_keeping_gateway", "upstream"]


@pytest.fixture(scope="session")
def shared_keeping_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeepingGateway]:
    with Upstream() as upstream, start(tmp_path_factory.mktemp("kept"), upstream) as gateway:
        yield gateway
        gateway.keeps_secrets()


@pytest.fixture
def gateway(shared_keeping_gateway: KeepingGateway) -> Iterator[KeepingGateway]:
    """The gateway that most tests share. After each, nothing of it may be left."""
    yield shared_keeping_gateway
    try:
        shared_keeping_gateway.quiet()
    except BaseException:
        shared_keeping_gateway.forget()
        raise


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as provider:
        yield provider

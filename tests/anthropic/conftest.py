"""A gateway for the tests of the Messages API."""

from collections.abc import Iterator

import pytest

from tests.anthropic.support import MessagesGateway, start
from tests.faults.upstream import Upstream

ROUTES = """
[routes."claude-any-*"]
targets = ["main/*"]
[routes.both]
targets = ["claude/both-a", "main/both-b"]
"""


@pytest.fixture(scope="session")
def shared_messages_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessagesGateway]:
    with Upstream() as upstream:
        folder = tmp_path_factory.mktemp("messages")
        limits = {"max_body": 300_000}
        with start(folder, upstream, ROUTES, limits=limits) as gateway:
            yield gateway
        gateway.keeps_secrets()


@pytest.fixture
def gateway(shared_messages_gateway: MessagesGateway) -> Iterator[MessagesGateway]:
    """The gateway that most tests share. After each test, it must have no open call and no open connection."""
    yield shared_messages_gateway
    try:
        shared_messages_gateway.quiet()
    except BaseException:
        shared_messages_gateway.forget()
        raise

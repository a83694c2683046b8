"""A gateway for the tests of the Responses API."""

from collections.abc import Iterator

import pytest

from tests.faults.upstream import Upstream
from tests.responses_api.support import ResponsesGateway, start

ROUTES = """
[routes.either]
targets = ["claude/either-a", "main/either-b"]
[routes.busy]
targets = ["openai/busy-a", "main/busy-b"]
[routes.responses-then-chat]
targets = [
    { target = "two/twice", dialect = "openai_responses" },
    { target = "two/twice", dialect = "openai_chat" },
]
"""


@pytest.fixture(scope="session")
def shared_responses_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResponsesGateway]:
    with Upstream() as upstream:
        folder = tmp_path_factory.mktemp("responses")
        with start(folder, upstream, ROUTES, limits={"max_body": 300_000}) as gateway:
            yield gateway
        gateway.keeps_secrets()


@pytest.fixture
def gateway(shared_responses_gateway: ResponsesGateway) -> Iterator[ResponsesGateway]:
    """The gateway that most tests share. After each, nothing of it may be left."""
    yield shared_responses_gateway
    try:
        shared_responses_gateway.quiet()
    except BaseException:
        shared_responses_gateway.forget()
        raise

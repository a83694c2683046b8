"""Headers of clients reach a provider only if its `forward_headers` names them, and never one with a credential."""

from collections.abc import Iterator

import pytest

from tests.anthropic.support import ANSWER, CHAT_ANSWER, MessagesGateway, sent, start, streams
from tests.faults.client import body, post
from tests.faults.upstream import Upstream

pytestmark = pytest.mark.slow

PROVIDERS = """
[providers.told]
base_url = "{url}"
api_key = "provider-key-canary-12345"
forward_headers = ["X-Session-Id", "x-fixed"]
headers = {{ X-Fixed = "of-the-operator" }}
"""
GIVEN = {"X-Session-Id": "s-1", "x-fixed": "of-the-client", "x-other": "o", "cookie": "c=1", "x-team-token": "t"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessagesGateway]:
    with (
        Upstream() as upstream,
        start(tmp_path_factory.mktemp("headers"), upstream, PROVIDERS.format(url=upstream.url)) as gateway,
    ):
        yield gateway


def test_a_provider_gets_the_headers_that_it_names(gateway: MessagesGateway) -> None:
    model = gateway.upstream.play(streams(CHAT_ANSWER))
    assert gateway.send(post(body(f"told/{model}", stream=True), GIVEN), calls=1).status == 200
    headers = {name.lower(): value for name, value in sent(gateway, model)[1].items()}
    assert (headers["x-session-id"], headers["x-fixed"]) == ("s-1", "of-the-operator")
    assert headers.keys().isdisjoint(("x-other", "cookie", "x-team-token"))


def test_another_provider_gets_none(gateway: MessagesGateway) -> None:
    model = gateway.upstream.play(streams(ANSWER))
    assert gateway.message(f"claude/{model}", headers=GIVEN).status == 200
    headers = {name.lower() for name in sent(gateway, model)[1]}
    assert headers.isdisjoint(name.lower() for name in GIVEN)

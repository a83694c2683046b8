"""A client that looks a model up finds it, whatever characters its name has: the client escapes the name itself."""

import pytest
from openai import DefaultHttpxClient, NotFoundError, OpenAI

from tests.faults.client import CLIENT_KEY
from tests.judges.gateway.bench import Bench

NAMES = ["pair-0", "main/some", "main/meta/llama-3.1:free", "main/é 🌞", "main/100%", "main/a%2Fb", "main/a?b#c"]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_found_by_its_name(bench: Bench, name: str) -> None:
    with client(bench) as openai:
        assert openai.models.retrieve(name).id == name


def test_a_model_that_is_not_there_is_named(bench: Bench) -> None:
    with client(bench) as openai, pytest.raises(NotFoundError, match="'nobody/é'"):
        openai.models.retrieve("nobody/é")


def client(bench: Bench) -> OpenAI:
    http_client = DefaultHttpxClient(trust_env=False)
    return OpenAI(api_key=CLIENT_KEY, base_url=bench.base_url, max_retries=0, http_client=http_client)

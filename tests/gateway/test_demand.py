"""What a request may consume: the demand on which reservations, tags and tiers depend."""

import json

import pytest

from penstock.core.dialects.dialect import RequestLimits
from penstock.core.dialects.registry import surface_dialect
from penstock.gateway.limits.demand import TokenDemand, chat_demand, embeddings_demand
from penstock.gateway.record.embeddings_request import parse_embeddings

MESSAGES = [{"role": "user", "content": "Say hello."}]


def embed(**fields: object) -> TokenDemand:
    return embeddings_demand(parse_embeddings(json.dumps({"model": "m", "input": "", **fields}).encode()))


@pytest.mark.parametrize("letters", [0, 1, 40, 4_000])
def test_embeddings_take_a_token_for_four_bytes_and_generate_none(letters: int) -> None:
    least = letters // 4
    demand = embed(input="a" * letters)
    assert least < demand.input < least + 10
    assert demand.output == 0


@pytest.mark.parametrize(("tokens", "count"), [([1] * 400, 400), ([[1] * 90, [2]], 91), ([], 1)])
def test_tokens_in_place_of_text_are_counted(tokens: object, count: int) -> None:
    assert count <= embed(input=tokens).input < 2 * count + 12


def test_embeddings_have_tags_and_a_user() -> None:
    demand = embed(metadata={"team": "red", "shift": 2, "task": "index"}, user="me")
    assert (demand.tags, demand.user) == ({"team": "red", "task": "index"}, "me")


@pytest.mark.parametrize("metadata", [None, [], ["team"], {}, "team", 7])
def test_metadata_of_another_kind_has_no_tags(metadata: object) -> None:
    assert (embed(metadata=metadata).tags, embed(user=metadata).user) == ({}, "team" if metadata == "team" else "")


def test_tags_are_bounded() -> None:
    assert len(embed(metadata={str(number): "x" for number in range(99)}).tags) == 16


@pytest.mark.parametrize(
    ("output", "expected"),
    [(None, None), (-5, 0), (0, 0), (50, 50), (10**9, 10**9), (10**9 + 1, 10**9), (2**63 - 1, 10**9)],
)
def test_the_output_of_a_chat_is_bounded(output: int | None, expected: int | None) -> None:
    body = {"model": "m", "messages": MESSAGES, "metadata": {"team": "red"}, "user": "me"}
    request = surface_dialect("openai_chat").read_request(json.dumps(body).encode(), {}, "")
    demand = chat_demand(request, RequestLimits(output, "flex"))
    assert demand == TokenDemand(request.estimate().tokens, expected, {"team": "red"}, "me", "flex")
    assert demand.input > 3

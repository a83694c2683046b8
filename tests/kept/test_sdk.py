"""The official `openai` package reads, lists, deletes and continues kept responses."""

import pytest
from openai import BadRequestError, NotFoundError

from tests.kept.support import OTHER_KEY, TEXT, KeepingGateway, says, streams

pytestmark = pytest.mark.slow


def test_a_conversation_in_two_turns(gateway: KeepingGateway) -> None:
    gateway.expected += 2
    with gateway.sdk() as client:
        model = gateway.upstream.play(says("Hello, Ada."))
        first = client.responses.create(model=f"main/{model}", input="I am Ada.")
        assert first.output_text == "Hello, Ada."
        second = client.responses.create(model=f"main/{model}", input="Who am I?", previous_response_id=first.id)
        assert second.previous_response_id == first.id
        assert client.responses.retrieve(second.id) == second
    texts = [message["content"] for message in gateway.asked(model)["messages"]]
    assert texts == ["I am Ada.", "Hello, Ada.", "Who am I?"]


def test_streams_continue_streams(gateway: KeepingGateway) -> None:
    gateway.expected += 2
    with gateway.sdk() as client:
        model = gateway.upstream.play(streams())
        with client.responses.stream(model=f"main/{model}", input="One.") as stream:
            first = stream.get_final_response()
        with client.responses.stream(model=f"main/{model}", input="Two.", previous_response_id=first.id) as stream:
            second = stream.get_final_response()
        assert second.output_text == TEXT
        kept = client.responses.retrieve(second.id)
        assert (kept.id, kept.output_text, kept.previous_response_id) == (second.id, TEXT, first.id)
        assert kept.usage == second.usage


def test_the_input_is_listed(gateway: KeepingGateway) -> None:
    gateway.expected += 2
    with gateway.sdk() as client:
        model = gateway.upstream.play(says("Yes."))
        first = client.responses.create(model=f"main/{model}", input="Ready?")
        texts = [f"Item {number}" for number in range(25)]
        second = client.responses.create(
            model=f"main/{model}",
            input=[{"role": "user", "content": text} for text in texts],
            previous_response_id=first.id,
        )
        items = list(client.responses.input_items.list(second.id, order="asc", limit=7))  # in four pages
        found = [item.content[0].text for item in items]  # type: ignore[union-attr, index]
        assert found == ["Ready?", "Yes.", *texts]
        newest = client.responses.input_items.list(second.id, limit=1).data
        assert [item.id for item in newest] == [items[-1].id]


def test_a_response_is_deleted_and_cannot_be_cancelled(gateway: KeepingGateway) -> None:
    gateway.expected += 1
    with gateway.sdk() as client, gateway.sdk(OTHER_KEY) as stranger:
        got = client.responses.create(model=f"main/{gateway.upstream.play(says(TEXT))}", input="Hi.")
        with pytest.raises(BadRequestError, match="Cannot cancel a synchronous response"):
            client.responses.cancel(got.id)
        for method in (stranger.responses.retrieve, stranger.responses.delete, stranger.responses.cancel):
            with pytest.raises(NotFoundError, match="not found"):
                method(got.id)
        client.responses.delete(got.id)
        with pytest.raises(NotFoundError, match="not found"):
            client.responses.retrieve(got.id)
        with pytest.raises(BadRequestError) as refused:
            client.responses.create(model="main/any", input="Hi.", previous_response_id=got.id)
        assert refused.value.code == "previous_response_not_found"

"""Log probabilities of chat completions and of Responses reach clients of the other API, beside their text."""

import json
import re

import pytest

from penstock import Accumulator, StreamReader
from penstock.core.dialects.registry import surface_dialect
from tests import responses as res
from tests import streams as chat
from tests.translation.support import CHAT, RESPONSES, Json, facts, translated

TOKENS: list[Json] = [
    {
        "token": text,
        "logprob": -0.1,
        "bytes": [*text.encode()],
        "top_logprobs": [{"token": "No", "logprob": -2.5, "bytes": [78, 111]}],
    }
    for text in ("Yes", ".")
]
WIRES = {
    CHAT: chat.sse(
        chat.begins(),
        *(chat.chunk(chat.choice({"content": one["token"]}, logprobs={"content": [one]})) for one in TOKENS),
        chat.finishes(),
        chat.DONE,
    ),
    RESPONSES: res.answer(
        res.added(0, res.message(status="in_progress")),
        *(res.says(one["token"], logprobs=[one]) for one in TOKENS),
        res.done(0, res.message(res.part("Yes.", logprobs=TOKENS))),
    ),
}
# Unstreamed answers of providers.
BODIES = {
    CHAT: json.dumps(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "Yes."},
                    "logprobs": {"content": TOKENS, "refusal": None},
                    "finish_reason": "stop",
                }
            ],
        }
    ).encode(),
    RESPONSES: json.dumps(res.response("completed", res.message(res.part("Yes.", logprobs=TOKENS)))).encode(),
}
PAIRS = [(CHAT, RESPONSES), (RESPONSES, CHAT), (RESPONSES, RESPONSES)]


@pytest.mark.parametrize(("provider", "client"), PAIRS)
def test_in_a_stream(provider: str, client: str) -> None:
    wire, losses = translated(provider, client, WIRES[provider])
    events = [json.loads(line[5:]) for line in wire.splitlines() if line.startswith(b"data: {")]
    if client == CHAT:
        choices = [choice for event in events for choice in event["choices"] if choice.get("logprobs")]
        pieces = [(choice["delta"].get("content"), choice["logprobs"]["content"]) for choice in choices]
    else:
        deltas = [event for event in events if event["type"] == "response.output_text.delta"]
        pieces = [(event["delta"], event["logprobs"]) for event in deltas]
        (item,) = events[-1]["response"]["output"]
        assert item["content"][0]["logprobs"] == TOKENS
    assert (pieces, losses) == ([(one["token"], [one]) for one in TOKENS], [])


@pytest.mark.parametrize(("provider", "client"), PAIRS)
def test_in_a_body(provider: str, client: str) -> None:
    reader, answer = StreamReader(provider), Accumulator(provider)
    answer.extend([*reader.feed(BODIES[provider]), *reader.close()])
    body = json.loads(surface_dialect(client).write_body(answer.completion, facts(provider, client), []))
    if client == CHAT:
        assert body["choices"][0]["logprobs"]["content"] == TOKENS
    else:
        assert body["output"][0]["content"][0]["logprobs"] == TOKENS


def test_the_bytes_of_tokens_are_completed_for_a_client_of_responses() -> None:
    """OpenAI's types require them there; chat completions may leave them out."""
    wire = re.sub(rb'"bytes": ?\[[^]]*\]', b'"bytes":null', WIRES[CHAT])
    assert wire.count(b'"bytes":null') == 4
    out, _ = translated(CHAT, RESPONSES, wire)
    (item,) = json.loads(out.rpartition(b"data: ")[2])["response"]["output"]
    assert item["content"][0]["logprobs"] == TOKENS

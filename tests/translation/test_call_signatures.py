"""Signatures of tool calls in Google's OpenAI-compatible API: clients of all APIs get them, and return them."""

import json

import pytest
from msgspec import structs

from penstock import Accumulator, StreamReader
from penstock.core.dialects.registry import surface_dialect
from tests.streams import DONE, begins, finishes, read, sse
from tests.translation.support import CHAT, GEMINI, MESSAGES, RESPONSES, Json, Lost, asked, facts, translated

TAKES = {"call_signatures": True, "signature_placeholder": True}
SIGNED: Json = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
PLACEHOLDER: Json = {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}


def call(number: int, **more: object) -> Json:
    function = {"name": "tide", "arguments": "{}"}
    return {"id": f"call_{number}", "type": "function", "function": function, **more}


def wire(*calls: Json) -> bytes:
    pieces = [{"index": index, **piece} for index, piece in enumerate(calls)]
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": pieces}, "finish_reason": None}]}
    return sse(begins(), begins() | chunk, finishes("tool_calls"), DONE)


def history(client: str, *calls: Json, streamed: bool) -> Json:
    """The next request of a client that sends the answer back as it got it."""
    answer, losses = Accumulator(client if streamed else CHAT), []  # type: ignore[var-annotated]
    if streamed:
        answer.extend(read(translated(CHAT, client, wire(*calls))[0], reader=StreamReader(client)))
    else:
        answer.extend(read(wire(*calls)))
    given = structs.replace(facts(client, client), issuer="") if streamed else facts(CHAT, client)
    body = json.loads(surface_dialect(client).write_body(answer.completion, given, losses))
    assert losses == []
    match client:
        case "anthropic_messages":
            return {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": body["content"]}]}
        case "openai_responses":
            return {"input": [{"role": "user", "content": "Hi"}, *body["output"]]}
        case _:
            return {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}, body["candidates"][0]["content"]]}


def sent_calls(client: str, fields: Json, **settings: object) -> tuple[list[Json], Lost]:
    body, lost = asked(client, CHAT, fields, **settings)
    return body["messages"][1]["tool_calls"], lost


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("client", [MESSAGES, RESPONSES, GEMINI])
def test_a_signature_comes_back_on_its_call(client: str, streamed: bool) -> None:
    first, second = call(1), call(2)
    sent, lost = sent_calls(client, history(client, first | SIGNED, second, streamed=streamed), **TAKES)
    assert (sent, lost) == ([first | SIGNED, second], [])
    sent, lost = sent_calls(client, history(client, first, second | SIGNED, streamed=streamed), call_signatures=True)
    assert (sent, lost) == ([first, second | SIGNED], [])


@pytest.mark.parametrize("client", [MESSAGES, RESPONSES])
def test_a_signature_of_another_account_is_replaced(client: str) -> None:
    fields = json.loads(json.dumps(history(client, call(1) | SIGNED, streamed=True)).replace("0a1b2c3d", "ffffffff"))
    assert sent_calls(client, fields, **TAKES) == ([call(1) | PLACEHOLDER], [("reasoning-dropped", "")])


def test_other_providers_of_chat_completions_get_no_signature() -> None:
    fields = history(MESSAGES, call(1) | SIGNED, streamed=True)
    assert sent_calls(MESSAGES, fields) == ([call(1)], [("reasoning-dropped", "")])


def test_a_chat_client_has_the_signature_as_the_provider_sent_it() -> None:
    out, lost = translated(CHAT, CHAT, wire(call(1) | SIGNED))
    assert out.count(b"c2ln") == 1
    assert (b"reasoning_details" in out, lost) == (False, [])


def test_a_chat_client_that_dropped_the_signature_gets_a_placeholder() -> None:
    turn: Json = {"role": "assistant", "content": None, "tool_calls": [call(1), call(2)]}
    fields: Json = {"messages": [{"role": "user", "content": "Hi"}, turn]}
    sent, lost = sent_calls(CHAT, fields, **TAKES)
    assert (sent, lost) == ([call(1) | PLACEHOLDER, call(2)], [])
    turn["tool_calls"][0] |= SIGNED
    assert sent_calls(CHAT, fields, **TAKES) == ([call(1) | SIGNED, call(2)], [])

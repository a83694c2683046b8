"""Failures that users of other gateways have reported, as regressions: each test is named after the report.

Reports about APIs that Penstock does not translate are left out.
"""

import json

import pytest

from penstock.core.dialects.dialect import Destination
from penstock.core.dialects.registry import surface_dialect, upstream_dialect
from penstock.core.hub.content import ReasoningSeal
from penstock.core.hub.seals import wrap
from penstock.core.hub.usage import Tokens
from tests import messages as ant
from tests import streams as chat
from tests.translation.support import CHAT, ISSUER, MESSAGES, Json, chat_of, messages_of, translated

HI: Json = {"role": "user", "content": "Hi"}
PNG: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
TIDE = '{"port":"Brest"}'
CACHED = chat.counts(100, 9, prompt_tokens_details={"cached_tokens": 60})
# The kinds of blocks that deltas belong to.
FITTING = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}


def in_chat(*chunks: Json, finish: str = "stop", usage: Json = CACHED) -> bytes:
    return chat.sse(chat.begins(), *chunks, chat.finishes(finish), chat.bill(**usage), chat.DONE)


def reasons(text: str) -> Json:
    return chat.delta({"reasoning_content": text})


def seen(provider: str, wire: bytes) -> list[Json]:
    """The events that a client of Messages gets. SDKs trust their order, so that is checked for every stream."""
    out, _ = translated(provider, MESSAGES, wire)
    assert translated(provider, MESSAGES, wire, pieces=1)[0] == out
    events: list[Json] = []
    for block in out.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    assert_legal(events)
    return events


def assert_legal(events: list[Json]) -> None:
    """One start, one block at a time, no delta outside of a block of its kind, one end."""
    types = [event["type"] for event in events if event["type"] != "ping"]
    assert types[0] == "message_start"
    assert types[-2:] == ["message_delta", "message_stop"]
    assert all(types.count(type) == 1 for type in ("message_start", "message_delta", "message_stop"))
    opened: tuple[int, str] | None = None
    index = -1
    for event in events:
        match event:
            case {"type": "content_block_start", "index": started, "content_block": block}:
                assert (opened, started) == (None, index + 1)
                opened, index = (started, block["type"]), started
            case {"type": "content_block_delta", "index": at, "delta": delta}:
                assert opened == (at, FITTING[delta["type"]])
            case {"type": "content_block_stop", "index": stopped}:
                assert opened is not None
                assert opened[0] == stopped
                opened = None
            case _:
                pass
    assert opened is None


def blocks(events: list[Json]) -> list[tuple[str, str]]:
    """The type of each block, and its text, thinking or input."""
    found: list[tuple[str, str]] = []
    for event in events:
        if event["type"] == "content_block_start":
            found.append((event["content_block"]["type"], ""))
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            piece = delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""
            found[-1] = (found[-1][0], found[-1][1] + piece)
    return found


def usage_of(events: list[Json]) -> tuple[Json, Json]:
    """The usage in `message_start`, and in `message_delta`."""
    return events[0]["message"]["usage"], events[-2]["usage"]


def forwarded(fields: Json, headers: dict[str, str] | None = None, **settings: object) -> tuple[bytes, Json]:
    """What a provider of Messages gets of a request of its own dialect: the body, and the headers."""
    surface = surface_dialect(MESSAGES)
    body = json.dumps({"model": "target", "max_tokens": 9, **fields}).encode()
    request = surface.read_request(body, headers or {}, surface.path)
    outgoing = upstream_dialect(MESSAGES).write_request(request, Destination(model="target", settings=settings))
    if not settings:
        assert outgoing.body == body
    return outgoing.body, dict(outgoing.headers)


# Streams for clients of Messages.


@pytest.mark.parametrize("provider", [CHAT, MESSAGES])
def test_litellm_32357_thinking_in_a_text_block_and_two_starts(provider: str) -> None:
    """As a provider's stream, and as one that we write."""
    wire = in_chat(chat.says("So."), reasons("Hm."), chat.says("Well."))
    if provider == MESSAGES:
        texts = [ant.opens(), ant.says("So."), ant.thinks("Hm."), ant.says("Well."), ant.closes()]
        wire = ant.answer(ant.begins(), *texts)
    assert blocks(seen(provider, wire)) == [("text", "So."), ("thinking", "Hm."), ("text", "Well.")]


def test_litellm_33224_content_block_is_not_a_thinking_block() -> None:
    wire = in_chat(chat.delta({"content": "", "reasoning_content": "Hm."}), reasons("Hm."), chat.says("So."))
    assert blocks(seen(CHAT, wire)) == [("thinking", "Hm.Hm."), ("text", "So.")]


def test_litellm_25321_the_delta_that_opens_a_block_is_dropped() -> None:
    wire = in_chat(chat.calls(chat.piece(0, "call_1", "get_tide", TIDE)), finish="tool_calls")
    assert blocks(seen(CHAT, wire)) == [("tool_use", TIDE)]
    assert blocks(seen(CHAT, in_chat(chat.says("So.")))) == [("text", "So.")]


def test_litellm_13373_content_block_not_found() -> None:
    mixed = [chat.says("A"), chat.calls(chat.piece(0, "call_1", "f", "{}")), chat.says("B"), reasons("C")]
    seen(CHAT, in_chat(*mixed, finish="tool_calls"))


def test_litellm_24176_the_shape_of_usage_in_message_start() -> None:
    start, end = usage_of(seen(CHAT, in_chat(chat.says("So."))))
    counts = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    assert all(type(usage[name]) is int for usage in (start, end) for name in counts)


def test_litellm_31069_cache_tokens_in_message_start() -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30, "output_tokens": 1}
    start, _ = usage_of(seen(MESSAGES, ant.answer(*ant.says_all("So."), begin=ant.begins(usage=usage))))
    assert start == usage


def test_litellm_29286_an_empty_list_of_calls_beside_text() -> None:
    wire = in_chat(chat.delta({"content": "So.", "tool_calls": []}), chat.delta({"tool_calls": []}))
    assert blocks(seen(CHAT, wire)) == [("text", "So.")]


def test_litellm_38809_a_thinking_block_of_nothing_but_a_signature() -> None:
    thinking = [ant.opens(0, "thinking"), ant.signs("EqQB"), ant.closes(0)]
    wire = ant.answer(*thinking, *ant.says_all("So.", index=1))
    assert ant.signs("EqQB") in seen(MESSAGES, wire)
    turn = {"type": "thinking", "thinking": "", "signature": "EqQB"}
    forwarded({"messages": [HI, {"role": "assistant", "content": [turn]}, HI]})


def test_bifrost_5638_and_axonhub_1105_a_signature_on_another_block() -> None:
    """It comes after the text has begun (OpenRouter), and belongs to the thinking."""
    late = [ant.opens(0, "thinking"), ant.thinks("Hm."), ant.closes(0), ant.opens(1), ant.says("So.", 1)]
    completion = ant.completion(ant.answer(*late, ant.signs("EqQB", 0), ant.closes(1)))
    thinking, text = completion.choices[0].parts
    assert [seal.value for seal in getattr(thinking, "seals", ())] == ["EqQB"]
    assert getattr(text, "text", "") == "So."


def test_bifrost_3441_calls_that_overlap_and_their_stop_reason() -> None:
    first, second = (chat.calls(chat.piece(n, f"call_{n}", "get_tide", "")) for n in range(2))
    halves = [chat.calls(chat.piece(n, arguments=half)) for half in (TIDE[:6], TIDE[6:]) for n in range(2)]
    events = seen(CHAT, in_chat(first, second, *halves, finish="stop"))
    assert blocks(events) == [("tool_use", TIDE)] * 2
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_ollama_17101_text_then_thinking_under_one_index() -> None:
    wire = ant.answer(ant.opens(), ant.says("So."), ant.opens(0, "thinking"), ant.thinks("Hm."), ant.closes())
    assert blocks(seen(MESSAGES, wire)) == [("text", "So."), ("thinking", "Hm.")]


def test_new_api_7472_usage_on_the_finish_chunk_and_again_behind_it() -> None:
    early = chat.counts(100, 9)
    wire = chat.sse(chat.begins(), chat.says("So."), chat.finishes(usage=early), chat.bill(**CACHED), chat.DONE)
    _, end = usage_of(seen(CHAT, wire))
    assert (end["input_tokens"], end["cache_read_input_tokens"]) == (40, 60)


def test_new_api_4395_input_tokens_exclude_the_cached_part() -> None:
    start, end = usage_of(seen(CHAT, in_chat(chat.says("So."))))
    assert (end["input_tokens"], end["cache_read_input_tokens"], end["output_tokens"]) == (40, 60, 9)
    assert start["cache_read_input_tokens"] == 0


def test_new_api_4760_no_usage_at_the_end() -> None:
    """The figures of the beginning stay, and nothing is made up."""
    finish = ant.finishes()
    del finish["usage"]
    events = seen(MESSAGES, ant.answer(*ant.says_all("So."), finish=finish))
    assert usage_of(events) == ({"input_tokens": 7, "output_tokens": 1}, {"input_tokens": 7, "output_tokens": 0})


def test_envoy_ai_gateway_2241_cache_tokens_are_counted_once() -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30}
    wire = ant.answer(
        *ant.says_all("So."), begin=ant.begins(usage=usage), finish=ant.finishes(usage=usage | {"output_tokens": 9})
    )
    completion = ant.completion(wire)
    assert completion.usage is not None
    assert Tokens.of(completion.usage) == Tokens(input=93, output=9, cached=60, cache_write=30)


def test_vllm_36445_events_without_a_type_or_a_name() -> None:
    """Read by whichever of the two is there."""
    wire = ant.answer(*ant.says_all("So."))
    unnamed = b"".join(line + b"\n" for line in wire.split(b"\n")[:-1] if not line.startswith(b"event:"))
    assert blocks(seen(MESSAGES, unnamed)) == [("text", "So.")]


# Requests.


def test_litellm_22997_thinking_does_not_reach_the_content_of_chat() -> None:
    turn = [{"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}, {"type": "text", "text": "So."}]
    body, lost = chat_of({"messages": [HI, {"role": "assistant", "content": turn}, HI]})
    assert body["messages"][1] == {"role": "assistant", "content": "So."}
    assert lost == [("reasoning-dropped", "")]


def test_litellm_20403_images_in_the_results_of_tools() -> None:
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "see"}, PNG]}
    body, lost = chat_of({"messages": [HI, call, {"role": "user", "content": [result]}]})
    *_, tool, user = body["messages"]
    assert (tool["role"], tool["content"]) == ("tool", "see")
    assert user["content"][-1]["image_url"]["url"] == "data:image/png;base64,AA=="
    assert [code for code, _ in lost] == ["result-media-moved"]


def test_bifrost_6342_replayed_thinking_stays_as_it_is() -> None:
    turn = [
        {"type": "thinking", "thinking": "", "signature": "EqQB"},
        {"type": "thinking", "signature": "EqQC", "thinking": "Hm."},
        {"type": "redacted_thinking", "data": "b3Bh"},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 1, "a": 2}},
    ]
    forwarded({"messages": [HI, {"role": "assistant", "content": turn}, HI]})


def test_bifrost_5274_reasoning_details_of_a_request() -> None:
    detail = {"type": "reasoning.encrypted", "data": wrap(ReasoningSeal("anthropic", "EqQB"), ISSUER), "length": 3}
    turn = {"role": "assistant", "content": "So.", "reasoning_content": "Hm.", "reasoning_details": [detail]}
    body, _ = messages_of({"messages": [HI, turn, HI]})
    assert body["messages"][1]["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}


@pytest.mark.parametrize("provider", [CHAT, MESSAGES])
def test_ollama_16372_a_system_role_that_the_provider_refuses(provider: str) -> None:
    fields: Json = {"messages": [HI, {"role": "system", "content": "Be brief."}]}
    if provider == CHAT:
        body, _ = chat_of(fields, mid_system=False)
    else:
        body = json.loads(forwarded(fields, mid_system=False)[0])
    assert [message["role"] for message in body["messages"]] == ["user"]
    assert "<system-reminder>\\nBe brief." in json.dumps(body)


def test_cliproxyapi_2172_the_body_is_not_serialised_again() -> None:
    surface = surface_dialect(MESSAGES)
    body = b'{"max_tokens":9, "messages":[{"role":"user","content":"\\u0048\\/"}],"x":1.0,"model":"target"}'
    request = surface.read_request(body, {}, surface.path)
    assert upstream_dialect(MESSAGES).write_request(request, Destination(model="target")).body == body


def test_sub2api_2726_a_field_leaves_with_its_beta() -> None:
    betas = {"anthropic-beta": "context-management-2025-06-27,effort-2025-11-24"}
    fields: Json = {"messages": [HI], "context_management": {"edits": []}, "output_config": {"effort": "low"}}
    body, headers = forwarded(fields, betas, drop=["context_management"])
    assert "context_management" not in json.loads(body)
    assert headers["anthropic-beta"] == "effort-2025-11-24"


def test_hermes_agent_22313_deepseek_wants_thinking_back() -> None:
    turn = [{"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text": "So."}]
    fields: Json = {"messages": [HI, {"role": "assistant", "content": turn}, HI]}
    body, _ = forwarded(fields, unsigned_thinking=True)
    assert json.loads(body)["messages"][1]["content"] == turn
    translated_body, _ = chat_of(fields, reasoning_field="reasoning_content")
    assert translated_body["messages"][1]["reasoning_content"] == "Hm."


def test_omniroute_12105_unsigned_thinking_does_not_reach_claude() -> None:
    turn = [{"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text": "So."}]
    body, _ = forwarded({"messages": [HI, {"role": "assistant", "content": turn}, HI]}, unsigned_thinking=False)
    assert json.loads(body)["messages"][1]["content"] == turn[1:]

"""A second dialect, registered by one line, is served, called, and translated to and from chat, over real sockets."""

import json
from typing import Any

import pytest

from tests.dialects.support import (
    CALLS,
    CHAT,
    HELLO,
    OPEN,
    OVER,
    TICKER_BODY,
    TICKER_STREAM,
    Tick,
    TickerGateway,
    folded,
    frames,
    ticks,
)
from tests.faults.client import post
from tests.faults.scripts import stream
from tests.faults.upstream import JSON, Gate, Op, chunk, head, last_chunk, rst, status
from tests.streams import DONE, begins, bill, counts, finishes, says, sse

THOUGHT: tuple[Tick, ...] = (("block", {"n": 0, "is": "thought"}), ("more", {"n": 0, "s": "hm"}), ("shut", {"n": 0}))


def sent(gateway: TickerGateway, model: str) -> Any:
    """The body of the last request that the upstream got for a model."""
    return json.loads(gateway.upstream.requests(model)[-1].partition(b"\r\n\r\n")[2])


# Same dialect on both sides.


def test_a_ticker_is_forwarded_as_it_was_written(gateway: TickerGateway) -> None:
    model = gateway.upstream.play([head(), chunk(TICKER_STREAM), last_chunk()])
    body = b'{ "model":"tape/%b",  "live":true, "lines":[{"by":"user","say":"Hi"}], "mood" : 1.0e1 }' % model.encode()
    response = gateway.send(post(body, path="/v1/ticker"), calls=1)
    asked = gateway.upstream.requests(model)[-1].partition(b"\r\n\r\n")[2]
    assert asked == body.replace(b"tape/", b"")
    assert folded("ticker", response.body).text == "Hello, world"
    assert "x-penstock-losses" not in response.headers
    line = gateway.call(response)
    assert (line["ending"], line["input"], line["output"]) == ("completed", 5, 3)


def test_an_unstreamed_ticker(gateway: TickerGateway) -> None:
    model = gateway.upstream.play([status(200, JSON, TICKER_BODY)])
    response = gateway.tick(f"tape/{model}", live=False)
    assert response.json == json.loads(TICKER_BODY)


def test_a_picture_is_streamed_as_it_arrives(gateway: TickerGateway) -> None:
    """It is content, so the first part of it commits the answer."""
    gate = Gate()
    first = frames(OPEN, ("block", {"n": 0, "is": "picture"}), ("more", {"n": 0, "s": "iVBORw0K"}))
    rest = frames(("more", {"n": 0, "s": "GgoAAAAN"}), ("shut", {"n": 0}), OVER)
    model = gateway.upstream.play([head(), chunk(first), gate, chunk(rest), last_chunk()])
    with gateway.client() as client:
        gateway.expected += 1
        request = {"model": f"tape/{model}", "lines": [{"by": "user", "say": "Draw."}], "live": True}
        client.send(post(json.dumps(request).encode(), path="/v1/ticker"))
        client.read_until(b"iVBORw0K")
        gate.open()
        response = gateway.keep(client.response())
    assert ticks(response)[-1][0] == "over"


# Translation.


def test_a_ticker_client_on_a_chat_provider(gateway: TickerGateway) -> None:
    model = gateway.upstream.play(stream(CHAT))
    tools = [{"tool": "weather", "takes": {"type": "object"}}]
    lines = [
        {"by": "user", "say": "Weather?"},
        {"by": "model", "call": {"ref": "c1", "tool": "weather", "with": "{}"}},
        {"by": "tool", "ref": "c1", "say": "rain"},
    ]
    response = gateway.tick(f"main/{model}", live=True, brief="Be brief.", lines=lines, tools=tools, mood="dry", most=9)
    asked = sent(gateway, model)
    assert asked["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ]
    assert asked["tools"] == [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    assert (asked["max_completion_tokens"], asked["stream_options"]) == (9, {"include_usage": True})
    completion = folded("ticker", response.body)
    assert (completion.text, completion.choices[0].finish_reason) == ("Hello, world", "stop")
    assert completion.usage is not None
    assert (completion.usage.input, completion.usage.output) == (5, 3)
    assert response.headers["x-penstock-losses"] == "field-dropped=1"


def test_a_chat_client_on_a_ticker(gateway: TickerGateway) -> None:
    model = gateway.upstream.play([head(), chunk(frames(OPEN, *THOUGHT, *CALLS)), chunk(frames(OVER)), last_chunk()])
    response = gateway.ask(
        f"tape/{model}", stream=True, stop=["x"], temperature=0.5, stream_options={"include_usage": True}
    )
    assert sent(gateway, model) == {"model": model, "live": True, "lines": [{"by": "user", "say": "Say hello."}]}
    completion = folded("openai_chat", response.body)
    (choice,) = completion.choices
    assert [(call.id, call.name, call.arguments) for call in choice.tool_calls] == [
        ("c1", "weather", '{"city":"Paris"}'),
        ("c2", "weather", '{"city":"Rome"}'),
    ]
    assert (choice.reasoning, choice.finish_reason) == ("hm", "tool_calls")
    assert response.headers["x-penstock-losses"] == "stop-dropped=1,sampling-dropped=1"


@pytest.mark.parametrize("live", [True, False])
def test_calls_cross_both_ways(gateway: TickerGateway, live: bool) -> None:
    calls = [
        {"index": n, "id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": f'{{"n":{n}}}'}}
        for n in (0, 1)
    ]
    wire = sse(
        begins(),
        *(
            {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]} | ENVELOPE
            for call in calls
        ),
        finishes("tool_calls"),
        bill(**counts(5, 3)),
        DONE,
    )
    model = gateway.upstream.play(stream(wire))
    response = gateway.tick(f"main/{model}", live=live)
    completion = folded("ticker", response.body)
    assert [(call.id, call.arguments) for call in completion.choices[0].tool_calls] == [
        ("c0", '{"n":0}'),
        ("c1", '{"n":1}'),
    ]


ENVELOPE = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "sluice-1"}


@pytest.mark.parametrize("stream", [True, False])
def test_a_chat_client_gets_a_whole_answer_of_a_ticker(gateway: TickerGateway, stream: bool) -> None:
    script: list[Op] = [status(200, JSON, TICKER_BODY)] if not stream else [head(), chunk(TICKER_STREAM), last_chunk()]
    model = gateway.upstream.play(script)
    response = gateway.ask(f"tape/{model}", stream=stream)
    assert folded("openai_chat", response.body).text == "Hello, world"


# Errors.


def test_a_provider_that_gives_one_answer_is_not_asked_for_two(gateway: TickerGateway) -> None:
    model = gateway.upstream.play([head(), chunk(TICKER_STREAM), last_chunk()])
    response = gateway.ask(f"tape/{model}", stream=True, n=2)
    assert (response.status, response.json["error"]["code"]) == (400, "invalid_request")
    assert gateway.upstream.requests(model) == []
    gateway.upstream.play([head(), chunk(TICKER_STREAM), last_chunk()], "either-a")
    gateway.upstream.play(stream(CHAT), "either-b")
    response = gateway.ask("either", stream=True, n=2)
    assert folded("openai_chat", response.body).text == "Hello, world"
    assert response.headers["x-penstock-attempts"] == "1"


ERRORS = [(400, {"error": {"message": "no such line"}}), (422, {"error": {"message": "no such line"}})]


@pytest.mark.parametrize(("code", "body"), ERRORS)
def test_a_refusal_is_unmodified_in_its_own_dialect_and_translated_elsewhere(
    gateway: TickerGateway, code: int, body: dict[str, object]
) -> None:
    model = gateway.upstream.play([status(code, JSON, json.dumps(body).encode())])
    own = gateway.tick(f"tape/{model}", live=True)
    assert (own.status, own.json) == (code, body)
    foreign = gateway.ask(f"tape/{model}", stream=True)
    assert (foreign.status, foreign.json["error"]["message"]) == (code, "no such line")


def test_errors_before_a_provider_is_asked_are_in_the_client_s_words(gateway: TickerGateway) -> None:
    unknown = gateway.tick("nobody/none", live=True)
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "model_not_found")
    bad = gateway.send(post(b"{", path="/v1/ticker"))
    assert (bad.status, bad.json["error"]["code"]) == (400, "invalid_json")


def test_a_stream_that_breaks_ends_in_the_client_s_words(gateway: TickerGateway) -> None:
    model = gateway.upstream.play([head(), chunk(sse(begins(), says("Hello"))), rst()])
    response = gateway.tick(f"main/{model}", live=True)
    event, data = ticks(response)[-1]
    assert (event, data["error"]["code"]) == ("error", "upstream_reset")
    assert "over" not in [name for name, _ in ticks(response)]
    model = gateway.upstream.play([head(), chunk(frames(OPEN, *HELLO[:2])), rst()])
    response = gateway.ask(f"tape/{model}", stream=True)
    assert response.chunks[-1]["error"]["code"] == "upstream_reset"
    assert not response.done
    model = gateway.upstream.play(
        [head(), chunk(frames(OPEN, *HELLO, ("error", {"error": {"message": "out of paper"}}))), last_chunk()]
    )
    response = gateway.ask(f"tape/{model}", stream=True)
    assert response.chunks[-1]["error"]["message"] == "out of paper"


def test_an_answer_without_an_end_is_truncated(gateway: TickerGateway) -> None:
    model = gateway.upstream.play([head(), chunk(frames(OPEN, *HELLO)), last_chunk()])
    response = gateway.ask(f"tape/{model}", stream=True)
    assert gateway.call(response)["ending"] == "truncated"
    assert 'finish_reason":"' not in response.body.decode()

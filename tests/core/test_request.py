"""The neutral request: what it has of a chat request, and what a chat request cannot express."""

from typing import Any

import pytest

from penstock import MediaPart, OpaquePart, ReasoningPart, RefusalPart, TextPart, ToolCall, ToolResult
from penstock.core.dialects.dialect import RequestError
from penstock.core.dialects.openai_chat.request import read_request
from penstock.core.dialects.openai_chat.request_writer import ChatRequestWriter
from penstock.core.dialects.registry import DIALECTS, surface_dialect
from penstock.core.dialects.request_writer import Destination
from penstock.core.hub.losses import LOSSES, Loss
from penstock.core.hub.request import (
    Message,
    ReasoningSettings,
    Request,
    ResponseFormat,
    Sampling,
    Tool,
    ToolChoice,
)
from penstock.core.hub.tool_map import ToolMap

PDF = "data:application/pdf;base64,"
HI = {"role": "user", "content": "Hi"}
TURNS = (Message("user", (TextPart("Hi"),)),)
SCHEMA: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a text": ({"messages": [HI]}, {"turns": (Message("user", (TextPart("Hi"),)),)}),
    "the system prompt": (
        {"messages": [{"role": "system", "content": "Be brief."}, HI]},
        {"system": (TextPart("Be brief."),), "turns": (Message("user", (TextPart("Hi"),)),)},
    ),
    "a system message in mid-conversation keeps its place": (
        {"messages": [HI, {"role": "developer", "content": "Be brief."}]},
        {
            "turns": (
                Message("user", (TextPart("Hi"),)),
                Message("system", (TextPart("Be brief."),)),
            )
        },
    ),
    "media": (
        {
            "messages": [
                {
                    "role": "user",
                    "name": "ann",
                    "content": [
                        {"type": "text", "text": "Look"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
                        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                        {"type": "input_audio", "input_audio": {"data": "BB==", "format": "mp3"}},
                        {
                            "type": "file",
                            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,CC=="},
                        },
                        {"type": "hologram", "depth": 3},
                    ],
                }
            ]
        },
        {
            "turns": (
                Message(
                    "user",
                    (
                        TextPart("Look"),
                        MediaPart(kind="image", mime="image/png", data="AA==", extras={"detail": "low"}),
                        MediaPart(kind="image", mime="image/png", url="https://x/y.png"),
                        MediaPart(kind="audio", mime="audio/mpeg", data="BB=="),
                        MediaPart(kind="file", mime="application/pdf", data="CC==", name="a.pdf"),
                        OpaquePart("openai_chat", "hologram", {"depth": 3}),
                    ),
                    "ann",
                ),
            )
        },
    ),
    "calls and their results": (
        {
            "messages": [
                HI,
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "hm",
                    "tool_calls": [
                        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                        {"id": "2", "type": "custom", "custom": {"name": "g", "input": "x"}},
                    ],
                },
                {"role": "tool", "tool_call_id": "1", "content": "one"},
                {"role": "tool", "tool_call_id": "2", "content": [{"type": "text", "text": "two"}]},
            ]
        },
        {
            "turns": (
                Message("user", (TextPart("Hi"),)),
                Message(
                    "assistant",
                    (
                        ReasoningPart("hm", field="reasoning_content"),
                        ToolCall("1", "f", "{}"),
                        ToolCall("2", "g", "x", "custom"),
                    ),
                ),
                Message("user", (ToolResult("1", (TextPart("one"),)), ToolResult("2", (TextPart("two"),)))),
            )
        },
    ),
    "a refusal": (
        {"messages": [HI, {"role": "assistant", "content": None, "refusal": "No."}]},
        {"turns": (Message("user", (TextPart("Hi"),)), Message("assistant", (RefusalPart("No."),)))},
    ),
    "tools": (
        {
            "messages": [HI],
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
                },
                {"type": "custom", "custom": {"name": "g", "format": {"type": "text"}}},
            ],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "parallel_tool_calls": False,
        },
        {
            "turns": TURNS,
            "tools": (
                Tool(name="f", description="d", schema=SCHEMA, strict=True),
                Tool(name="g", kind="custom", format={"type": "text"}),
            ),
            "tool_choice": ToolChoice("tool", ("f",)),
            "parallel_calls": False,
        },
    ),
    "settings": (
        {
            "messages": [HI],
            "stream": True,
            "max_completion_tokens": 7,
            "n": 2,
            "stop": ["a", "b"],
            "temperature": 0.5,
            "seed": 3,
            "logprobs": True,
            "top_logprobs": 2,
            "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA, "strict": True}},
            "reasoning_effort": "low",
            "service_tier": "flex",
            "user": "ann",
            "metadata": {"team": "x"},
            "prompt_cache_key": "k",
            "prediction": {"type": "content"},
        },
        {
            "turns": TURNS,
            "max_output": 7,
            "choices": 2,
            "stop": ("a", "b"),
            "sampling": Sampling(temperature=0.5, seed=3, logprobs=True, top_logprobs=2),
            "format": ResponseFormat("schema", "s", SCHEMA, strict=True),
            "reasoning": ReasoningSettings(effort="low"),
            "tier": "flex",
            "user": "ann",
            "metadata": {"team": "x"},
            "cache_key": "k",
            "extras": {"prediction": {"type": "content"}},
        },
    ),
}


@pytest.mark.parametrize(("fields", "expected"), CASES.values(), ids=CASES)
def test_chat_requests_are_read(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert read_request({"model": "m"} | fields) == Request(**expected)


ODD: list[Any] = [
    None,
    7,
    "x",
    [],
    {},
    [None, 7, [], {"role": 7, "content": 7}, {"role": "tool"}, {"role": "assistant", "tool_calls": [7, {}]}],
    [{"role": "user", "content": [{"type": "image_url"}, {"type": 7}, 7, None]}],
]


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize(
    "name", ["messages", "tools", "tool_choice", "stop", "response_format", "metadata", "n", "seed"]
)
def test_no_shape_makes_reading_fail(name: str, odd: Any) -> None:
    read_request({"model": "m", name: odd})


LOST: dict[str, tuple[dict[str, Any], list[Loss]]] = {
    "a cache mark": (
        {"turns": (Message("user", (TextPart("Hi", cache="5m"),)),)},
        [Loss("cache-hint-dropped", "5m")],
    ),
    "a part of another dialect": (
        {"turns": (*TURNS, Message("user", (OpaquePart("other", "hologram", {}),)))},
        [Loss("content-dropped", "hologram")],
    ),
    "an error of a tool": (
        {"turns": (Message("user", (ToolResult("1", (TextPart("no"),), is_error=True),)),)},
        [Loss("error-flag-as-text", "1")],
    ),
    "an image that a tool returned": (
        {"turns": (Message("user", (ToolResult("1", (MediaPart(kind="image", url="https://x"),)),)),)},
        [Loss("result-media-moved", "1")],
    ),
    "a tool of the provider": (
        {"tools": (Tool(name="web_search", kind="server", type="web_search_1"),)},
        [Loss("server-tool-dropped", "web_search_1")],
    ),
    "an option of a tool": (
        {"tools": (Tool(name="f", extras={"eager": True}),)},
        [Loss("tool-option-dropped", "eager")],
    ),
    "top_k": ({"sampling": Sampling(top_k=3)}, [Loss("sampling-dropped", "top_k")]),
    "a stop sequence": ({"stop": ("a",)}, [Loss("stop-sequence-unreported")]),
    "too many stop sequences": (
        {"stop": ("a", "b", "c", "d", "e")},
        [Loss("stop-dropped", "1 of 5"), Loss("stop-sequence-unreported")],
    ),
    "earlier reasoning": (
        {"turns": (Message("assistant", (ReasoningPart("hm"),)), *TURNS)},
        [Loss("reasoning-dropped")],
    ),
    "a field of another dialect": ({"extras": {"container": "x"}}, [Loss("field-dropped", "container")]),
    "nothing": ({"turns": (Message("user", (TextPart("Hi"),)),), "max_output": 5}, []),
}


@pytest.mark.parametrize(("fields", "expected"), LOST.values(), ids=LOST)
def test_what_chat_cannot_say_is_declared(fields: dict[str, Any], expected: list[Loss]) -> None:
    request = Request(**{"turns": TURNS} | fields)
    writer = ChatRequestWriter(Destination(model="m"), ToolMap(request.tools))
    writer.fields(request)
    assert writer.losses == expected
    assert all(loss.code in LOSSES for loss in writer.losses)


def test_text_beside_tool_calls_is_written() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": "Let me look.", "tool_calls": [call]}
    writer = ChatRequestWriter(Destination(model="m"), ToolMap(()))
    written = writer.fields(read_request({"model": "m", "messages": [message]}))
    assert written["messages"] == [message]


@pytest.mark.parametrize("nested", [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
@pytest.mark.parametrize("dialect", [name for name, dialect in DIALECTS.items() if dialect.surface is not None])
def test_the_limit_of_depth_is_the_same_with_every_interpreter(dialect: str, nested: tuple[str, str]) -> None:
    opens, closes = nested

    def outcome(depth: int) -> str:
        body = f'{{"model":"m","x":{opens * depth}"x"{closes * depth}}}'.encode()
        try:
            surface_dialect(dialect).read_request(body, {}, "/v1beta/models/m:generateContent")
        except RequestError as refused:
            return refused.failure.message
        return ""

    assert "deep" not in outcome(99)
    assert {outcome(depth) for depth in (100, 400, 9_000)} == {"the body is nested deeper than 100 levels"}

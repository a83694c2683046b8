"""A request of a Messages client, as a chat provider gets it: what is carried, and what is declared as lost."""

from typing import Any

import pytest

from penstock.core.hub.content import ReasoningSeal
from penstock.core.hub.losses import LOSSES
from penstock.core.hub.seals import wrap
from tests.translation.support import ISSUER, Json, Lost, chat_of

HI: Json = {"role": "user", "content": "Hi"}
PNG: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
PICTURE: Json = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
PDF: Json = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "BB=="}}
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
LONG = "toolu_" + "x" * 70


def tool(name: str, **fields: object) -> Json:
    return {"name": name, "description": "d", "input_schema": SCHEMA} | fields


def function(name: str, **fields: object) -> Json:
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": SCHEMA} | fields}


def uses(id: str = "toolu_1", name: str = "f", **given: object) -> Json:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": name, "input": given}]}


def results(*content: Json | str, id: str = "toolu_1", **fields: object) -> Json:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": [*content], **fields}]}


def calls(id: str = "toolu_1", name: str = "f", arguments: str = "{}") -> Json:
    called = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [called]}


def reported(text: str, id: str = "toolu_1") -> Json:
    return {"role": "tool", "tool_call_id": id, "content": text}


MESSAGES: dict[str, tuple[Json, list[Json], Lost]] = {
    "the system prompt, in parts": (
        {"system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "messages": [HI]},
        [{"role": "system", "content": "a\n\nb"}, HI],
        [],
    ),
    "Claude Code's attribution is not for the model": (
        {
            "system": [
                {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.325; cc_entrypoint=cli;"},
                {"type": "text", "text": "You are a coder.", "cache_control": {"type": "ephemeral"}},
            ],
            "messages": [HI],
        },
        [{"role": "system", "content": "You are a coder."}, HI],
        [("attribution-dropped", "attribution"), ("cache-hint-dropped", "5m")],
    ),
    "a system prompt of nothing but the attribution": (
        {"system": "x-anthropic-billing-header: a", "messages": [HI]},
        [HI],
        [("attribution-dropped", "attribution")],
    ),
    "a system message in mid-conversation keeps its place": (
        {"messages": [HI, {"role": "system", "content": "Be brief.", "output_config": {"effort": "low"}}]},
        [HI, {"role": "system", "content": "Be brief."}],
        [("field-dropped", "messages.output_config")],
    ),
    "an image": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Look"}, PNG]}]},
        [{"role": "user", "content": [{"type": "text", "text": "Look"}, PICTURE]}],
        [],
    ),
    "a PDF": (
        {"messages": [{"role": "user", "content": [PDF | {"title": "a.pdf", "citations": {"enabled": True}}]}]},
        [
            {
                "role": "user",
                "content": [
                    {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,BB=="}}
                ],
            }
        ],
        [("field-dropped", "content.citations")],
    ),
    "a document of text is text": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "document",
                            "title": "Tides",
                            "source": {"type": "text", "media_type": "text/plain", "data": "high, low"},
                        }
                    ],
                }
            ]
        },
        [{"role": "user", "content": "Tides\n\nhigh, low"}],
        [],
    ),
    "a document by a file id cannot be seen": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Read."},
                        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
                    ],
                }
            ]
        },
        [{"role": "user", "content": "Read."}],
        [("content-dropped", "file by file id")],
    ),
    "a call and its result": (
        {"messages": [HI, uses(city="Rome"), results({"type": "text", "text": "sunny"})]},
        [HI, calls(arguments='{"city":"Rome"}'), reported("sunny")],
        [],
    ),
    "a result that is a string, and an error": (
        {
            "messages": [
                HI,
                uses(),
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "no", "is_error": True}],
                },
            ]
        },
        [HI, calls(), reported("Error: no")],
        [("error-flag-as-text", "toolu_1")],
    ),
    "an empty result": (
        {"messages": [HI, uses(), {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]}]},
        [HI, calls(), reported("")],
        [],
    ),
    "results come before what the user says": (
        {
            "messages": [
                HI,
                uses(),
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "and?"},
                        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "one"},
                    ],
                },
            ]
        },
        [HI, calls(), reported("one"), {"role": "user", "content": "and?"}],
        [],
    ),
    "an image and a document in a result": (
        {"messages": [HI, uses(), results({"type": "text", "text": "see"}, PNG, PDF)]},
        [
            HI,
            calls(),
            reported("see"),
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "The result of toolu_1 is attached."},
                    PICTURE,
                    {"type": "file", "file": {"filename": "file", "file_data": "data:application/pdf;base64,BB=="}},
                ],
            },
        ],
        [("result-media-moved", "toolu_1")],
    ),
    "a search result in a result": (
        {
            "messages": [
                HI,
                uses(),
                results(
                    {
                        "type": "search_result",
                        "source": "https://x",
                        "title": "X",
                        "content": [{"type": "text", "text": "found"}],
                    }
                ),
            ]
        },
        [HI, calls(), reported("X\n\nhttps://x\n\nfound")],
        [],
    ),
    "a reference to a tool in a result": (
        {"messages": [HI, uses(), results({"type": "tool_reference", "tool_name": "g"})]},
        [HI, calls(), reported("Tools that are available now: g.")],
        [],
    ),
    "an id that OpenAI would refuse": (
        {"messages": [HI, uses(LONG), results({"type": "text", "text": "ok"}, id=LONG)]},
        [HI, calls("toolu_" + "x" * 45 + "_c6477b721ee7"), reported("ok", "toolu_" + "x" * 45 + "_c6477b721ee7")],
        [],
    ),
    "reasoning that the provider does not want": (
        {
            "messages": [
                HI,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": ""},
                        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
                    ],
                },
            ]
        },
        [HI, calls()],
        [("reasoning-dropped", "")],
    ),
    "the provider's own tools in the history": (
        {
            "messages": [
                HI,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
                        {"type": "text", "text": "So."},
                    ],
                },
                HI,
            ]
        },
        [HI, {"role": "assistant", "content": "So."}, HI],
        [("content-dropped", "web_search_tool_result"), ("content-dropped", "web_search")],
    ),
    "the beginning of the answer": (
        {"messages": [HI, {"role": "assistant", "content": "{"}]},
        [HI, {"role": "assistant", "content": "{"}],
        [("prefill-not-continued", "")],
    ),
}


@pytest.mark.parametrize(("fields", "messages", "losses"), MESSAGES.values(), ids=MESSAGES)
def test_messages(fields: Json, messages: list[Json], losses: Lost) -> None:
    body, lost = chat_of(fields)
    assert body == {"model": "target", "messages": messages, "max_completion_tokens": 100}
    assert lost == losses
    assert {code for code, _ in lost} <= LOSSES.keys()


FIELDS: dict[str, tuple[Json, Json, Lost]] = {
    "tools": (
        {"tools": [tool("f", strict=True), tool("g", cache_control={"type": "ephemeral", "ttl": "1h"})]},
        {"tools": [function("f", strict=True), function("g")]},
        [("cache-hint-dropped", "1h")],
    ),
    "options of a tool": (
        {"tools": [tool("f", eager_input_streaming=True, input_examples=[{}])]},
        {"tools": [function("f")]},
        [("tool-option-dropped", "eager_input_streaming"), ("tool-option-dropped", "input_examples")],
    ),
    "a tool of Anthropic's own": (
        {"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}, tool("f")]},
        {"tools": [function("f")]},
        [("server-tool-dropped", "web_search_20250305")],
    ),
    "any tool": (
        {"tools": [tool("f")], "tool_choice": {"type": "any"}},
        {"tools": [function("f")], "tool_choice": "required"},
        [],
    ),
    "one tool, and not several at once": (
        {"tools": [tool("f")], "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True}},
        {
            "tools": [function("f")],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "parallel_tool_calls": False,
        },
        [],
    ),
    "no tool": (
        {"tools": [tool("f")], "tool_choice": {"type": "none"}},
        {"tools": [function("f")], "tool_choice": "none"},
        [],
    ),
    "a choice without a tool": ({"tool_choice": {"type": "auto"}}, {}, []),
    "stop sequences": (
        {"stop_sequences": ["a", "b"]},
        {"stop": ["a", "b"]},
        [("stop-sequence-unreported", "")],
    ),
    "more stop sequences than chat takes": (
        {"stop_sequences": ["a", "b", "c", "d", "e"]},
        {"stop": ["a", "b", "c", "d"]},
        [("stop-dropped", "1 of 5"), ("stop-sequence-unreported", "")],
    ),
    "sampling": (
        {"temperature": 0.5, "top_p": 0.9, "top_k": 5},
        {"temperature": 0.5, "top_p": 0.9},
        [("sampling-dropped", "top_k")],
    ),
    "a schema of the answer": (
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}},
        [],
    ),
    "the user": ({"metadata": {"user_id": "ann"}}, {"user": "ann"}, []),
    "a user that OpenAI would refuse": (
        {"metadata": {"user_id": "user_" + "a" * 80}},
        {},
        [("field-dropped", "user")],
    ),
    "the standard tier": ({"service_tier": "standard_only"}, {}, [("field-dropped", "service_tier")]),
    "any tier": ({"service_tier": "auto"}, {}, []),
    "features of Anthropic's": (
        {"context_management": {"edits": []}, "container": "c"},
        {},
        [("field-dropped", "context_management"), ("field-dropped", "container")],
    ),
    "adaptive thinking: the model decides": ({"thinking": {"type": "adaptive"}}, {}, []),
    "thinking that is not shown": (
        {"thinking": {"type": "adaptive", "display": "omitted"}},
        {},
        [("field-dropped", "reasoning.summary")],
    ),
    "an effort, where nothing is known of the provider": (
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        {},
        [("field-dropped", "reasoning_effort")],
    ),
}


@pytest.mark.parametrize(("fields", "expected", "losses"), FIELDS.values(), ids=FIELDS)
def test_fields(fields: Json, expected: Json, losses: Lost) -> None:
    body, lost = chat_of({"messages": [HI]} | fields)
    assert body == {"model": "target", "messages": [HI], "max_completion_tokens": 100} | expected
    assert lost == losses
    assert {code for code, _ in lost} <= LOSSES.keys()


EFFORTS: dict[str, tuple[Json, str | None, Lost]] = {
    "as it is": ({"output_config": {"effort": "low"}}, "low", []),
    "more than there is": (
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}},
        "high",
        [("effort-approximated", "max as high")],
    ),
    "a budget": (
        {"thinking": {"type": "enabled", "budget_tokens": 10_000}},
        "medium",
        [("effort-approximated", "10000 as medium")],
    ),
    "none": ({"thinking": {"type": "disabled"}}, "none", []),
    "unsaid": ({"thinking": {"type": "adaptive"}}, None, []),
}


@pytest.mark.parametrize(("fields", "effort", "losses"), EFFORTS.values(), ids=EFFORTS)
def test_effort_where_the_provider_takes_it(fields: Json, effort: str | None, losses: Lost) -> None:
    body, lost = chat_of({"messages": [HI]} | fields, efforts=["none", "low", "medium", "high"])
    assert (body.get("reasoning_effort"), lost) == (effort, losses)


def names(body: Json) -> list[str]:
    return [each["function"]["name"] for each in body.get("tools", [])]


def test_deferred_tools_are_declared_once_a_reference_has_named_them() -> None:
    tools = [tool("ToolSearch"), tool("f", defer_loading=True), tool("g", defer_loading=True)]
    body, lost = chat_of({"messages": [HI], "tools": tools})
    assert (names(body), lost) == (["ToolSearch"], [("tool-withheld", "f"), ("tool-withheld", "g")])
    found = [HI, uses(name="ToolSearch"), results({"type": "tool_reference", "tool_name": "g"})]
    body, lost = chat_of({"messages": found, "tools": tools})
    assert (names(body), lost) == (["ToolSearch", "g"], [("tool-withheld", "f")])


def test_tools_come_and_go_in_mid_conversation() -> None:
    added = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool("g")}}
    removed = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}}
    messages: list[Any] = [HI, {"role": "system", "content": [added, removed]}]
    body, lost = chat_of({"messages": messages, "tools": [tool("f")]})
    assert names(body) == ["g"]
    text = "Tools that are available now: g.\n\nTools that are no longer available: f."
    assert body["messages"][1] == {"role": "system", "content": text}
    assert lost == [("tool-withheld", "f")]


def test_all_tools_are_declared_where_anthropic_would_search_them() -> None:
    search = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    body, lost = chat_of({"messages": [HI], "tools": [search, tool("f", defer_loading=True)]})
    assert (names(body), lost) == (["f"], [("server-tool-dropped", "tool_search_tool_bm25_20251119")])


def test_system_messages_where_the_provider_refuses_them() -> None:
    system = {"role": "system", "content": "Be brief."}
    reminder = "<system-reminder>\nBe brief.\n</system-reminder>"
    body, lost = chat_of({"messages": [HI, system, {"role": "assistant", "content": "A"}, HI]}, mid_system=False)
    answer = {"role": "assistant", "content": "A"}
    assert body["messages"] == [{"role": "user", "content": f"Hi\n\n{reminder}"}, answer, HI]
    assert lost == [("system-moved", "")]
    body, _ = chat_of({"messages": [HI, {"role": "assistant", "content": "A"}, system, HI]}, mid_system=False)
    assert body["messages"] == [HI, answer, {"role": "user", "content": f"{reminder}\n\nHi"}]


def thinks(signature: str) -> Json:
    thinking = {"type": "thinking", "thinking": "hm", "signature": signature}
    return {"role": "assistant", "content": [thinking, {"type": "text", "text": "A"}]}


def test_reasoning_goes_back_to_a_provider_that_wants_its_text() -> None:
    body, lost = chat_of({"messages": [HI, thinks(""), HI]}, reasoning_field="reasoning_content")
    assert body["messages"][1] == {
        "role": "assistant",
        "content": "A",
        "reasoning_content": "hm",
    }
    assert lost == []


@pytest.mark.parametrize("signature", ["EqQB", wrap(ReasoningSeal("gemini", "abc"), ISSUER)])
def test_a_seal_of_another_api_is_dropped_and_its_text_stays(signature: str) -> None:
    body, lost = chat_of({"messages": [HI, thinks(signature), HI]}, reasoning_field="reasoning_content")
    assert body["messages"][1]["reasoning_content"] == "hm"
    assert [code for code, _ in lost] == ["seal-dropped"]


def test_the_limit_goes_into_the_field_that_the_provider_knows() -> None:
    body, _ = chat_of({"messages": [HI]}, max_tokens_field="max_tokens")
    assert body["max_tokens"] == 100
    assert "max_completion_tokens" not in body


def test_calls_go_back_with_their_reasoning_even_if_it_is_empty() -> None:
    """DeepSeek refuses a turn with calls that lacks the field."""
    body, lost = chat_of(
        {"messages": [HI, uses(), results({"type": "text", "text": "x"})]}, reasoning_field="reasoning_content"
    )
    assert body["messages"][1] == calls() | {"reasoning_content": ""}
    assert lost == []


def test_names_of_tools_that_chat_providers_refuse_are_shortened() -> None:
    name = "mcp__plugin_some-long-server-name__" + "a_tool_with_a_long_name" * 2
    body, lost = chat_of(
        {
            "messages": [HI, uses(name=name)],
            "tools": [tool(name), tool("f")],
            "tool_choice": {"type": "tool", "name": name},
        }
    )
    (short, other) = names(body)
    assert (len(short), other, lost) == (64, "f", [])
    assert short.startswith(name[:51])
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == short
    assert body["tool_choice"]["function"]["name"] == short

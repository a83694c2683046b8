"""A request of a chat client, as an Anthropic provider gets it: what is carried, and what is declared as lost."""

import pytest

from penstock.core.dialects.dialect import RequestError
from penstock.core.hub.content import ReasoningSeal
from penstock.core.hub.losses import LOSSES
from penstock.core.hub.seals import wrap
from tests.translation.support import ISSUER, Json, Lost, messages_of

HI: Json = {"role": "user", "content": "Hi"}
ASKED: Json = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
ASSUMED = ("max-tokens-assumed", "8192")


def text(text: str) -> Json:
    return {"type": "text", "text": text}


def calls(*ids: str, name: str = "f", arguments: str = '{"city":"Rome"}', **fields: object) -> Json:
    called = [{"id": id, "type": "function", "function": {"name": name, "arguments": arguments}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": called, **fields}


def uses(*ids: str, **given: object) -> list[Json]:
    return [{"type": "tool_use", "id": id, "name": "f", "input": given} for id in ids]


MESSAGES: dict[str, tuple[list[Json], Json, Lost]] = {
    "the system prompt": (
        [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}, HI],
        {"system": [text("a"), text("b")], "messages": [ASKED]},
        [],
    ),
    "a system message in mid-conversation keeps its place": (
        [HI, {"role": "developer", "content": "Be brief."}],
        {"messages": [ASKED, {"role": "system", "content": [text("Be brief.")]}]},
        [],
    ),
    "messages of one role are joined": (
        [HI, {"role": "user", "content": "there", "name": "ann"}],
        {"messages": [{"role": "user", "content": [text("Hi"), text("there")]}]},
        [("field-dropped", "messages.name")],
    ),
    "empty texts, which the API refuses": (
        [HI, {"role": "assistant", "content": ""}, {"role": "user", "content": "  "}],
        {"messages": [ASKED]},
        [],
    ),
    "results of tools go before what the user adds": (
        [HI, calls("a"), HI, {"role": "tool", "tool_call_id": "a", "content": "21"}],
        {
            "messages": [
                ASKED,
                {"role": "assistant", "content": uses("a", city="Rome")},
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "a", "content": [text("21")]}, text("Hi")],
                },
            ]
        },
        [],
    ),
    "images": (
        [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
                    {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                ],
            }
        ],
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                    ],
                }
            ]
        },
        [("field-dropped", "content.detail")],
    ),
    "files and audio": (
        [
            {
                "role": "user",
                "content": [
                    {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,BB=="}},
                    {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,SGk="}},
                    {"type": "input_audio", "input_audio": {"data": "CC==", "format": "mp3"}},
                ],
            }
        ],
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "document",
                            "source": {"type": "base64", "media_type": "application/pdf", "data": "BB=="},
                            "title": "a.pdf",
                        },
                        {
                            "type": "document",
                            "source": {"type": "text", "media_type": "text/plain", "data": "Hi"},
                            "title": "a.txt",
                        },
                    ],
                }
            ]
        },
        [("content-dropped", "audio")],
    ),
    "parallel calls, their results, and what the user says then": (
        [
            HI,
            calls("1", "2"),
            {"role": "tool", "tool_call_id": "1", "content": "sunny"},
            {"role": "tool", "tool_call_id": "2", "content": "rainy"},
            HI,
        ],
        {
            "messages": [
                ASKED,
                {"role": "assistant", "content": uses("1", "2", city="Rome")},
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "1", "content": [text("sunny")]},
                        {"type": "tool_result", "tool_use_id": "2", "content": [text("rainy")]},
                        text("Hi"),
                    ],
                },
            ]
        },
        [],
    ),
    "a call without arguments, and one whose arguments are not JSON": (
        [HI, calls("1", arguments=""), HI, calls("2", arguments='{"a')],
        {
            "messages": [
                ASKED,
                {"role": "assistant", "content": uses("1")},
                ASKED,
                {"role": "assistant", "content": uses("2", input='{"a')},
            ]
        },
        [],
    ),
    "an id that Anthropic would refuse": (
        [HI, calls("functions.f:0"), {"role": "tool", "tool_call_id": "functions.f:0", "content": "x"}],
        {
            "messages": [
                ASKED,
                {"role": "assistant", "content": uses("functions_f_0_d6bdd4de328a", city="Rome")},
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "functions_f_0_d6bdd4de328a", "content": [text("x")]}
                    ],
                },
            ]
        },
        [],
    ),
    "the beginning of the answer, which may not end with a space": (
        [HI, {"role": "assistant", "content": "So "}],
        {"messages": [ASKED, {"role": "assistant", "content": [text("So")]}]},
        [],
    ),
    "a refusal": (
        [HI, {"role": "assistant", "content": None, "refusal": "No."}, HI],
        {"messages": [ASKED, {"role": "assistant", "content": [text("No.")]}, ASKED]},
        [],
    ),
    "reasoning without its seal": (
        [HI, {"role": "assistant", "content": "A", "reasoning_content": "hm"}, HI],
        {"messages": [ASKED, {"role": "assistant", "content": [text("A")]}, ASKED]},
        [("reasoning-dropped", "")],
    ),
}


@pytest.mark.parametrize(("messages", "expected", "losses"), MESSAGES.values(), ids=MESSAGES)
def test_messages(messages: list[Json], expected: Json, losses: Lost) -> None:
    body, lost = messages_of({"messages": messages, "max_tokens": 100})
    assert body == {"model": "target", "max_tokens": 100} | expected
    assert lost == losses
    assert {code for code, _ in lost} <= LOSSES.keys()


FUNCTION: Json = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
TOOL: Json = {"name": "f", "description": "d", "input_schema": SCHEMA}
NO_ARGUMENTS: Json = {"type": "object", "properties": {}, "additionalProperties": False}
FIELDS: dict[str, tuple[Json, Json, Lost]] = {
    "no limit on the output": ({}, {"max_tokens": 8_192}, [ASSUMED]),
    "a limit": ({"max_completion_tokens": 7}, {"max_tokens": 7}, []),
    "tools": (
        {
            "max_tokens": 9,
            "tools": [FUNCTION, {"type": "function", "function": {"name": "g", "strict": True}}],
            "tool_choice": "required",
        },
        {
            "tools": [TOOL, {"name": "g", "input_schema": NO_ARGUMENTS, "strict": True}],
            "tool_choice": {"type": "any"},
        },
        [],
    ),
    "one call at a time": (
        {"max_tokens": 9, "tools": [FUNCTION], "parallel_tool_calls": False},
        {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        [],
    ),
    "one tool": (
        {"max_tokens": 9, "tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "f"}},
        [],
    ),
    "some tools": (
        {
            "max_tokens": 9,
            "tools": [FUNCTION],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [FUNCTION]}},
        },
        {"tools": [TOOL], "tool_choice": {"type": "auto"}},
        [("tool-choice-widened", "f")],
    ),
    "a tool with a grammar": (
        {"max_tokens": 9, "tools": [{"type": "custom", "custom": {"name": "sql", "format": {"type": "grammar"}}}]},
        {
            "tools": [
                {
                    "name": "sql",
                    "input_schema": {
                        "type": "object",
                        "properties": {"input": {"type": "string"}},
                        "required": ["input"],
                    },
                }
            ]
        },
        [("grammar-dropped", "sql")],
    ),
    "a tool of OpenAI's own": (
        {"max_tokens": 9, "tools": [{"type": "web_search"}]},
        {},
        [("server-tool-dropped", "web_search")],
    ),
    "stop sequences": (
        {"max_tokens": 9, "stop": ["a", "b", "c", "d", "e"]},
        {"stop_sequences": ["a", "b", "c", "d", "e"]},
        [],
    ),
    "a temperature that Anthropic does not have": (
        {"max_tokens": 9, "temperature": 1.5, "top_p": 0.5},
        {"temperature": 1.0, "top_p": 0.5},
        [("temperature-clamped", "1.5")],
    ),
    "other sampling": (
        {"max_tokens": 9, "seed": 7, "presence_penalty": 0, "frequency_penalty": 0.5, "logprobs": True},
        {},
        [("sampling-dropped", "seed"), ("sampling-dropped", "frequency_penalty"), ("sampling-dropped", "logprobs")],
    ),
    "a schema of the answer": (
        {
            "max_tokens": 9,
            "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA, "strict": True}},
        },
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA | {"additionalProperties": False}}}},
        [],
    ),
    "any JSON": (
        {"max_tokens": 9, "response_format": {"type": "json_object"}},
        {},
        [("schema-loosened", "json_object")],
    ),
    "the user, and other fields": (
        {"max_tokens": 9, "user": "ann", "metadata": {"team": "x"}, "store": True, "prompt_cache_key": "k"},
        {"metadata": {"user_id": "ann"}},
        [("field-dropped", "metadata"), ("field-dropped", "store"), ("cache-hint-dropped", "prompt_cache_key")],
    ),
    "an effort": (
        {"max_tokens": 20_000, "reasoning_effort": "low"},
        {"thinking": {"type": "enabled", "budget_tokens": 2_048}},
        [("effort-approximated", "low as 2048")],
    ),
    "an effort, and no room for it": (
        {"max_tokens": 9, "reasoning_effort": "low"},
        {},
        [("effort-approximated", "no thinking: max_tokens leaves no room for thinking")],
    ),
    "an effort, and a tool that must be called": (
        {"max_tokens": 20_000, "reasoning_effort": "low", "tools": [FUNCTION], "tool_choice": "required"},
        {"tools": [TOOL], "tool_choice": {"type": "any"}},
        [("effort-approximated", "no thinking: tool_choice forces a call")],
    ),
    "an effort, and sampling that is refused with it": (
        {"max_tokens": 20_000, "reasoning_effort": "low", "temperature": 0, "top_p": 0.97},
        {"thinking": {"type": "enabled", "budget_tokens": 2_048}, "top_p": 0.97},
        [("effort-approximated", "low as 2048"), ("sampling-dropped", "temperature")],
    ),
    "no reasoning": ({"max_tokens": 9, "reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}, []),
}


@pytest.mark.parametrize(("fields", "expected", "losses"), FIELDS.values(), ids=FIELDS)
def test_fields(fields: Json, expected: Json, losses: Lost) -> None:
    body, lost = messages_of({"messages": [HI]} | fields)
    assert body == {"model": "target", "messages": [ASKED], "max_tokens": fields.get("max_tokens")} | expected
    assert lost == losses
    assert {code for code, _ in lost} <= LOSSES.keys()


def test_effort_where_the_model_takes_adaptive_thinking_only() -> None:
    settings = {"thinking": "adaptive", "sampling": False}
    asked = {"messages": [HI], "max_tokens": 9, "reasoning_effort": "minimal", "temperature": 0, "top_p": 1}
    body, lost = messages_of(asked, **settings)
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "low"}
    assert lost == [("effort-approximated", "minimal"), ("sampling-dropped", "temperature")]
    assert "temperature" not in body
    assert "top_p" not in body


def test_several_choices_are_refused_in_words() -> None:
    with pytest.raises(RequestError) as raised:
        messages_of({"messages": [HI], "n": 2})
    failure = raised.value.failure
    assert (failure.status, failure.code, failure.param) == (400, "invalid_request", "n")
    assert failure.message == (
        "`n` is 2, and the provider's API answers with one choice; send several requests instead"
    )


def test_system_messages_where_the_provider_refuses_them() -> None:
    body, lost = messages_of({"messages": [HI, {"role": "system", "content": "Be brief."}]}, mid_system=False)
    reminder = text("<system-reminder>\nBe brief.\n</system-reminder>")
    assert body["messages"] == [{"role": "user", "content": [text("Hi"), reminder]}]
    assert lost == [("system-moved", ""), ASSUMED]


def sealed(seal: ReasoningSeal, length: int, issuer: str = ISSUER) -> Json:
    return {"type": "reasoning.encrypted", "data": wrap(seal, issuer), "length": length}


def thought(*details: Json, text: str = "onetwo") -> Json:
    return {"role": "assistant", "content": "A", "reasoning_content": text, "reasoning_details": [*details]}


FIRST, SECOND = ReasoningSeal("anthropic", "sig1"), ReasoningSeal("anthropic", "sig2")


def test_a_seal_comes_back_to_its_issuer_with_its_text() -> None:
    redacted = sealed(ReasoningSeal("anthropic", "dark", redacted=True), 0)
    body, lost = messages_of({"messages": [HI, thought(sealed(FIRST, 3), redacted, sealed(SECOND, 3)), HI]})
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "one", "signature": "sig1"},
        {"type": "redacted_thinking", "data": "dark"},
        {"type": "thinking", "thinking": "two", "signature": "sig2"},
        text("A"),
    ]
    assert lost == [ASSUMED]


@pytest.mark.parametrize(
    "turn",
    [
        thought(sealed(FIRST, 6, "ffffffff")),
        thought(sealed(ReasoningSeal("gemini", "sig1"), 6)),
        thought(sealed(FIRST, 6), text="changed"),
    ],
    ids=["of another account", "of another API", "of another text"],
)
def test_a_seal_that_the_provider_would_refuse_is_left_out(turn: Json) -> None:
    body, lost = messages_of({"messages": [HI, turn, HI]})
    assert body["messages"][1]["content"] == [text("A")]
    assert lost == [("reasoning-dropped", ""), ASSUMED]


def test_reasoning_goes_back_without_a_seal_to_a_provider_that_wants_it() -> None:
    turn = thought(sealed(FIRST, 6, "ffffffff"))
    body, lost = messages_of({"messages": [HI, turn, HI]}, unsigned_thinking=True)
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "onetwo", "signature": ""},
        text("A"),
    ]
    assert lost == [("seal-dropped", "penstock"), ASSUMED]


def test_details_of_another_gateway_are_declared() -> None:
    turn = thought({"type": "reasoning.encrypted", "data": "of OpenRouter"})
    _, lost = messages_of({"messages": [HI, turn, HI]})
    assert lost == [("reasoning-dropped", ""), ASSUMED, ("field-dropped", "messages.reasoning_details")]


def test_a_tool_loop_without_its_reasoning_goes_on_without_thinking() -> None:
    """The API refuses thinking with a budget if the turn with the calls does not begin with its thinking."""
    turns = [HI, calls("1"), {"role": "tool", "tool_call_id": "1", "content": "x"}]
    asked: Json = {"messages": turns, "max_tokens": 20_000, "reasoning_effort": "low", "tools": [FUNCTION]}
    body, lost = messages_of(asked)
    assert "thinking" not in body
    assert lost == [("effort-approximated", "no thinking: the reasoning before the last tool call is missing")]
    turns[1] |= {"reasoning_content": "hm", "reasoning_details": [sealed(FIRST, 2)]}
    body, _ = messages_of(asked)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2_048}

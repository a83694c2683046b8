"""A request of a chat or a Messages client, as a provider of Responses gets it: what is carried, and what is lost."""

import pytest

from penstock.core.dialects.dialect import RequestError
from penstock.core.hub.content import ReasoningSeal
from penstock.core.hub.losses import LOSSES
from penstock.core.hub.seals import wrap
from tests.translation.support import CHAT, ISSUER, MESSAGES, RESPONSES, Json, Lost, asked

HI: Json = {"role": "user", "content": "Hi"}
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
PIXEL = "data:image/png;base64,AA=="
SEAL = wrap(ReasoningSeal("openai", "gAAAseal"), ISSUER)


def message(role: str, *texts: str) -> Json:
    type = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": type, "text": text} for text in texts]}


def called(id: str = "call_1", name: str = "f", arguments: str = '{"city":"Rome"}') -> Json:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}


def calls(*ids: str) -> Json:
    made = [{"id": id, "type": "function", "function": {"name": "f", "arguments": '{"city":"Rome"}'}} for id in ids]
    return {"role": "assistant", "content": "Let me see.", "tool_calls": made}


CHAT_TURNS: dict[str, tuple[list[Json], list[Json], Lost]] = {
    "the system prompt, and instructions in their place": (
        [
            {"role": "system", "content": "a"},
            {"role": "developer", "content": "b"},
            HI,
            {"role": "system", "content": "c"},
        ],
        [message("developer", "a", "b"), message("user", "Hi"), message("developer", "c")],
        [],
    ),
    "calls and their results": (
        [
            HI,
            calls("call_1", "call_2"),
            {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
            {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "a"}] * 2},
        ],
        [
            message("user", "Hi"),
            message("assistant", "Let me see."),
            called(),
            called("call_2"),
            {"type": "function_call_output", "call_id": "call_1", "output": "sun"},
            {
                "type": "function_call_output",
                "call_id": "call_2",
                "output": [{"type": "input_text", "text": "a"}] * 2,
            },
        ],
        [],
    ),
    "custom calls": (
        [
            {
                "role": "assistant",
                "tool_calls": [{"id": "call_1", "type": "custom", "custom": {"name": "exec", "input": "ls"}}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "a.txt"},
        ],
        [
            {"type": "custom_tool_call", "call_id": "call_1", "name": "exec", "input": "ls"},
            {"type": "custom_tool_call_output", "call_id": "call_1", "output": "a.txt"},
        ],
        [],
    ),
    "media": (
        [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
                    {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                    {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,BB=="}},
                    {"type": "file", "file": {"file_id": "file-1"}},
                    {"type": "input_audio", "input_audio": {"data": "CC==", "format": "wav"}},
                ],
            }
        ],
        [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": PIXEL, "detail": "low"},
                    {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"},
                    {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,BB=="},
                    {"type": "input_audio", "input_audio": {"data": "CC==", "format": "wav"}},
                ],
            }
        ],
        [("content-dropped", "file by file id")],
    ),
    "a refusal, a name, and a beginning of the answer": (
        [HI | {"name": "ann"}, {"role": "assistant", "content": "So", "refusal": "No."}],
        [
            message("user", "Hi"),
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "So"}, {"type": "refusal", "refusal": "No."}],
            },
        ],
        [("field-dropped", "messages.name"), ("prefill-not-continued", "")],
    ),
    "reasoning of another provider": (
        [HI, {"role": "assistant", "content": "A", "reasoning_content": "hm"}, HI],
        [message("user", "Hi"), message("assistant", "A"), message("user", "Hi")],
        [("reasoning-dropped", "")],
    ),
}


@pytest.mark.parametrize(("messages", "wanted", "lost"), CHAT_TURNS.values(), ids=CHAT_TURNS)
def test_messages_of_chat_become_items(messages: list[Json], wanted: list[Json], lost: Lost) -> None:
    body, losses = asked(CHAT, RESPONSES, {"messages": messages})
    assert body == {"model": "target", "input": wanted, "store": False}
    assert losses == lost
    assert {code for code, _ in losses} <= LOSSES.keys()


FUNCTION: Json = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
WRITTEN: Json = {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": False}
CHAT_FIELDS: dict[str, tuple[Json, Json, Lost]] = {
    "tools": (
        {
            "tools": [
                FUNCTION,
                {"type": "function", "function": {"name": "g", "strict": True}},
                {"type": "custom", "custom": {"name": "exec", "format": {"type": "text"}}},
            ],
            "parallel_tool_calls": False,
        },
        {
            "tools": [
                WRITTEN,
                {"type": "function", "name": "g", "parameters": {"type": "object", "properties": {}}, "strict": True},
                {"type": "custom", "name": "exec", "format": {"type": "text"}},
            ],
            "parallel_tool_calls": False,
        },
        [],
    ),
    "one tool": (
        {"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"tools": [WRITTEN], "tool_choice": {"type": "function", "name": "f"}},
        [],
    ),
    "some tools": (
        {
            "tools": [FUNCTION],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
            },
        },
        {
            "tools": [WRITTEN],
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        },
        [],
    ),
    "a schema": (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "city", "schema": SCHEMA, "strict": True},
            }
        },
        {"text": {"format": {"type": "json_schema", "name": "city", "schema": SCHEMA, "strict": True}}},
        [],
    ),
    "any JSON": ({"response_format": {"type": "json_object"}}, {"text": {"format": {"type": "json_object"}}}, []),
    "an effort": (
        {"reasoning_effort": "high"},
        {"reasoning": {"effort": "high"}, "include": ["reasoning.encrypted_content"]},
        [],
    ),
    "an effort that the provider does not have": (
        {"reasoning_effort": "xhigh"},
        {"reasoning": {"effort": "high"}, "include": ["reasoning.encrypted_content"]},
        [("effort-approximated", "xhigh as high")],
    ),
    "limits and sampling": (
        {"max_completion_tokens": 99, "temperature": 0, "top_p": 0.5, "logprobs": True, "top_logprobs": 2},
        {
            "max_output_tokens": 99,
            "temperature": 0,
            "top_p": 0.5,
            "top_logprobs": 2,
            "include": ["message.output_text.logprobs"],
        },
        [],
    ),
    "verbosity": (
        {"verbosity": "low", "response_format": {"type": "json_object"}},
        {"text": {"verbosity": "low", "format": {"type": "json_object"}}},
        [],
    ),
    "a limit that is too low": (
        {"max_tokens": 5},
        {"max_output_tokens": 16},
        [("max-tokens-raised", "5 as 16")],
    ),
    "what the API lacks": (
        {"stop": ["a", "b"], "seed": 1, "presence_penalty": 1, "frequency_penalty": 0, "audio": {"voice": "x"}},
        {},
        [
            ("sampling-dropped", "seed"),
            ("sampling-dropped", "presence_penalty"),
            ("stop-dropped", "2 of 2"),
            ("field-dropped", "audio"),
        ],
    ),
    "tags": (
        {"metadata": {"a": "b"}, "user": "u", "prompt_cache_key": "k", "service_tier": "flex", "stream": True},
        {"metadata": {"a": "b"}, "user": "u", "prompt_cache_key": "k", "service_tier": "flex", "stream": True},
        [],
    ),
    "a long user, and an unknown tier": (
        {"user": "u" * 65, "service_tier": "gold"},
        {},
        [("field-dropped", "service_tier"), ("field-dropped", "user")],
    ),
}


@pytest.mark.parametrize(("fields", "wanted", "lost"), CHAT_FIELDS.values(), ids=CHAT_FIELDS)
def test_fields_of_chat(fields: Json, wanted: Json, lost: Lost) -> None:
    body, losses = asked(CHAT, RESPONSES, {"messages": [HI], **fields})
    assert body == {"model": "target", "input": [message("user", "Hi")], "store": False} | wanted
    assert losses == lost


def test_ids_and_names_that_the_api_refuses_are_shortened() -> None:
    function = {"name": "a.b", "arguments": ""}
    made = {"role": "assistant", "tool_calls": [{"id": "call" * 40, "type": "function", "function": function}]}
    body, _ = asked(
        CHAT, RESPONSES, {"messages": [made, {"role": "tool", "tool_call_id": "call" * 40, "content": "x"}]}
    )
    call, result = body["input"]
    assert call["call_id"] == result["call_id"]
    assert (len(call["call_id"]), call["name"][:4], call["arguments"]) == (64, "a_b_", "{}")


def test_several_choices_are_refused() -> None:
    with pytest.raises(RequestError) as raised:
        asked(CHAT, RESPONSES, {"messages": [HI], "n": 2})
    assert raised.value.failure.param == "n"


def thinking(signature: str, text: str = "hm") -> list[Json]:
    block = {"type": "thinking", "thinking": text, "signature": signature}
    return [HI, {"role": "assistant", "content": [block, {"type": "text", "text": "A"}]}, HI]


def test_reasoning_returns_to_the_account_that_encrypted_it() -> None:
    body, losses = asked(MESSAGES, RESPONSES, {"messages": thinking(SEAL)})
    sealed = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "gAAAseal",
    }
    assert body["input"][1] == sealed
    assert body["include"] == ["reasoning.encrypted_content"]
    assert losses == []


@pytest.mark.parametrize(
    "signature",
    ["EqQB", "", wrap(ReasoningSeal("openai", "x"), "ffffffff"), wrap(ReasoningSeal("gemini", "x"), ISSUER)],
    ids=["of Anthropic", "none", "of another account", "of another API"],
)
def test_other_reasoning_does_not(signature: str) -> None:
    body, losses = asked(MESSAGES, RESPONSES, {"messages": thinking(signature)})
    assert [item["type"] for item in body["input"]] == ["message"] * 3
    assert losses == [("reasoning-dropped", "")]


def test_open_models_get_reasoning_as_text() -> None:
    body, losses = asked(MESSAGES, RESPONSES, {"messages": thinking("EqQB")}, open_reasoning=True)
    assert body["input"][1] == {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    assert losses == [("seal-dropped", "anthropic")]


IMAGE_RESULT: Json = {
    "type": "tool_result",
    "tool_use_id": "toolu_1",
    "is_error": True,
    "content": [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
    ],
}
USED: Json = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"city": "Rome"}}
IMAGE: Json = {"type": "input_image", "image_url": PIXEL, "detail": "auto"}


def test_results_have_images_or_they_follow() -> None:
    turns = [{"role": "assistant", "content": [USED]}, {"role": "user", "content": [IMAGE_RESULT]}]
    body, losses = asked(MESSAGES, RESPONSES, {"messages": turns})
    output: Json = {"type": "function_call_output", "call_id": "toolu_1"}
    text: Json = {"type": "input_text", "text": "Error: see"}
    assert body["input"] == [called("toolu_1"), output | {"output": [text, IMAGE]}]
    assert losses == [("error-flag-as-text", "toolu_1")]
    body, losses = asked(MESSAGES, RESPONSES, {"messages": turns}, result_parts=False)
    attached: Json = {"type": "input_text", "text": "The result of toolu_1 is attached."}
    assert body["input"] == [
        called("toolu_1"),
        output | {"output": "Error: see"},
        {"type": "message", "role": "user", "content": [attached, IMAGE]},
    ]
    assert losses == [("result-media-moved", "toolu_1"), ("error-flag-as-text", "toolu_1")]


@pytest.mark.parametrize(
    ("fields", "wanted", "lost"),
    [
        (
            {"thinking": {"type": "enabled", "budget_tokens": 4_000}},
            {"effort": "low", "summary": "auto"},
            [("effort-approximated", "4000 as low")],
        ),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, None, []),
        ({"thinking": {"type": "adaptive"}}, {"summary": "auto"}, []),
        ({"thinking": {"type": "disabled"}}, {"effort": "low"}, [("effort-approximated", "none as low")]),
    ],
)
def test_thinking(fields: Json, wanted: Json | None, lost: Lost) -> None:
    body, losses = asked(MESSAGES, RESPONSES, {"messages": [HI], **fields})
    assert body.get("reasoning") == wanted
    assert losses == lost


def test_a_provider_whose_models_do_not_reason() -> None:
    fields = {"messages": [HI], "thinking": {"type": "enabled", "budget_tokens": 4_000}}
    body, losses = asked(MESSAGES, RESPONSES, fields, efforts=[])
    assert "reasoning" not in body
    assert "include" not in body
    assert losses == [("field-dropped", "reasoning_effort")]


def test_what_only_messages_has() -> None:
    fields: Json = {
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [HI],
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
        "stop_sequences": ["x"],
        "top_k": 5,
    }
    body, losses = asked(MESSAGES, RESPONSES, fields)
    assert "tools" not in body
    assert sorted(code for code, _ in losses) == [
        "cache-hint-dropped",
        "sampling-dropped",
        "server-tool-dropped",
        "stop-dropped",
    ]


def test_roles_of_instructions_are_settings() -> None:
    turns = [HI, {"role": "system", "content": "Be brief."}]
    fields: Json = {"messages": [{"role": "system", "content": "a"}, *turns]}
    body, _ = asked(CHAT, RESPONSES, fields, system_role="system")
    assert [item["role"] for item in body["input"]] == ["system", "user", "system"]
    body, losses = asked(CHAT, RESPONSES, fields, mid_system=False)
    assert [item["role"] for item in body["input"]] == ["developer", "user"]
    assert losses == [("system-moved", "")]

"""A request of a Responses client, as providers of other dialects get it: what is carried, and what is lost."""

import json

import pytest

from penstock.core.dialects.dialect import Destination, RequestError
from penstock.core.dialects.registry import surface_dialect, upstream_dialect
from penstock.core.hub.content import ReasoningSeal
from penstock.core.hub.losses import LOSSES
from penstock.core.hub.seals import wrap
from penstock.core.hub.tool_map import ClientTool
from tests.translation.support import CHAT, ISSUER, MESSAGES, RESPONSES, Json, Lost, asked

HI: Json = {"role": "user", "content": "Hi"}
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION: Json = {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": False}
EXEC: Json = {"type": "custom", "name": "exec", "description": "Runs.", "format": {"type": "text"}}
AGENTS: Json = {"type": "namespace", "name": "agents", "tools": [FUNCTION | {"name": "spawn"}]}
TEXT_SCHEMA: Json = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
CHAT_FUNCTION: Json = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": SCHEMA},
}
PNG = "data:image/png;base64,AA=="
CALL: Json = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": '{"city":"Rome"}'}
CHAT_CALL: Json = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"city":"Rome"}'}}
SEALED = wrap(ReasoningSeal("anthropic", "Eq"), ISSUER)


def summary(text: str) -> list[Json]:
    return [{"type": "summary_text", "text": text}]


def user(*parts: Json) -> Json:
    return {"type": "message", "role": "user", "content": [*parts]}


def result(output: object, type: str = "function_call_output") -> Json:
    return {"type": type, "call_id": "c1", "output": output}


def chat_messages(fields: Json, **settings: object) -> tuple[list[Json], Lost]:
    body, losses = asked(RESPONSES, CHAT, fields, **settings)
    messages: list[Json] = body["messages"]
    return messages, losses


INPUTS: dict[str, tuple[Json, list[Json], Lost]] = {
    "a text": ({"input": "Hi"}, [HI], []),
    "an item without a type": ({"input": [HI]}, [HI], []),
    "instructions and leading system messages": (
        {"instructions": "a", "input": [{"role": "developer", "content": "b"}, {"role": "system", "content": "c"}, HI]},
        [{"role": "system", "content": "a\n\nb\n\nc"}, HI],
        [],
    ),
    "a developer message in mid-conversation keeps its place": (
        {"input": [HI, {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}]},
        [HI, {"role": "system", "content": "Be brief."}],
        [],
    ),
    "an image": (
        {"input": [user({"type": "input_text", "text": "Look"}, {"type": "input_image", "image_url": PNG})]},
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": PNG}}],
            }
        ],
        [],
    ),
    "an image with a level of detail": (
        {"input": [user({"type": "input_image", "image_url": "https://weir.example/a.png", "detail": "high"})]},
        [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "https://weir.example/a.png", "detail": "high"}}
                ],
            }
        ],
        [],
    ),
    "a file": (
        {"input": [user({"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,BB=="})]},
        [
            {
                "role": "user",
                "content": [
                    {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,BB=="}}
                ],
            }
        ],
        [],
    ),
    "audio": (
        {"input": [user({"type": "input_audio", "input_audio": {"data": "CC==", "format": "mp3"}})]},
        [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "CC==", "format": "mp3"}}]}],
        [],
    ),
    "an answer, a call and its result": (
        {
            "input": [
                HI,
                {
                    "type": "message",
                    "id": "msg_1",
                    "status": "completed",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Wait.", "annotations": []}],
                },
                CALL,
                result("sunny"),
            ]
        },
        [
            HI,
            {"role": "assistant", "content": "Wait.", "tool_calls": [CHAT_CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ],
        [],
    ),
    "two calls, two results": (
        {
            "input": [
                CALL,
                CALL | {"call_id": "c2"},
                result([{"type": "input_text", "text": "sunny"}]),
                result("wet") | {"call_id": "c2"},
            ]
        },
        [
            {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL, CHAT_CALL | {"id": "c2"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
            {"role": "tool", "tool_call_id": "c2", "content": "wet"},
        ],
        [],
    ),
    "a result with an image": (
        {
            "input": [
                CALL,
                result([{"type": "input_text", "text": "See"}, {"type": "input_image", "image_url": PNG}]),
            ]
        },
        [
            {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "See"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "The result of c1 is attached."},
                    {"type": "image_url", "image_url": {"url": PNG}},
                ],
            },
        ],
        [("result-media-moved", "c1")],
    ),
    "a call of a namespace": (
        {"input": [CALL | {"namespace": "agents", "name": "spawn"}, result("ok")]},
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    CHAT_CALL | {"function": {"name": "agents__spawn", "arguments": '{"city":"Rome"}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        ],
        [],
    ),
    "a call of a custom tool": (
        {
            "input": [
                {"type": "custom_tool_call", "call_id": "c1", "name": "exec", "input": 'say "hi"'},
                result([{"type": "input_text", "text": "hi"}], "custom_tool_call_output"),
            ]
        },
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    CHAT_CALL | {"function": {"name": "exec", "arguments": '{"input":"say \\"hi\\""}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "hi"},
        ],
        [],
    ),
    "reasoning": (
        {
            "input": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "gA"},
                {"role": "assistant", "content": "Hi"},
                HI,
            ]
        },
        [{"role": "assistant", "content": "Hi"}, HI],
        [("reasoning-dropped", "")],
    ),
    "a refusal": (
        {"input": [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, HI]},
        [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, HI],
        [],
    ),
    "a phase": (
        {"input": [{"role": "assistant", "content": "Hi", "phase": "commentary"}, HI]},
        [{"role": "assistant", "content": "Hi"}, HI],
        [("field-dropped", "content.phase")],
    ),
    "an item of a hosted tool": (
        {"input": [HI, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, HI]},
        [HI, HI],
        [("content-dropped", "web_search_call")],
    ),
    "an item of an unknown type": (
        {"input": [HI, {"type": "hologram", "depth": 3}, HI]},
        [HI, HI],
        [("content-dropped", "hologram")],
    ),
}


@pytest.mark.parametrize(("fields", "expected", "losses"), INPUTS.values(), ids=INPUTS)
def test_conversations(fields: Json, expected: list[Json], losses: Lost) -> None:
    assert chat_messages(fields) == (expected, losses)
    assert all(code in LOSSES for code, _ in losses)


@pytest.mark.parametrize(
    "texts", [{"summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}, {"summary": summary("Hm.")}]
)
def test_reasoning_goes_where_a_provider_wants_it(texts: Json) -> None:
    reasoning = {"type": "reasoning"} | texts
    messages, losses = chat_messages(
        {"input": [HI, reasoning, CALL, result("ok")]}, reasoning_field="reasoning_content"
    )
    assert messages[1] == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Hm.",
        "tool_calls": [CHAT_CALL],
    }
    assert losses == []


FIELDS: dict[str, tuple[Json, Json, Lost]] = {
    "limits and sampling": (
        {"max_output_tokens": 9, "temperature": 0.5, "top_p": 0.9, "parallel_tool_calls": False, "tools": [FUNCTION]},
        {
            "max_completion_tokens": 9,
            "temperature": 0.5,
            "top_p": 0.9,
            "parallel_tool_calls": False,
            "tools": [CHAT_FUNCTION],
        },
        [],
    ),
    "log probabilities": (
        {"top_logprobs": 3, "include": ["message.output_text.logprobs"]},
        {"logprobs": True, "top_logprobs": 3},
        [],
    ),
    "a namespace": (
        {"tools": [AGENTS | {"description": "Sub-agents."}]},
        {"tools": [CHAT_FUNCTION | {"function": CHAT_FUNCTION["function"] | {"name": "agents__spawn"}}]},
        [("tool-option-dropped", "namespace.description")],
    ),
    "a custom tool": (
        {"tools": [EXEC]},
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "exec", "description": "Runs.", "parameters": TEXT_SCHEMA},
                }
            ]
        },
        [],
    ),
    "tools that an item adds": (
        {"input": [{"type": "additional_tools", "role": "developer", "tools": [FUNCTION]}, HI]},
        {"tools": [CHAT_FUNCTION]},
        [],
    ),
    "a hosted tool": (
        {"tools": [FUNCTION, {"type": "web_search", "external_web_access": False}]},
        {"tools": [CHAT_FUNCTION]},
        [("server-tool-dropped", "web_search")],
    ),
    "a chosen function": (
        {"tools": [AGENTS, FUNCTION], "tool_choice": {"type": "function", "name": "spawn"}},
        {
            "tools": [
                CHAT_FUNCTION | {"function": CHAT_FUNCTION["function"] | {"name": "agents__spawn"}},
                CHAT_FUNCTION,
            ],
            "tool_choice": {"type": "function", "function": {"name": "agents__spawn"}},
        },
        [],
    ),
    "a chosen custom tool is a function": (
        {"tools": [EXEC | {"description": ""}], "tool_choice": {"type": "custom", "name": "exec"}},
        {
            "tools": [{"type": "function", "function": {"name": "exec", "parameters": TEXT_SCHEMA}}],
            "tool_choice": {"type": "function", "function": {"name": "exec"}},
        },
        [],
    ),
    "allowed tools": (
        {
            "tools": [FUNCTION],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "f"}],
            },
        },
        {
            "tools": [CHAT_FUNCTION],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "f"}}],
                },
            },
        },
        [],
    ),
    "a schema for the answer": (
        {"text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True}}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}},
        [],
    ),
    "any JSON": ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}, []),
    "verbosity": ({"text": {"verbosity": "low"}}, {}, [("field-dropped", "verbosity")]),
    "what Codex sends": (
        {
            "reasoning": {"summary": "auto"},
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "k",
            "client_metadata": {"a": "b"},
        },
        {"prompt_cache_key": "k"},
        [("field-dropped", "client_metadata")],
    ),
    "the user": ({"safety_identifier": "u1", "metadata": {"a": "b"}}, {"user": "u1", "metadata": {"a": "b"}}, []),
    "what other APIs lack": (
        {"max_tool_calls": 3, "prompt": {"id": "pmpt_1"}, "truncation": "disabled", "background": False},
        {},
        [("field-dropped", "max_tool_calls"), ("field-dropped", "prompt")],
    ),
}


@pytest.mark.parametrize(("fields", "expected", "losses"), FIELDS.values(), ids=FIELDS)
def test_fields(fields: Json, expected: Json, losses: Lost) -> None:
    body, lost = asked(RESPONSES, CHAT, {"input": [HI]} | fields)
    assert body == {"model": "target", "messages": [HI]} | expected
    assert lost == losses


def test_a_provider_s_effort() -> None:
    body, losses = asked(RESPONSES, CHAT, {"reasoning": {"effort": "high"}}, efforts=("low", "high"))
    assert (body["reasoning_effort"], losses) == ("high", [])


def test_a_provider_that_accepts_verbosity() -> None:
    body, losses = asked(RESPONSES, CHAT, {"text": {"verbosity": "low"}}, verbosity=True)
    assert (body["verbosity"], losses) == ("low", [])


@pytest.mark.parametrize(
    ("detail", "expected", "lost"),
    [("low", "low", []), ("original", "high", [("field-dropped", "content.detail")])],
)
def test_the_detail_of_an_image(detail: str, expected: str, lost: Lost) -> None:
    image = {"type": "input_image", "image_url": "https://x/y.png", "detail": detail}
    body, losses = asked(RESPONSES, CHAT, {"input": [{"role": "user", "content": [image]}]})
    assert body["messages"][0]["content"][0]["image_url"] == {"url": "https://x/y.png", "detail": expected}
    assert losses == lost


# Messages.


def test_a_conversation_for_a_provider_of_messages() -> None:
    conversation = [
        {"role": "developer", "content": "Be brief."},
        HI,
        {"type": "reasoning", "id": "rs_1", "summary": summary("Hm."), "content": None, "encrypted_content": SEALED},
        CALL,
        result([{"type": "input_text", "text": "See"}, {"type": "input_image", "image_url": PNG}]),
    ]
    body, losses = asked(RESPONSES, MESSAGES, {"input": conversation, "tools": [AGENTS, EXEC], "max_output_tokens": 9})
    assert body == {
        "model": "target",
        "system": [{"type": "text", "text": "Be brief."}],
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "Eq"},
                    {"type": "tool_use", "id": "c1", "name": "f", "input": {"city": "Rome"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [
                            {"type": "text", "text": "See"},
                            {
                                "type": "image",
                                "source": {"type": "base64", "media_type": "image/png", "data": "AA=="},
                            },
                        ],
                    }
                ],
            },
        ],
        "tools": [
            {"name": "agents__spawn", "description": "d", "input_schema": SCHEMA},
            {"name": "exec", "description": "Runs.", "input_schema": TEXT_SCHEMA},
        ],
    }
    assert losses == []


@pytest.mark.parametrize("provider", [CHAT, MESSAGES])
def test_the_way_back_is_known(provider: str) -> None:
    surface = surface_dialect(RESPONSES)
    fields = {"model": "m", "input": "Hi", "tools": [AGENTS, EXEC, FUNCTION]}
    request = surface.read_request(json.dumps(fields).encode(), {}, surface.path)
    outgoing = upstream_dialect(provider).write_request(request, Destination(model="target"))
    assert outgoing.tools == {
        "agents__spawn": ClientTool("spawn", "agents"),
        "exec": ClientTool("exec", None, "custom"),
    }


FORCED = {
    "by its type": ([FUNCTION, {"type": "web_search"}], {"type": "web_search"}),
    "by its name": ([{"type": "mcp", "name": "files"}], {"type": "mcp", "name": "files"}),
    "because there is no other": ([{"type": "file_search"}], "required"),
}


@pytest.mark.parametrize(("tools", "choice"), FORCED.values(), ids=FORCED)
@pytest.mark.parametrize("provider", [CHAT, MESSAGES])
def test_a_hosted_tool_that_is_demanded_is_refused(provider: str, tools: list[Json], choice: object) -> None:
    with pytest.raises(RequestError) as caught:
        asked(RESPONSES, provider, {"tools": tools, "tool_choice": choice})
    assert (caught.value.failure.status, caught.value.failure.param) == (400, "tool_choice")


# What is refused.

REFUSED: dict[str, tuple[Json, str]] = {
    "no input": ({"input": None}, "input"),
    "an input that is a number": ({"input": 7}, "input"),
    "no model": ({"model": ""}, "model"),
    "a stream that is a number": ({"stream": 1}, "stream"),
    "a negative limit": ({"max_output_tokens": -1}, "max_output_tokens"),
}


@pytest.mark.parametrize(("fields", "param"), REFUSED.values(), ids=REFUSED)
def test_requests_that_are_refused(fields: Json, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        asked(RESPONSES, CHAT, fields)
    assert (caught.value.failure.status, caught.value.failure.param) == (400, param)


def test_headers_and_metadata_become_tags() -> None:
    surface = surface_dialect(RESPONSES)
    fields = {"model": "m", "input": "Hi", "metadata": {"team": "weir"}, "service_tier": "flex", "user": "u1"}
    headers = {"session-id": "s1", "originator": "codex_exec", "authorization": "Bearer x", "cookie": "c"}
    request = surface.read_request(json.dumps(fields).encode(), headers, surface.path)
    assert request.metadata == {"session": "s1", "team": "weir"}
    assert (request.tier, request.user) == ("flex", "u1")
    assert request.headers == {"session-id": "s1", "originator": "codex_exec"}

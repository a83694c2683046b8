"""A request of a client of another API, as a Gemini provider gets it: what is carried, and what is declared as lost."""

import json

import pytest

from penstock.core.dialects.dialect import Destination
from penstock.core.dialects.registry import surface_dialect, upstream_dialect
from penstock.core.hub.content import ReasoningSeal
from penstock.core.hub.losses import LOSSES
from penstock.core.hub.seals import wrap
from tests.translation.support import CHAT, ISSUER, MESSAGES, Json, Lost, asked

GEMINI = "gemini"
HI: Json = {"role": "user", "content": "Hi"}
ASKED: Json = {"role": "user", "parts": [{"text": "Hi"}]}
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False}
FUNCTION: Json = {"name": "f", "description": "F"}
OWN = wrap(ReasoningSeal("gemini", "c2VhbA=="), ISSUER)
FOREIGN = wrap(ReasoningSeal("gemini", "c2VhbA=="), "ffffffff")
STOP = ("stop-sequence-unreported", "")


def of_chat(fields: Json, **settings: object) -> tuple[Json, Lost]:
    return asked(CHAT, GEMINI, {"messages": [HI]} | fields, **settings)


def uses(*ids: str, name: str = "f") -> Json:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": name, "input": {}} for id in ids]}


def call(id: str, name: str = "f", **part: object) -> Json:
    return {"functionCall": {"name": name, "args": {}, "id": id}, **part}


def result(id: str, text: str = "ok", name: str = "f", key: str = "output") -> Json:
    return {"functionResponse": {"name": name, "response": {key: text}, "id": id}}


def returned(id: str, content: object = "ok", **fields: object) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **fields}


FIELDS: dict[str, tuple[Json, Json, Lost]] = {
    "only the conversation": ({}, {"contents": [ASKED]}, []),
    "the system prompt": (
        {"messages": [{"role": "system", "content": "Be brief."}, HI]},
        {"contents": [ASKED], "systemInstruction": {"parts": [{"text": "Be brief."}]}},
        [],
    ),
    "sampling and limits": (
        {"temperature": 2.5, "top_p": 0.9, "seed": 7, "max_tokens": 50, "stop": ["a", "b"], "n": 2},
        {
            "contents": [ASKED],
            "generationConfig": {
                "maxOutputTokens": 50,
                "candidateCount": 2,
                "stopSequences": ["a", "b"],
                "temperature": 2.0,
                "topP": 0.9,
                "seed": 7,
            },
        },
        [STOP, ("temperature-clamped", "2.5")],
    ),
    "what the API lacks": (
        {"logit_bias": {"7": 1}, "logprobs": True, "user": "ann", "service_tier": "scale"},
        {"contents": [ASKED]},
        [
            ("sampling-dropped", "logit_bias"),
            ("sampling-dropped", "logprobs"),
            ("field-dropped", "service_tier"),
            ("field-dropped", "user"),
        ],
    ),
    "a schema for the answer": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
        {
            "contents": [ASKED],
            "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA},
        },
        [],
    ),
    "any JSON": (
        {"response_format": {"type": "json_object"}},
        {"contents": [ASKED], "generationConfig": {"responseMimeType": "application/json"}},
        [],
    ),
    "tools": (
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "description": "F", "parameters": SCHEMA, "strict": True},
                }
            ],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
        },
        {
            "contents": [ASKED],
            "tools": [
                {"functionDeclarations": [FUNCTION | {"parametersJsonSchema": SCHEMA}]},
            ],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        },
        [("tool-option-dropped", "strict")],
    ),
    "images": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                        {"type": "image_url", "image_url": {"url": "https://x/y.webp?z=1"}},
                    ],
                }
            ]
        },
        {
            "contents": [
                {
                    "role": "user",
                    "parts": [
                        {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
                        {"fileData": {"mimeType": "image/webp", "fileUri": "https://x/y.webp?z=1"}},
                    ],
                }
            ]
        },
        [],
    ),
}


@pytest.mark.parametrize(("fields", "expected", "lost"), FIELDS.values(), ids=FIELDS)
def test_a_chat_request(fields: Json, expected: Json, lost: Lost) -> None:
    body, losses = of_chat(fields)
    assert body == expected
    assert sorted(losses) == sorted(lost)
    assert {code for code, _ in losses} <= LOSSES.keys()


EFFORTS: dict[str, tuple[str, Json, Json, Lost]] = {
    "a budget": (
        "budget",
        {"reasoning_effort": "high"},
        {"includeThoughts": True, "thinkingBudget": 24_576},
        [("effort-approximated", "high as 24576")],
    ),
    "a level": ("level", {"reasoning_effort": "low"}, {"includeThoughts": True, "thinkingLevel": "LOW"}, []),
    "the highest level": (
        "level",
        {"reasoning_effort": "xhigh"},
        {"includeThoughts": True, "thinkingLevel": "HIGH"},
        [("effort-approximated", "xhigh as high")],
    ),
    "none as a budget": ("budget", {"reasoning_effort": "none"}, {"thinkingBudget": 0}, []),
    "none as a level": (
        "level",
        {"reasoning_effort": "none"},
        {"thinkingLevel": "MINIMAL"},
        [("effort-approximated", "none as minimal")],
    ),
}


@pytest.mark.parametrize(("style", "fields", "expected", "lost"), EFFORTS.values(), ids=EFFORTS)
def test_effort(style: str, fields: Json, expected: Json, lost: Lost) -> None:
    body, losses = of_chat(fields, thinking=style)
    assert (body["generationConfig"]["thinkingConfig"], losses) == (expected, lost)


def test_a_model_that_cannot_think_is_not_asked_to() -> None:
    body, losses = of_chat({"reasoning_effort": "low"}, thinking="none")
    assert ("generationConfig" in body, losses) == (False, [("field-dropped", "reasoning_effort")])


def test_a_budget_of_tokens_is_kept_or_becomes_a_level() -> None:
    fields = {"messages": [HI], "thinking": {"type": "enabled", "budget_tokens": 5_000}}
    body, losses = asked(MESSAGES, GEMINI, fields)
    assert body["generationConfig"]["thinkingConfig"] == {"includeThoughts": True, "thinkingBudget": 5_000}
    assert losses == []
    body, losses = asked(MESSAGES, GEMINI, fields, thinking="level")
    assert body["generationConfig"]["thinkingConfig"] == {"includeThoughts": True, "thinkingLevel": "MEDIUM"}
    assert losses == [("effort-approximated", "5000 as medium")]


def test_results_are_objects_in_the_order_of_their_calls() -> None:
    messages = [
        HI,
        uses("c1", "c2"),
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "So?"},
                returned("c2", "no", is_error=True),
                returned("c1", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
            ],
        },
    ]
    body, losses = asked(MESSAGES, GEMINI, {"messages": messages})
    assert body["contents"][1:] == [
        {"role": "model", "parts": [call("c1"), call("c2")]},
        {"role": "user", "parts": [result("c1", "a\nb"), result("c2", "no", key="error"), {"text": "So?"}]},
    ]
    assert losses == []


def test_results_of_chat_come_together() -> None:
    called = [{"id": id, "type": "function", "function": {"name": id * 2, "arguments": "{}"}} for id in ("a", "b")]
    messages = [
        HI,
        {"role": "assistant", "content": None, "tool_calls": called},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
    ]
    body, losses = of_chat({"messages": messages})
    assert body["contents"][2] == {"role": "user", "parts": [result("a", "1", "aa"), result("b", "2", "bb")]}
    assert losses == []


def test_images_of_a_result_are_beside_it() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    messages = [HI, uses("c1"), {"role": "user", "content": [returned("c1", [image])]}]
    body, losses = asked(MESSAGES, GEMINI, {"messages": messages})
    assert body["contents"][2]["parts"] == [
        result("c1", ""),
        {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
    ]
    assert losses == [("result-media-moved", "")]


# Signatures.


def thinking(signature: str, text: str = "") -> Json:
    return {"type": "thinking", "thinking": text, "signature": signature}


def parts_of(*content: Json, **settings: object) -> tuple[list[Json], Lost]:
    """The parts that an earlier answer becomes."""
    body, losses = asked(MESSAGES, GEMINI, {"messages": [HI, {"role": "assistant", "content": [*content]}]}, **settings)
    return body["contents"][1]["parts"], losses


USE: Json = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
TEXT: Json = {"type": "text", "text": "Well."}
SIGNED: Json = {"thoughtSignature": "c2VhbA=="}


def test_a_signature_comes_back_on_the_part_after_it() -> None:
    assert parts_of(TEXT, thinking(OWN), USE) == ([{"text": "Well."}, call("c1", **SIGNED)], [])
    assert parts_of(thinking(OWN), TEXT) == ([{"text": "Well.", **SIGNED}], [])
    assert parts_of(TEXT, thinking(OWN)) == ([{"text": "Well."}, {"text": "", **SIGNED}], [])


def test_a_signature_before_the_text_belongs_to_the_call() -> None:
    """Chat completions have no order of parts: reasoning comes first."""
    assert parts_of(thinking(OWN), TEXT, USE) == ([{"text": "Well."}, call("c1", **SIGNED)], [])


def test_a_thought_with_a_signature_is_a_part_of_its_own() -> None:
    thought = {"text": "Hm.", "thought": True, **SIGNED}
    assert parts_of(thinking(OWN, "Hm."), USE) == ([thought, call("c1")], [])


def test_a_signature_of_another_account_is_dropped() -> None:
    assert parts_of(thinking(FOREIGN, "Hm."), USE) == ([call("c1")], [("reasoning-dropped", "")])


def test_a_call_of_another_model_gets_the_documented_placeholder_where_the_model_wants_one() -> None:
    filled = call("c1", thoughtSignature="skip_thought_signature_validator")
    assert parts_of(USE, USE | {"id": "c2"}, signature_placeholder=True) == ([filled, call("c2")], [])
    assert parts_of(thinking(OWN), USE, signature_placeholder=True) == ([call("c1", **SIGNED)], [])


# Limits.


def test_the_limit_counts_all_candidates() -> None:
    body = {"model": "m", "messages": [HI], "max_tokens": 50, "n": 3, "service_tier": "flex"}
    request = surface_dialect(CHAT).read_request(json.dumps(body).encode(), {}, "")
    limits = upstream_dialect(GEMINI).limits(request, Destination(model="m"))
    assert (limits.output, limits.tier) == (150, "flex")
    overrides = {"generationConfig": {"maxOutputTokens": 9}}
    assert upstream_dialect(GEMINI).limits(request, Destination(model="m", overrides=overrides)).output == 27

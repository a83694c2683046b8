"""One rich request, of a client of each API, as each provider with an API of its own gets it: its body and the losses.

The four requests say the same, each in the words of its API, so every provider gets nearly the same body from all of
them. `DIFFERENCES` has what differs, and the losses are exact.
"""

import pytest

from penstock.core.hub.losses import LOSSES
from tests.translation.support import BEDROCK, CHAT, COHERE, GEMINI, MESSAGES, OLLAMA, RESPONSES, Json, Lost, asked

SCHEMA: Json = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
PIXEL = "AA=="
DATA_URL = f"data:image/png;base64,{PIXEL}"
REQUESTS: dict[str, Json] = {
    CHAT: {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Which port is it?"},
                    {"type": "image_url", "image_url": {"url": DATA_URL}},
                ],
            },
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "get_tide", "arguments": '{"port":"Brest"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "high"},
            {"role": "user", "content": "And now?"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "get_tide", "description": "A tide", "parameters": SCHEMA}}
        ],
        "tool_choice": "required",
        "max_tokens": 50,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["END"],
        "seed": 7,
        "reasoning_effort": "low",
        "user": "ann",
    },
    MESSAGES: {
        "system": "Be brief.",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Which port is it?"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Let me see."},
                    {"type": "tool_use", "id": "call_1", "name": "get_tide", "input": {"port": "Brest"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": "high"},
                    {"type": "text", "text": "And now?"},
                ],
            },
        ],
        "tools": [{"name": "get_tide", "description": "A tide", "input_schema": SCHEMA}],
        "tool_choice": {"type": "any"},
        "max_tokens": 50,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "ann"},
    },
    RESPONSES: {
        "instructions": "Be brief.",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Which port is it?"},
                    {"type": "input_image", "image_url": DATA_URL},
                ],
            },
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
            {"type": "function_call", "call_id": "call_1", "name": "get_tide", "arguments": '{"port":"Brest"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "high"},
            {"role": "user", "content": "And now?"},
        ],
        "tools": [
            {"type": "function", "name": "get_tide", "description": "A tide", "parameters": SCHEMA, "strict": True},
            {"type": "web_search"},
        ],
        "tool_choice": "required",
        "max_output_tokens": 50,
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning": {"effort": "low"},
        "user": "ann",
    },
    GEMINI: {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {
                "role": "user",
                "parts": [{"text": "Which port is it?"}, {"inlineData": {"mimeType": "image/png", "data": PIXEL}}],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "Let me see."},
                    {"functionCall": {"id": "call_1", "name": "get_tide", "args": {"port": "Brest"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "call_1", "name": "get_tide", "response": {"output": "high"}}},
                    {"text": "And now?"},
                ],
            },
        ],
        "tools": [
            {"functionDeclarations": [{"name": "get_tide", "description": "A tide", "parametersJsonSchema": SCHEMA}]},
            {"googleSearch": {}},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "generationConfig": {
            "maxOutputTokens": 50,
            "temperature": 0.5,
            "topP": 0.9,
            "topK": 40,
            "seed": 7,
            "stopSequences": ["END"],
        },
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    },
}
FUNCTION: Json = {"type": "function", "function": {"name": "get_tide", "description": "A tide", "parameters": SCHEMA}}
BODIES: dict[str, Json] = {
    OLLAMA: {
        "model": "target",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Which port is it?", "images": [PIXEL]},
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [{"id": "call_1", "function": {"name": "get_tide", "arguments": {"port": "Brest"}}}],
            },
            {"role": "tool", "content": "high", "tool_call_id": "call_1", "tool_name": "get_tide"},
            {"role": "user", "content": "And now?"},
        ],
        "stream": False,
        "tools": [FUNCTION],
        "options": {"temperature": 0.5, "top_p": 0.9, "num_predict": 50, "stop": ["END"]},
    },
    COHERE: {
        "model": "target",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Which port is it?"},
                    {"type": "image_url", "image_url": {"url": DATA_URL}},
                ],
            },
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "Let me see."}],
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "get_tide", "arguments": '{"port":"Brest"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "high"},
            {"role": "user", "content": "And now?"},
        ],
        "stream": False,
        "tools": [FUNCTION],
        "tool_choice": "REQUIRED",
        "temperature": 0.5,
        "p": 0.9,
        "max_tokens": 50,
        "stop_sequences": ["END"],
    },
    BEDROCK: {
        "system": [{"text": "Be brief."}],
        "messages": [
            {
                "role": "user",
                "content": [{"text": "Which port is it?"}, {"image": {"format": "png", "source": {"bytes": PIXEL}}}],
            },
            {
                "role": "assistant",
                "content": [
                    {"text": "Let me see."},
                    {"toolUse": {"toolUseId": "call_1", "name": "get_tide", "input": {"port": "Brest"}}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "call_1", "content": [{"text": "high"}]}},
                    {"text": "And now?"},
                ],
            },
        ],
        "toolConfig": {
            "tools": [{"toolSpec": {"name": "get_tide", "description": "A tide", "inputSchema": {"json": SCHEMA}}}],
            "toolChoice": {"any": {}},
        },
        "inferenceConfig": {"temperature": 0.5, "topP": 0.9, "maxTokens": 50, "stopSequences": ["END"]},
    },
}
OPTIONS: Json = BODIES[OLLAMA]["options"]
STOP = ("stop-sequence-unreported", "")
WIDENED = ("tool-choice-widened", "required")
USER = ("field-dropped", "user")
EFFORT = ("field-dropped", "reasoning_effort")
THINKS = ("effort-approximated", "low as true")
STRICT = ("tool-option-dropped", "strict")
SEARCH, GOOGLE = ("server-tool-dropped", "web_search"), ("server-tool-dropped", "googleSearch")
SAFETY = ("field-dropped", "safetySettings")
TOP_K, SEED = ("sampling-dropped", "top_k"), ("sampling-dropped", "seed")
# By client and provider: the fields that differ (None: there is no such field), and the losses.
DIFFERENCES: dict[tuple[str, str], tuple[Json, Lost]] = {
    (CHAT, OLLAMA): ({"options": OPTIONS | {"seed": 7}, "think": True}, [WIDENED, THINKS, USER, STOP]),
    (CHAT, COHERE): ({"seed": 7}, [EFFORT, USER, STOP]),
    (CHAT, BEDROCK): ({}, [EFFORT, SEED, USER, STOP]),
    (MESSAGES, OLLAMA): ({"options": OPTIONS | {"top_k": 40}}, [WIDENED, USER, STOP]),
    (MESSAGES, COHERE): ({"k": 40}, [USER, STOP]),
    (MESSAGES, BEDROCK): ({}, [TOP_K, USER, STOP]),
    (RESPONSES, OLLAMA): (
        {"options": {"temperature": 0.5, "top_p": 0.9, "num_predict": 50}, "think": True},
        [SEARCH, WIDENED, STRICT, THINKS, USER],
    ),
    (RESPONSES, COHERE): ({"stop_sequences": None, "strict_tools": True}, [SEARCH, EFFORT, USER]),
    (RESPONSES, BEDROCK): (
        {"inferenceConfig": {"temperature": 0.5, "topP": 0.9, "maxTokens": 50}},
        [SEARCH, STRICT, EFFORT, USER],
    ),
    (GEMINI, OLLAMA): ({"options": OPTIONS | {"top_k": 40, "seed": 7}}, [GOOGLE, WIDENED, SAFETY, STOP]),
    (GEMINI, COHERE): ({"k": 40, "seed": 7}, [GOOGLE, SAFETY, STOP]),
    (GEMINI, BEDROCK): ({}, [GOOGLE, TOP_K, SEED, SAFETY, STOP]),
}


@pytest.mark.parametrize(("client", "provider"), DIFFERENCES)
def test_a_rich_request(client: str, provider: str) -> None:
    body, losses = asked(client, provider, REQUESTS[client])
    fields, lost = DIFFERENCES[client, provider]
    assert body == {name: value for name, value in (BODIES[provider] | fields).items() if value is not None}
    assert sorted(losses) == sorted(lost)
    assert {code for code, _ in losses} <= LOSSES.keys()


def test_every_pair_is_in_the_table() -> None:
    assert DIFFERENCES.keys() == {(client, provider) for client in REQUESTS for provider in BODIES}

"""Clients of Gemini's API on providers of other APIs, and the reverse: requests, answers, seals in both directions."""

import json
import time
from base64 import b64decode, urlsafe_b64encode

import pytest

from penstock import Accumulator, Completion, StreamReader, StreamWriter, ToolCall
from penstock.core.dialects.dialect import Destination, RequestError
from penstock.core.dialects.registry import surface_dialect, upstream_dialect
from penstock.core.hub.failure import Failure
from tests import gemini as gem
from tests import messages as ant
from tests import streams as chat
from tests.promptness import cpu_s
from tests.translation.support import CHAT, ISSUER, MESSAGES, RESPONSES, Json, Lost, facts, translated

GEMINI = "gemini"
PATH = "/v1beta/models/m:streamGenerateContent?alt=sse"
HI: Json = {"role": "user", "parts": [{"text": "Hi"}]}


def asked(provider: str, **fields: object) -> tuple[Json, Lost]:
    """The request that a provider gets from a client of Gemini's API."""
    request = surface_dialect(GEMINI).read_request(json.dumps({"contents": [HI]} | fields).encode(), {}, PATH)
    outgoing = upstream_dialect(provider).write_request(request, Destination(model="target", issuer=ISSUER))
    return json.loads(outgoing.body), [(loss.code, loss.detail) for loss in outgoing.losses]


def read(dialect: str, data: bytes) -> Completion:
    reader, answer = StreamReader(dialect), Accumulator(dialect)
    answer.extend([*reader.feed(data), *reader.close()])
    return answer.completion


# Requests.


def test_a_request_for_chat() -> None:
    schema = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": True}}, "required": ["a"]}
    body, losses = asked(
        CHAT,
        system_instruction={"parts": [{"text": "Be brief."}]},
        generationConfig={
            "temperature": 1,
            "topP": 0.9,
            "maxOutputTokens": 50,
            "stopSequences": ["a"],
            "responseMimeType": "application/json",
            "responseSchema": schema,
        },
        tools=[{"functionDeclarations": [{"name": "f", "parameters": schema}]}],
        toolConfig={"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
    )
    plain = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert (body["temperature"], body["top_p"], body["stop"], body["stream"]) == (1, 0.9, ["a"], True)
    assert body["tools"] == [{"type": "function", "function": {"name": "f", "parameters": plain}}]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert body["response_format"]["json_schema"]["schema"] == plain
    assert losses == [("stop-sequence-unreported", "")]


def test_calls_without_ids_are_linked_by_name_and_order() -> None:
    calls = [{"functionCall": {"name": name, "args": {"n": n}}} for n, name in enumerate(("f", "g", "f"))]
    results = [
        {"functionResponse": {"name": name, "response": {"output": text}}}
        for name, text in (("f", "first"), ("g", "other"), ("f", "second"))
    ]
    body, losses = asked(CHAT, contents=[HI, {"role": "model", "parts": calls}, {"role": "user", "parts": results}])
    called = {call["id"]: call["function"]["arguments"] for call in body["messages"][1]["tool_calls"]}
    returned = {message["tool_call_id"]: message["content"] for message in body["messages"][2:]}
    assert [(called[id], text) for id, text in returned.items()] == [
        ('{"n":0}', "first"),
        ('{"n":1}', "other"),
        ('{"n":2}', "second"),
    ]
    assert losses == []


def test_a_result_that_is_an_object_is_json_text() -> None:
    result = {"functionResponse": {"name": "f", "id": "c1", "response": {"level": 3, "unit": "m"}}}
    failed = {"functionResponse": {"name": "f", "id": "c2", "response": {"error": "no"}}}
    calls = [{"functionCall": {"name": "f", "id": id}} for id in ("c1", "c2")]
    body, _ = asked(
        MESSAGES, contents=[HI, {"role": "model", "parts": calls}, {"role": "user", "parts": [result, failed]}]
    )
    first, second = body["messages"][2]["content"]
    assert first["content"] == [{"type": "text", "text": '{"level":3,"unit":"m"}'}]
    assert (second["is_error"], second["content"]) == (True, [{"type": "text", "text": "no"}])


def test_media_and_thinking() -> None:
    image = {"inline_data": {"mime_type": "image/png", "data": "AA=="}}
    config = {"thinkingConfig": {"thinkingBudget": 2048, "includeThoughts": True}, "maxOutputTokens": 9000}
    body, losses = asked(MESSAGES, contents=[{"parts": [{"text": "See"}, image]}], generationConfig=config)
    assert body["messages"][0]["content"][1]["source"] == {
        "type": "base64",
        "media_type": "image/png",
        "data": "AA==",
    }
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert losses == []


def test_media_of_either_alphabet_are_sent_in_the_standard_one() -> None:
    """google-genai for Python encodes media for URLs."""
    image = {"inlineData": {"mimeType": "image/png", "data": "-_8"}}
    body, _ = asked(CHAT, contents=[{"parts": [image]}])
    assert body["messages"][0]["content"][0]["image_url"]["url"] == "data:image/png;base64,+/8="


def test_what_only_google_has_is_a_loss() -> None:
    body, losses = asked(CHAT, tools=[{"googleSearch": {}}], safetySettings=[{"category": "C"}])
    assert "tools" not in body
    assert losses == [("server-tool-dropped", "googleSearch"), ("field-dropped", "safetySettings")]


@pytest.mark.parametrize(
    ("path", "model", "stream", "array"),
    [
        ("/v1beta/models/m:streamGenerateContent?alt=sse", "m", True, False),
        ("/v1beta/models/m:streamGenerateContent", "m", True, True),
        ("/v1beta/models/groq/llama3:8b:generateContent", "groq/llama3:8b", False, False),
        ("/v1beta/models/groq%2Fllama:generateContent?key=x", "groq/llama", False, False),
        ("/gemini/v1beta/groq/llama:generateContent", "groq/llama", False, False),
    ],
)
def test_the_path_names_the_model_and_the_form(path: str, model: str, stream: bool, array: bool) -> None:
    request = surface_dialect(GEMINI).read_request(b'{"contents": "Hi"}', {}, path)
    assert (request.model, request.stream, bool(request.stream_type)) == (model, stream, array)


@pytest.mark.parametrize(
    "body", [b"{}", b'{"contents": []}', b'{"contents": 7}', b'{"contents": "Hi", "generationConfig": 1}', b"[]"]
)
def test_requests_that_are_refused(body: bytes) -> None:
    with pytest.raises(RequestError):
        surface_dialect(GEMINI).read_request(body, {}, PATH)


# Answers.


def test_an_answer_of_messages() -> None:
    citation = {"type": "web_search_result_location", "url": "https://x", "title": "X", "cited_text": "High"}
    wire = ant.answer(
        ant.opens(0, "thinking"),
        ant.thinks("Hm."),
        ant.signs("EqQB"),
        ant.closes(0),
        ant.opens(1),
        ant.says("Café", 1),
        ant.delta(1, "citations_delta", citation=citation),
        ant.closes(1),
        *ant.calls_all(index=2),
        finish=ant.finishes("tool_use"),
    )
    written, losses = translated(MESSAGES, GEMINI, wire)
    answer = read(GEMINI, written)
    (choice,) = answer.choices
    assert (choice.text, choice.reasoning, choice.finish_reason) == ("Café", "Hm.", "tool_calls")
    assert choice.tool_calls == (ToolCall("toolu_1", "get_tide", ant.TIDE),)
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.output) == (7, 4)
    assert choice.extras["groundingMetadata"] == {
        "groundingChunks": [{"web": {"uri": "https://x", "title": "X"}}],
        "groundingSupports": [{"segment": {"text": "High"}, "groundingChunkIndices": [0]}],
    }
    assert (answer.repairs, losses) == ((), [])


def test_a_seal_of_another_api_survives_an_sdk_and_comes_back() -> None:
    """SDKs decode a signature as base64, and encode it again in either alphabet."""
    wire = ant.answer(
        ant.opens(0, "thinking"), ant.thinks("Hm."), ant.signs("EqQB+/=="), ant.closes(0), *ant.calls_all(index=1)
    )
    written, _ = translated(MESSAGES, GEMINI, wire)
    parts = [
        part
        for event in written.decode().split("\r\n\r\n")[:-1]
        for part in json.loads(event.removeprefix("data: "))["candidates"][0].get("content", {}).get("parts", [])
    ]
    for part in parts:
        if "thoughtSignature" in part:
            part["thoughtSignature"] = urlsafe_b64encode(b64decode(part["thoughtSignature"], validate=True)).decode()
    thought = {"text": "".join(part["text"] for part in parts if part.get("thought")), "thought": True}
    signed = next(part["thoughtSignature"] for part in parts if "thoughtSignature" in part)
    turns = [HI, {"role": "model", "parts": [thought | {"thoughtSignature": signed}, parts[-1]]}]
    body, losses = asked(MESSAGES, contents=turns, generationConfig={"maxOutputTokens": 50})
    assert body["messages"][1]["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": "EqQB+/=="}
    assert losses == []
    body, losses = asked(GEMINI, contents=turns)
    assert body["contents"][1]["parts"] == [thought, parts[-1]]
    assert losses == [("seal-dropped", "")]


def test_several_choices_of_chat_are_candidates() -> None:
    wire = chat.sse(
        chat.begins(),
        chat.begins(1),
        chat.says("One"),
        chat.says("Two", index=1),
        chat.finishes(),
        chat.finishes("length", index=1),
        chat.DONE,
    )
    written, losses = translated(CHAT, GEMINI, wire, pieces=7)
    answer = read(GEMINI, written)
    assert [(choice.text, choice.finish_reason) for choice in answer.choices] == [("One", "stop"), ("Two", "length")]
    assert (answer.repairs, losses) == ((), [])


@pytest.mark.parametrize("client", [CHAT, MESSAGES, RESPONSES])
def test_an_answer_of_gemini(client: str) -> None:
    wire = gem.answer(
        gem.thinks("Hm."),
        gem.says("Let me see."),
        gem.message(gem.calls(thoughtSignature="c2VhbA=="), gem.calls("get_wind", None)),
        finish=gem.finishes(
            usage={
                "promptTokenCount": 9,
                "cachedContentTokenCount": 4,
                "candidatesTokenCount": 4,
                "thoughtsTokenCount": 3,
                "totalTokenCount": 16,
            }
        ),
    )
    written, losses = translated(GEMINI, client, wire)
    answer = read(client, written)
    (choice,) = answer.choices
    assert (choice.text, choice.reasoning, choice.finish_reason) == ("Let me see.", "Hm.", "tool_calls")
    assert [(call.name, call.arguments) for call in choice.tool_calls] == [
        ("get_tide", '{"port":"Brest"}'),
        ("get_wind", "{}"),
    ]
    assert len({call.id for call in choice.tool_calls}) == 2
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.output, answer.usage.cached) == (9, 7, 4)
    assert (answer.repairs, losses) == ((), [])


# The stream.


def test_heartbeats_are_messages_and_never_comments() -> None:
    writer = StreamWriter.for_call(GEMINI, facts(CHAT, GEMINI))
    reader = StreamReader(CHAT)
    assert writer.heartbeat() == b""
    first = writer.write(reader.feed(chat.sse(chat.begins(), chat.says("Hi"))))
    beat = writer.heartbeat()
    rest = writer.write([*reader.feed(chat.sse(chat.finishes(), chat.DONE)), *reader.close()])
    assert beat.startswith(b"data: {")
    assert b"[DONE]" not in rest
    answer = read(GEMINI, first + beat + rest)
    assert (answer.text, answer.ending, answer.repairs) == ("Hi", "completed", ())


def test_a_failure_is_the_last_message() -> None:
    writer = StreamWriter.for_call(GEMINI, facts(CHAT, GEMINI))
    first = writer.write(StreamReader(CHAT).feed(chat.sse(chat.begins(), chat.says("Hi"))))
    failure = Failure(code="upstream_timeout_idle", message="the provider took too long", retry_after="7")
    answer = read(GEMINI, first + writer.fail(failure))
    assert answer.fault is not None
    assert (answer.text, answer.fault.message) == ("Hi", "the provider took too long")
    assert (answer.fault.provider or {})["status"] == "DEADLINE_EXCEEDED"
    delays = [each.get("retryDelay") for each in (answer.fault.provider or {})["details"]]  # type: ignore[attr-defined]
    assert "7s" in delays


@pytest.mark.parametrize(
    ("provider", "wire", "reason"),
    [
        (GEMINI, gem.answer(gem.says("Hi"), finish=gem.finishes("VOCABULARY")), b'"finishReason":"VOCABULARY"'),
        (
            CHAT,
            chat.sse(chat.begins(), chat.says("Hi"), chat.finishes("vocabulary"), chat.DONE),
            b'"finishReason":"OTHER"',
        ),
    ],
)
def test_an_unknown_finish_reason_is_written_only_for_its_own_api(provider: str, wire: bytes, reason: bytes) -> None:
    assert reason in translated(provider, GEMINI, wire)[0]


# What protocol buffers accept in JSON: enums by number, numbers as text, names in snake_case.


def test_schemas_in_every_form_that_google_accepts() -> None:
    given = {
        "type": 6,
        "properties": {
            "a": {"type": "ARRAY", "items": {"type": 1}, "minItems": "1", "max_items": "3"},
            "b": {"type": "STRING", "enum": ["x"], "nullable": True, "max_length": 9},
            "c": {"any_of": [{"type": "STRING"}], "nullable": True},
        },
    }
    body, losses = asked(
        CHAT,
        tools=[{"function_declarations": [{"name": "f", "parameters": given}]}],
        toolConfig={"functionCallingConfig": {"mode": 2}},
    )
    assert body["tools"][0]["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
            "b": {"type": ["string", "null"], "enum": ["x", None], "maxLength": 9},
            "c": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
    }
    assert (body["tool_choice"], losses) == ("required", [])


@pytest.mark.parametrize("text", ["NaN", "Infinity", "warm", "1e999"])
def test_numbers_may_be_text(text: str) -> None:
    config = {"temperature": "0.5", "seed": "7", "maxOutputTokens": "5", "topP": text}
    body, _ = asked(CHAT, generationConfig=config)
    assert (body["temperature"], body["seed"], body["max_completion_tokens"]) == (0.5, 7, 5)
    assert "top_p" not in body


# What is not text, or has no id, is kept apart and not lost.


def test_a_result_that_is_no_object_is_not_lost() -> None:
    result = {"functionResponse": {"name": "f", "response": "sunny"}}
    call = {"functionCall": {"name": "f"}}
    body, _ = asked(CHAT, contents=[{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}])
    assert body["messages"][1]["content"] == "sunny"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("answered", [(0, 1), (1, 0)])
def test_a_call_without_an_id_gets_none_that_another_call_has(
    order: tuple[int, int], answered: tuple[int, int]
) -> None:
    ids: tuple[Json, Json] = ({"id": "call_1"}, {})
    calls = [{"functionCall": {"name": "f", "args": {"n": n}} | ids[n]} for n in range(2)]
    results = [{"functionResponse": {"name": "f", "response": {"output": str(n)}} | ids[n]} for n in range(2)]
    body, _ = asked(
        CHAT,
        contents=[
            {"role": "model", "parts": [calls[n] for n in order]},
            {"role": "user", "parts": [results[n] for n in answered]},
        ],
    )
    called = {call["id"]: json.loads(call["function"]["arguments"])["n"] for call in body["messages"][0]["tool_calls"]}
    assert sorted(called.values()) == [0, 1]
    assert [called[message["tool_call_id"]] for message in body["messages"][1:]] == list(answered)
    assert [message["content"] for message in body["messages"][1:]] == [str(n) for n in answered]


@pytest.mark.slow
def test_many_results_of_no_call_take_linear_time() -> None:
    calls = [{"functionCall": {"name": "f", "id": f"a{number}"}} for number in range(8_000)]
    results = [{"functionResponse": {"name": "g", "response": {}}}] * 8_000
    text = {"role": "user", "parts": [{"text": "x" * 2_000_000}]}  # so that a body may hold as many values
    began = time.process_time()
    body, _ = asked(CHAT, contents=[text, {"role": "model", "parts": calls}, {"role": "user", "parts": results}])
    assert time.process_time() - began < cpu_s(1.5)  # comparing each with each takes more than twice as long
    assert len(body["messages"]) == 8_002


@pytest.mark.parametrize("provider", [CHAT, MESSAGES, RESPONSES, "ollama", "cohere", "bedrock_converse"])
def test_a_system_prompt_with_an_image_declares_its_loss(provider: str) -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    body, losses = asked(provider, systemInstruction={"parts": [{"text": "Be brief."}, image]})
    assert "Be brief." in json.dumps(body)
    assert "aGk=" not in json.dumps(body)
    assert [code for code, _ in losses if code == "content-dropped"] == ["content-dropped"]


# Numbers on which a reservation depends.


@pytest.mark.parametrize("name", ["maxOutputTokens", "max_output_tokens", "candidateCount"])
@pytest.mark.parametrize("value", [-1_000_000_000, 0, True, 1.5, "-5", 10**30, [1]])
def test_a_limit_that_is_no_positive_integer_is_refused(name: str, value: object) -> None:
    with pytest.raises(RequestError, match="must be an integer from 1 to"):
        asked(GEMINI, generationConfig={name: value})


def test_a_limit_by_two_names_is_refused() -> None:
    for config in (
        {"generationConfig": {"maxOutputTokens": 1, "max_output_tokens": 10**6}},
        {"generationConfig": {"maxOutputTokens": 1}, "generation_config": {"maxOutputTokens": 10**6}},
    ):
        with pytest.raises(RequestError, match="is there twice"):
            asked(GEMINI, **config)


@pytest.mark.parametrize("config", [{"maxOutputTokens": "50", "candidateCount": 2}, {"max_output_tokens": 100}])
def test_limits_are_read_in_every_form(config: Json) -> None:
    body = json.dumps({"contents": [HI], "generationConfig": config}).encode()
    request = surface_dialect(GEMINI).read_request(body, {}, PATH)
    assert upstream_dialect(GEMINI).limits(request, Destination(model="m", issuer=ISSUER)).output == 100

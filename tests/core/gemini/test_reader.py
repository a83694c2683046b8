"""The Gemini dialect, as it is read: parts, calls, signatures, citations, endings, usage, errors."""

import json

import pytest

from penstock import (
    Completion,
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    ReasoningSeal,
    StreamReader,
    TextPart,
    ToolCall,
)
from penstock.core.dialects.detect import detect
from penstock.core.dialects.registry import upstream_dialect
from penstock.core.hub.content import Citation
from penstock.core.hub.usage import Tokens
from tests.gemini import (
    DIALECT,
    ENVELOPE,
    USAGE,
    Json,
    answer,
    array,
    calls,
    completion,
    events_of,
    finishes,
    message,
    passes,
    says,
    thinks,
    wire,
)
from tests.streams import by_event, bytewise, read, repairs

SEAL = ReasoningSeal("gemini", "c2VhbA==")


def parts(data: bytes) -> list[Part]:
    (choice,) = completion(data).choices
    return list(choice.parts)


def arguments(*messages: Json) -> str:
    (choice,) = completion(answer(*messages)).choices
    (call,) = choice.tool_calls
    return call.arguments


def value(path: str, text: str, *, more: bool = False) -> Json:
    return {"jsonPath": path, "stringValue": text, **({"willContinue": True} if more else {})}


# Parts.


def test_parts_keep_their_order() -> None:
    data = answer(thinks("Two and "), thinks("two."), message({"text": "Let me"}, calls(), {"text": "Four."}))
    assert parts(data) == [
        ReasoningPart("Two and two.", field="reasoning_content"),
        TextPart("Let me"),
        ToolCall(None, "get_tide", '{"port":"Brest"}'),
        TextPart("Four."),
    ]


def test_the_signature_of_a_thought_belongs_to_it() -> None:
    data = answer(thinks("Two and two.", thoughtSignature="c2VhbA=="), says("Four."))
    assert parts(data)[0] == ReasoningPart("Two and two.", seals=(SEAL,), field="reasoning_content")


@pytest.mark.parametrize(
    ("sent", "after"),
    [
        (calls(thoughtSignature="c2VhbA=="), ToolCall(None, "get_tide", '{"port":"Brest"}')),
        ({"text": "Four.", "thoughtSignature": "c2VhbA=="}, TextPart("Four.")),
        ({"inlineData": {"mimeType": "image/png", "data": "AA=="}, "thoughtSignature": "c2VhbA=="}, None),
    ],
    ids=["a call", "a text", "an image"],
)
def test_the_signature_of_another_part_is_a_part_before_it(sent: Json, after: Part | None) -> None:
    first, signed, *rest = parts(answer(says("So: "), message(sent)))
    assert (first, signed) == (TextPart("So: "), ReasoningPart(seals=(SEAL,)))
    assert after is None or rest == [after]


def test_a_signature_on_an_empty_text_is_the_last_part() -> None:
    last = {"text": "", "thoughtSignature": "c2VhbA=="}
    assert parts(answer(says("Four."), message(last))) == [TextPart("Four."), ReasoningPart(seals=(SEAL,))]


def test_media_and_code_are_parts() -> None:
    code: Json = {"executableCode": {"language": "PYTHON", "code": "1 + 1"}}
    result: Json = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}
    image = {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}
    assert parts(answer(message(code, result, image, {"tideTable": {"level": 1}}))) == [
        OpaquePart(DIALECT, "executableCode", code),
        OpaquePart(DIALECT, "codeExecutionResult", result),
        MediaPart(kind="image", mime="image/png", data="iVBO"),
        OpaquePart(DIALECT, "tideTable", {"tideTable": {"level": 1}}),
    ]


def test_an_event_with_media_may_exceed_the_limit_of_other_events() -> None:
    image = message({"inlineData": {"mimeType": "image/png", "data": "A" * 2_000_000}})
    assert completion(answer(image)).ending == "completed"
    failed = completion(answer(says("A" * 2_000_000)))
    assert failed.fault is not None
    assert failed.fault.code == "event-too-large"


def test_several_candidates_are_choices() -> None:
    first, second = ({"content": {"parts": [{"text": text}]}, "finishReason": "STOP"} for text in ("One", "Two"))
    found = completion(wire({"candidates": [first, second | {"index": 1}], **ENVELOPE}))
    assert [(choice.index, choice.text, choice.finish_reason) for choice in found.choices] == [
        (0, "One", "stop"),
        (1, "Two", "stop"),
    ]
    assert found.repairs == ()


def test_names_in_snake_case_are_read() -> None:
    sent: Json = {
        "candidates": [
            {
                "content": {"parts": [{"function_call": {"name": "f"}, "thought_signature": "c2VhbA=="}]},
                "finish_reason": "STOP",
            }
        ],
        "usage_metadata": {"prompt_token_count": 7, "candidates_token_count": 4, "total_token_count": 11},
        "model_version": "weir-3",
        "response_id": "gem_w1",
    }
    found = completion(wire(sent))
    assert (found.id, found.model, found.ending) == ("gem_w1", "weir-3", "completed")
    assert found.choices[0].parts == (ReasoningPart(seals=(SEAL,)), ToolCall(None, "f", "{}"))
    assert found.usage is not None
    assert (found.usage.input, found.usage.output, found.usage.total) == (7, 4, 11)


# Calls.


def test_calls_have_an_id_only_if_the_provider_sends_one() -> None:
    found = completion(answer(message({"functionCall": {"name": "f"}}, {"functionCall": {"id": "c7", "name": "f"}})))
    assert [(call.id, call.arguments) for call in found.choices[0].tool_calls] == [(None, "{}"), ("c7", "{}")]
    assert (found.choices[0].finish_reason, found.repairs) == ("tool_calls", ())


def test_streamed_arguments_become_json_as_they_arrive() -> None:
    sent = [
        passes(name="plan_trip"),
        passes(value("$.stops[0].port", "Bre", more=True)),
        passes(value("$.stops[0].port", 'st "s', more=True)),
        passes(value("$.stops[0].port", "")),
        passes({"jsonPath": "$.stops[0].days", "numberValue": 2}),
        passes({"jsonPath": "$.stops[1].port", "stringValue": "Cork"}, {"jsonPath": "$.ferry", "boolValue": False}),
        passes({"jsonPath": "$['a b']", "nullValue": None}),
        passes(more=False),
    ]
    written = '{"stops":[{"port":"Brest \\"s","days":2},{"port":"Cork"}],"ferry":false,"a b":null}'
    assert arguments(*sent) == written
    cut = completion(wire(*sent[:4]))
    assert (cut.ending, cut.choices[0].tool_calls[0].arguments) == ("truncated", '{"stops":[{"port":"Brest \\"s"')


def test_a_call_ends_with_the_last_value_if_that_does_not_continue() -> None:
    assert arguments(passes(name="f"), passes(value("$.port", "Brest"), more=False)) == '{"port":"Brest"}'
    assert arguments(passes(name="f"), passes(more=False)) == "{}"


@pytest.mark.parametrize(
    "values",
    [
        [value("$.a.b", "1"), value("$.c", "2"), value("$.a.d", "3")],
        [value("$.a[1]", "1")],
        [value("$.a", "1"), value("$.a", "2")],
        [value("$.a[0]", "1"), value("$.a.b", "2")],
        [value("a", "1")],
        [value("$", "1")],
        [value("$..a", "1")],
        [{"jsonPath": "$.a"}],
    ],
    ids=["back", "a gap", "twice", "an array and an object", "no root", "the root", "any depth", "nothing"],
)
def test_arguments_that_cannot_be_written_in_order_are_a_fault(values: list[Json]) -> None:
    found = completion(answer(passes(name="f"), *(passes(each) for each in values)))
    assert found.fault is not None
    assert (found.fault.code, found.ending) == ("bad-shape", "failed")


# Endings.


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("IMAGE_SAFETY", "content_filter"),
    ],
)
def test_finish_reasons(reason: str, finish: str) -> None:
    (choice,) = completion(answer(says("One"), finish=finishes(reason))).choices
    assert (choice.finish_reason, choice.native_finish_reason) == (finish, reason)


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER"])
def test_some_finish_reasons_are_failures(reason: str) -> None:
    found = completion(answer(finish=finishes(reason, finishMessage="Malformed function call: print(f())")))
    assert found.fault is not None
    assert (found.ending, found.fault.code) == ("failed", "provider-error")
    assert found.fault.message == "Malformed function call: print(f())"
    assert found.usage is not None


def test_an_answer_without_a_finish_reason_is_truncated() -> None:
    assert completion(wire(says("One"))).ending == "truncated"
    assert completion(wire(says("One"), finishes("FINISH_REASON_UNSPECIFIED"))).ending == "truncated"


def test_an_array_is_read_like_events_and_cut_anywhere() -> None:
    sent = [says("One"), says(" two"), finishes()]
    data = array(*sent)
    assert completion(data).text == "One two"
    assert events_of(*bytewise(data)) == events_of(data)
    for end in range(1, len(data) - 1):
        assert completion(data[:end]).ending != "completed" or b"STOP" in data[:end]


def test_an_unstreamed_answer_is_read_like_a_stream() -> None:
    whole = message({"text": "One two"}, finish="STOP", usage=USAGE)
    body = completion(json.dumps(whole).encode())
    assert (body.text, body.ending, body.repairs) == ("One two", "completed", ())
    assert body.usage == completion(wire(whole)).usage


def test_an_error_is_a_fault_also_in_a_list() -> None:
    error = {"error": {"code": 429, "message": "Quota exceeded", "status": "RESOURCE_EXHAUSTED"}}
    for data in (wire(error), json.dumps(error).encode(), json.dumps([error]).encode()):
        fault = completion(data).fault
        assert fault is not None
        assert (fault.code, fault.message, (fault.provider or {}).get("code")) == (
            "provider-error",
            "Quota exceeded",
            429,
        )


# Usage.


@pytest.mark.parametrize(
    ("reports", "tokens"),
    [
        (
            [{"promptTokenCount": 7, "candidatesTokenCount": 4, "thoughtsTokenCount": 9, "totalTokenCount": 20}],
            Tokens(input=7, output=13, reasoning=9),
        ),
        (
            [{"promptTokenCount": 70, "cachedContentTokenCount": 60, "candidatesTokenCount": 4, "totalTokenCount": 74}],
            Tokens(input=70, output=4, cached=60),
        ),
        (
            [
                {
                    "promptTokenCount": 7,
                    "toolUsePromptTokenCount": 30,
                    "candidatesTokenCount": 4,
                    "totalTokenCount": 41,
                }
            ],
            Tokens(input=37, output=4),
        ),
        (
            [
                {"promptTokenCount": 7, "thoughtsTokenCount": 9, "totalTokenCount": 16},
                {"promptTokenCount": 7, "candidatesTokenCount": 4, "totalTokenCount": 20},
            ],
            Tokens(input=7, output=13, reasoning=9),
        ),
        (
            [
                {"promptTokenCount": 7, "candidatesTokenCount": 2, "totalTokenCount": 9},
                {"promptTokenCount": 7, "candidatesTokenCount": 4},
            ],
            Tokens(input=7, output=4),
        ),
        (
            [
                USAGE
                | {
                    "promptTokensDetails": [
                        {"modality": "TEXT", "tokenCount": 2},
                        {"modality": "AUDIO", "tokenCount": 5},
                    ]
                }
            ],
            Tokens(input=7, output=4, audio_input=5),
        ),
    ],
    ids=["thoughts", "cached", "tools", "a member vanishes", "the total vanishes", "audio"],
)
def test_usage_in_normal_form(reports: list[Json], tokens: Tokens) -> None:
    *first, last = reports
    found = completion(wire(*(says("One", usage=report) for report in first), finishes(usage=last)))
    assert found.usage is not None
    assert Tokens.of(found.usage) == tokens
    assert found.repairs == ()


def test_a_report_without_counts_is_no_usage() -> None:
    found = completion(answer(says("One", usage={"trafficType": "ON_DEMAND"}), finish=message(finish="STOP")))
    assert (found.usage, found.repairs) == (None, ())


# Citations.


def test_grounding_is_cited_by_characters_of_the_text() -> None:
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://tides.example", "title": "Tides"}}],
        "groundingSupports": [
            {"segment": {"startIndex": 8, "endIndex": 14, "text": "à midi"[:-1]}, "groundingChunkIndices": [0]},
        ],
        "webSearchQueries": ["tides"],
    }
    found = completion(answer(says("Marée, "), says("à midi."), finish=finishes(groundingMetadata=grounding)))
    (choice,) = found.choices
    (part,) = choice.parts
    assert isinstance(part, TextPart)
    (citation,) = part.citations
    assert isinstance(citation, Citation)
    assert (citation.url, citation.title) == ("https://tides.example", "Tides")
    assert part.text[citation.start : citation.end] == "à mid"
    assert choice.extras == {"groundingMetadata": grounding}


# Everything else.


def test_text_is_the_same_however_it_is_split() -> None:
    data = answer(thinks("Hm."), says("Ahoy \N{SHIP}"), passes(name="f"), passes(value("$.a", "é", more=True)))
    events = events_of(data)
    assert read(*bytewise(data), reader=StreamReader(DIALECT)) == events
    assert read(*by_event(data), reader=StreamReader(DIALECT)) == events
    assert set(repairs(events)) == {"block-unclosed", "tool-arguments-broken"}


@pytest.mark.parametrize(
    "data",
    [wire(says("Hi")), array(says("Hi"), finishes()), wire({"promptFeedback": {"blockReason": "SAFETY"}})],
    ids=["events", "an array", "blocked"],
)
def test_the_dialect_is_detected(data: bytes) -> None:
    assert detect([data]).dialect == DIALECT


def test_the_path_of_a_request_is_evidence() -> None:
    error = b'{"error": {"message": "no"}}'
    assert detect([error], "/v1beta/models/weir-3:streamGenerateContent?alt=sse").dialect == DIALECT
    assert detect([error], "/v1/chat/completions").dialect == "openai_chat"


def test_errors_say_more_than_their_status() -> None:
    upstream = upstream_dialect(DIALECT)
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
    wrong_key = {"error": {"code": 400, "message": "API key not valid.", "details": details}}
    assert upstream.read_error(json.dumps(wrong_key).encode()).status == 401
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}
    busy = {"error": {"code": 429, "message": "Quota exceeded.", "details": [delay]}}
    found = upstream.read_error(json.dumps([busy]).encode())
    assert (found.message, found.status, found.retry_after) == ("Quota exceeded.", 0, "35")
    assert json.loads(found.envelope) == busy


def shape_of(found: Completion) -> object:
    return found.fault and found.fault.code


@pytest.mark.parametrize(
    "odd",
    [
        {"candidates": {"content": {}}},
        {"candidates": ["Hi"]},
        {"candidates": [{"content": "Hi"}]},
        {"candidates": [{"content": {"parts": "Hi"}}]},
        {"candidates": [{"content": {"parts": ["Hi"]}}]},
        {"candidates": [{"content": {"parts": [{"functionCall": "f"}]}}]},
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": "{}"}}]}}]},
    ],
)
def test_answers_of_another_shape_are_faults(odd: Json) -> None:
    assert shape_of(completion(wire(odd, finishes()))) == "bad-shape"


def test_candidates_count_beside_a_block_reason() -> None:
    found = completion(wire({"promptFeedback": {"blockReason": "SAFETY"}, **message({"text": "Hi"}, finish="STOP")}))
    assert (found.text, found.choices[0].finish_reason) == ("Hi", "stop")
    assert {repair.code for repair in found.repairs} >= {"prompt-blocked"}

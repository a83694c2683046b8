"""One small capture per defect of the Converse API, as in `tests/core/test_captures.py`; and healthy answers."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from penstock import ReasoningPart
from penstock.core.dialects.detect import detect
from penstock.core.hub.content import OpaquePart
from penstock.core.wire.event_stream import EventStreamReader
from penstock.core.wire.frame import Frame
from penstock.gateway.record.failure import from_fault
from tests.bedrock import BEGIN, Json, bill, block, call, calls_all, delta, says_all, stops
from tests.bedrock import answer as answer_of
from tests.bedrock import body as body_of
from tests.dialect_reading import DialectReading
from tests.event_streams import event
from tests.expected import Call, Expected, Row, called, emitted, failed, repaired
from tests.provider_streams import BEDROCK as HEALTHY
from tests.provider_streams import TEXT, THOUGHT
from tests.streams import bytewise
from tests.translation.support import translated
from tests.written_again import assert_the_same_again, streamed, unstreamed

CONVERSE = DialectReading("bedrock_converse")
CAPTURES = Path(__file__).parents[2] / "captures" / CONVERSE.dialect
TIDE: Call = ("tide_1", "get_tide", '{"port":"Brest"}')
BILL = (7, 4, 11)


def row(code: str, count: int, line: int, text: str = "", **expected: Any) -> Row:
    return repaired(code, count, line, text, **({"usage": BILL} | expected))


def fails(code: str, line: int, words: str, text: str = "", **expected: Any) -> Row:
    return failed(code, line, words, text, **({"usage": BILL, "repairs": {"ignored-after-fault": (1, 3)}} | expected))


# The line of a defect is the number of its message.
EXPECTED: dict[str, Expected] = dict(
    (
        row("message-start-missing", 1, 1, "No preface."),
        row("message-start-repeated", 1, 2, "Once."),
        row("block-unclosed", 1, 3, "Open end."),
        row("block-stop-repeated", 1, 4, "Shut."),
        called("block-restarted", 1, 3, TIDE, text="See.", usage=BILL),
        row("block-index-missing", 1, 2, "Lost."),
        row("finish-unknown", 1, 4, "Out of words.", finish="vocabulary"),
        row("usage-mistyped", 1, 5, "Paid."),
        row("usage-total-differs", 1, 5, "Paid.", usage=(7, 4, 400)),
        (
            "data-after-done",
            Expected(
                text="Over.",
                usage=BILL,
                repairs={"data-after-done": (1, 6), "message-start-repeated": (1, 6)},
            ),
        ),
        row("event-unknown", 1, 3, "Still here."),
        row("split-surrogate", 1, 3, "Ahoy \N{SHIP}!"),
        row("tool-arguments-broken", 1, 4, calls=(("tide_1", "get_tide", '{"port":"Bre'),), finish="length"),
        called("tool-id-duplicate", 1, 5, TIDE, (None, *TIDE[1:]), usage=BILL),
        fails("tool-call-unnamed", 2, 'a tool call has no name: {"toolUseId": "tide_1", "name": ""}'),
        fails("bad-shape", 2, 'arguments of a tool call that was not started: "{}"'),
        fails("bad-json", 3, '{"contentBlockIndex":0,"delta":}', "Half",
              repairs={"block-unclosed": (1, 4), "ignored-after-fault": (2, 4)}),
        fails("provider-error", 3, "Too many tokens, please wait before trying again.", "The mill", usage=None,
              repairs={}),
        fails("event-stream-damaged", 3, "the checksum of a message is wrong", "The sluice", usage=None, repairs={}),
    )
)  # fmt: skip


def wire_of(code: str) -> bytes:
    return (CAPTURES / f"{code}.sse").read_bytes()


def test_every_capture_has_its_row() -> None:
    assert {path.stem for path in CAPTURES.glob("*.sse")} == EXPECTED.keys()


@pytest.mark.parametrize("code", EXPECTED)
def test_a_capture_is_read_as_it_should_be(code: str) -> None:
    wire = wire_of(code)
    assert structs.replace(emitted(CONVERSE.completion(wire)), native_finish=None) == EXPECTED[code]
    assert len(wire) < 2_000
    assert CONVERSE.events(*bytewise(wire)) == CONVERSE.events(wire)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_answer_is_read_without_repairs_and_never_completed_when_it_is_cut(name: str) -> None:
    wire = HEALTHY[name]
    answer = CONVERSE.completion(wire)
    assert (answer.ending, answer.text, answer.repairs) == ("completed", TEXT, ())
    assert detect([wire]).dialect == "bedrock_converse"
    end = wire.find(b"messageStop")
    for length in range(0, end if end >= 0 else len(wire) - 1, 3):
        assert CONVERSE.completion(wire[:length]).ending in ("truncated", "failed"), length


@pytest.mark.parametrize("name", ["thinking and a call", "unstreamed"])
def test_reasoning_its_signature_calls_and_usage_are_read(name: str) -> None:
    answer = CONVERSE.completion(HEALTHY[name])
    choice = answer.choices[0]
    (part,) = [part for part in choice.parts if isinstance(part, ReasoningPart)]
    assert part.text == THOUGHT
    assert [(seal.scheme, seal.value, seal.redacted) for seal in part.seals] == [("bedrock", "c2ln", False)]
    assert [(call.id, json.loads(call.arguments)["port"]) for call in choice.tool_calls] == [("tooluse_1", "Brest")]
    usage = answer.usage
    assert usage is not None
    assert (usage.input, usage.output, usage.total) == (7, 4, 11)
    assert (usage.cached, usage.cache_write, usage.cache_write_1h) == (2, 1, 1)


@pytest.mark.parametrize("missing", ["inputTokens", "outputTokens"])
def test_a_count_that_is_missing_is_the_rest_of_the_total(missing: str) -> None:
    counts = {"inputTokens": 4, "outputTokens": 4, "totalTokens": 11, "cacheReadInputTokens": 3}
    usage = CONVERSE.completion(finished("end_turn") + bill({**counts, missing: None})).usage
    assert usage is not None
    assert (usage.input, usage.output) == (7, 4)


REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}


def test_a_second_report_is_read_with_the_first_because_input_tokens_exclude_the_cache() -> None:
    first = {"inputTokens": 4, "outputTokens": 4, "totalTokens": 10, "cacheReadInputTokens": 2}
    second = {"inputTokens": 5, "cacheReadInputTokens": None, "totalTokens": 11}
    usage = CONVERSE.completion(answer_of(says_all("Hi."), bill(first), usage=second)).usage
    assert usage is not None
    assert (usage.input, usage.output, usage.total, usage.cached) == (7, 4, 11, 2)
    placeholder = CONVERSE.completion(answer_of(says_all("Hi."), bill(first), usage={"inputTokens": 0})).usage
    assert placeholder is not None
    assert (placeholder.input, placeholder.total) == (6, 10)


def test_a_call_without_a_name_fails_an_unstreamed_answer_too() -> None:
    reported = CONVERSE.completion(body_of({"toolUse": {}}, reason="tool_use"))
    assert (reported.ending, reported.fault and reported.fault.code) == ("failed", "tool-call-unnamed")


def finished(reason: str, **fields: object) -> bytes:
    return b"".join(
        (
            event("messageStart", {"role": "assistant"}),
            event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hi"}}),
            event("contentBlockStop", {"contentBlockIndex": 0}),
            event("messageStop", {"stopReason": reason, **fields}),
        )
    )


@pytest.mark.parametrize("native", REASONS)
def test_the_reasons_are_mapped_and_an_answer_without_usage_is_complete(native: str) -> None:
    answer = CONVERSE.completion(finished(native))
    choice = answer.choices[0]
    assert (answer.ending, answer.usage) == ("completed", None)
    assert (choice.finish_reason, choice.native_finish_reason) == (REASONS[native], native)


@pytest.mark.parametrize("end", [0, 30])
def test_an_answer_whose_usage_is_missing_or_cut_has_no_end_marker(end: int) -> None:
    answer = CONVERSE.completion(finished("end_turn") + bill()[:end])
    assert (answer.ending, answer.usage) == ("completed", None)
    assert [repair.code for repair in answer.repairs] == ["no-done"]


@pytest.mark.parametrize("garbage", [b"\0\1", b"and then some", b"\0" * 40, bill()[:-1] + b"?"])
def test_garbage_after_a_complete_answer_belongs_to_nothing(garbage: bytes) -> None:
    answer = CONVERSE.completion(HEALTHY["text"] + garbage)
    assert (answer.ending, answer.text) == ("completed", TEXT)
    assert [repair.code for repair in answer.repairs] == ["data-after-done"]


@pytest.mark.parametrize("native", ["malformed_model_output", "malformed_tool_use"])
def test_an_answer_that_cannot_be_used_has_failed(native: str) -> None:
    answer = CONVERSE.completion(finished(native))
    assert (answer.ending, answer.fault and answer.fault.code) == ("failed", "provider-error")


def test_the_stop_sequence_is_reported_if_the_provider_names_it() -> None:
    answer = CONVERSE.completion(finished("stop_sequence", additionalModelResponseFields={"stop_sequence": "END"}))
    assert answer.choices[0].stop_sequence == "END"


def test_throttling_in_a_stream_is_a_rate_limit() -> None:
    fault = CONVERSE.completion(wire_of("provider-error")).fault
    assert fault is not None
    failure = from_fault(fault)
    assert (failure.code, failure.retryable, failure.upstream_status) == ("upstream_rate_limited", True, 429)


def test_redacted_reasoning_citations_and_images_are_read() -> None:
    deltas = (
        {"reasoningContent": {"redactedContent": "cmVk"}},
        {"text": "Cited."},
        {
            "citation": {
                "title": "Tides",
                "sourceContent": [{"text": "at 6"}],
                "location": {"web": {"url": "https://t.example"}},
            }
        },
    )
    wire = event("messageStart", {"role": "assistant"}) + b"".join(
        event("contentBlockDelta", {"contentBlockIndex": min(index, 1), "delta": delta})
        for index, delta in enumerate(deltas)
    )
    parts = CONVERSE.completion(wire).choices[0].parts
    assert [type(part).__name__ for part in parts] == ["ReasoningPart", "TextPart"]
    assert "cmVk" in str(parts[0])
    assert "https://t.example" in str(parts[1])


def test_events_as_sdks_print_them_are_read() -> None:
    lines = [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Printed."}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"messageStop": {"stopReason": "end_turn"}},
    ]
    answer = CONVERSE.completion(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert (answer.ending, answer.text) == ("completed", "Printed.")


def texts(*deltas: tuple[int, Json]) -> bytes:
    """A message whose blocks take turns."""
    return BEGIN + b"".join(delta(index, **fields) for index, fields in deltas) + stops() + bill()


THOUGHT_OF: Json = {"reasoningContent": {"text": "Hm."}}


@pytest.mark.parametrize("client", ["openai_chat", "anthropic_messages", "openai_responses", "gemini"])
def test_blocks_that_take_turns_reach_every_client(client: str) -> None:
    wire = texts((1, {"text": "High"}), (0, THOUGHT_OF), (1, {"text": " water"}), (0, THOUGHT_OF))
    answer = CONVERSE.completion(wire)
    assert (answer.ending, answer.text, answer.choices[0].reasoning) == ("completed", "High water", "Hm.Hm.")
    written, losses = translated(CONVERSE.dialect, client, wire)
    assert b" water" in written
    assert losses == []


RESULT = {"toolUseId": "srv_1", "type": "nova_grounding_result", "status": "success"}
FOUND: tuple[Json, ...] = ({"json": {"hits": 3}}, {"text": "At 6."}, {"json": {"hits": 1}})
SERVER_CALL = calls_all("srv_1", '{"query":"tide"}', name="nova_grounding", type="server_tool_use")


def result_in_pieces(*pieces: object) -> bytes:
    deltas = b"".join(delta(1, toolResult=piece) for piece in pieces)
    return block("Start", 1, start={"toolResult": RESULT}) + deltas + block("Stop", 1)


def test_the_result_of_a_provider_s_own_tool_is_whole_for_a_client_of_the_same_api() -> None:
    wire = answer_of(SERVER_CALL, result_in_pieces(FOUND[:1], FOUND[1:]), says_all("High.", index=2))
    (part,) = [part for part in CONVERSE.completion(wire).choices[0].parts if isinstance(part, OpaquePart)]
    assert (part.type, part.data) == ("toolResult", {"toolResult": RESULT | {"content": list(FOUND)}})
    assert_the_same_again(CONVERSE.dialect, wire)
    written, _ = translated(CONVERSE.dialect, CONVERSE.dialect, wire)
    sent = [json.loads(frame.data) for frame in EventStreamReader(100_000).feed(written) if isinstance(frame, Frame)]
    assert [value["delta"] for value in sent if "toolResult" in value.get("delta", ())] == [{"toolResult": list(FOUND)}]


@pytest.mark.parametrize("type", ["newBlock", "document"])
def test_a_block_of_an_unknown_type_is_whole_for_a_client_of_the_same_api(type: str) -> None:
    wire = body_of({"text": "See."}, {type: {"name": "Tides"}})
    answer = CONVERSE.completion(wire)
    written, losses = unstreamed(CONVERSE.dialect, answer)
    assert losses == []
    assert json.loads(written)["output"]["message"]["content"] == [{"text": "See."}, {type: {"name": "Tides"}}]
    stream, losses = streamed(CONVERSE.dialect, CONVERSE.events(wire))
    assert losses == []
    assert b'{"start":{"%b":{"name":"Tides"}}' % type.encode() in stream


def test_a_piece_of_a_result_that_is_no_list_is_kept_as_an_unknown_event() -> None:
    answer = CONVERSE.completion(answer_of(SERVER_CALL, result_in_pieces("three")))
    assert (answer.ending, [repair.code for repair in answer.repairs]) == ("completed", ["event-unknown"])


def test_a_delta_that_could_belong_to_several_blocks_is_a_fault() -> None:
    calls = b"".join(block("Start", index, start=call(f"c{index}")) for index in range(2))
    piece = event("contentBlockDelta", {"delta": {"toolUse": {"input": "{}"}}})
    answer = CONVERSE.completion(BEGIN + calls + piece + stops("tool_use") + bill())
    assert (answer.ending, answer.fault and answer.fault.code) == ("failed", "bad-shape")

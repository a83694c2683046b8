"""What the reader of OpenAI Responses makes of streams: the deviations of compatible servers, usage, errors, ends."""

import json

import pytest

from penstock import (
    Annotation,
    BlockEnd,
    BlockStart,
    Extra,
    MediaPart,
    OpaquePart,
    ReasoningPart,
    RefusalPart,
    Repair,
    StreamWriter,
    TextPart,
    ToolCall,
)
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.openai_responses.usage import read_usage
from penstock.core.dialects.registry import upstream_dialect
from penstock.core.hub.content import ReasoningSeal
from penstock.core.hub.seals import unwrap
from penstock.core.hub.sink import Sink
from penstock.core.hub.usage import Tokens
from tests.legal import violations
from tests.responses import (
    CITATION,
    DIALECT,
    HEALTHY,
    IMAGE,
    SEARCH,
    TIDE,
    USAGE,
    Json,
    added,
    answer,
    answer_events,
    begins,
    calls_all,
    completes,
    completion,
    custom,
    done,
    error,
    events_of,
    fails,
    fold,
    function,
    items_of,
    message,
    named,
    of_item,
    part,
    passes,
    reasoning,
    response,
    says,
    says_all,
    stops,
    wire,
)
from tests.streams import bytewise, repairs

FACTS = AnswerFacts(call_id="req_1", model="m", created=0)


def codes(*data: bytes) -> dict[str, int]:
    return repairs(events_of(*data))


def parts(data: bytes) -> list[object]:
    (choice,) = completion(data).choices
    return list(choice.parts)


# Healthy streams.


@pytest.mark.parametrize("data", HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_stream_has_no_defect(data: bytes) -> None:
    events = events_of(data)
    assert violations(events) == []
    assert repairs(events) == {}
    assert events_of(*bytewise(data)) == events


@pytest.mark.parametrize("name", [name for name in HEALTHY if name != "failed"])
def test_a_body_says_the_same_as_its_stream(name: str) -> None:
    streamed = completion(HEALTHY[name])
    last = json.loads(HEALTHY[name].decode().strip().splitlines()[-1].removeprefix("data: "))
    body = completion(json.dumps(last["response"]).encode())
    assert body.repairs == ()
    assert (body.id, body.model, body.created) == (streamed.id, streamed.model, streamed.created)
    assert (body.ending, body.choices, body.usage) == (streamed.ending, streamed.choices, streamed.usage)


@pytest.mark.parametrize("data", HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_stream_is_the_same_when_it_was_written_and_read_again(data: bytes) -> None:
    events = events_of(data)
    writer = StreamWriter.for_call(DIALECT, FACTS)
    again = events_of(writer.write(events))
    assert writer.losses == []
    assert repairs(again) == {}
    if fold(events).ending == "completed":
        assert answer_events(again) == answer_events(events)
    assert fold(again).ending == fold(events).ending


@pytest.mark.parametrize("name", [name for name in HEALTHY if name != "failed"])
def test_a_healthy_answer_is_the_same_as_a_body(name: str) -> None:
    whole = completion(HEALTHY[name])
    again = completion(StreamWriter.for_call(DIALECT, FACTS).write_body(whole))
    assert (again.id, again.model, again.ending, again.repairs) == (whole.id, whole.model, "completed", ())
    assert (again.choices, again.usage) == (whole.choices, whole.usage)


def test_text_keeps_the_id_the_phase_and_the_order_of_its_items() -> None:
    opening, first, second = parts(HEALTHY["two calls"])
    assert opening == TextPart("Let me see.", extras={"id": "msg_1", "phase": "commentary"})
    assert first == ToolCall("call_1", "get_tide", TIDE, extras={"id": "fc_1"})
    assert second == ToolCall("call_2", "get_wind", "{}", extras={"id": "fc_2"}, namespace="weather")
    assert completion(HEALTHY["two calls"]).choices[0].finish_reason == "tool_calls"


def test_a_custom_call_has_free_text() -> None:
    assert parts(HEALTHY["custom call"]) == [ToolCall("call_1", "exec", "ls -l\n", "custom", {"id": "ctc_1"})]


def test_summaries_reasoning_and_seals() -> None:
    summary = parts(HEALTHY["summary"])[0]
    assert isinstance(summary, ReasoningPart)
    assert (summary.text, len(summary.summary), summary.extras) == ("", 2, {"id": "rs_1"})
    assert [(seal.scheme, seal.value) for seal in summary.seals] == [("openai", "gAAAseal")]
    raw = parts(HEALTHY["reasoning"])[0]
    assert isinstance(raw, ReasoningPart)
    assert (raw.text, raw.summary) == ("Hm, well", ())
    sealed = parts(HEALTHY["sealed reasoning"])[0]
    assert isinstance(sealed, ReasoningPart)
    assert [seal.value for seal in sealed.seals] == ["gAAAseal"]  # that of the whole item


def test_encrypted_reasoning_is_wrapped_with_its_issuer() -> None:
    """OpenAI refuses the encrypted reasoning of another account, for the rest of a conversation."""
    facts = AnswerFacts(call_id="req_1", model="m", created=0, issuer="0badcafe")
    streamed = completion(StreamWriter.for_call(DIALECT, facts).write(events_of(HEALTHY["summary"])))
    body = completion(StreamWriter.for_call(DIALECT, facts).write_body(completion(HEALTHY["summary"])))
    for answered in (streamed, body):
        thought = answered.choices[0].parts[0]
        assert isinstance(thought, ReasoningPart)
        assert unwrap(thought.seals[0].value) == (ReasoningSeal("openai", "gAAAseal"), "0badcafe")


def test_a_refusal_is_a_part_of_a_message() -> None:
    assert parts(HEALTHY["refusal"]) == [RefusalPart("I cannot.", {"id": "msg_1"})]


def test_an_image_is_media() -> None:
    image = parts(HEALTHY["image"])[0]
    assert image == MediaPart(kind="image", mime="image/png", data="d2hvbGU=", extras=IMAGE)


def test_items_of_other_types_are_kept_with_their_events() -> None:
    events = events_of(HEALTHY["search"])
    kept = [event.fields for event in events if isinstance(event, Extra) and event.place == "event"]
    assert [fields["type"] for fields in kept] == [
        "response.output_item.added",
        "response.web_search_call.in_progress",
        "response.web_search_call.searching",
        "response.web_search_call.completed",
    ]
    assert all("sequence_number" not in fields for fields in kept)
    assert BlockStart(0, 0, "opaque", "ws_1", "web_search_call", SEARCH) in events
    assert Annotation(0, 1, "https://tides.example", "Tides", "", 0, 12, CITATION) in events
    assert parts(HEALTHY["unknown item"])[0] == OpaquePart(
        DIALECT, "tide_chart", {"id": "tc_1", "type": "tide_chart", "levels": [1, 2]}
    )


def test_a_kept_event_names_its_block() -> None:
    data = answer(*says_all("One."), added(5, SEARCH), of_item("web_search_call.searching", 5, "ws_9"), done(5, SEARCH))
    kept = [event.fields for event in events_of(data) if isinstance(event, Extra) and event.place == "event"]
    assert [(fields["output_index"], fields.get("item_id")) for fields in kept] == [(1, None), (1, "ws_1")]


def test_a_message_may_have_several_parts() -> None:
    two = message(part("One. "), part("Two."))
    data = answer(
        added(0, message(status="in_progress")),
        of_item("content_part.added", 0, "msg_1", content_index=0, part=part()),
        says("One. "),
        of_item("content_part.added", 0, "msg_1", content_index=1, part=part()),
        says("Two.", content_index=1),
        done(0, two),
    )
    assert codes(data) == {}
    assert parts(data) == [TextPart("One. ", extras={"id": "msg_1"}), TextPart("Two.", extras={"id": "msg_1"})]


def test_a_part_of_an_unknown_type_is_kept() -> None:
    odd = {"type": "tide_table", "rows": [1]}
    found = parts(answer(*says_all("See: ")[:3], done(0, message(part("See: "), odd))))
    assert found[0] == TextPart("See: ", extras={"id": "msg_1"})
    assert isinstance(found[1], OpaquePart)
    assert found[1].data["content"] == [odd]


def test_an_empty_message_is_a_part() -> None:
    assert parts(answer(added(0, message()), done(0, message()))) == [TextPart("", extras={"id": "msg_1"})]


def test_an_unknown_event_may_have_nothing_but_its_type() -> None:
    events = events_of(answer({"type": "response.tide_turned"}, *says_all("Hi")))
    assert Extra("event", {"type": "response.tide_turned"}) in events
    assert answer_events(events_of(StreamWriter.for_call(DIALECT, FACTS).write(events))) == answer_events(events)


@pytest.mark.parametrize("type", ["x", "response.web_search_call.x"], ids=["of no item", "of an opaque item"])
def test_an_unknown_event_cannot_write_another_one(type: str) -> None:
    trick = {"type": f"{type}\ndata: {{}}\n\nevent: error", "item_id": "ws_1", "output_index": 0}
    data = f"data: {json.dumps(trick)}\n\n"
    events = events_of(answer(added(0, SEARCH), data, done(0, SEARCH), *says_all("Hi", index=1)))
    assert "event-unknown" in {event.code for event in events if isinstance(event, Repair)}
    assert b"error\n" not in StreamWriter.for_call(DIALECT, FACTS).write(events)


def test_what_begins_after_the_end_ends() -> None:
    data = wire(*begins(), *says_all("Hi"), completes(message(part("Hi"))), added(1, function("")))
    assert codes(data) == {
        "data-after-done": 1,
        "content-after-finish": 2,
        "block-unclosed": 1,
        "finish-stop-with-tools": 1,
    }
    assert completion(data).choices[0].tool_calls[0].arguments == "{}"


def test_log_probabilities_come_before_their_text() -> None:
    logprob = {"token": "Hi", "logprob": -0.1}
    events = events_of(answer(added(0, message()), says("Hi", logprobs=[logprob]), done(0, message(part("Hi")))))
    assert Extra("choice", {"logprobs": {"content": [logprob]}}, 0) in events
    assert completion(answer(added(0, message()), says("Hi", logprobs=[logprob]))).choices[0].extras == {
        "logprobs": {"content": [logprob]}
    }


def test_fields_of_the_response_are_kept_once_and_again_when_they_change() -> None:
    data = answer(
        *says_all("Hi"),
        begin=begins(temperature=1.0, service_tier="auto", user=None),
        finish=completes(message(part("Hi")), temperature=1.0, service_tier="default", user=None),
    )
    kept = [event.fields for event in events_of(data) if isinstance(event, Extra) and event.place == "chunk"]
    assert kept == [{"temperature": 1.0, "service_tier": "auto", "user": None}, {"service_tier": "default"}]
    usage = completion(data).usage
    assert usage is not None
    assert usage.tier == "default"


def test_what_is_known_of_an_item_only_at_its_end_ends_its_block() -> None:
    """OpenRouter adds the format and the signature of reasoning to the whole item."""
    data = answer(
        added(0, reasoning()),
        of_item("reasoning_summary_text.delta", 0, "rs_1", summary_index=0, delta="Hm"),
        done(0, reasoning("Hm", format="anthropic-claude-v1", signature="EqQB")),
    )
    late: Json = {"format": "anthropic-claude-v1", "signature": "EqQB"}
    assert BlockEnd(0, 0, late) in events_of(data)
    (thought,) = parts(data)
    assert isinstance(thought, ReasoningPart)
    assert thought.extras == {"id": "rs_1"} | late


# Deviations.


def test_a_stream_may_have_nothing_but_whole_items() -> None:
    """This is the least that Codex accepts."""
    data = answer(done(0, message(part("High tide."))), done(1, function()))
    assert codes(data) == {"block-start-missing": 2}
    assert [type(part) for part in parts(data)] == [TextPart, ToolCall]
    assert completion(data).choices[0].finish_reason == "tool_calls"


def test_an_answer_may_be_in_the_last_event_alone() -> None:
    data = answer(finish=completes(message(part("High tide.")), function()))
    assert codes(data) == {"block-start-missing": 2}
    assert completion(data).text == "High tide."


def test_deltas_without_their_item_start_it() -> None:
    data = answer(says("High "), says("tide."), finish=completes())
    assert codes(data) == {"block-start-missing": 1, "block-unclosed": 1, "output-missing": 1}
    assert completion(data).text == "High tide."


def test_arguments_may_come_as_a_whole() -> None:
    data = answer(
        added(0, function("")),
        of_item("function_call_arguments.done", 0, "fc_1", arguments=TIDE),
        done(0, function()),
    )
    assert codes(data) == {"deltas-missing": 1}
    assert completion(data).choices[0].tool_calls[0].arguments == TIDE


def test_arguments_after_the_end_of_their_call_are_ignored() -> None:
    late = of_item("custom_tool_call_input.done", 0, "ctc_1", input="ls")
    data = answer(added(0, custom()), done(0, custom()), late, finish=completes(custom()))
    assert violations(events_of(data)) == []
    assert completion(data).ending == "completed"


def test_a_call_is_known_once_it_has_a_name() -> None:
    data = answer(added(0, function("", name="")), passes(TIDE), done(0, function()))
    assert completion(data).choices[0].tool_calls == (ToolCall("call_1", "get_tide", TIDE, extras={"id": "fc_1"}),)
    fault = completion(answer(added(0, function("", name="")), done(0, function(name="")))).fault
    assert fault is not None
    assert fault.code == "tool-call-unnamed"


def test_a_call_without_arguments_has_an_empty_object() -> None:
    data = answer(added(0, function("")), done(0, function("")))
    assert codes(data) == {}
    assert completion(data).choices[0].tool_calls[0].arguments == "{}"


def test_text_of_an_announcement_counts_once() -> None:
    whole = [done(0, message(part("High tide.")))]
    repeated = answer(added(0, message(part("High "))), says("High "), says("tide."), *whole)
    continued = answer(added(0, message(part("High "))), says("tide."), *whole)
    alone = answer(added(0, message(part("High tide."))), *whole)
    assert [completion(data).text for data in (repeated, continued, alone)] == ["High tide."] * 3


def test_items_that_overlap_keep_their_text() -> None:
    data = answer(
        added(0, message(status="in_progress")),
        says("One, "),
        added(1, message(id="msg_2", status="in_progress")),
        says("three, ", 1, "msg_2"),
        says("two.", 0),
        says("four.", 1, "msg_2"),
        done(0, message(part("One, two."))),
        done(1, message(part("three, four."), id="msg_2")),
    )
    assert codes(data) == {"items-overlap": 1}
    texts = [(part.text, part.extras["id"]) for part in parts(data) if isinstance(part, TextPart)]
    assert texts == [("One, ", "msg_1"), ("three, ", "msg_2"), ("two.", "msg_1"), ("four.", "msg_2")]


def test_calls_may_overlap() -> None:
    first, second = calls_all(), calls_all('{"port":"Cork"}', index=1, id="fc_2", call_id="call_2")
    data = answer(
        *(event for pair in zip(first, second, strict=True) for event in pair),
        finish=completes(*items_of(first), *items_of(second)),
    )
    assert codes(data) == {"items-overlap": 1}
    assert [call.arguments for call in completion(data).choices[0].tool_calls] == [TIDE, '{"port":"Cork"}']


def test_searches_on_x_are_calls_of_the_provider() -> None:
    searched = custom('{"query":"tides"}', name="x_keyword_search")
    events = [
        added(0, custom(name="x_keyword_search")),
        of_item("custom_tool_call_input.delta", 0, "ctc_1", delta='{"query":"tides"}'),
        done(0, searched),
    ]
    hosted = begins(tools=[{"type": "x_search"}, {"type": "custom", "name": "exec"}])
    (found,) = completion(answer(*events, begin=hosted)).choices
    assert (found.finish_reason, found.tool_calls) == ("stop", ())
    assert found.parts == (OpaquePart(DIALECT, "custom_tool_call", searched),)
    (own,) = completion(answer(*events, begin=begins(tools=[{"type": "web_search"}]))).choices
    assert (own.finish_reason, len(own.tool_calls)) == ("tool_calls", 1)


def test_an_item_id_that_changes_is_reported_once() -> None:
    data = answer(
        added(0, message(status="in_progress")), *(says("x", id=f"msg_{n}") for n in range(2, 9)), done(0, message())
    )
    assert codes(data)["item-id-changed"] == 1
    assert parts(data) == [TextPart("x" * 7, extras={"id": "msg_1"})]


def test_a_number_of_the_next_stream_is_a_gap_but_a_first_one_is_not() -> None:
    events = [*begins(), *says_all("Hi"), completes(message(part("Hi")))]
    data = b"".join(named({"sequence_number": number} | event) for number, event in enumerate(events, 5))
    assert codes(data) == {}


def test_half_a_character_waits_for_the_other_half() -> None:
    tide = "🌊"
    whole = wire(*begins(), *says_all("a", "b"), completes(message(part("ab")))).decode()
    split = whole.replace('"delta":"a"', '"delta":"\\ud83c"').replace('"delta":"b"', '"delta":"\\udf0a"')
    data = split.replace('"ab"', f'"{tide}"').encode()
    assert codes(data) == {"split-surrogate": 1}
    assert completion(data).text == tide


def test_a_line_of_text_that_is_no_text_is_a_fault() -> None:
    fault = completion(answer(added(0, message()), says("x") | {"delta": {"text": "x"}})).fault
    assert fault is not None
    assert fault.code == "bad-shape"


# Usage.


def bill(usage: Json) -> Tokens | None:
    reported = completion(answer(*says_all("Hi"), finish=completes(message(part("Hi")), usage=usage))).usage
    return Tokens.of(reported) if reported is not None else None


def test_parts_are_inside_their_wholes() -> None:
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 20},
        "output_tokens": 50,
        "output_tokens_details": {"reasoning_tokens": 30},
        "total_tokens": 150,
    }
    assert bill(usage) == Tokens(input=100, cached=60, cache_write=20, output=50, reasoning=30)


@pytest.mark.parametrize("count", [0, 3, -1, 10**1001, "3", 3.0, True, None])
@pytest.mark.parametrize("name", ["input_tokens", "total_tokens", "cached_tokens"])
def test_a_usage_with_the_usual_members_is_read_as_any_other(name: str, count: object) -> None:
    usage: Json = USAGE | ({"input_tokens_details": {name: count}} if name == "cached_tokens" else {name: count})
    reports = []
    for raw in (usage, usage | {"num_sources_used": 0}):
        sink = Sink()
        reports.append((read_usage(raw, sink, tier="flex").counts(), sink.events))
    assert reports[0] == reports[1]


def test_tools_of_xai_are_counted() -> None:
    details = {"web_search_calls": 2, "x_search_calls": 0}
    usage = USAGE | {"cost_in_usd_ticks": 1, "server_side_tool_usage_details": details}
    reported = completion(answer(*says_all("Hi"), finish=completes(message(part("Hi")), usage=usage))).usage
    assert reported is not None
    assert (reported.tool_requests, reported.raw) == ({"web_search": 2}, usage)


def test_usage_of_a_failure_is_booked() -> None:
    failed = fails()
    failed["response"]["usage"] = USAGE
    usage = completion(answer(*says_all("Hi")[:3], finish=failed)).usage
    assert usage is not None
    assert usage.total == 11


# Ends.


def test_an_incomplete_response_says_why() -> None:
    for native, reason in (("max_output_tokens", "length"), ("content_filter", "content_filter")):
        (choice,) = completion(answer(*says_all("Once"), finish=stops(native, message(part("Once"))))).choices
        assert (choice.finish_reason, choice.native_finish_reason) == (reason, native)


def test_an_unknown_reason_stays_one() -> None:
    data = answer(*says_all("Once"), finish=stops("vocabulary", message(part("Once"))))
    assert codes(data) == {"finish-unknown": 1}
    written = StreamWriter.for_call(DIALECT, FACTS).write(events_of(data))
    assert completion(written).choices[0].finish_reason == "vocabulary"
    body = json.loads(StreamWriter.for_call(DIALECT, FACTS).write_body(completion(data)))
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "vocabulary"})


def test_a_response_without_a_reason_and_usage_gets_none() -> None:
    cut = {"type": "response.incomplete", "response": response("incomplete", message(part("Once")))}
    data = answer(*says_all("Once"), finish=cut)
    body = json.loads(StreamWriter.for_call(DIALECT, FACTS).write_body(completion(data)))
    assert (body["status"], body["incomplete_details"], body["usage"]) == ("incomplete", None, None)


def test_the_status_of_the_response_counts() -> None:
    failed = {"type": "response.completed", "response": fails("Dry")["response"]}
    assert completion(answer(*says_all("Hi"), finish=failed)).ending == "failed"
    stopped = {"type": "response.completed", "response": stops("max_output_tokens", message(part("Hi")))["response"]}
    assert completion(answer(*says_all("Hi"), finish=stopped)).choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    "event",
    [
        error("Slow down"),
        {"type": "error", "code": "rate_limit_exceeded", "message": "Slow down", "param": None},
        {"code": "rate-limited", "error": "Slow down"},
        fails("Slow down"),
    ],
    ids=["nested", "flat", "xAI", "failed"],
)
def test_an_error_fails_the_answer_in_the_providers_words(event: Json) -> None:
    answered = completion(wire(*begins(), *says_all("Hi")[:3], {"type": ""} | event))
    assert (answered.ending, answered.text) == ("failed", "Hi")
    assert answered.fault is not None
    assert (answered.fault.code, answered.fault.message) == ("provider-error", "Slow down")
    assert answered.fault.provider


def test_a_sentinel_is_no_end() -> None:
    answered = completion(wire(*begins(), *says_all("Hi"), "data: [DONE]\n\n"))
    assert (answered.ending, answered.text) == ("truncated", "Hi")


@pytest.mark.parametrize(("status", "ending"), [("queued", "truncated"), ("cancelled", "failed")])
def test_a_body_that_is_not_complete(status: str, ending: str) -> None:
    assert completion(json.dumps(response(status)).encode()).ending == ending


def test_an_error_body_is_read() -> None:
    upstream = upstream_dialect(DIALECT)
    nested = json.dumps({"error": {"message": "No such model", "code": "model_not_found"}}).encode()
    assert upstream.read_error(nested).envelope == nested
    flat = upstream.read_error(b'{"code":"invalid-argument","error":"Incorrect API key"}')
    assert (flat.message, flat.envelope) == ("Incorrect API key", b"")
    assert upstream.read_error(b"[]").message == ""

"""Events that are neither an answer nor an error: heartbeats, notices, second answers, unexpected text."""

import pytest

from penstock import Fault, Repair, Start, StreamReader, StreamWriter
from penstock.core.dialects.registry import clients_speak, providers_speak, upstream_dialect
from penstock.core.hub.sink import Sink
from tests.invariants import SlowReader
from tests.streams import (
    DONE,
    Json,
    begins,
    bill,
    calls,
    chunk,
    completion,
    delta,
    dumps,
    finishes,
    piece,
    read,
    says,
    sse,
    tool_calls,
)

HEARTBEATS: dict[str, bytes] = {
    "a named event with a word": b"event: ping\ndata: ping\n\n",
    "a named event with a time": b"event: heartbeat\ndata: 2026-01-01T00:00:00Z\n\n",
    "a word alone": b"data: keep-alive\n\n",
    "a named event with a message": b'event: ping\ndata: {"message":"still here"}\n\n',
    "a type with a message": b'data: {"type":"ping","message":"still here"}\n\n',
    "a notice under a name of its own": b'event: warning\ndata: {"message":"slow today"}\n\n',
    "a status that says that all is well": b'data: {"code":0,"msg":"success"}\n\n',
    "a message that says that all is well": b'data: {"status":"ok","message":"done"}\n\n',
}


@pytest.mark.parametrize("heartbeat", HEARTBEATS.values(), ids=HEARTBEATS)
def test_a_heartbeat_changes_nothing(heartbeat: bytes) -> None:
    wire = heartbeat + sse(begins(), says("H")) + heartbeat + sse(says("i"), finishes()) + heartbeat + sse(DONE)
    answer = completion(wire)
    assert (answer.text, answer.ending) == ("Hi", "completed")
    assert {repair.code: repair.count for repair in answer.repairs} == {"keepalive-event": 3}


ERRORS: dict[str, tuple[Json, str]] = {
    "a fault": ({"fault": {"faultstring": "Rate limit"}}, "Rate limit"),
    "a problem document": ({"type": "about:blank", "title": "Too Many Requests", "status": 429}, "Too Many Requests"),
    "an error in capitals": ({"Error": {"Code": "Throttled", "Message": "Slow down"}}, "Slow down"),
    "an error message in camel case": ({"errorMessage": "Out of memory"}, "Out of memory"),
    "no success": ({"success": False, "reason": "No credit"}, "No credit"),
}


@pytest.mark.parametrize(("error", "words"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_reported_in_its_own_words(error: Json, words: str) -> None:
    for before in ((), (begins(), says("H"))):
        answer = completion(sse(*before, error))
        assert answer.fault is not None
        assert (answer.ending, answer.fault.code, answer.fault.message) == ("failed", "provider-error", words)


def test_an_answer_that_is_unknown_is_quoted() -> None:
    answer = completion(b'{"Response":{"RequestId":"7"}}')
    assert answer.fault is not None
    assert (answer.fault.code, "RequestId" in answer.fault.message) == ("empty-stream", True)


@pytest.mark.parametrize("reason", ["failed", "timeout", "cancelled", "MALFORMED_FUNCTION_CALL"])
def test_a_finish_reason_that_means_failure_is_a_fault(reason: str) -> None:
    assert completion(sse(begins(), says("Hi"), finishes(reason), DONE)).ending == "failed"


@pytest.mark.parametrize("reason", ["stop ", "FINISH_REASON_STOP"])
def test_a_finish_reason_is_known_through_its_clothes(reason: str) -> None:
    assert completion(sse(begins(), says("Hi"), finishes(reason), DONE)).choices[0].finish_reason == "stop"


MISPLACED: dict[str, Json] = {
    "text beside an empty delta": chunk({"index": 0, "delta": {}, "text": "Hi"}),
    "text beside a role": chunk({"index": 0, "delta": {"role": "assistant"}, "text": "Hi"}),
    "text in the delta": delta({"text": "Hi"}),
    "a part of another name": says([{"type": "input_text", "text": "Hi"}]),
}


@pytest.mark.parametrize("payload", MISPLACED.values(), ids=MISPLACED)
def test_text_is_found_where_it_stands(payload: Json) -> None:
    answer = completion(sse(payload, finishes(), DONE))
    assert (answer.text, answer.ending) == ("Hi", "completed")


def test_a_part_that_refuses_is_a_refusal() -> None:
    answer = completion(sse(begins(), says([{"type": "refusal", "refusal": "No."}]), finishes(), DONE))
    assert (answer.choices[0].refusal, answer.text) == ("No.", "")


def test_a_second_answer_behind_done_is_refused() -> None:
    first = sse(begins(), says("Hi"), finishes(), DONE)
    answer = completion(first + first.replace(b"chatcmpl-1", b"chatcmpl-2"))
    assert (answer.text, answer.ending) == ("Hi", "failed")


@pytest.mark.parametrize(
    "rubbish", [b"0\r\n\r\n", b"data: bye\n\n", b"good bye\n", sse(bill())[:-9], sse(finishes())[:30], b"data: [DO"]
)
def test_rubbish_behind_done_breaks_nothing(rubbish: bytes) -> None:
    answer = completion(sse(begins(), says("Hi"), finishes(), DONE) + rubbish)
    assert (answer.text, answer.ending) == ("Hi", "completed")
    assert [repair.code for repair in answer.repairs] == ["data-after-done"]


@pytest.mark.parametrize("done", [b"data: DONE\n\n", b'data: ["DONE"]\n\n'])
def test_done_is_known_without_its_brackets(done: bytes) -> None:
    assert completion(sse(begins(), says("Hi"), finishes()) + done).ending == "completed"


def test_an_array_may_hold_nothing_and_done() -> None:
    elements = ",".join(sse(begins(), says("Hi"), finishes(), prefix="", end="\n").decode().split("\n")[:-1])
    answer = completion(f'[{elements},null,"[DONE]"]'.encode())
    assert (answer.text, answer.ending) == ("Hi", "completed")


@pytest.mark.parametrize("string", ['"a\\"b"', '"\\\\"', '"\\\\\\""', '"]"', '"\\u0022,{"', '""'])
def test_an_array_may_hold_strings_with_escapes(string: str) -> None:
    elements = [dumps(element) for element in (begins(), says("Hi"), finishes())]
    wire = f"[{','.join([*elements[:1], string, *elements[1:], string])}]".encode()
    assert (completion(wire).text, completion(wire).ending) == ("Hi", "completed")
    for size in (1, 2, 3):
        assert read(*(wire[i : i + size] for i in range(0, len(wire), size))) == read(wire)


def test_a_choice_begins_with_empty_content() -> None:
    assert completion(sse(delta({"content": ""}))).ending == "truncated"
    two = sse(begins(), says("Hi"), delta({"content": ""}, index=1), finishes(), DONE)
    assert completion(two).ending == "truncated"


BINARY = {
    "PNG": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "JPEG": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "zlib": b"\x78\x9c\xed\x93\xc1\x4e\xc3\x30\x0c\x86\xdf\x25\x67\x8a",
    "ELF": b"\x7fELF\x02\x01\x01\0",
}


@pytest.mark.parametrize("data", BINARY.values(), ids=BINARY)
def test_binary_is_known_as_such(data: bytes) -> None:
    fault = completion(data).fault
    assert fault is not None
    assert fault.code == "binary"


def test_text_in_another_script_is_not_binary() -> None:
    fault = completion("服务器繁忙".encode()).fault
    assert fault is not None
    assert (fault.code, fault.message) == ("not-a-stream", "服务器繁忙")


NEVER_INVENTED: dict[str, tuple[Json, ...]] = {
    "one id, two names, two indexes": (calls(piece(0, "x", "f", "")), calls(piece(1, "x", "g", "{}"))),
    "a second name without an id": (calls(piece(0, "x", "f", "")), calls(piece(0, None, "g", "{}"))),
    "a piece for a whole call while another is open": (
        calls(piece(0, "x", "f", '{"a":1}')),
        calls(piece(1, "y", "g", "")),
        calls(piece(0, None, None, '{"b":2}')),
    ),
    "a new id in every piece, and no telling whose the last one is": (
        calls(piece(0, "x", "f", '{"a":')),
        calls(piece(0, "y", "f", '{"b":1}')),
        calls(piece(0, "z", "f", "}")),
    ),
}


@pytest.mark.parametrize("pieces", NEVER_INVENTED.values(), ids=NEVER_INVENTED)
def test_no_call_is_invented(pieces: tuple[Json, ...]) -> None:
    answer = completion(sse(begins(), *pieces, finishes("tool_calls"), DONE))
    names = [name for _, name, _ in tool_calls(answer)]
    assert answer.ending == "failed" or names == ["f", "g"]
    assert set(names) <= {"f", "g"}


def test_a_call_that_is_repeated_without_its_id_is_reported_once() -> None:
    pieces = calls(piece(0, "x", "f", '{"a":1}')), calls(piece(0, None, "f", '{"a":1}'))
    answer = completion(sse(begins(), *pieces, finishes("tool_calls"), DONE))
    assert tool_calls(answer) == [("x", "f", '{"a":1}')]


def test_a_usual_beginning_behind_a_fault_is_not_reported() -> None:
    wire = b"<html>\n" + sse(begins(), says("x"))
    page = b"data: {\n\n" + sse(begins(), says("x"), finishes(), DONE)
    for stream in (wire, page):
        assert read(stream) == read(stream, reader=SlowReader())
        assert not any(isinstance(event, Start) for event in read(stream))


# All dialects read these alike.


@pytest.mark.parametrize("dialect", providers_speak())
def test_every_unknown_event_is_reported(dialect: str) -> None:
    events = StreamReader(dialect).feed(sse({"zzz": 1}, {"zzz": 2}))
    repairs = [event for event in events if isinstance(event, Repair)]
    assert [repair.code for repair in repairs if repair.code in ("event-unknown", "keepalive-event")] == [
        "keepalive-event" if dialect == "openai_chat" else "event-unknown"
    ] * 2


@pytest.mark.parametrize("dialect", providers_speak())
def test_an_unknown_event_writes_no_line_of_its_own(dialect: str) -> None:
    begun: Json = {"type": "message-start", "id": "1", "delta": {"message": {"role": "assistant"}}}
    reader = StreamReader(dialect)
    events = reader.feed(sse(begun, {"type": "event: error\nmessage-end", "delta": {}}))
    for offered in clients_speak():
        writer = StreamWriter(offered, id="1", model="m", source=dialect)
        assert b"\nmessage-end" not in writer.write(events), offered


@pytest.mark.parametrize("dialect", providers_speak())
def test_a_heartbeat_may_have_no_data(dialect: str) -> None:
    sink = Sink()
    upstream_dialect(dialect).frame_reader(sink).read_undecodable(b"", "keep-alive")
    assert sink.events == [Repair("keepalive-event", 0, 1, "keep-alive")]


@pytest.mark.parametrize("dialect", providers_speak())
def test_rubbish_after_the_end_is_no_fault(dialect: str) -> None:
    sink = Sink()
    reader = upstream_dialect(dialect).frame_reader(sink)
    reader.done = True
    reader.read_undecodable(b"bye", "")
    assert sink.events == [Repair("data-after-done", 0, 1, "bye")]


@pytest.mark.parametrize("dialect", providers_speak())
@pytest.mark.parametrize("value", ["\ud83c", ["\ud83c"], {"message": "\ud83c"}], ids=["text", "list", "object"])
def test_half_a_surrogate_pair_in_an_error_is_replaced(dialect: str, value: object) -> None:
    sink = Sink()
    upstream_dialect(dialect).frame_reader(sink).read_odd(value, "error", surrogates=True)
    (fault,) = (event for event in sink.events if isinstance(event, Fault))
    assert "\N{REPLACEMENT CHARACTER}" in fault.message

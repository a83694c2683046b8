"""AWS event streams: messages in any split, checksums, headers, exceptions, and Messages in chunks."""

import json
from binascii import crc32
from pathlib import Path
from random import Random

import pytest

from penstock import Accumulator, Completion, StreamReader
from penstock.core.dialects.detect import detect
from penstock.core.stream import MAX_EVENT
from penstock.core.wire.event_stream import EventStreamReader
from penstock.core.wire.frame import Frame
from penstock.core.wire.sniff import Sniffer
from penstock.gateway.record.failure import from_fault
from tests.event_streams import chunk, event, exception, message
from tests.mutation import split
from tests.streams import Json, bytewise, read

STREAM = event("start", {"a": 1}) + event("delta", {"text": "Grüße"}) + event("stop", {})
MESSAGE: Json = {"id": "msg_1", "type": "message", "role": "assistant", "model": "weir-2", "content": []}
ANSWER: tuple[Json, ...] = (
    {"type": "message_start", "message": MESSAGE | {"usage": {"input_tokens": 9, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Still water."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 9}},
)


def frames(*data: bytes, max_event: int = MAX_EVENT) -> list[object]:
    framer = Sniffer(max_event)
    items = [item for piece in data for item in framer.feed(piece)]
    return [*items, *framer.close(), framer.cut]


def completion(*data: bytes) -> Completion:
    folded = Accumulator("anthropic_messages")
    folded.extend(read(*data, reader=StreamReader("anthropic_messages")))
    return folded.completion


def test_messages_are_split_with_their_names_and_places() -> None:
    first = len(event("start", {"a": 1}))
    found = frames(STREAM)
    assert found[0] == Frame(b'{"a": 1}', 0, 1, "start")
    assert found[1] == Frame('{"text": "Grüße"}'.encode(), first, 2, "delta")
    assert found[3] is False


def test_messages_are_the_same_however_they_are_split() -> None:
    assert frames(*bytewise(STREAM)) == frames(STREAM)
    for seed in range(50):
        assert frames(*split(STREAM, Random(seed))) == frames(STREAM)


def test_a_stream_that_stops_in_a_message_is_cut() -> None:
    ends = {0, len(event("start", {"a": 1})), len(STREAM) - len(event("stop", {})), len(STREAM)}
    for length in range(len(STREAM) + 1):
        assert frames(STREAM[:length])[-1] is (length not in ends), length


def test_every_changed_byte_is_a_fault_or_a_cut() -> None:
    for place in range(len(STREAM)):
        damaged = STREAM[:place] + bytes((STREAM[place] ^ 1,)) + STREAM[place + 1 :]
        *items, cut = frames(damaged)
        codes = [getattr(item, "code", "") for item in items if not isinstance(item, Frame)]
        assert codes in (["event-stream-damaged"], ["event-too-large"], ["binary"], ["not-a-stream"]) or cut, place
        assert len([item for item in items if isinstance(item, Frame)]) < 3, place


def test_nothing_is_read_after_a_wrong_checksum() -> None:
    damaged = bytearray(STREAM)
    damaged[-1] ^= 1
    reader = EventStreamReader(MAX_EVENT)
    assert [type(item).__name__ for item in reader.feed(bytes(damaged))] == ["Frame", "Frame", "Fault"]
    assert reader.feed(STREAM) == reader.close() == []
    assert reader.cut is False


def test_an_event_beyond_the_limit_is_refused_before_it_arrives() -> None:
    large = event("delta", {"text": "x" * 2_000})
    (fault,) = EventStreamReader(1_000).feed(large[:12])
    assert getattr(fault, "code", "") == "event-too-large"


def test_headers_of_every_type_are_skipped() -> None:
    others = b"".join(
        bytes((1,)) + b"h" + bytes((type,)) + value
        for type, value in (
            (0, b""), (1, b""), (2, b"1"), (3, b"12"), (4, b"1234"), (5, b"12345678"), (6, b"\0\2ab"),
            (8, b"12345678"), (9, b"1234567812345678"),
        )
    )  # fmt: skip
    plain = message(b"{}", event_type="x")
    head = others + plain[12 : 12 + int.from_bytes(plain[4:8], "big")]
    (frame,) = EventStreamReader(MAX_EVENT).feed(rebuilt(head, b"{}"))
    assert frame == Frame(b"{}", 0, 1, "x")


@pytest.mark.parametrize("head", [b"\x01h\x0a", b"\x01h\x07\xff\xff", b"\xff", b"\x01h\x07"])
def test_headers_that_cannot_be_read_are_a_fault(head: bytes) -> None:
    (fault,) = EventStreamReader(MAX_EVENT).feed(rebuilt(head, b"{}"))
    assert getattr(fault, "code", "") == "event-stream-damaged"


def rebuilt(head: bytes, payload: bytes) -> bytes:
    """A message with these headers as they are."""
    lengths = (len(head) + len(payload) + 16).to_bytes(4, "big") + len(head).to_bytes(4, "big")
    body = lengths + crc32(lengths).to_bytes(4, "big") + head + payload
    return body + crc32(body).to_bytes(4, "big")


def test_messages_in_chunks_are_read_as_messages() -> None:
    wire = b"".join(map(chunk, ANSWER))
    answer = completion(wire)
    assert (answer.ending, answer.text, answer.repairs) == ("completed", "Still water.", ())
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.output) == (9, 3)
    assert completion(*bytewise(wire)) == answer
    assert detect([wire]).dialect == "anthropic_messages"


def test_messages_in_chunks_that_are_cut_are_never_completed() -> None:
    whole = list(map(chunk, ANSWER))
    for count in range(5):
        assert completion(b"".join(whole[:count])).ending in ("truncated", "failed")


def test_a_chunk_without_bytes_is_no_event_of_messages() -> None:
    assert completion(event("chunk", {"bytes": "no base64!"})).ending == "failed"


STATUSES = {"throttlingException": 429, "serviceUnavailableException": 503, "internalServerException": 0}


@pytest.mark.parametrize("type", STATUSES)
def test_an_exception_is_an_error_of_the_provider(type: str) -> None:
    answer = completion(b"".join(map(chunk, ANSWER[:3])) + exception(type, "Too many tokens, please wait."))
    assert (answer.ending, answer.text) == ("failed", "Still water.")
    assert answer.fault is not None
    assert (answer.fault.code, answer.fault.message) == ("provider-error", "Too many tokens, please wait.")
    assert answer.fault.provider == {"__type": type, "message": "Too many tokens, please wait."}
    failure = from_fault(answer.fault)
    assert failure.retryable
    assert failure.upstream_status == STATUSES[type]


def test_an_error_without_a_payload_is_read_by_its_headers() -> None:
    wire = message(b"", message_type="error", error_code="InternalError", error_message="Try again.")
    (frame,) = EventStreamReader(MAX_EVENT).feed(wire)
    assert isinstance(frame, Frame)
    assert (frame.event, json.loads(frame.data)) == ("error", {"__type": "InternalError", "message": "Try again."})


def test_the_capture_of_a_damaged_stream_is_refused_at_the_damaged_message() -> None:
    wire = (Path(__file__).parents[1] / "captures/bedrock_converse/event-stream-damaged.sse").read_bytes()
    *items, fault, cut = frames(wire)
    assert [item.event for item in items if isinstance(item, Frame)] == ["messageStart", "contentBlockDelta"]
    assert (getattr(fault, "code", ""), getattr(fault, "line", 0), cut) == ("event-stream-damaged", 3, False)

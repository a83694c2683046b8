"""Every recorded stream of Bedrock: read as botocore reads it, split and cut anywhere, detected."""

import json

import pytest

from penstock import Completion
from penstock.core.dialects.detect import detect
from penstock.core.dialects.registry import upstream_dialect
from penstock.core.hub.usage import Tokens
from penstock.core.wire.event_stream import EventStreamReader
from penstock.core.wire.frame import Frame
from tests.core.bedrock_converse.oracle import SentBlocks, decoded, expect, messages
from tests.corpus import CORPUS, captures, pieces_of, places_in
from tests.dialect_reading import DialectReading
from tests.written_again import assert_the_same_again

CONVERSE = DialectReading("bedrock_converse")
MESSAGES = DialectReading("anthropic_messages")
CAPTURES = captures("bedrock")


ERRORS = {capture.file: capture.data for capture in CAPTURES if capture.status != 200}
ALL = {capture.file: decoded(capture.data) for capture in CAPTURES if capture.status == 200}
STREAMS = {file: data for file, data in ALL.items() if b"messageStart" in data[:200]}
CLAUDE = {
    file: data for file, data in ALL.items() if file not in STREAMS and detect([data]).dialect == "anthropic_messages"
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CAPTURES, reason=f"there is no corpus in {CORPUS}; PENSTOCK_CORPUS may name another"),
]


def blocks_of(answer: Completion) -> SentBlocks:
    """A completion in the oracle's terms."""
    sent = SentBlocks(ending=answer.ending or "")
    for choice in answer.choices:
        sent.text, sent.thinking, sent.finish = choice.text, choice.reasoning, choice.finish_reason
        sent.calls = [(call.id or "", call.name, json.loads(call.arguments or "{}")) for call in choice.tool_calls]
    if answer.usage is not None:
        tokens = Tokens.of(answer.usage)
        sent.tokens = (tokens.input, tokens.output, tokens.cached, tokens.cache_write)
    return sent


def test_there_are_streams_of_every_kind() -> None:
    wanted = [expect(data) for data in STREAMS.values()]
    assert len(wanted) > 35
    assert len(CLAUDE) > 10
    for name in ("text", "calls", "finish", "tokens"):
        assert sum(bool(getattr(each, name)) for each in wanted) > 5, name


def test_every_message_is_framed_as_botocore_frames_it() -> None:
    for file, data in STREAMS.items():
        frames = EventStreamReader(1_000_000).feed(data)
        found = [(frame.event, json.loads(frame.data)) for frame in frames if isinstance(frame, Frame)]
        assert found == messages(data), file


def test_every_stream_is_read_as_the_oracle_reads_it() -> None:
    for file, data in STREAMS.items():
        answer = CONVERSE.completion(data)
        assert blocks_of(answer) == expect(data), file
        assert answer.repairs == (), file
        assert detect([data]).dialect == "bedrock_converse", file


def test_every_stream_says_the_same_however_it_is_split() -> None:
    for number, (file, data) in enumerate(STREAMS.items()):
        assert CONVERSE.events(*pieces_of(number, data)) == CONVERSE.events(data), file


def borders(data: bytes) -> list[int]:
    """Where each message ends."""
    ends = [int.from_bytes(data[:4], "big")]
    while ends[-1] < len(data):
        ends.append(ends[-1] + int.from_bytes(data[ends[-1] : ends[-1] + 4], "big"))
    return ends


@pytest.mark.parametrize(
    ("kind", "reading", "stop"), [("Converse", CONVERSE, b"messageStop"), ("Claude", MESSAGES, b"")]
)
def test_a_stream_that_is_cut_before_its_stop_is_never_completed(
    kind: str, reading: DialectReading, stop: bytes
) -> None:
    for number, (file, data) in enumerate((STREAMS if kind == "Converse" else CLAUDE).items()):
        ends = borders(data)
        assert ends[-1] == len(data), file
        # The last message but one of Claude has the reason.
        last = next(end for end in ends if end > data.index(stop)) if stop else ends[-2]
        before = [end for end in ends if end < last]
        for length in (*before, *places_in(number, last), last - 1):
            assert reading.completion(data[:length]).ending in ("truncated", "failed"), (file, length)
        assert reading.completion(data[:last]).ending == "completed", file


def test_messages_of_claude_in_chunks_are_read() -> None:
    for file, data in CLAUDE.items():
        answer = MESSAGES.completion(data)
        assert answer.ending == "completed", file
        assert answer.text or answer.choices[0].tool_calls, file
        assert answer.repairs == (), file


def test_every_error_is_read() -> None:
    for file, data in ERRORS.items():
        assert upstream_dialect("bedrock_converse").read_error(data).message == json.loads(data)["message"], file


def test_every_answer_is_the_same_when_it_was_written_and_read_again() -> None:
    for data in STREAMS.values():
        assert_the_same_again(CONVERSE.dialect, data)

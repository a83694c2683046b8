"""A reason that reports a failure fails in every dialect, and an unknown one is no complete answer in any."""

import json

import pytest

from penstock import Completion, StreamReader, StreamWriter
from penstock.core.dialects.dialect import AnswerFacts
from tests import bedrock, cohere, gemini, messages, ollama
from tests.provider_streams import HEALTHY
from tests.streams import DONE, begins, finishes, fold, says, sse

# A healthy stream of each dialect, and its reason in the bytes.
STREAMS: dict[str, tuple[bytes, str]] = {
    "openai_chat": (sse(begins(), says("Hi"), finishes(), DONE), "stop"),
    messages.DIALECT: (messages.answer(*messages.says_all("Hi")), "end_turn"),
    gemini.DIALECT: (gemini.HEALTHY["text with usage"], "STOP"),
    cohere.DIALECT: (HEALTHY[cohere.DIALECT]["text"], "COMPLETE"),
    ollama.DIALECT: (ollama.answer(ollama.message("Hi")), "stop"),
}
# What clients of each API regard as a complete answer.
COMPLETE = {
    "openai_chat": '"finish_reason":"stop"',
    "anthropic_messages": '"stop_reason":"end_turn"',
    "openai_responses": '"status":"completed","model"',
    "gemini": '"finishReason":"STOP"',
}


def read(dialect: str, wire: bytes) -> Completion:
    reader = StreamReader(dialect)
    return fold([*reader.feed(wire), *reader.close()])


@pytest.mark.parametrize("reason", ["error", "ERROR", "timeout"])
@pytest.mark.parametrize("dialect", STREAMS)
def test_a_reason_that_reports_a_failure_is_a_fault(dialect: str, reason: str) -> None:
    wire, healthy = STREAMS[dialect]
    assert read(dialect, wire).ending == "completed"
    answer = read(dialect, wire.replace(f'"{healthy}"'.encode(), f'"{reason}"'.encode()))
    assert answer.fault is not None
    assert (answer.ending, answer.fault.code) == ("failed", "provider-error")


def test_the_same_in_the_binary_stream_of_bedrock() -> None:
    assert read(bedrock.DIALECT, bedrock.answer(bedrock.says_all("Hi"))).ending == "completed"
    assert read(bedrock.DIALECT, bedrock.answer(bedrock.says_all("Hi"), reason="error")).ending == "failed"


@pytest.mark.parametrize("client", COMPLETE)
def test_an_unknown_reason_is_no_complete_answer(client: str) -> None:
    reader = StreamReader()
    events = [*reader.feed(sse(begins(), says("Hi"), finishes("engine_overloaded"), DONE)), *reader.close()]
    facts = AnswerFacts(call_id="1", model="m", created=0, same_dialect=client == "openai_chat")
    stream = StreamWriter.for_call(client, facts).write(events).decode()
    body = StreamWriter.for_call(client, facts).write_body(fold(events)).decode()
    for written in (stream, json.dumps(json.loads(body), separators=(",", ":"))):
        assert COMPLETE[client] not in written
        assert "response.completed" not in written
        # These two have closed sets of reasons; for the Responses API it is a declared loss.
        assert client in ("gemini", "openai_responses") or "engine_overloaded" in written

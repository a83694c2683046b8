"""Answers of a dialect that only providers speak, written by its own writer and read again."""

import json
from collections.abc import Iterable

from msgspec import structs

from penstock import Accumulator, Completion, Repair, StreamReader, StreamWriter, ToolCall
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.registry import answer_dialect
from penstock.core.hub.events import Event
from penstock.core.hub.losses import Loss
from penstock.core.hub.usage import Tokens
from tests.streams import read

OWN = AnswerFacts(call_id="req_1", id="own", model="m", created=1_794_902_400)
TRANSLATED = AnswerFacts(call_id="req_1", id="other", model="m", created=1_794_902_400, same_dialect=False)


def events_of(dialect: str, data: bytes) -> list[Event]:
    """The events of a stream, or of an unstreamed answer."""
    return read(data, reader=StreamReader(dialect))


def fold(dialect: str, events: Iterable[Event]) -> Completion:
    """The completion of these events."""
    answer = Accumulator(dialect)
    answer.extend(events)
    return answer.completion


def streamed(dialect: str, events: Iterable[Event], facts: AnswerFacts = OWN) -> tuple[bytes, list[Loss]]:
    """The events as a stream, written one by one; and what is lost."""
    writer = StreamWriter.for_call(dialect, facts)
    return b"".join(writer.write([event]) for event in events), writer.losses


def unstreamed(dialect: str, answer: Completion, facts: AnswerFacts = OWN) -> tuple[bytes, list[Loss]]:
    """The answer as one body; and what is lost."""
    losses: list[Loss] = []
    return answer_dialect(dialect).write_body(answer, facts, losses), losses


def assert_the_same_again(dialect: str, data: bytes) -> None:
    """A completed answer says the same when it was written and read again, streamed and not; so do its tokens."""
    events = events_of(dialect, data)
    answer = fold(dialect, events)
    assert answer.ending == "completed"
    wire, losses = streamed(dialect, events)
    again = events_of(dialect, wire)
    assert losses == []
    assert again == [event for event in events if not isinstance(event, Repair)]
    assert streamed(dialect, again)[0] == wire
    body, losses = unstreamed(dialect, answer)
    whole = fold(dialect, events_of(dialect, body))
    assert losses == []
    assert whole.repairs == ()
    assert content(whole) == content(answer)
    if answer.usage is not None:
        assert whole.usage is not None
        assert Tokens.of(whole.usage) == Tokens.of(answer.usage)


def content(answer: Completion) -> list[object]:
    """What an answer says. Arguments count as JSON: an unstreamed answer may have them as an object. So may the order
    of its parts be another one."""
    parts: list[object] = [answer.id, answer.model, answer.created, answer.extras, answer.usage]
    for choice in answer.choices:
        parts += [choice.text, choice.refusal, choice.finish_reason, choice.native_finish_reason]
        parts += [(call.id, call.name, json.loads(call.arguments or "{}")) for call in choice.tool_calls]
        parts += sorted(str(structs.asdict(part)) for part in choice.parts if not isinstance(part, ToolCall))
    return parts

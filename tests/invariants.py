"""What must hold for any bytes whatever; the properties and the fuzzer both ask it."""

from random import Random

from penstock import Accumulator, Completion, End, Event, Fault, StreamReader, StreamWriter
from penstock.core.wire.frame import Frame
from tests.legal import violations
from tests.mutation import split


class LongWay(StreamReader):
    """A reader without its fast lane."""

    def _read_plain(self, _frame: Frame) -> bool:
        return False


def read(*pieces: bytes) -> list[Event]:
    """The events of a whole stream, fed in these pieces."""
    return _read_with(StreamReader(), *pieces)


def _read_with(reader: StreamReader, *pieces: bytes) -> list[Event]:
    return [event for piece in pieces for event in reader.feed(piece)] + reader.close()


def fold(events: list[Event]) -> Completion:
    """The completion that the events make."""
    answer = Accumulator()
    answer.extend(events)
    return answer.completion


def said(completion: Completion) -> list[object]:
    """What the choices say, in a form to compare; ids that only a writer would mint are left out."""
    return [
        (
            choice.index,
            choice.text,
            choice.reasoning,
            choice.refusal,
            [(call.name, call.arguments, call.kind) for call in choice.tool_calls],
        )
        for choice in completion.choices
    ]


def broken_promises(data: bytes, random: Random) -> list[str]:
    """Every promise that the reader and the writer break on these bytes."""
    events = read(data)
    broken = violations(events)
    if read(*split(data, random)) != events:
        broken.append("another split gives other events")
    if _read_with(LongWay(), data) != events:
        broken.append("the fast lane gives other events")
    completion = fold(events)
    include_usage = random.random() < 0.8
    again = read(StreamWriter(include_usage=include_usage).write(events))
    broken += [f"rewritten: {violation}" for violation in violations(again)]
    broken += _differences(completion, fold(again), include_usage=include_usage)
    return broken


def _differences(first: Completion, again: Completion, *, include_usage: bool) -> list[str]:
    """Where a completion, written and read again, is not the same."""
    found = []
    if said(first) != said(again):
        found.append("written and read again, the answer differs")
    if (first.ending == "completed") != (again.ending == "completed"):
        found.append(f"{first.ending} became {again.ending}")
    if first.ending == "completed":
        finishes = [[choice.finish_reason for choice in completion.choices] for completion in (first, again)]
        if finishes[0] != finishes[1]:
            found.append("written and read again, the finish reasons differ")
        mistyped = any(
            repair.code == "usage-mistyped" for repair in first.repairs
        )  # its raw object does not say the same
        if include_usage and not mistyped and _counts(first) != _counts(again):
            found.append("written and read again, the usage differs")
    return found


def _counts(completion: Completion) -> tuple[int | None, ...] | None:
    return completion.usage.counts() if completion.usage else None


def endings(events: list[Event]) -> tuple[str, str]:
    """How the stream ended, and the code of its fault, if any; for counting."""
    fault = next((event.code for event in events if isinstance(event, Fault)), "")
    last = events[-1]
    return (last.ending if isinstance(last, End) else "", fault)

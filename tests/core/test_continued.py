"""Recorded answers that are cut after an event, and continued by a model that goes on perfectly, read as the uncut
answers.

Run as `PYTHONPATH=src:. python -m tests.core.test_continued`, it cuts every answer of the corpus after every text, and
prints the rate of those that are continued exactly. The tests cut some.
"""

import sys
from collections.abc import Iterator
from random import Random

import pytest

from penstock.core.continued_reader import ContinuedReader, prefix_of
from penstock.core.continued_writer import ContinuedWriter
from penstock.core.hub.events import Event, Repair, TextDelta
from penstock.core.stream import StreamReader
from penstock.core.stream_writer import StreamWriter
from tests.corpus import captures
from tests.streams import DONE, begins, finishes, fold, read, says, sse

CLIENTS = ("openai_chat", "anthropic_messages", "openai_responses", "gemini")
SEAM = {"from": "a/b", "to": "c/d", "at": 1, "because": "upstream_reset", "way": "last"}
Answer = tuple[str, list[Event]]


def answers() -> Iterator[Answer]:
    """The recorded answers of one choice with text and no calls, each with its file, and its events."""
    for capture in captures():
        events = read(capture.data)
        completion = fold(events)
        if completion.ending != "completed" or len(completion.choices) != 1 or completion.choices[0].tool_calls:
            continue
        if all(isinstance(event, TextDelta) for event in events if getattr(event, "text", "")) and completion.text:
            yield capture.file, events


def continuation(text: str, sent: str, size: int) -> bytes:
    """The stream of a model that goes on with this text exactly where its request ends."""
    rest = text[len(prefix_of(sent)) :]
    pieces = [rest[at : at + size] for at in range(0, len(rest), size)]
    return sse(begins(), *map(says, pieces), finishes("stop"), DONE)


def joined(text: str, sent: str, size: int = 5) -> tuple[str, list[str]]:
    """The text that the client has in the end, and the repairs."""
    reader = ContinuedReader(StreamReader(), sent)
    events = [*reader.feed(continuation(text, sent, size)), *reader.close()]
    new = "".join(event.text for event in events if isinstance(event, TextDelta))
    return sent + new, [event.code for event in events if isinstance(event, Repair)]


def cuts(events: list[Event]) -> list[str]:
    """The text after each event that has some."""
    texts, sent = list[str](), ""
    for event in events:
        if isinstance(event, TextDelta) and event.text:
            sent += event.text
            texts.append(sent)
    return texts


@pytest.mark.slow
def test_cut_answers_are_continued_exactly() -> None:
    for number, (file, events) in enumerate(answers()):
        whole = cuts(events)
        for sent in Random(number).sample(whole, min(len(whole), 3)):
            text, repairs = joined(whole[-1], sent)
            assert text == whole[-1] or repairs, file  # a text that repeats itself looks like an overlap


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_the_rest_is_written_in_every_api(client: str) -> None:
    for number, (file, events) in enumerate(answers()):
        if number % 20:
            continue
        whole = cuts(events)
        at = Random(number).randrange(len(whole))
        sent, begun = whole[at], list[Event]()
        for event in events:
            begun.append(event)
            if sum(isinstance(each, TextDelta) and bool(each.text) for each in begun) > at:
                break
        first = StreamWriter(client)
        data = first.write(begun)
        reader = ContinuedReader(StreamReader(), sent)
        writer = ContinuedWriter.after(first, SEAM, 3, None)
        data += writer.write(reader.feed(continuation(whole[-1], sent, 7))) + writer.write(reader.close())
        back = StreamReader(client)
        answer = fold([*back.feed(data), *back.close()])
        if joined(whole[-1], sent, 7)[0] == whole[-1]:
            assert (answer.text, answer.ending) == (whole[-1], "completed"), file


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_seed_is_continued_at_every_character(size: int) -> None:
    text = "# Tides\n\n  1. The tide at Dover turns at noon 🌊.\n  2. It turns again.\n\n```\nif tide:\n    go()\n```\n"
    for at in range(1, len(text) + 1):
        assert joined(text, text[:at], size) == (text, [])


def main() -> None:
    """Cut every answer of the corpus after every text."""
    files = total = exact = 0
    differing: dict[str, int] = {}
    for file, events in answers():
        whole = cuts(events)
        files += 1
        for sent in whole:
            total += 1
            if joined(whole[-1], sent, max(5, len(whole[-1]) // 50))[0] == whole[-1]:
                exact += 1
            else:
                differing[file] = differing.get(file, 0) + 1
    sys.stdout.write(
        f"{exact} of {total} cuts of {files} answers are continued exactly ({100 * exact / max(total, 1):.3f} %)\n"
    )
    for file, count in differing.items():
        sys.stdout.write(f"  {count} {file}\n")


if __name__ == "__main__":
    main()

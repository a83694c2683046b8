"""The corpus: streams that other projects recorded, and the comparison of Penstock's reader with the oracle.

`PENSTOCK_CORPUS` is its path, by default `../shared/corpus` beside the project. It is other people's data: it is read
where it is, and none of it is copied. The small streams of `defects` are beside it.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random

from penstock import Choice, Completion, Ending
from tests.mutation import split
from tests.oracle import Expected, ExpectedCall, ExpectedChoice, expect
from tests.streams import bytewise, fold, read
from tests.tables import FULL

ROOT = Path(__file__).resolve().parent.parent
CORPUS = (ROOT / os.environ.get("PENSTOCK_CORPUS", "../shared/corpus")).resolve()
DEFECTS = CORPUS.parent / "defects"
DEFECTS_OF_DIALECTS = CORPUS.parent / "defects-dialects"
# How the lists of expectations beside the streams of defects call the endings.
ENDINGS: dict[str, Ending] = {
    "ok": "completed",
    "ok_with_warning": "completed",
    "truncated": "truncated",
    "error": "failed",
    "refuse": "failed",
}


@dataclass(frozen=True)
class Capture:
    """One recorded stream, or error body."""

    file: str
    vendor: str
    has_reads: bool
    status: int

    @property
    def data(self) -> bytes:
        """Its bytes."""
        return (CORPUS / self.file).read_bytes()

    @property
    def reads(self) -> list[bytes]:
        """Its bytes as the original network reads; in one piece if these are unknown."""
        data = self.data
        if not self.has_reads:
            return [data]
        sizes = json.loads((CORPUS / self.file).with_suffix(".reads.json").read_bytes())
        ends = [*accumulate(sizes), len(data)]
        return [data[start:end] for start, end in pairwise([0, *ends])]


@dataclass(frozen=True)
class Verdict:
    """How Penstock read one capture, and the differences from the oracle."""

    capture: Capture
    completion: Completion
    differences: list[str] = field(default_factory=list)


def captures(api: str = "chat") -> list[Capture]:
    """Every capture of an API in the corpus, in the order of its index; none where there is no corpus."""
    index = CORPUS / "INDEX.jsonl"
    if not index.exists():
        return []
    rows = map(json.loads, index.read_text().splitlines())
    return [
        Capture(row["file"], row["vendor"], row["has_reads"], row["status"] or 200) for row in rows if row["api"] == api
    ]


def pieces_of(number: int, data: bytes) -> list[bytes]:
    """The stream of this number in the corpus, in pieces: one in ten in single bytes, the others in pieces of any size.

    With PENSTOCK_FULL_TABLES=1, all are in single bytes, which takes minutes.
    """
    return bytewise(data) if number % 10 == 0 or FULL else split(data, Random(number))


def cuts_of(number: int, events: int) -> set[int]:
    """After how many of its events the stream of this number is cut: one in ten at each, the others at some and at the
    last ones; all at each with PENSTOCK_FULL_TABLES=1.
    """
    every = range(1, events)
    return {*every} if number % 10 == 0 or FULL else {*every[:: max(1, events // 8)], *every[-6:]}


def places_in(number: int, size: int) -> list[int]:
    """The bytes before which the stream of this number is cut: some; all of them with PENSTOCK_FULL_TABLES=1."""
    return [*range(size)] if FULL else sorted(Random(number).sample(range(size), min(size, 12)))


def judge(capture: Capture) -> Verdict:
    """Read one capture, whole and in its original reads, and compare."""
    events = read(capture.data)
    completion = fold(events)
    differences = list(compare(completion, expect(capture.data)))
    if capture.has_reads and read(*capture.reads) != events:
        differences.append("fed as it came, it gives other events")
    return Verdict(capture, completion, differences)


def compare(completion: Completion, expected: Expected) -> Iterator[str]:
    """Every way in which Penstock's answer is not the oracle's, in words."""
    if completion.ending != expected.ending:
        yield f"ending {completion.ending}, expected {expected.ending}"
    if expected.damaged:
        return  # what comes after the damage is not the answer, and the oracle does not know where that begins
    fields = ["text", "reasoning", "refusal", "calls"]
    if completion.ending != "failed":
        fields.append("finish")  # a failed stream has none: whatever reason was sent, the answer is not whole
    choices = {choice.index: in_oracles_terms(choice) for choice in completion.choices}
    for index in sorted(choices.keys() | expected.choices.keys()):
        for name in fields:
            mine, wanted = (getattr(side.get(index, NOTHING), name) for side in (choices, expected.choices))
            if mine != wanted:
                yield f"{name} of choice {index}: {mine!r:.200}, expected {wanted!r:.200}"
    for name in ("input", "output", "total", "cached", "reasoning"):
        mine, wanted = (getattr(side, name, None) for side in (completion.usage, expected.usage))
        if mine != wanted and not (name == "total" and wanted is None):  # Penstock adds up a total that was not sent
            yield f"usage {name}: {mine}, expected {wanted}"


NOTHING = ExpectedChoice(text="", reasoning="", refusal="", calls=(), finish=None, native_finish=None)


def in_oracles_terms(choice: Choice) -> ExpectedChoice:
    """What a choice says."""
    return ExpectedChoice(
        text=choice.text,
        reasoning=choice.reasoning,
        refusal=choice.refusal,
        calls=tuple(ExpectedCall(call.id or "", call.name, call.arguments) for call in choice.tool_calls),
        finish=choice.finish_reason,
        native_finish=choice.native_finish_reason,
    )

"""The four seed streams are read exactly, however they are split, ended or cut."""

import re

import pytest

from penstock import Completion, Extra
from tests.seed_streams import CASES, Seed
from tests.streams import bytewise, completion, read, repairs

# The line ends that a proxy may put in place of LF.
LINE_ENDS = {"LF": b"\n", "CRLF": b"\r\n", "CR": b"\r"}

every_seed = pytest.mark.parametrize("seed", CASES.values(), ids=CASES)


def figures(answer: Completion) -> tuple[int | None, int | None, int | None] | None:
    return (answer.usage.input, answer.usage.output, answer.usage.total) if answer.usage else None


@every_seed
@pytest.mark.parametrize("line_end", LINE_ENDS.values(), ids=LINE_ENDS)
def test_a_seed_is_read_exactly_with_any_line_ends(seed: Seed, line_end: bytes) -> None:
    wire = seed.wire.replace(b"\n", line_end)
    answer = completion(wire)
    assert (answer.ending, answer.model, answer.text, figures(answer)) == (
        "completed",
        seed.model,
        seed.text,
        seed.usage,
    )
    assert [choice.finish_reason for choice in answer.choices] == ["stop"]
    assert {repair.code: repair.count for repair in answer.repairs} == seed.repairs
    assert read(*bytewise(wire)) == read(wire)


@pytest.mark.slow
@every_seed
def test_a_cut_seed_is_never_more_than_it_is(seed: Seed) -> None:
    wire = seed.wire
    finish = re.search(rb'.*"finish_reason": ?"stop".*', wire)
    assert finish is not None
    for length in range(len(wire)):
        answer = completion(wire[:length])
        where = f"cut at {length}: {answer}"
        assert seed.text.startswith(answer.text), where
        assert figures(answer) in (None, seed.usage), where
        assert answer.ending != "completed" or length >= finish.end(), where
        assert answer.ending == "completed" or length < finish.end() or not on_event_boundary(wire, length), where


def on_event_boundary(wire: bytes, length: int) -> bool:
    """Whether the cut falls behind a line end, and not between a lone `data:` and its JSON."""
    return wire[:length].endswith(b"\n") and not wire[:length].endswith(b"data:\n")


def test_where_the_repairs_of_a_seed_stand() -> None:
    found = {repair.code: (repair.line, repair.offset) for repair in completion(CASES["001"].wire).repairs}
    assert found["missing-blank-line"] == (2, CASES["001"].wire.index(b"\n") + 1)
    assert found["json-on-next-line"][0] == 5
    assert found["no-final-newline"] == (25, CASES["001"].wire.index(b"data: [DONE]"))


def test_x_groq_and_the_timings_are_kept() -> None:
    answer = completion(CASES["000"].wire)
    assert answer.extras["system_fingerprint"] == "fp_f8b414701e"
    assert answer.usage is not None
    assert answer.usage.raw["queue_time"] == 0.048029167
    assert answer.usage.raw["total_time"] == 0.011049276
    emitted = [event.fields["x_groq"] for event in read(CASES["000"].wire) if isinstance(event, Extra)]
    assert [set(fields) for fields in emitted if isinstance(fields, dict)] == [{"id", "seed"}, {"id", "usage"}]


def test_the_obfuscation_of_every_chunk_is_kept() -> None:
    emitted = [event.fields["obfuscation"] for event in read(CASES["003"].wire) if isinstance(event, Extra)]
    assert emitted == ["RXK6pT2Mg", "GZPezs", "hEYbR6OK2k", "Yr3mG", "HezjEVU5kk", "pxDDL", "hciBHHCHxbt"]


def test_the_zeros_on_the_finish_chunk_are_superseded() -> None:
    answer = completion(CASES["001"].wire)
    assert answer.usage is not None
    assert (answer.usage.cached, answer.usage.reasoning) == (0, 0)
    assert repairs(read(CASES["001"].wire))["usage-placeholder"] == 1

"""The seeds are the reference: read, and written again in its own style, each is reproduced byte for byte.

A completion of a seed does not have its chunks. Written from that, three things may differ: where the text is split,
the padding, and `x_groq.seed`, which a completion does not keep. The fields of every kind of chunk and the text are the
same; the framing is that of the style, without what a recorder lost.
"""

import json
import re

import pytest

from penstock import Completion
from penstock.replay.styles import write_in_style
from penstock.replay.styles.catalog import load_style
from tests.replay.styles.agreement import chunks, shapes, skeleton
from tests.seed_streams import CASES
from tests.streams import completion, fold, read

# Which seed is in whose style, and whether its client asked for the usage.
SEEDS: dict[str, tuple[str, bool]] = {
    "000": ("groq", False),
    "001": ("reseller", True),
    "002": ("openai-2025", True),
    "003": ("openai", True),
}

every_seed = pytest.mark.parametrize(("seed", "name", "asked"), [(seed, *row) for seed, row in SEEDS.items()])


@every_seed
def test_a_seed_comes_back_byte_for_byte(seed: str, name: str, asked: bool) -> None:
    wire = CASES[seed].wire
    assert b"".join(write_in_style(read(wire), load_style(name), include_usage=asked)) == wire


@every_seed
def test_each_element_is_one_event(seed: str, name: str, asked: bool) -> None:
    events = write_in_style(read(CASES[seed].wire), load_style(name), include_usage=asked)
    assert all(len(re.findall(rb"(?m)^data:", event)) == 1 for event in events)


@every_seed
def test_its_mere_completion_has_the_same_shape_and_words(seed: str, name: str, asked: bool) -> None:
    wire = CASES[seed].wire
    answer = completion(wire)
    again = b"".join(write_in_style(answer, load_style(name), include_usage=asked))
    real, ours = (shapes(one_line_each(stream)) for stream in (wire.replace(b',"seed":1258209063', b""), again))
    del real["framing"], ours["framing"]
    assert ours == real
    assert sent_text(completion(again)) == sent_text(answer)


@pytest.mark.parametrize(("seed", "ending"), [("000", "data: [DONE]\n\n"), ("002", "data: [DONE]\n\n")])
def test_what_a_recorder_lost_is_there_in_a_mere_completion(seed: str, ending: str) -> None:
    name, asked = SEEDS[seed]
    again = b"".join(write_in_style(completion(CASES[seed].wire), load_style(name), include_usage=asked))
    assert skeleton(again) == f"data: {{}}\n\n{ending}"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["groq", "reseller", "openai"])
def test_a_defect_of_one_recording_is_not_written_in_another_style(seed: str, name: str) -> None:
    if SEEDS[seed][0] == name:
        return
    again = write_in_style(read(CASES[seed].wire), load_style(name))
    healthy = write_in_style(completion(CASES["003"].wire), load_style(name))
    assert (again[-1], framing_of(again[0])) == (healthy[-1], framing_of(healthy[0]))


def test_a_seed_without_its_usage_is_written_without_it() -> None:
    again = b"".join(write_in_style(read(CASES["003"].wire), load_style("openai"), include_usage=False))
    assert all("usage" not in chunk for chunk in chunks(again))
    assert completion(again).usage is None


def test_the_same_answer_gives_the_same_bytes() -> None:
    answer = fold(read(CASES["000"].wire))
    assert write_in_style(answer, load_style("openai")) == write_in_style(answer, load_style("openai"))


def framing_of(event: bytes) -> bytes:
    return re.sub(rb"\{.*\}", b"{}", event)


def one_line_each(wire: bytes) -> bytes:
    """The stream with no JSON behind a lone `data:`."""
    return wire.replace(b"data:\n{", b"data: {")


def sent_text(answer: Completion) -> tuple[object, ...]:
    usage = json.dumps(answer.usage.raw) if answer.usage else None
    return answer.id, answer.model, answer.created, answer.text, answer.choices[0].finish_reason, usage, answer.ending

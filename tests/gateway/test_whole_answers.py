"""An unstreamed answer of the client's own API is forwarded as it came if it is healthy; else nothing has changed.

`scripts/fuzz --whole` tries more of the same.
"""

import json
from pathlib import Path
from random import Random

import pytest

from tests.corpus import CORPUS, DEFECTS, DEFECTS_OF_DIALECTS, captures
from tests.whole_answers import (
    DIALECTS,
    HEALTHY,
    OVERRIDES,
    Arrival,
    became,
    bodies,
    body_of,
    differences,
    random_arrival,
)
from tests.whole_answers import random_body as any_body

FOLDER = Path(__file__).parent.parent
# The APIs of the dialects, as the corpus names them.
APIS = {"openai_chat": "chat", "anthropic_messages": "anthropic", "openai_responses": "responses"}
HEALTHY_ONES = [(dialect, name) for dialect in DIALECTS for name in HEALTHY[dialect]]


@pytest.mark.parametrize(("dialect", "name"), HEALTHY_ONES)
def test_a_healthy_answer_is_forwarded_as_it_came(dialect: str, name: str) -> None:
    for body in (json.dumps(HEALTHY[dialect][name]).encode(), json.dumps(HEALTHY[dialect][name], indent=2).encode()):
        for reads in ([body], [body[:50], body[50:]]):
            got = became(dialect, Arrival(reads), fast=True).body
            assert got is not None
            assert got == body or dialect in OVERRIDES
            assert json.loads(got).items() >= OVERRIDES.get(dialect, {}).items()
            assert differences(dialect, Arrival(reads)) == ([], "fast")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_that_is_changed_takes_the_slow_path(dialect: str) -> None:
    body = bodies(dialect)[0]
    for arrival in (
        Arrival([body.replace(b"{", b'{"unknown":{"a":1},', 1)]),
        Arrival([b"\xef\xbb\xbf" + body]),
        Arrival([body], limit=1),
        Arrival([body[:-1], body[-1:] + b"\r\n", b"\n"]),
    ):
        wrong, path = differences(dialect, arrival)
        assert (wrong, path) == ([], "slow"), arrival


@pytest.mark.parametrize(
    "seeds", [range(40), pytest.param(range(40, 150), marks=pytest.mark.slow)], ids=["few", "many"]
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_both_paths_record_the_same_of_any_answer(dialect: str, seeds: range) -> None:
    for seed in seeds:
        random = Random(seed)
        arrival = random_arrival(any_body(dialect, random), random)
        assert differences(dialect, arrival)[0] == [], (seed, arrival)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_both_paths_record_the_same_of_the_answers_of_recorded_streams(dialect: str) -> None:
    recorded = [capture.data for capture in captures(APIS[dialect])] if CORPUS.exists() else []
    folder = DEFECTS if dialect == "openai_chat" else DEFECTS_OF_DIALECTS / dialect
    recorded += [path.read_bytes() for path in sorted(folder.glob("*.sse"))]
    ours = ("seeds/*", "captures/*.sse") if dialect == "openai_chat" else (f"captures/{dialect}/*.sse",)
    recorded += [path.read_bytes() for pattern in ours for path in sorted(FOLDER.glob(pattern))]
    taken = {"fast": 0, "slow": 0}
    for number, stream in enumerate(recorded):
        for body in (body_of(dialect, stream), stream):
            random = Random(number)
            for arrival in (Arrival([body]), random_arrival(body, random)):
                wrong, path = differences(dialect, arrival)
                assert wrong == [], (number, arrival)
                taken[path] += 1
    assert not recorded or taken["fast"] > len(recorded) // 2, taken

"""The soak test itself: a run of a few seconds, and the evaluation of its samples."""

import asyncio
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.soak.clients import KINDS, Answer, judge
from bench.soak.figures import LEVEL_MB_PER_MIN, Sample, plot, slope, table
from bench.soak.run import Options, soak
from bench.soak.upstream import BEGIN, DONE, FINISH, MESSAGES, RESPONSES, SPEECH, SPOKEN, in_dialect
from penstock import StreamWriter
from penstock.core.hub.failure import Failure

FILLING = [Sample(second, second, 40 + 20 * (1 - 0.98**second), 46, 8) for second in range(600)]
LEAKING = [Sample(second, second, 40 + second / 60, 46, 8) for second in range(600)]


def test_a_cache_that_fills_levels_off_and_a_leak_does_not() -> None:
    assert slope(FILLING) < LEVEL_MB_PER_MIN
    assert slope(LEAKING) == pytest.approx(1.0)


ERROR = b'data: {"error": {"message": "", "code": "upstream_truncated"}}\n\n'
WHOLE, PART = b"".join((BEGIN, *SPOKEN, FINISH, DONE)), b"".join((BEGIN, *SPOKEN[:5]))
ANSWERS: dict[str, tuple[str, Answer, bool]] = {
    "whole": ("stream", Answer(200, WHOLE), True),
    "whole, without its end": ("stream", Answer(200, PART), False),
    "whole, without a word": ("stream", Answer(200, WHOLE.replace(SPOKEN[3], b"")), False),
    "an error where there was none": ("stream", Answer(200, PART + ERROR), False),
    "a status where there was none": ("stream", Answer(503, b'{"error": {"code": "upstream_error"}}'), False),
    "truncated, and told": ("truncated", Answer(200, PART + ERROR), True),
    "truncated, and passed for whole": ("truncated", Answer(200, WHOLE), False),
    "truncated, and not told": ("truncated", Answer(200, PART), False),
    "a finish before the error": ("truncated", Answer(200, PART + FINISH + ERROR), False),
    "a status without an error": ("truncated", Answer(502, b"Bad Gateway"), False),
}


def _in_other_apis() -> dict[str, tuple[str, Answer, bool]]:
    cases: dict[str, tuple[str, Answer, bool]] = {}
    for api, dialect in (("messages", MESSAGES), ("responses", RESPONSES)):
        pieces = in_dialect(dialect, *SPEECH)
        whole, part = b"".join(pieces), b"".join(pieces[:6])
        failed = StreamWriter(dialect).fail(Failure(code="upstream_truncated", message="cut"))
        cases |= {
            f"whole, {api}": ("stream", Answer(200, whole, api), True),
            f"whole, without a word, {api}": ("stream", Answer(200, whole.replace(pieces[3], b""), api), False),
            f"truncated, and told, {api}": ("truncated", Answer(200, part + failed, api), True),
            f"truncated, and passed for whole, {api}": ("truncated", Answer(200, whole, api), False),
            f"truncated, and not told, {api}": ("truncated", Answer(200, part, api), False),
        }
    return cases


ANSWERS |= _in_other_apis()


@pytest.mark.parametrize(("kind", "answer", "right"), ANSWERS.values(), ids=ANSWERS)
def test_answers_are_judged(kind: str, answer: Answer, right: bool) -> None:
    assert (not judge(KINDS[kind], answer)) == right


def test_samples_are_drawn_and_listed() -> None:
    drawn = ElementTree.fromstring(plot("A title & more", LEAKING))
    lines = drawn.findall("{http://www.w3.org/2000/svg}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [600] * 3
    assert len(table(LEAKING).splitlines()) == 22


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("workers", [1, 2])
def test_some_seconds_of_it_find_nothing_wrong(tmp_path: Path, workers: int) -> None:
    outcome = asyncio.run(soak(tmp_path, Options(seconds=5.0, clients=16, workers=workers)))
    assert outcome.wrong == []
    assert outcome.calls.total() > 100
    assert len(outcome.calls) > len(KINDS) // 2
    assert len(outcome.pairs) == 9  # three APIs of clients, three of providers
    first, *_, last = outcome.samples
    assert last.rss_mb < first.rss_mb + 25 * workers
    assert last.files < first.files + 100 * workers

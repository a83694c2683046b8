"""The official `openai` package for Node reads what we write, and sees what we saw.

One Node process reads every case, with `create({stream: true})` and with the `stream()` helper, and reports what it saw
(`node/judge.mjs`). Where there is no Node, or the package cannot be had, these tests are skipped. The version is pinned
in `node/package.json`: 6.49.0 is the last that does without Node 22.
"""

import subprocess

import msgspec
import pytest

from tests.judges.cases import (
    NO_CORPUS,
    NOTHING,
    RAW_SEEDS,
    Case,
    Seen,
    capture_cases,
    corpus_cases,
    read_case,
    seed_cases,
    written_cases,
)
from tests.judges.packages import NODE, node_home
from tests.judges.server import serving

READ_TIMEOUT_S = 120

OWN_CASES = seed_cases() + written_cases() + capture_cases()
CORPUS_CASES = corpus_cases()
WAYS = ("create", "stream")

# Valid streams that `stream()` cannot read, and `create()` can. It raises the same error for any sender.
HELPER_LIMITS = {"a custom tool": "missing choices[0].tool_calls[0].function.name"}


class Failure(msgspec.Struct, frozen=True):
    """An error that the SDK threw."""

    name: str
    message: str
    code: str | None


class Report(msgspec.Struct, frozen=True):
    """What came of reading a stream in one way."""

    seen: Seen | None = None
    error: Failure | None = None


Reports = dict[str, dict[str, Report]]


@pytest.fixture(scope="module")
def reports() -> Reports:
    """What Node says of every case, and of every seed unrepaired, by name."""
    streams = {case.name: case.wire for case in OWN_CASES + CORPUS_CASES}
    for number, wire in RAW_SEEDS.items():
        streams |= {f"raw {number}": wire, f"raw {number}, ended": wire + b"\n\n"}
    with serving() as server:
        models = {server.play(wire, 100): name for name, wire in streams.items()}
        request = msgspec.json.encode({"baseURL": server.base_url, "models": list(models)})
        command = ["node", str(NODE / "judge.mjs")]
        result = subprocess.run(
            command, cwd=node_home(), input=request, check=False, capture_output=True, timeout=READ_TIMEOUT_S
        )
    assert result.returncode == 0, result.stderr.decode()
    answers = msgspec.json.decode(result.stdout, type=Reports)
    return {models[model]: report for model, report in answers.items()}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", OWN_CASES, ids=lambda case: case.name)
def test_sees_what_we_saw(reports: Reports, case: Case, way: str) -> None:
    compare(reports[case.name][way], case, way)


@pytest.mark.skipif(not CORPUS_CASES, reason=NO_CORPUS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CORPUS_CASES, ids=lambda case: case.name)
def test_sees_what_we_saw_in_the_corpus(reports: Reports, case: Case, way: str) -> None:
    compare(reports[case.name][way], case, way)


@pytest.mark.parametrize("seed", ["000", "003"])
@pytest.mark.parametrize("way", WAYS)
def test_unrepaired_000_and_003_are_read(reports: Reports, seed: str, way: str) -> None:
    assert reports[f"raw {seed}"][way].seen == read_case(seed, RAW_SEEDS[seed]).expected


@pytest.mark.parametrize("seed", ["001", "002"])
def test_unrepaired_001_and_002_are_lost(reports: Reports, seed: str) -> None:
    report = reports[f"raw {seed}"]
    assert report["create"].seen == NOTHING  # and no error
    assert report["stream"].error == Failure("OpenAIError", "request ended without sending any chunks", None)


@pytest.mark.parametrize("seed", ["001", "002"])
@pytest.mark.parametrize("way", WAYS)
def test_unrepaired_001_and_002_raise_once_a_blank_line_ends_them(reports: Reports, seed: str, way: str) -> None:
    error = reports[f"raw {seed}, ended"][way].error
    assert error is not None
    assert "after JSON" in error.message


def compare(report: Report, case: Case, way: str) -> None:
    """A completed stream says to the SDK what it says to us; any other makes it throw, in the provider's words."""
    limit = HELPER_LIMITS.get(case.name)
    if limit and way == "stream":
        assert report.error is not None
        assert limit in report.error.message
    elif case.completed:
        assert report.error is None
        assert report.seen is not None
        assert spoken(report.seen, way) == spoken(case.expected, way)
    else:
        assert report.error is not None
        assert report.error.name == "APIError"
        assert case.is_reported_in(report.error.message, report.error.code)


def spoken(seen: Seen, way: str) -> Seen:
    """All of it; but not the reasoning where the helper reports it, of which it keeps only the last piece."""
    if way == "create":
        return seen
    choices = {index: msgspec.structs.replace(choice, reasoning="") for index, choice in seen.choices.items()}
    return msgspec.structs.replace(seen, choices=choices)

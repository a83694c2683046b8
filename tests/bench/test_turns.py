"""`scripts/bench-turns`: its statistics, when it stops, which code it runs, and a real run of one pair."""

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.load.processes import ROOT, MissingError
from bench.turns import trees
from bench.turns.pairs import MIN_PAIRS, PRECISION, Figures, Pair, estimate, is_precise, measure

in_a_clone = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="there is no git repository to take a commit from")


def pair(cpu: float, first: float = 1.0, p99: float = 1.0) -> Pair:
    """A pair with these ratios new/old."""
    return Pair(Figures(30.0 * cpu, 30.0, 500.0 * first, 900.0 * p99), Figures(30.0, 30.0, 500.0, 900.0))


def noisy(ratio: float, spread: float, seed: int = 1) -> Iterator[Pair]:
    chance = random.Random(seed)
    while True:
        yield pair(ratio * chance.lognormvariate(0.0, spread))


def test_a_ratio_is_the_median_of_the_pairs_own() -> None:
    """Other work on the machine affects both gateways, and one outlier does not change the result."""
    pairs = [
        Pair(Figures(33.0 * slow, 1.0, 1.0, 1.0), Figures(30.0 * slow, 1.0, 2.0, 4.0)) for slow in (1.0, 2.0, 3.0, 1.5)
    ]
    found = estimate([*pairs, pair(9.0)], "cpu")
    assert found.ratio == pytest.approx(1.1)
    assert estimate(pairs, "first").ratio == 0.5
    assert estimate(pairs, "p99").ratio == 0.25


def test_the_range_holds_the_true_ratio_nineteen_times_in_twenty() -> None:
    within = 0
    for seed in range(200):
        pairs = noisy(1.04, 0.05, seed)
        found = estimate([next(pairs) for _ in range(15)], "cpu")
        within += found.low <= 1.04 <= found.high
    assert 180 <= within <= 199  # 190 are expected


def test_the_error_is_that_of_the_wider_side() -> None:
    pairs = [pair(ratio) for ratio in (1.0, 1.0, 1.0, 1.0, 1.0, 1.2, 1.3, 1.3)]
    found = estimate(pairs, "cpu")
    assert found.ratio - found.low < found.high - found.ratio
    assert found.error == pytest.approx((found.high - found.ratio) / found.ratio)


@pytest.mark.parametrize("ratio", [0.7, 1.0, 1.4])
def test_measuring_stops_once_the_range_is_narrow_enough(ratio: float) -> None:
    pairs = noisy(ratio, 0.04)
    found = measure(lambda: next(pairs), lambda: True)
    assert is_precise(found)
    assert not is_precise(found[:-1])
    assert len(found) > MIN_PAIRS
    assert estimate(found, "cpu").error <= PRECISION
    assert estimate(found, "cpu").ratio == pytest.approx(ratio, rel=2 * PRECISION)


def test_a_few_pairs_that_happen_to_agree_are_not_enough() -> None:
    found = measure(lambda: pair(1.02), lambda: True)
    assert len(found) == MIN_PAIRS


def test_measuring_stops_when_the_time_is_up() -> None:
    pairs, left = noisy(1.0, 0.5), iter([True, True, False])
    found = measure(lambda: next(pairs), lambda: next(left))
    assert len(found) == 3
    assert not is_precise(found)


@in_a_clone
def test_the_commit_s_own_code_runs(tmp_path: Path) -> None:
    source = trees.export_commit("HEAD", tmp_path / "old")
    kept = subprocess.run(["git", "show", "HEAD:src/penstock/errors.py"], cwd=ROOT, capture_output=True, check=True)
    assert (source / "penstock" / "errors.py").read_bytes() == kept.stdout
    (source / "penstock" / "__main__.py").write_text("print(__file__)")
    ran = subprocess.run(
        [sys.executable, "-m", "penstock"], env=trees.environment(source), capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == str(source / "penstock" / "__main__.py")


@in_a_clone
def test_a_tree_that_python_does_not_import_from_is_refused(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()  # Python finds the installed one instead
    with pytest.raises(MissingError, match="Python does not import Penstock from"):
        trees.checked(tmp_path / "src")


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "bench.turns", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


@in_a_clone
@pytest.mark.parametrize(
    ("option", "load", "unit"),
    [
        (["--calls"], "short calls: 4 at a time", "call"),
        (["--streams", "4"], "4 streams, an event every 5 ms", "event"),
    ],
)
def test_one_pair_is_measured_and_is_not_enough(option: list[str], load: str, unit: str) -> None:
    done = bench("--against", "HEAD", "--minutes", "0", *option)
    assert done.returncode == 1, done.stderr
    assert re.findall(f"^{load}.*; default log on; 1 pairs in", done.stdout, re.MULTILINE)
    assert re.search(r"^new: this working tree; old: [0-9a-f]{7,} ", done.stdout)
    for figure in (f"CPU per {unit}", "the same, alone", "first event", "99 % of "):
        row = re.search(rf"^{figure}.*? ([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) to ([\d.]+)$", done.stdout, re.MULTILINE)
        assert row, done.stdout
        new, old, ratio = map(float, row.groups()[:3])
        assert new > 0
        assert old > 0
        assert ratio == pytest.approx(new / old, rel=0.01, abs=0.001)  # as printed
    assert "NOT PRECISE" in done.stdout


@in_a_clone
def test_a_commit_that_is_not_there_is_named() -> None:
    done = bench("--against", "no-such-commit", "--calls")
    assert done.returncode == 2
    assert "there is no commit no-such-commit" in done.stderr

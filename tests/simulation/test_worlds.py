"""A sample of simulated worlds without a violation, and what makes them repeatable. `scripts/simulate` runs more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.plan import LAYOUTS, Layout, plan_of
from tests.simulation.simulation import simulate

ROOT = Path(__file__).parent.parent.parent
# Together about half a minute of one core.
SEEDS = range(100, 103)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_is_violated(layout: Layout, seed: int) -> None:
    outcome = simulate(plan_of(seed, clients=12, hours=0.15, layout=layout))
    assert outcome.violations == []
    assert outcome.calls > 10
    assert outcome.endings["completed"]


@pytest.mark.parametrize("layout", ["workers", "pair"])
def test_one_seed_gives_one_trace(layout: Layout) -> None:
    """Twice in this process, and in one whose hashes differ, of each Python that has an environment here."""
    plan = plan_of(7, clients=6, hours=0.1, layout=layout)
    first, again = (simulate(plan, readable=True) for _ in range(2))
    assert first.trace == again.trace
    for python in (Path(sys.executable), *sorted(ROOT.glob(".venv-3.*/bin/python"))):
        assert first.digest == _digest_of(python, layout)


def _digest_of(python: Path, layout: Layout) -> str:
    """What another process says of the same world."""
    command = [
        str(python),
        "scripts/simulate.py",
        "--seed",
        "7",
        "--clients",
        "6",
        "--hours",
        "0.1",
        "--digest",
        "--no-shrink",
    ]
    printed = subprocess.run(
        [*command, "--layout", layout],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "5"},
        capture_output=True,
        text=True,
        check=True,
    )
    return printed.stdout.partition("seed 7: ")[2].partition("\n")[0]


def test_other_seeds_give_other_traces() -> None:
    one, other = (simulate(plan_of(seed, clients=3, hours=0.1, layout="one"), readable=True) for seed in (1, 2))
    assert one.trace != other.trace


def test_no_callback_takes_too_many_steps() -> None:
    outcome = simulate(plan_of(101, clients=6, hours=0.1, layout="one"), steps=60_000)
    assert outcome.violations == []

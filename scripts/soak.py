"""Runs a gateway under mixed traffic, a third of it broken, and checks whether its memory levels off."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.soak.figures import LEVEL_MB_PER_MIN, plot, slope, table  # noqa: E402
from bench.soak.run import Options, soak  # noqa: E402

MOST_MINUTES = 24 * 60.0
# In a shorter run, tables of names may still be growing to their bounds, so the slope means nothing.
JUDGED_MINUTES = 10.0
MAX_PRINTED = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default: 5)")
    parser.add_argument("--clients", type=int, default=12, help="clients at a time (default: 12)")
    parser.add_argument("--workers", type=int, default=1, help="workers of the gateway (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="which calls are made; the moments still differ by chance")
    parser.add_argument("--plot", type=Path, default=Path("soak.svg"), help="where to draw (default: soak.svg)")
    arguments = parser.parse_args()
    if not 0 < arguments.minutes <= MOST_MINUTES:
        parser.error(f"--minutes is more than 0 and at most {MOST_MINUTES:g}")
    options = Options(arguments.minutes * 60, arguments.clients, arguments.workers, arguments.seed)
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder:
        outcome = asyncio.run(soak(Path(folder), options))
    total = outcome.calls.total()
    growth = slope(outcome.samples)
    level = growth <= LEVEL_MB_PER_MIN
    judged = arguments.minutes >= JUDGED_MINUTES
    verdict = "memory levels off" if level else "memory still grows" if judged else "too short to say of the memory"
    memory = f"{verdict}: {growth:+.3f} MB per minute in the second half (level is up to {LEVEL_MB_PER_MIN:g})"
    arguments.plot.write_text(plot(f"{total:,} calls in {arguments.minutes:g} minutes: {memory}", outcome.samples))
    print(table(outcome.samples))
    for counts in (outcome.calls, outcome.pairs):
        print("\n".join(f"{count:9,}  {name}" for name, count in counts.most_common()))
    print(f"{total:,} calls, {len(outcome.wrong)} wrong; {memory}; plot in {arguments.plot}")
    for problem in outcome.wrong[:MAX_PRINTED]:
        print(f"wrong: {problem}")
    return 1 if outcome.wrong or (judged and not level) else 0


if __name__ == "__main__":
    sys.exit(main())

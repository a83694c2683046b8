"""Kills a gateway under load again and again, and counts the calls that its ledger has lost (`scripts/kill-loop`)."""

import argparse
import asyncio
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.ledger.kills import KillCounts, kill_again_and_again, kill_workers  # noqa: E402

# The maximum number of rounds in one folder.
BATCH = 25


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/kill-loop", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1_000, help="how often to kill (default: a thousand times)")
    parser.add_argument("--seed", type=int, default=0, help="where to start; the moments still differ by chance")
    parser.add_argument("--workers", type=int, choices=(1, 2), default=1, help="2: kill one of two workers at a time")
    parser.add_argument(
        "--jobs", type=int, default=2 * multiprocessing.cpu_count(), help="gateways at a time (default: two per core)"
    )
    arguments = parser.parse_args()
    batch = min(BATCH, -(-arguments.rounds // arguments.jobs))
    batches = [
        (arguments.seed + first, min(batch, arguments.rounds - first), arguments.workers)
        for first in range(0, arguments.rounds, batch)
    ]
    began = time.monotonic()
    total = KillCounts()
    with multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool:
        for counts in pool.imap_unordered(_batch, batches):
            total.add(counts)
            for problem in counts.lost:
                print(problem, flush=True)
            print(_summary(total, time.monotonic() - began), flush=True)
    return 1 if total.lost else 0


def _batch(batch: tuple[int, int, int]) -> KillCounts:
    seed, rounds, workers = batch
    with tempfile.TemporaryDirectory(prefix="penstock-kill-") as folder:
        kill = kill_workers if workers > 1 else kill_again_and_again
        return asyncio.run(kill(Path(folder), rounds, seed))


def _summary(total: KillCounts, seconds: float) -> str:
    return (
        f"{total.rounds:,} rounds, {total.calls:,} calls, {total.seen:,} seen to their end, {total.booked:,} booked, "
        f"{total.orphans:,} orphans, {len(total.lost)} lost, {seconds:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())

"""Kills a gateway under load again and again, and counts what its ledger has lost; see `scripts/kill-loop --help`."""

import argparse
import asyncio
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.ledger.kills import Tally, kill_again_and_again, kill_workers  # noqa: E402

# So many rounds at most have a folder of their own.
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
    total = Tally()
    with multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool:
        for tally in pool.imap_unordered(_batch, batches):
            total.add(tally)
            for problem in tally.lost:
                print(problem, flush=True)
            print(_told(total, time.monotonic() - began), flush=True)
    return 1 if total.lost else 0


def _batch(batch: tuple[int, int, int]) -> Tally:
    seed, rounds, workers = batch
    with tempfile.TemporaryDirectory(prefix="penstock-kill-") as folder:
        kill = kill_workers if workers > 1 else kill_again_and_again
        return asyncio.run(kill(Path(folder), rounds, seed))


def _told(total: Tally, seconds: float) -> str:
    return (
        f"{total.rounds:,} rounds, {total.calls:,} calls, {total.seen:,} seen to their end, {total.booked:,} booked, "
        f"{total.orphans:,} orphans, {len(total.lost)} lost, {seconds:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())

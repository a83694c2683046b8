"""Searches for provider events, requests and error bodies that hold the event loop for long, and prints the worst.

See tests/cpu.py for how. The limits that Penstock promises: 20 ms of CPU time for an event of up to 1 MB, 15 ms for
each megabyte of a request. What costs most is measured again at several sizes, by the least of three runs.
"""

import argparse
import asyncio
import gc
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.cpu import Search, sweep, worst_size  # noqa: E402

LIMITS_MS = {"event": 20.0, "request": 15.0, "error": 20.0}


async def search(cases: int, seed: int, shown: int, minutes: float) -> int:
    """Search, print the worst; how many are beyond the limits."""
    found = Search(seed, sweep())
    began = time.monotonic()
    while found.tried < cases and time.monotonic() - began < minutes * 60:
        await found.run(min(1_000, cases - found.tried))
        print(f"{found.tried:,} cases, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    beyond = 0
    for kind, limit in LIMITS_MS.items():
        print(f"\n{kind}: the worst, in ms of CPU time{' for each MB' if kind == 'request' else ''} (limit {limit:g})")
        ranked = []
        for _, pattern, _ in found.ranking(kind)[:160]:
            sized, cost = await worst_size(pattern)
            ranked.append((cost.ms, sized, cost.outcome))
        ranked.sort(key=lambda row: -row[0])
        beyond += sum(ms > limit for ms, _, _ in ranked)
        for ms, pattern, outcome in ranked[:shown]:
            print(f"{ms:8.1f}  {outcome:24} {pattern}")
    print(f"\n{found.tried:,} cases tried, {beyond} beyond the limits")
    return beyond


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/cpu-search", description=__doc__)
    parser.add_argument("--cases", type=int, default=200_000, help="how many to try (default: 200,000)")
    parser.add_argument("--seed", type=int, default=0, help="where to start")
    parser.add_argument("--minutes", type=float, default=60, help="when to stop trying at the latest (default: 60)")
    parser.add_argument("--shown", type=int, default=12, help="how many of each kind to print (default: 12)")
    arguments = parser.parse_args()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)  # as the gateway does
    return 1 if asyncio.run(search(arguments.cases, arguments.seed, arguments.shown, arguments.minutes)) else 0


if __name__ == "__main__":
    sys.exit(main())

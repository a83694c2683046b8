"""What the ledger costs an event, more exactly than rows of a table can say it: `scripts/bench-turns`.

Two gateways stand side by side on one core, one with a ledger and one without. Fifty paced streams go through one of
them for two seconds, and then through the other, and so on, the order of the two drawn by lot: whatever else the
machine does is in both. A share is the median of the pairs' shares, with the range in which it lies with 95 %
certainty.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.gateway import judge
from bench.gateway.goals import LEDGER_SHARE
from bench.gateway.judge import MissingError

STREAMS = 50
EVENTS = 100
GAP_US = 5_000
TURN_S = 2


class Turn(NamedTuple):
    """What a gateway took in one turn, in microseconds: CPU for an event, and two times of the load generator's."""

    cpu: float
    first: float
    p99: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench-turns", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--pairs", type=int, default=40, help="turns with and without it (default: %(default)s)")
    options = parser.parse_args()
    try:
        judge.check()
        pairs = _measure(options.pairs)
    except MissingError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 2
    print(f"{STREAMS} streams, an event every {GAP_US // 1000} ms; {len(pairs)} pairs of turns of {TURN_S} s")
    print(f"{'microseconds, medians':24}{'with a ledger':>16}{'without':>12}{'more':>9}   with 95 % certainty")
    share = 0.0
    for name, words in (("cpu", "CPU per event"), ("first", "first event"), ("p99", "99% of events")):
        kept, not_kept = ([getattr(turn, name) for turn in turns] for turns in zip(*pairs, strict=True))
        shares = [ours / theirs - 1 for ours, theirs in zip(kept, not_kept, strict=True)]
        low, high = median_range(shares)
        told = f"{statistics.median(kept):>16.1f}{statistics.median(not_kept):>12.1f}{statistics.median(shares):>+9.1%}"
        print(f"{words:24}{told}   {low:+.1%} to {high:+.1%}")
        share = statistics.median(shares) if name == "cpu" else share
    print(f"the ledger's CPU per event: {share:+.1%}; {LEDGER_SHARE:+.0%} allowed")
    return 0 if share <= LEDGER_SHARE else 1


def median_range(values: list[float]) -> tuple[float, float]:
    """Between which of the values their median lies, with 95 % certainty: by drawing from them again and again."""
    chance = random.Random(1)
    drawn = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(2_000))
    return drawn[50], drawn[-50]


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used so far, in all its threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


@contextmanager
def running(command: list[str], core: int) -> Iterator[int]:
    """A process, by its id, until the block ends."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.sched_setaffinity(process.pid, {core})
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(10)


def load(port: int, seconds: int) -> list[str]:
    """What to tell the load generator."""
    asked = ["-p", str(port), "-u", "/v1/chat/completions", "-m", judge.MODEL, "-c", str(STREAMS), "-n", str(EVENTS)]
    return [*asked, "-s", "1000000000", "-t", str(seconds), "-g", "20", "-r", str(20 * GAP_US)]


def _measure(pairs: int) -> list[tuple[Turn, Turn]]:
    """Turns with a ledger and without, side by side."""
    with ExitStack() as ended, tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        mock, loadgen = judge.build_mock(folder), judge.build_loadgen(folder)
        ended.enter_context(running([str(mock), str(judge.MOCK_PORT)], judge.OTHER_CORE))
        gateways = []
        for ledger in (True, False):
            port = judge.free_port()
            command = judge.command(judge.configuration(folder, log=False, ledger=ledger), port)
            pid = ended.enter_context(running(command, judge.GATEWAY_CORE))
            judge.give_priority(pid, os.SCHED_RR, 1)
            judge.wait_for(f"http://127.0.0.1:{port}/readyz")
            gateways.append((pid, port))
        judge.wait_for(f"http://127.0.0.1:{judge.MOCK_PORT}/_ctl?n={EVENTS}&delay_us={GAP_US}")
        found = []
        for number in range(pairs + 1):
            order = random.sample((0, 1), 2)
            turns = {which: _turn(loadgen, *gateways[which]) for which in order}
            if number:  # the first one warms them up
                found.append((turns[0], turns[1]))
        return found


def _turn(loadgen: Path, pid: int, port: int) -> Turn:
    def before() -> None:
        os.sched_setaffinity(0, {judge.OTHER_CORE})
        judge.give_priority(0, os.SCHED_FIFO, 2)

    used = cpu_s(pid)
    done = subprocess.run(
        [str(loadgen), *load(port, TURN_S)], capture_output=True, text=True, check=True, preexec_fn=before
    )
    told = json.loads(done.stdout)
    if any(told["err"].values()) or told["hung"]:
        raise MissingError(f"streams were not whole: {told['err']}, {told['hung']} did not end")
    return Turn((cpu_s(pid) - used) / told["chunks"] * 1e6, told["ttft_us"]["p50"], told["lat_us"]["p99"])


if __name__ == "__main__":
    sys.exit(main())

"""Compares the strategies of routes while providers fail, limit and stall: `scripts/bench-routing`.

The gateway is the real one, and calls come over HTTP. The providers follow a script (`scripted_provider.py`), which is
the same for each strategy, as are the times of the calls. With `--litellm PYTHON`, LiteLLM's router has the same
script, in an environment that has the package. The cost is what the providers bill, for all calls, per thousand
complete answers.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.load.processes import ROOT, free_port, running, wait_for
from bench.routing.load import FIRST_EVENT_S, INPUT, OUTPUT, PRICES, PROMPT, TARGETS, Answer, drive, quantile, start

BAR = 0.999
_DOWN_RATE = 110.0
_PER_MILLION = 1_000_000
_STRATEGIES = {
    "order": 'strategy = "order"',
    "weights": 'strategy = "weights"',
    "least_busy": 'strategy = "least_busy"',
    "latency": 'strategy = "latency"',
    "latency, leave_late": 'strategy = "latency"\nleave_late = true',
    "cost": 'strategy = "cost"',
    "cheapest": 'strategy = "cheapest"\nmax_first_event_s = 0.5',
}
_LITELLM = ("simple-shuffle", "least-busy", "latency-based-routing", "cost-based-routing", "usage-based-routing-v2")


class Row(NamedTuple):
    """The figures of one run."""

    name: str
    calls: int
    success: float
    p50_s: float
    p99_s: float
    cost: float


def configuration(port: int, url: str, folder: Path) -> str:
    """The gateway: the three targets, and a route for each strategy."""
    lines = ["[server]", f'listen = "127.0.0.1:{port}"', 'log = "off"', "[admin]", "enabled = false"]
    lines += ["[ledger]", f'folder = "{folder}"', "[timeouts]", f"first_event_s = {FIRST_EVENT_S}"]
    for target in TARGETS:
        read, written = PRICES[target]
        lines += [f"[providers.{target}]", f'base_url = "{url}/{target}/v1"']
        lines += [f'[prices."{target}/*"]', f"input = {read}", f"output = {written}"]
    for name, settings in _STRATEGIES.items():
        lines += [f'[routes."{name}"]', settings, f"targets = {[f'{target}/m' for target in TARGETS]}"]
    return "\n".join(lines)


@contextmanager
def serving(url: str) -> Iterator[int]:
    """The port of a new gateway, until the block ends. Nothing is known to it of an earlier run."""
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        file = folder / "penstock.toml"
        file.write_text(configuration(port, url, folder / "ledger"))
        command = [sys.executable, "-m", "penstock", "serve", "--config", str(file)]
        with running(command, environment=os.environ | {"PENSTOCK_STATE": name}):
            wait_for(f"http://127.0.0.1:{port}/health")
            yield port


async def ask(port: int, model: str) -> Answer:
    """Make one call, and read its stream to the end."""
    body = json.dumps({"model": model, "stream": True, "messages": [{"role": "user", "content": PROMPT}]}).encode()
    began, first_s, complete = time.monotonic(), 0.0, False
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
        writer.write(head + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        async for line in reader:
            if not first_s and b'"content":"word' in line.replace(b'": "', b'":"'):
                first_s = time.monotonic() - began
            complete = complete or b"data: [DONE]" in line
    finally:
        writer.close()
    return Answer(complete, first_s)


def figures(name: str, answers: Sequence[Answer], url: str) -> Row:
    """The figures of a run that has just ended."""
    with urllib.request.urlopen(f"{url}/bill", timeout=5) as response:
        bill: dict[str, int] = json.loads(response.read())
    spent = sum(number * sum(_costs(target)) for target, number in bill.items())
    first = [answer.first_s for answer in answers if answer.complete]
    success = len(first) / len(answers)
    return Row(
        name, len(answers), success, quantile(first, 0.5), quantile(first, 0.99), 1_000 * spent / max(len(first), 1)
    )


def _costs(target: str) -> tuple[float, float]:
    read, written = PRICES[target]
    return INPUT * read / _PER_MILLION, OUTPUT * written / _PER_MILLION


def by_penstock(url: str, strategy: str, script: str, options: argparse.Namespace) -> Row:
    """Run one strategy of Penstock."""
    rate = options.rate if script == "mixed" else _DOWN_RATE
    with serving(url) as port:
        start(url, script, options.seconds, options.seed)

        async def ask_route() -> Answer:
            return await ask(port, strategy)

        answers = asyncio.run(drive(ask_route, options.seconds, rate, options.seed))
        return figures(f"Penstock, {strategy}", answers, url)


def by_litellm(url: str, strategy: str, options: argparse.Namespace) -> Row:
    """Run one strategy of LiteLLM's router."""
    command = [options.litellm, "-m", "bench.routing.litellm_client", url, strategy]
    command += map(str, (options.seconds, options.rate, options.seed))
    environment = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "CRITICAL"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
    answers = [Answer(*each) for each in json.loads(done.stdout.splitlines()[-1])]
    return figures(f"LiteLLM, {strategy}", answers, url)


@contextmanager
def providers() -> Iterator[str]:
    """The URL of the scripted providers, until the block ends."""
    command = [sys.executable, "-m", "bench.routing.scripted_provider"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.communicate()


def show(row: Row) -> None:
    """Print the figures of a run."""
    first = f"{row.p50_s * 1000:>8.0f} ms{row.p99_s * 1000:>8.0f} ms"
    print(f"{row.name:34}{row.calls:>6}{row.success:>10.2%}{first}{f'${row.cost:.2f}':>10}", flush=True)


def main() -> int:
    """Measure and print; return 1 if too many calls fail while one of three targets is down."""
    parser = argparse.ArgumentParser(prog="scripts/bench-routing", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=30.0, help="calls per second (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=34, help="of script and load (default: %(default)s)")
    parser.add_argument("--litellm", default="", metavar="PYTHON", help="an interpreter that has LiteLLM")
    parser.add_argument("--only", default="", help="one strategy of Penstock")
    options = parser.parse_args()
    strategies = [options.only] if options.only else [*_STRATEGIES]
    with providers() as url:
        print(
            f"{'outage, rate limits, slow starts':34}{'calls':>6}{'success':>10}{'p50':>11}{'p99':>11}{'per 1000':>10}"
        )
        for strategy in strategies:
            show(by_penstock(url, strategy, "mixed", options))
        for strategy in _LITELLM if options.litellm else ():
            show(by_litellm(url, strategy, options))
        print(f"\n{'one of three targets is down':34}")
        down = [by_penstock(url, strategy, "down", options) for strategy in strategies]
        for row in down:
            show(row)
    worst = min(row.success for row in down)
    print(f"\nwith one of three targets down, at least {worst:.2%} of the calls succeed; the bar is {BAR:.1%}")
    return 0 if worst >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())

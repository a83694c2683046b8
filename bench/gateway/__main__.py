"""Measures the cost of Penstock as a gateway, compared with nginx, other gateways and none: `scripts/bench-gateway`.

The judge (`judge.py`) pins each gateway to one core, and its mock provider and load generator to another. It checks
every event of every stream, and runs the gateways in turns. CPU per relayed event is the main figure, because other
work on the machine disturbs it least. A figure is the median of its rounds. `bench/README.md` explains the tables,
`goals.py` has the goals, and `peers.py` the gateways to compare with.
"""

import argparse
import math
import sys
from pathlib import Path

from bench.gateway import fetch, goals, judge
from bench.gateway.chart import Bar, draw
from bench.gateway.figures import Figures
from bench.gateway.goals import Verdict
from bench.gateway.judge import Gateway
from bench.gateway.peers import PEERS
from bench.gateway.streams import Crowd, crowd
from bench.load.clients import streams
from bench.load.processes import MissingError

SCENARIOS = {"paced50": streams(50), "paced200": streams(200), "low": streams(20, 50_000, 50)}
STREAMS = 10_000
TITLES = ("CPU/event", "× nginx", "latency p50", "latency p99", "first event", "RSS MB")
COLUMNS = "{:18}{:>11}{:>9}{:>13}{:>13}{:>13}{:>9}   {}"


def main() -> int:
    options = _options()
    scenarios: list[str] = options.scenarios
    try:
        judge.check()
        peers = [*options.peer, *fetch.fetch_all(options.peers, fetch.FOLDER)]
        figures = Figures(
            judge.compare(
                {name: SCENARIOS[name] for name in scenarios},
                options.rounds,
                peers,
                log="off" if options.no_log else "auto",
            )
        )
        _print_peers(figures, peers)
        print(f"Penstock's log, a line for each call: {'off' if options.no_log else 'on, which is the default'}")
        for scenario in scenarios:
            _print_scenario(scenario, figures)
        _print_process(figures)
        _print_disturbance(figures)
        verdicts = goals.of_figures(figures, scenarios)
        if options.streams:
            found = crowd(options.streams)
            _print_crowd(found, options.streams)
            verdicts.append(goals.of_crowd(found))
    except MissingError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 2
    if options.svg:
        options.svg.write_text(_chart(scenarios, figures, options.rounds))
    return _print_verdicts(verdicts)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench-gateway", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each gateway has its turn (default: 5)")
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS), help="default: all")
    parser.add_argument(
        "--peers",
        type=_peers,
        default=[],
        help=f"fetch these gateways and measure them too: all, or some of {','.join(PEERS)}",
    )
    parser.add_argument(
        "--peer",
        type=_peer,
        action="append",
        default=[],
        help=f"a gateway of your own: NAME=COMMAND@PORT; its provider is http://127.0.0.1:{judge.PROVIDER_PORT}/v1",
    )
    parser.add_argument("--no-log", action="store_true", help="turn Penstock's log off, which is on by default")
    parser.add_argument(
        "--streams", type=int, default=STREAMS, help="streams to open at once; 0 for none (default: %(default)s)"
    )
    parser.add_argument("--svg", type=Path, help="draw CPU per event into this file")
    return parser.parse_args()


def _peers(wanted: str) -> list[str]:
    try:
        return fetch.names(wanted)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _peer(text: str) -> Gateway:
    name, _, rest = text.partition("=")
    command, _, port = rest.rpartition("@")
    if not (name and command and port.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMAND@PORT")
    return Gateway(name, command, int(port))


def _print_peers(figures: Figures, peers: list[Gateway]) -> None:
    """Print what the peers are; for one that did not start, how to find out why."""
    print()
    for peer in peers:
        if peer.name in figures.gateways:
            print(f"{peer.name:18}{peer.made_of or peer.command}")
        else:
            print(f"penstock: {peer.name} did not start. To see why: {peer.command}", file=sys.stderr)


def _print_scenario(scenario: str, figures: Figures) -> None:
    print(f"\n{SCENARIOS[scenario].name}; microseconds")
    print(
        COLUMNS.format("", "CPU/event", "× nginx", "latency p50", "latency p99", "first event", "RSS MB", "").rstrip()
    )
    base = figures.median("nginx", "cpu_us", scenario)
    for gateway in figures.gateways:
        cpu = figures.median(gateway, "cpu_us", scenario)
        shown = [
            _shown(cpu),
            _shown(cpu / base if cpu and base else None, 2),
            _shown(figures.median(gateway, "latency_p50_us", scenario), 0),
            _shown(figures.median(gateway, "latency_p99_us", scenario), 0),
            _shown(figures.median(gateway, "first_event_us", scenario), 0),
            _shown(figures.median(gateway, "memory_mb", scenario), 0),
        ]
        trouble = figures.mistakes(gateway, scenario) or figures.falls_behind(gateway, scenario)
        print(COLUMNS.format(gateway, *shown, trouble).rstrip())


def _print_process(figures: Figures) -> None:
    print("\ncold start to the first answer, s; idle memory, MB")
    for gateway in figures.gateways:
        cold, idle = (figures.median(gateway, name) for name in ("cold_start_s", "idle_mb"))
        if cold is not None:
            print(f"{gateway:18}{_shown(cold, 2):>11}{_shown(idle, 0):>9}")


def _print_disturbance(figures: Figures) -> None:
    if figures.disturbed:
        print(
            f"\n{figures.disturbed} of {figures.runs} runs were disturbed by other work on this machine, "
            "which makes times longer; CPU suffers least."
        )


def _print_crowd(found: Crowd, wanted: int) -> None:
    print(
        f"\n{found.streams:,} streams open at once in one process: {found.kilobytes_each:.0f} KB each, "
        f"{found.streams - found.whole:,} lost; the latest first event after {found.latest_first_s:.2f} s"
    )
    if found.streams < wanted:
        print(f"(not {wanted:,}: the limit on open files, `ulimit -Hn`, allows no more)")


def _print_verdicts(verdicts: list[Verdict]) -> int:
    """The goals, one to a line; returns the exit code."""
    print("\nPenstock's goals")
    print(*verdicts, sep="\n")
    missed = sum(verdict.met is False for verdict in verdicts)
    print(f"Missed: {missed}." if missed else "All that was measured is met.")
    return 1 if missed else 0


def _chart(scenarios: list[str], figures: Figures, rounds: int) -> str:
    groups = {
        SCENARIOS[scenario].name: sorted(
            (_bar(gateway, scenario, figures) for gateway in figures.gateways if gateway != "direct"),
            key=lambda bar: bar.value or math.inf,
        )
        for scenario in scenarios
    }
    return draw(
        "CPU microseconds per relayed event",
        f"One core, one process, medians of {rounds} interleaved rounds; less is better. scripts/bench-gateway",
        groups,
    )


def _bar(gateway: str, scenario: str, figures: Figures) -> Bar:
    remark = ""
    if figures.mistakes(gateway, scenario):
        remark = "made mistakes"
    elif figures.falls_behind(gateway, scenario):
        remark = "cannot keep up"
    return Bar(gateway, figures.median(gateway, "cpu_us", scenario), remark)


def _shown(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


if __name__ == "__main__":
    sys.exit(main())

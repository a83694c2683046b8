"""What Penstock costs as a gateway, beside nginx and beside no gateway at all: `scripts/bench-gateway`.

The judge (see `judge.py`) pins each gateway to one core and its mock provider and load generator to another, checks
every event of every stream, and lets the gateways take turns. CPU per relayed event is the main figure: neighbours
disturb it least. A figure is the median of its rounds. `bench/README.md` says how to read the table.
"""

import argparse
import statistics
import sys
from pathlib import Path

from bench.gateway import judge
from bench.gateway.chart import draw
from bench.gateway.judge import MissingError, Row
from bench.gateway.streams import crowd

SCENARIOS = {
    "paced50": "50 streams, an event every 5 ms",
    "paced200": "200 streams, an event every 5 ms",
    "low": "20 streams, an event every 50 ms",
}
# Of nginx's CPU per event, where there is a goal.
GOAL = 1.5
GOALS_FOR = ("paced50", "paced200")
STREAMS = 10_000
MAX_KILOBYTES_EACH = 100.0
COLUMNS = "{:20}{:>10}{:>9}{:>13}{:>13}{:>14}{:>9}   {}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench-gateway", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each gateway has its turn (default: 5)")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="which of the judge's (default: %(default)s)")
    parser.add_argument(
        "--peer", action="append", default=[], help="another gateway, as the judge wants it: NAME=COMMAND@PORT"
    )
    parser.add_argument("--log", action="store_true", help="let Penstock write its log, a line for each call")
    parser.add_argument(
        "--streams", type=int, default=STREAMS, help="streams to open at once; 0 for none (default: %(default)s)"
    )
    parser.add_argument("--svg", type=Path, help="draw CPU per event into this file")
    options = parser.parse_args()
    scenarios: list[str] = options.scenarios.split(",")
    try:
        judge.check()
        rows = judge.compare(scenarios, options.rounds, options.peer, log=options.log)
        kept = [_print_scenario(scenario, rows) for scenario in scenarios]
        _print_process(rows)
        if options.streams:
            kept.append(_print_crowd(options.streams))
    except MissingError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 2
    if options.svg:
        options.svg.write_text(_chart(scenarios, rows, options.rounds))
    return 0 if all(kept) else 1


def _print_scenario(scenario: str, rows: list[Row]) -> bool:
    """One table; returns whether Penstock kept to the goal."""
    print(f"\n{SCENARIOS.get(scenario, scenario)}; microseconds")
    print(COLUMNS.format("", "CPU/event", "× nginx", "latency p50", "latency p99", "first event", "RSS MB", ""))
    base = _median(rows, "nginx", scenario, "cpu_us")
    for gateway in _gateways(rows):
        cpu = _median(rows, gateway, scenario, "cpu_us")
        figures = [
            _shown(cpu),
            _shown(cpu / base if cpu and base else None, 2),
            *(_shown(_median(rows, gateway, scenario, name), 0) for name in ("latency_p50_us", "latency_p99_us")),
            _shown(_median(rows, gateway, scenario, "first_event_us"), 0),
            _shown(_median(rows, gateway, scenario, "memory_mb"), 0),
        ]
        print(COLUMNS.format(gateway, *figures, _mistakes(rows, gateway, scenario)).rstrip())
    ours = _median(rows, "penstock", scenario, "cpu_us")
    if _mistakes(rows, "penstock", scenario) or ours is None:
        return False
    return base is None or scenario not in GOALS_FOR or ours <= GOAL * base


def _print_process(rows: list[Row]) -> None:
    print("\ncold start to the first answer, s; idle memory, MB")
    for gateway in _gateways(rows):
        cold, idle = (_median(rows, gateway, None, name) for name in ("cold_start_s", "idle_mb"))
        if cold is not None:
            print(f"{gateway:20}{_shown(cold, 2):>10}{_shown(idle, 0):>9}")


def _print_crowd(count: int) -> bool:
    """Many streams at once; returns whether none was lost, and none took too much."""
    found = crowd(count)
    print(
        f"\n{found.streams:,} streams open at once in one process: {found.kilobytes_each:.0f} KB each, "
        f"{found.streams - found.whole:,} lost; opened in {found.seconds_to_open:.0f} s"
    )
    if found.streams < count:
        print(f"(not {count:,}: the limit on open files, `ulimit -Hn`, allows no more)")
    return found.whole == found.streams and found.kilobytes_each <= MAX_KILOBYTES_EACH


def _chart(scenarios: list[str], rows: list[Row], rounds: int) -> str:
    groups = {}
    for scenario in scenarios:
        figures = {gateway: _median(rows, gateway, scenario, "cpu_us") for gateway in _gateways(rows)}
        bars = {gateway: cpu for gateway, cpu in figures.items() if cpu}
        groups[SCENARIOS.get(scenario, scenario)] = dict(sorted(bars.items(), key=lambda bar: bar[1]))
    note = f"One core, one process, medians of {rounds} interleaved rounds; less is better. scripts/bench-gateway"
    return draw("CPU microseconds per relayed event", note, groups)


def _gateways(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row.gateway for row in rows))


def _mistakes(rows: list[Row], gateway: str, scenario: str) -> str:
    return next(
        (row.mistakes for row in rows if (row.gateway, row.scenario) == (gateway, scenario) and row.mistakes), ""
    )


def _median(rows: list[Row], gateway: str, scenario: str | None, figure: str) -> float | None:
    values = [
        value
        for row in rows
        if row.gateway == gateway and scenario in (None, row.scenario) and (value := getattr(row, figure)) is not None
    ]
    return statistics.median(values) if values else None


def _shown(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


if __name__ == "__main__":
    sys.exit(main())

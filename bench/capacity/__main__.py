"""Measures the coefficients of docs/scaling.md, and what some loads take by them: `scripts/bench-capacity`."""

import argparse
import os
import sys

from bench.capacity import coefficients
from bench.capacity.coefficients import BATCH, GatewayFigures, LedgerFigures, LimitFigures
from bench.load.processes import MissingError

# A company of 200 people at its busiest: calls per second, events of a call, and for how many seconds a call runs.
CALLS_S, EVENTS, STREAM_S = 5, 300, 10
TIMES = (1, 10, 100, 1_000)
# A core that is busier than this makes streams late.
UTILISATION = 0.6
# The busiest second of a day has this many times the calls of its average second.
PEAK = 5
_DAY_S = 86_400


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench-capacity", description=__doc__.split(":", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each figure is measured (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, help="of the gateway; medians are printed (default: 3)")
    parser.add_argument("--streams", type=int, default=1_000, help="open at once, for their memory (default: 1000)")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores; load average before: {os.getloadavg()[0]:.1f}", flush=True)
    try:
        gateway = coefficients.of_gateway(options.seconds, options.rounds, options.streams)
    except MissingError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 2
    sqlite, postgres = coefficients.of_sqlite(options.seconds), coefficients.of_postgres(options.seconds)
    redis, shared_file = coefficients.of_redis(2_000), coefficients.of_shared_file(2_000)
    print(f"load average after: {os.getloadavg()[0]:.1f}\n")
    print_coefficients(gateway, {"SQLite": sqlite, "PostgreSQL": postgres}, {"Redis": redis, "file": shared_file})
    print_loads(gateway, postgres, redis)
    return 0


def print_coefficients(
    gateway: GatewayFigures, ledgers: dict[str, LedgerFigures], limits: dict[str, LimitFigures]
) -> None:
    """Print what was measured."""
    print("a process of the gateway")
    print(f"  an event                  {gateway.event_us:10.1f} µs of CPU")
    print(f"  a call, besides its events{gateway.call_us:10.0f} µs of CPU")
    print(f"  an open stream            {gateway.stream_kb:10.0f} KB")
    print(f"  calls of {EVENTS} events       {_calls_per_core(gateway):10.0f} per second and core")
    print(
        f"\nthe ledger              entries/s by {BATCH}   commits/s   bytes/entry   client CPU   server CPU, µs/entry"
    )
    for name, found in ledgers.items():
        print(
            f"  {name:22}{found.entries_s:15,.0f}{found.commits_s:12,.0f}{found.entry_bytes:14,.0f}"
            f"{found.client_us:13.0f}{found.server_us:13.0f}"
        )
    print("\nlimits of one key                calls/s   server CPU, µs/call")
    for name, limit in limits.items():
        print(f"  {name:22}{limit.calls_s:16,.0f}{limit.server_us:22.0f}")


def print_loads(gateway: GatewayFigures, ledger: LedgerFigures, limits: LimitFigures) -> None:
    """Print what loads of several sizes take."""
    print(
        f"\nby these figures: {CALLS_S} calls/s at the busiest, of {EVENTS} events in {STREAM_S} s; cores are busy to "
        f"{UTILISATION:.0%}"
    )
    print(f"{'':8}{'calls/s':>9}{'events/s':>11}{'streams':>9}{'cores':>8}{'memory MB':>11}", end="")
    print(f"{'ledger busy':>13}{'ledger cores':>14}{'GB/day':>8}{'Redis cores':>13}")
    for times in TIMES:
        calls = CALLS_S * times
        cores = calls / _calls_per_core(gateway)
        streams = calls * STREAM_S
        print(
            f"{f'× {times:,}':8}{calls:9,}{calls * EVENTS:11,}{streams:9,}{cores:8.1f}"
            f"{streams * gateway.stream_kb / 1000:11,.0f}{calls / ledger.entries_s:13.1%}"
            f"{calls * ledger.server_us / 1e6:14.2f}{calls / PEAK * _DAY_S * ledger.entry_bytes / 1e9:8.2f}"
            f"{calls * limits.server_us / 1e6:13.2f}"
        )


def _calls_per_core(gateway: GatewayFigures) -> float:
    """Calls per second that one core can carry."""
    return UTILISATION * 1e6 / (gateway.call_us + EVENTS * gateway.event_us)


if __name__ == "__main__":
    sys.exit(main())

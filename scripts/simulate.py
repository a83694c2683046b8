"""Simulates gateways with their clients, providers and faults, one world per seed (`scripts/simulate`)."""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.simulation.mutants import find_all  # noqa: E402
from tests.simulation.plan import LAYOUTS, Plan, plan_of  # noqa: E402
from tests.simulation.shrink import shrink  # noqa: E402
from tests.simulation.simulation import Outcome, simulate  # noqa: E402

_MOST_SHOWN = 5


def main() -> int:
    arguments = _arguments()
    if arguments.mutants is not None:
        return _find_mutants(arguments.mutants)
    began, until = time.monotonic(), time.monotonic() + 60 * (arguments.minutes or 0)
    seed, worlds = arguments.seed, arguments.worlds or (1 if arguments.minutes is None else sys.maxsize)
    hours = calls = 0.0
    cpu_s, failed = 0.0, 0
    faults: Counter[str] = Counter()
    for number in range(worlds):
        if arguments.minutes is not None and time.monotonic() >= until:
            break
        plan = plan_of(seed + number, clients=arguments.clients, hours=arguments.hours, layout=arguments.layout)
        plan = plan.with_parts(
            _numbers(arguments.only_clients), _numbers(arguments.only_faults), _numbers(arguments.only_calls)
        )
        outcome = simulate(plan, readable=arguments.trace or arguments.digest, steps=arguments.steps)
        if arguments.trace:
            print("\n".join(outcome.trace))
        if arguments.digest:
            print(f"seed {plan.seed}: {outcome.digest}")
        hours, calls, cpu_s = hours + outcome.simulated_s / 3600, calls + outcome.calls, cpu_s + outcome.cpu_s
        faults += outcome.faults
        print(_line(outcome), flush=True)
        if outcome.violations:
            failed += 1
            _report(plan, outcome, arguments)
            if arguments.until_violation:
                break
    rate = hours * 3600 / cpu_s if cpu_s else 0.0
    print(
        f"{hours:,.1f} simulated hours, {calls:,.0f} calls, {faults.total():,} faults of {len(faults)} kinds, "
        f"{failed} worlds with a violation; {cpu_s:.0f} s of CPU, {time.monotonic() - began:.0f} s: "
        f"{rate:,.0f} simulated hours per hour of CPU"
    )
    return 1 if failed else 0


def _find_mutants(names: str) -> int:
    missed = 0
    for mutant, found in find_all(names):
        missed += "VIOLATION" not in found
        print(f"{mutant.name}\n    {found}", flush=True)
    return 1 if missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first world (default: 1)")
    parser.add_argument("--worlds", type=int, help="how many worlds, one seed after another (default: one)")
    parser.add_argument("--minutes", type=float, help="simulate worlds for so long")
    parser.add_argument("--clients", type=int, default=50, help="clients in each world (default: 50)")
    parser.add_argument("--hours", type=float, default=1.0, help="simulated hours of each world (default: 1)")
    parser.add_argument("--layout", choices=LAYOUTS, help="which gateways (default: the seed decides)")
    parser.add_argument("--steps", type=int, default=0, help="the most functions that one callback may call; slow")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    parser.add_argument("--digest", action="store_true", help="print a hash of everything that happens")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for a smaller world after a violation")
    parser.add_argument("--until-violation", action="store_true", help="end with the first violation")
    parser.add_argument("--mutants", nargs="?", const="", metavar="NAME", help="put defects into a copy, and find them")
    for part in ("clients", "faults", "calls"):
        parser.add_argument(f"--only-{part}", metavar="N,N", help=f"only these {part} of the world")
    return parser.parse_args()


def _numbers(text: str | None) -> frozenset[int] | None:
    return frozenset(map(int, filter(None, text.split(",")))) if text is not None else None


def _line(outcome: Outcome) -> str:
    faults = ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.faults.items())) or "none"
    rate = outcome.simulated_s / outcome.cpu_s
    return (
        f"seed {outcome.plan.seed}: {outcome.plan.layout}, {outcome.calls:,} calls, "
        f"{outcome.simulated_s / 3600:.2f} h, {rate:,.0f} simulated hours per hour; faults: {faults}"
    )


def _report(plan: Plan, outcome: Outcome, arguments: argparse.Namespace) -> None:
    """Print violations, and how to repeat them in the smallest world that was found."""
    if not arguments.no_shrink:
        plan, outcome = shrink(plan, outcome)
    for violation in outcome.violations[:_MOST_SHOWN]:
        print(f"  VIOLATION {violation}")
    for fault in plan.faults:
        print(f"  fault {fault.number}: {fault.kind} at {fault.at_s:.1f} s for {fault.for_s} s")
    for call in plan.calls[:_MOST_SHOWN]:
        kinds = ", ".join(each.kind for each in call.behaviours)
        print(f"  call {call.id}: {call.surface} to {call.target}, {call.oddity or call.nonsense or 'usual'}; {kinds}")
    command = f"scripts/simulate --seed {plan.seed} --layout {plan.layout} --clients {arguments.clients}"
    command += f" --hours {arguments.hours:g} --only-faults '{_list(fault.number for fault in plan.faults)}'"
    command += f" --only-clients {_list(client.number for client in plan.clients)}"
    if len(plan.calls) <= 40:
        command += f" --only-calls {_list(call.id for call in plan.calls)}"
    print(f"  {command} --trace", flush=True)


def _list(numbers: object) -> str:
    return ",".join(map(str, numbers))  # type: ignore[call-overload]


if __name__ == "__main__":
    sys.exit(main())

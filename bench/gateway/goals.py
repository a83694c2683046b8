"""The goals of Penstock, and whether it meets them.

Four goals compare it with nginx. They measure what a gateway adds to the time without a gateway: a first event takes
some time in any case. The other goals are that no event is lost, and how much memory many streams may take.
"""

from typing import NamedTuple

from bench.gateway.figures import Figures
from bench.gateway.judge import WITHOUT_LEDGER
from bench.gateway.streams import Crowd

MAX_KILOBYTES_EACH = 100.0
LEDGER_SHARE = 0.1
LEDGER_SCENARIOS = ("paced50", "paced200")


class Goal(NamedTuple):
    """A figure that Penstock may add, as a multiple (`most`) of what nginx adds."""

    what: str
    scenario: str
    figure: str
    most: float


GOALS = (
    Goal("CPU per event, 50 streams", "paced50", "cpu_us", 1.5),
    Goal("CPU per event, 200 streams", "paced200", "cpu_us", 1.5),
    Goal("time added to the first event, 50 streams", "paced50", "first_event_us", 2.0),
    Goal("time added to an event, 99th percentile, 50 streams", "paced50", "latency_p99_us", 2.0),
)


class Verdict(NamedTuple):
    """Whether a goal is met; None if that was not measured."""

    met: bool | None
    words: str

    def __str__(self) -> str:
        name = {True: "met", False: "MISSED", None: "not measured"}[self.met]
        return f"{name:14}{self.words}"


def of_figures(figures: Figures, scenarios: list[str]) -> list[Verdict]:
    """The verdicts on the figures of the judge."""
    verdicts = [_beside_nginx(goal, figures, scenarios) for goal in GOALS]
    verdicts += [_ledger(figures, scenario) for scenario in scenarios if scenario in LEDGER_SCENARIOS]
    for scenario in scenarios:
        trouble = figures.mistakes("penstock", scenario) or figures.falls_behind("penstock", scenario)
        if "penstock" not in figures.gateways:
            trouble = "Penstock did not start"
        words = f"every stream whole, as fast as it is sent, {scenario}"
        verdicts.append(Verdict(not trouble, f"{words}: {trouble}" if trouble else words))
    return verdicts


def _ledger(figures: Figures, scenario: str) -> Verdict:
    """The CPU per event that the ledger adds, in the same rounds."""
    kept, not_kept = (figures.median(gateway, "cpu_us", scenario) for gateway in ("penstock", WITHOUT_LEDGER))
    share = figures.more("penstock", WITHOUT_LEDGER, scenario)
    words = f"the ledger's CPU per event, {scenario}"
    if kept is None or not_kept is None or share is None:
        return Verdict(None, f"{words}: there is no figure")
    words += f": {kept:.1f} µs with it, {not_kept:.1f} µs without; {share:+.1%} in a round, {LEDGER_SHARE:+.0%} allowed"
    return Verdict(share <= LEDGER_SHARE, words)


def of_crowd(crowd: Crowd) -> Verdict:
    """The verdict on many streams at once."""
    lost = crowd.streams - crowd.whole
    return Verdict(
        lost == 0 and crowd.kilobytes_each <= MAX_KILOBYTES_EACH,
        f"{crowd.streams:,} streams at once: {lost:,} lost, {crowd.kilobytes_each:.0f} KB each; "
        f"none and {MAX_KILOBYTES_EACH:.0f} KB are allowed",
    )


def _beside_nginx(goal: Goal, figures: Figures, scenarios: list[str]) -> Verdict:
    if goal.scenario not in scenarios:
        return Verdict(None, f"{goal.what}: {goal.scenario} was left out")
    ours, theirs = (figures.added(gateway, goal.figure, goal.scenario) for gateway in ("penstock", "nginx"))
    if ours is None or theirs is None:
        who = "nginx" if ours is not None else "Penstock"
        return Verdict(False, f"{goal.what}: {who} has no figure")
    words = f"{goal.what}: {ours:.1f} µs, nginx {theirs:.1f} µs"
    if theirs > 0:
        words += f"; {ours / theirs:.2f} × nginx"
    return Verdict(ours <= goal.most * max(theirs, 0.0), f"{words}, {goal.most} allowed")

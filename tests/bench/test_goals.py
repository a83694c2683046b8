"""The verdict of `scripts/bench-gateway`: which goals are met, and how the rounds of a gateway are summed up."""

import re

import pytest

from bench.gateway import goals
from bench.gateway.figures import Figures
from bench.gateway.goals import Verdict
from bench.gateway.judge import Row
from bench.gateway.streams import Crowd

# Per event and gateway: CPU, 99th percentile of latency, first event.
DIRECT = (0.0, 40.0, 60.0)
NGINX = (20.0, 140.0, 160.0)


def row(gateway: str, figures: tuple[float, float, float], scenario: str = "paced50", rate: float = 9_500.0) -> Row:
    cpu, p99, first = figures
    return Row(gateway, scenario, "", 0.0, cpu, rate, 50.0, p99, first, 30.0, 30.0, 0.2)


def broken(gateway: str, mistakes: str) -> Row:
    return Row(gateway, "paced50", mistakes, 0.0, *[None] * 8)


def beside_nginx(*ours: tuple[float, float, float]) -> Figures:
    rows = [row("direct", DIRECT), row("nginx", NGINX)]
    return Figures(rows + [row("penstock", figures) for figures in ours])


def missed(verdicts: list[Verdict]) -> list[str]:
    return [verdict.words for verdict in verdicts if verdict.met is False]


@pytest.mark.parametrize(
    ("ours", "words"),
    {
        "all at the limit": ((30.0, 240.0, 260.0), None),
        "CPU": ((30.2, 240.0, 260.0), "CPU per event, 50 streams: 30.2 µs, nginx 20.0 µs; 1.51 × nginx, 1.5 allowed"),
        "99th percentile": (
            (30.0, 241.0, 260.0),
            "time added to an event, 99th percentile, 50 streams: 201.0 µs, nginx 100.0 µs; 2.01 × nginx, 2.0 allowed",
        ),
        "first event": (
            (30.0, 240.0, 261.0),
            "time added to the first event, 50 streams: 201.0 µs, nginx 100.0 µs; 2.01 × nginx, 2.0 allowed",
        ),
    }.values(),
)
def test_a_goal_is_missed_just_above_its_limit(ours: tuple[float, float, float], words: str | None) -> None:
    assert missed(goals.of_figures(beside_nginx(ours), ["paced50"])) == ([words] if words else [])


def test_a_share_is_that_of_its_round() -> None:
    """Other work on the machine affects both gateways, and does not change the verdict."""
    rows = [row("direct", DIRECT), row("nginx", NGINX)]
    for minute, share in ((1.0, 1.02), (3.0, 1.02), (2.0, 1.30)):
        rows += [
            row("without ledger", (20.0 * minute, 200.0, 200.0)),
            row("penstock", (20.0 * minute * share, 200.0, 200.0)),
        ]
    (verdict,) = [found for found in goals.of_figures(Figures(rows), ["paced50"]) if "ledger" in found.words]
    assert verdict.met
    assert "+2.0% in a round" in verdict.words


def test_the_median_of_the_rounds_counts() -> None:
    good, bad = (25.0, 200.0, 200.0), (90.0, 900.0, 900.0)
    assert missed(goals.of_figures(beside_nginx(good, bad, good), ["paced50"])) == []
    assert len(missed(goals.of_figures(beside_nginx(bad, good, bad), ["paced50"]))) == 3


def test_what_was_left_out_is_not_judged() -> None:
    figures = Figures([row(name, DIRECT, scenario="low") for name in ("direct", "nginx", "penstock")])
    verdicts = goals.of_figures(figures, ["low"])
    assert [verdict.met for verdict in verdicts] == [None, None, None, None, True]
    assert str(verdicts[1]) == "not measured  CPU per event, 200 streams: paced200 was left out"


def test_mistakes_miss_every_goal_of_their_scenario() -> None:
    figures = Figures([row("direct", DIRECT), row("nginx", NGINX), broken("penstock", "seq: 3 streams")])
    assert missed(goals.of_figures(figures, ["paced50"])) == [
        "CPU per event, 50 streams: Penstock has no figure",
        "time added to the first event, 50 streams: Penstock has no figure",
        "time added to an event, 99th percentile, 50 streams: Penstock has no figure",
        "every stream whole, as fast as it is sent, paced50: seq: 3 streams",
    ]


def test_a_mistake_in_one_round_is_not_outvoted() -> None:
    good = row("penstock", (25.0, 200.0, 200.0))
    rows = [row("direct", DIRECT), row("nginx", NGINX), good, broken("penstock", "done: 1 streams"), good]
    assert missed(goals.of_figures(Figures(rows), ["paced50"])) == [
        "every stream whole, as fast as it is sent, paced50: done: 1 streams"
    ]


def test_without_nginx_nothing_is_met() -> None:
    figures = Figures([row("direct", DIRECT), broken("nginx", "status: 400 streams"), row("penstock", NGINX)])
    words = missed(goals.of_figures(figures, ["paced50"]))
    assert len(words) == 3
    assert all(re.search("nginx has no figure$", text) for text in words)


def test_nothing_is_met_by_who_did_not_start() -> None:
    verdicts = goals.of_figures(Figures([row("direct", DIRECT), row("nginx", NGINX)]), ["paced50"])
    assert missed(verdicts)[-1] == "every stream whole, as fast as it is sent, paced50: Penstock did not start"
    assert len(missed(verdicts)) == 4


@pytest.mark.parametrize(
    ("cpu_us", "rate", "behind"),
    {
        "a full core, and fewer events": (150.0, 6_000.0, "cannot keep up: 60% of the events"),
        "a full core, and all events": (100.0, 9_800.0, ""),
        "fewer events, but a core to spare: other work was in the way": (30.0, 6_000.0, ""),
    }.values(),
)
def test_who_falls_behind(cpu_us: float, rate: float, behind: str) -> None:
    figures = Figures([row("direct", DIRECT, rate=10_000.0), row("other", (cpu_us, 200.0, 200.0), rate=rate)])
    assert figures.falls_behind("other", "paced50") == behind


@pytest.mark.parametrize(
    ("crowd", "met"),
    {
        "all whole": (Crowd(10_000, 10_000, 100.0, 5.0), True),
        "one lost": (Crowd(10_000, 9_999, 20.0, 5.0), False),
        "too much memory": (Crowd(10_000, 10_000, 100.1, 5.0), False),
    }.values(),
)
def test_the_crowd_has_a_goal(crowd: Crowd, met: bool) -> None:
    assert goals.of_crowd(crowd).met is met

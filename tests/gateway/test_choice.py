"""The order in which targets are tried, and why: strategies, affinity, and what is excluded."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.hub.failure import Failure
from penstock.gateway.calls.choice import Chooser, Facts, Ranking
from penstock.gateway.calls.measures import FRESH_S, Measures
from penstock.gateway.calls.plan import Plan, Plans
from penstock.gateway.calls.routing import TargetHealth
from penstock.gateway.calls.strategies import STRATEGIES, TargetEvidence
from penstock.gateway.config import Retries, load
from penstock.gateway.record.price import Price, PricedModel, Rates

PROVIDERS = "".join(f'[providers.{name}]\nbase_url = "https://{name}.example"\n' for name in "abc")
TARGETS = 'targets = ["a/m", "b/m", "c/m"]\n'
WEIGHTS = """targets = [{ target = "a/m", weight = 3 }, { target = "b/m", weight = 1 }, { target = "c/m", weight = 1 }]
"""
OVERLOADED = Failure(code="upstream_rate_limited", message="", retry_after="20", status=429)
ANY = Facts()
PRICES = {"a": 3, "b": 1, "c": 2}


class Case:
    """A route with three targets, and what is known of them."""

    def __init__(self, folder: Path, settings: str, *, keys: str = "") -> None:
        (folder / "penstock.toml").write_text(f"{PROVIDERS}{keys}[routes.r]\n{settings}")
        config = load(folder / "penstock.toml", {})
        self.now = 1_000.0
        self.measures = Measures(lambda: self.now)
        self.health = TargetHealth(Retries(), lambda: self.now, lambda: self.now, None, self.measures)
        plans = Plans(config, "streamed", recorded=False)["r"]
        assert plans
        self.plans: Sequence[Plan] = plans
        self.prices = dict(PRICES)

    def chooser(self, seed: int = 1) -> Chooser:
        return Chooser(self.health, TargetEvidence(self.measures, self.price, random.Random(seed)))

    def price(self, plan: Plan) -> PricedModel | None:
        dollars = self.prices.get(plan.provider)
        return PricedModel(Price(Rates(input=dollars, output=dollars)), "test") if dollars else None

    def rank(self, facts: Facts = ANY, seed: int = 1) -> Ranking:
        return self.chooser(seed).rank(self.plans, facts)

    def order(self, facts: Facts = ANY, seed: int = 1) -> str:
        return "".join(plan.provider for plan in self.rank(facts, seed).plans)

    def plan(self, provider: str) -> Plan:
        return next(plan for plan in self.plans if plan.provider == provider)

    def answers(self, provider: str, first_s: float, pace: float = 0.0) -> None:
        key = self.plan(provider).measure_key
        self.measures.answered(key, first_s)
        if pace:
            self.measures.completed(key, 1_000, 1_000 / pace)

    def cool(self, provider: str) -> None:
        self.health.failed(self.plan(provider).target, OVERLOADED)


def known(case: Case) -> None:
    case.answers("a", 0.9)
    case.answers("b", 0.2)
    case.answers("c", 0.5)


def busy(case: Case) -> None:
    for provider in "aab":
        case.measures.begin(case.plan(provider).measure_key)


def slow_writer(case: Case) -> None:
    case.answers("a", 0.1, pace=20)
    case.answers("b", 0.4, pace=400)
    case.answers("c", 9.0, pace=400)


def nothing(case: Case) -> None:
    pass


# By name: the settings of the route, what is known, the order, and the reason for the first place.
CASES: dict[str, tuple[str, Callable[[Case], None], str, str]] = {
    "as listed": (TARGETS, nothing, "abc", "order: 1"),
    "the fewest in progress": (f'strategy = "least_busy"\n{TARGETS}', busy, "cba", "least_busy: 0 in progress"),
    "the lowest price": (f'strategy = "cost"\n{TARGETS}', nothing, "bca", "cost: $1e-06 per million tokens"),
    "cheapest, all soon enough": (
        f'strategy = "cheapest"\nmax_first_event_s = 1\n{TARGETS}',
        known,
        "bca",
        "cost: $1e-06 per million tokens",
    ),
    "cheapest of those that are soon enough": (
        f'strategy = "cheapest"\nmax_first_event_s = 0.15\n{TARGETS}',
        slow_writer,
        "abc",
        "cost: $3e-06 per million tokens",
    ),
}


@pytest.mark.parametrize(("settings", "prepare", "order", "why"), CASES.values(), ids=CASES)
def test_targets_are_tried_in_the_order_of_the_strategy(
    tmp_path: Path, settings: str, prepare: Callable[[Case], None], order: str, why: str
) -> None:
    case = Case(tmp_path, settings)
    prepare(case)
    assert case.order() == order
    assert case.rank().candidates[0].why == why


def test_a_target_without_a_price_is_the_most_expensive(tmp_path: Path) -> None:
    case = Case(tmp_path, f'strategy = "cost"\n{TARGETS}')
    del case.prices["b"]
    assert case.order() == "cab"
    assert case.rank().reasons[1] == "cost: price unknown"
    assert case.order(Facts(priced_only=True)) == "ca"


def test_the_slowest_of_three_is_never_first_and_the_best_most_often(tmp_path: Path) -> None:
    case = Case(tmp_path, f'strategy = "latency"\n{TARGETS}')
    slow_writer(case)  # a begins soon, and needs 50 s for a usual answer
    first = Counter(case.order(seed=seed)[0] for seed in range(300))
    assert set(first) == {"b", "c"}
    assert first["b"] > 150
    assert case.rank().reasons[1] == "latency: first event 0.40 s, 400 characters/s"


def test_a_target_that_was_not_measured_lately_gets_one_call(tmp_path: Path) -> None:
    case = Case(tmp_path, f'strategy = "latency"\n{TARGETS}')
    known(case)
    case.now += FRESH_S - 1
    case.answers("b", 0.2)
    case.answers("c", 0.2)
    case.now += 2
    assert case.order()[0] == "a"
    assert all(case.order(seed=seed)[0] != "a" for seed in range(50)), "the others wait for its measure"
    case.answers("a", 0.01)
    assert {case.order(seed=seed)[0] for seed in range(50)} >= {"a"}


def test_weights_are_shares_of_the_calls(tmp_path: Path) -> None:
    case = Case(tmp_path, WEIGHTS)
    chooser = case.chooser()
    first = Counter(chooser.rank(case.plans, Facts()).plans[0].provider for _ in range(3_000))
    assert first["a"] == pytest.approx(1_800, abs=120)
    assert first["b"] == pytest.approx(600, abs=100)
    even = Case(tmp_path, f'strategy = "weights"\n{TARGETS}')
    chooser = even.chooser()
    first = Counter(chooser.rank(even.plans, Facts()).plans[0].provider for _ in range(3_000))
    assert all(count == pytest.approx(1_000, abs=120) for count in first.values())


def conversations(case: Case, number: int = 400) -> dict[bytes, str]:
    """The target of each conversation."""
    keys = [b"conversation %d" % each for each in range(number)]
    return {key: case.order(Facts(affinity=key), seed=random.randrange(1_000))[0] for key in keys}


def test_a_target_that_cools_down_moves_its_own_conversations_and_they_return(tmp_path: Path) -> None:
    case = Case(tmp_path, f'strategy = "weights"\naffinity = "prompt"\n{TARGETS}')
    before = conversations(case)
    assert all(count > 90 for count in Counter(before.values()).values())
    case.cool("b")
    meanwhile = conversations(case)
    assert all((target == "b") == (meanwhile[key] != target) for key, target in before.items())
    assert {meanwhile[key] for key, target in before.items() if target == "b"} == {"a", "c"}
    case.now += 30
    assert conversations(case) == before


def test_conversations_have_the_shares_of_the_weights(tmp_path: Path) -> None:
    case = Case(tmp_path, f'affinity = "prompt"\n{WEIGHTS}')
    assert Counter(conversations(case, 2_000).values())["a"] == pytest.approx(1_200, abs=100)


def test_a_conversation_leaves_a_target_that_is_much_busier_or_slower(tmp_path: Path) -> None:
    case = Case(tmp_path, f'strategy = "least_busy"\naffinity = "prompt"\n{TARGETS}')
    home = next(key for key, target in conversations(case).items() if target == "a")
    for _ in range(2):
        case.measures.begin(case.plan("a").measure_key)
    assert case.order(Facts(affinity=home))[0] == "a"
    case.measures.begin(case.plan("a").measure_key)
    assert case.order(Facts(affinity=home))[0] != "a"


def test_a_conversation_leaves_a_slow_target_and_returns_when_its_measure_is_old(tmp_path: Path) -> None:
    case = Case(tmp_path, f'strategy = "latency"\naffinity = "prompt"\n{TARGETS}')
    home = next(key for key, target in conversations(case).items() if target == "a")
    case.answers("a", 60.0)
    case.answers("b", 0.2)
    case.answers("c", 0.2)
    assert case.order(Facts(affinity=home))[0] != "a"
    case.now += FRESH_S + 1
    case.answers("b", 0.2)
    case.answers("c", 0.2)
    assert case.order(Facts(affinity=home))[0] == "a"


KEYS = "".join(
    f'[[providers.a.keys]]\nname = "{name}"\napi_key = "sk-secret-of-{name}-0001"\n' for name in ("one", "two", "three")
)


def test_a_conversation_stays_at_one_key_of_the_provider(tmp_path: Path) -> None:
    case = Case(tmp_path, f'affinity = "prompt"\n{TARGETS}', keys=KEYS)

    def key_of(conversation: bytes) -> str:
        return case.rank(Facts(affinity=conversation)).plans[0].provider_key

    first = {each: key_of(each) for each in (b"%d" % number for number in range(90))}
    assert all(count > 15 for count in Counter(first.values()).values()), "all keys are used"
    plan = next(plan for plan in case.plans if plan.provider_key == "two")
    case.health.failed(plan.target, OVERLOADED)
    assert all((name == "two") == (key_of(each) != name) for each, name in first.items())
    case.now += 30
    assert {each: key_of(each) for each in first} == first


@given(
    strategy=st.sampled_from(sorted(STRATEGIES)),
    cooling=st.sets(st.sampled_from("abc")),
    affinity=st.sampled_from((b"", b"one", b"two")),
    unpriced=st.sets(st.sampled_from("abc")),
    budgeted=st.booleans(),
    seed=st.integers(0, 99),
    prepare=st.sampled_from((nothing, known, busy, slow_writer)),
)
def test_no_strategy_tries_an_excluded_target(
    tmp_path_factory: pytest.TempPathFactory,
    strategy: str,
    cooling: set[str],
    affinity: bytes,
    unpriced: set[str],
    budgeted: bool,
    seed: int,
    prepare: Callable[[Case], None],
) -> None:
    more = "max_first_event_s = 1\n" if strategy == "cheapest" else ""
    case = Case(tmp_path_factory.mktemp("route"), f'strategy = "{strategy}"\n{more}{TARGETS}')
    prepare(case)
    for provider in cooling:
        case.cool(provider)
    for provider in unpriced:
        del case.prices[provider]
    facts = Facts(affinity=affinity, priced_only=budgeted)
    ranking = case.rank(facts, seed)
    excluded = cooling | (unpriced if budgeted else set())
    assert sorted(plan.provider for plan in ranking.plans) == sorted(set("abc") - excluded)
    assert {each.plan.provider for each in ranking.excluded} == excluded
    assert all(each.why for each in ranking.excluded)
    assert all(each.why for each in ranking.candidates)


@pytest.mark.parametrize("strategy", sorted(set(STRATEGIES) - {"cheapest"}))
def test_the_same_facts_and_evidence_give_the_same_ranking(tmp_path: Path, strategy: str) -> None:
    case = Case(tmp_path, f'strategy = "{strategy}"\n{TARGETS}')
    slow_writer(case)
    for facts in (Facts(), Facts(affinity=b"one")):
        rankings = [case.rank(facts, seed=7) for _ in range(2)]
        shown = [[(each.plan.provider, each.why) for each in ranking.candidates] for ranking in rankings]
        assert shown[0] == shown[1]

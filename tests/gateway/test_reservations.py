"""Reservations: what is reserved before a call, how that grows with its stream, and when the stream is stopped."""

from collections.abc import Callable

import pytest

from penstock.core.hub.events import Ending
from penstock.core.hub.failure import Failure
from penstock.error_codes import ErrorCode
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.quota import Quota
from penstock.gateway.limits.accounts import LocalAccounts
from penstock.gateway.limits.admission import Decision, Denial, Gauge, Grant, Limit, Reservation
from penstock.gateway.limits.demand import TokenDemand
from penstock.gateway.limits.output_estimate import BytesPerToken
from penstock.gateway.limits.reservation import CallBudget, Reservations
from penstock.gateway.record.attempt import Attempt, AttemptControl
from penstock.gateway.record.call import Call
from penstock.gateway.record.price import Price, PricedModel, Rates, ServiceTier

NOW = 1_800_000_000_000
# Nanodollars: a token of the input costs one, one of the output ten.
PRICE = PricedModel(
    Price(Rates(input=1_000, output=10_000, cache_write=1_000, reasoning=10_000, audio_output=10_000)), "test"
)
INPUT = 100
RESERVED_INPUT = 100 * 1.25 + 32
USUAL = RESERVED_INPUT + 10 * 4_096


def quota(budget: int | None = None) -> Quota:
    return Quota(id="key_1", budget=budget, period="month")


class Recording(LocalAccounts):
    """Accounts that record the reservations, and may answer later, or deny."""

    def __init__(self) -> None:
        super().__init__(lambda: NOW)
        self.asked: list[Reservation] = []
        self.extended: list[tuple[int, int]] = []
        self.answer: Decision | None = None
        self.waiting: list[Callable[[], None]] | None = None

    def reserve(self, quota: Quota, demand: Reservation, then: Callable[[Decision], None]) -> None:
        self.asked.append(demand)
        if self.answer is not None:
            then(self.answer)
        else:
            super().reserve(quota, demand, then)

    def extend(self, quota: Quota, id: str, cost: int, tokens: int, then: Callable[[Decision], None]) -> None:
        self.extended.append((cost, tokens))
        if self.waiting is not None:
            self.waiting.append(lambda: LocalAccounts.extend(self, quota, id, cost, tokens, then))
        elif self.answer is not None:
            then(self.answer)
        else:
            super().extend(quota, id, cost, tokens, then)


class Running:
    """A relay, as the budget sees it."""

    frames = 0
    last_event_at = 0.0
    committed = True

    def __init__(self) -> None:
        self.stopped: list[tuple[Failure, Ending]] = []
        self.paused: list[bool] = []

    def stop(self, failure: Failure, ending: Ending) -> None:
        self.stopped.append((failure, ending))

    def pause_for_limit(self, paused: bool) -> None:
        self.paused.append(paused)


class Budgeted:
    """A call of a key with a budget, and its stream."""

    def __init__(self, budget: int | None, output: int | None = None, price: PricedModel = PRICE) -> None:
        self.accounts = Recording()
        self.reservations = Reservations(self.accounts, BytesPerToken())
        self.call = Call(
            "req_1",
            "main/m",
            True,
            0.0,
            key=ClientKey(id="key_1", name="a key", quotas=(quota(budget),)),
            at_ms=NOW,
        )
        self.demand = TokenDemand(INPUT, output)
        self.price = price
        self.reported: list[Failure | None] = []
        self.running = Running()

    def reserve(self, total_s: float = 60.0) -> "Budgeted":
        self.reservations.reserve(self.call, self.demand, [self.price], total_s, self.reported.append)
        return self

    def begin(self) -> "Budgeted":
        attempt = Attempt("main", "m", priced=self.price)
        self.call.progress.attempts.append(attempt)
        self.call.progress.control = AttemptControl(attempt)
        self.call.progress.control.running = self.running
        self.reservations.guard(self.call)
        return self

    @property
    def budget(self) -> CallBudget:
        return self.reservations.budgets[self.call.id]

    @property
    def limit(self) -> int:
        """The number of characters at which the stream is checked again."""
        assert self.call.progress.control is not None
        return self.call.progress.control.limit

    def say(self, chars: int) -> None:
        """The stream has sent this many characters. No ratio is learned for the target: a token has four characters."""
        assert self.call.progress.control is not None
        self.call.progress.attempts[-1].output_chars = chars
        self.call.progress.control.check()


def test_what_is_reserved_is_enough_for_the_output_that_the_client_allows() -> None:
    (demand,) = Budgeted(10**9, output=50).reserve().accounts.asked
    assert demand.cost == demand.least_cost == RESERVED_INPUT + 10 * 50
    assert demand.tokens == demand.least_tokens == INPUT + 50
    assert (demand.now, demand.until) == (NOW, NOW + 660_000)


def test_without_a_cap_the_usual_output_is_reserved_or_less() -> None:
    (demand,) = Budgeted(10**9).reserve().accounts.asked
    assert (demand.cost, demand.least_cost) == (USUAL, RESERVED_INPUT + 10 * 16)
    assert (demand.tokens, demand.least_tokens) == (INPUT + 4_096, INPUT + 16)


def test_a_model_without_a_price_reserves_no_cost() -> None:
    made = Budgeted(None, output=50)
    made.reservations.reserve(made.call, TokenDemand(INPUT, 50), [], 60.0, made.reported.append)
    (demand,) = made.accounts.asked
    assert (demand.cost, demand.least_cost, demand.tokens) == (0, 0, INPUT + 50)


@pytest.mark.parametrize(
    ("rates", "service_tiers", "asked", "cost"),
    [
        (Rates(1_000, 10_000, reasoning=30_000), (), "", RESERVED_INPUT + 30 * 50),
        (Rates(1_000, 10_000, cache_write=3_000), (), "", 3 * RESERVED_INPUT + 10 * 50),
        (Rates(1_000, 10_000, cache_write=3_000, cache_write_1h=4_000), (), "", 4 * RESERVED_INPUT + 10 * 50),
        (Rates(1_000, 10_000), (("flex", Price(Rates(1_000, 20_000))),), "flex", RESERVED_INPUT + 20 * 50),
        (Rates(1_000, 10_000), (("flex", Price(Rates(1_000, 20_000))),), "", RESERVED_INPUT + 10 * 50),
    ],
)
def test_the_dearest_of_what_it_may_cost_is_reserved(
    rates: Rates, service_tiers: tuple[tuple[str, Price], ...], asked: str, cost: int
) -> None:
    made = Budgeted(10**9, output=50, price=PricedModel(Price(rates, service_tiers=service_tiers), "test"))
    made.call.tier = ServiceTier(asked)
    assert [demand.cost for demand in made.reserve().accounts.asked] == [cost]


def test_what_is_granted_is_reserved_and_the_client_gets_its_limits() -> None:
    made = Budgeted(10**9, output=50)
    made.accounts.answer = Grant(Gauge(10, 9, 59.5), Gauge(1_000, 850, 90.25), 627)
    made.reserve()
    assert (made.reported, made.budget.reserved) == ([None], 627)
    assert made.call.progress.headers == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "9",
        "x-ratelimit-reset-requests": "59.5s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "850",
        "x-ratelimit-reset-tokens": "1m30.25s",
    }


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0, "0ms"), (0.12, "120ms"), (0.9994, "999ms"), (1.0, "1s"), (1.5, "1.5s"), (60.0, "1m0s"), (360.0, "6m0s")],
)
def test_times_are_written_as_openai_writes_them(seconds: float, written: str) -> None:
    made = Budgeted(None, output=50)
    made.accounts.answer = Grant(Gauge(1, 1, seconds))
    assert made.reserve().call.progress.headers["x-ratelimit-reset-requests"] == written


@pytest.mark.parametrize(
    ("wait", "retry_after", "passing"),
    [(None, "", False), (0.1, "1", True), (5.0, "5", True), (60.0, "60", True), (60.1, "61", False)],
)
def test_a_denial_says_when_to_try_again(wait: float | None, retry_after: str, passing: bool) -> None:
    made = Budgeted(10**9)
    limit: Limit = "requests"
    code: ErrorCode = "rate_limit_exceeded"
    made.accounts.answer = Denial(limit=limit, code=code, message="no", retry_after_s=wait, requests=Gauge(3, 0, 1.0))
    (failure,) = made.reserve().reported
    assert failure is not None
    assert (failure.code, failure.message, failure.status) == (code, "no", 429)
    assert (failure.retry_after, failure.client_may_retry) == (retry_after, passing)
    assert not made.reservations.budgets
    assert made.call.progress.headers["x-ratelimit-remaining-requests"] == "0"


def test_nothing_stays_reserved_for_a_client_that_has_left_meanwhile() -> None:
    made = Budgeted(10**9)
    made.call.progress.over = True
    made.reserve()
    assert (made.reported, made.reservations.budgets) == ([], {})
    assert made.accounts.used(quota(10**9)).reserved == 0


# While the stream comes


def test_a_call_without_a_budget_is_not_watched() -> None:
    made = Budgeted(None).reserve().begin()
    assert made.call.progress.control is not None
    assert made.call.progress.control.on_limit is None


@pytest.mark.parametrize("missing", ["price", "reserved"])
def test_nothing_is_watched_where_nothing_can_be_reckoned(missing: str) -> None:
    made = Budgeted(10**9)
    if missing == "price":
        made.reserve()
        made.price = None  # type: ignore[assignment]
    made.begin()
    assert made.call.progress.control is not None
    assert made.call.progress.control.on_limit is None


def test_an_answer_that_keeps_to_its_cap_is_left_alone() -> None:
    made = Budgeted(10**9, output=100).reserve().begin()
    assert made.limit == 158  # the cap with a margin, and one more
    made.say(157 * 4)  # 157 tokens: as many as a cap of 100 may be off by
    assert made.limit == 157 * 4 + 1
    assert made.accounts.extended == []


def test_an_answer_beyond_its_cap_has_more_reserved_for_it() -> None:
    made = Budgeted(10**9, output=100).reserve().begin()
    assert made.budget.reserved == RESERVED_INPUT + 1_000
    made.say(158 * 4)
    assert made.accounts.extended == [(RESERVED_INPUT + 1_000 + 10 * 4_096, INPUT + 158)]
    assert made.budget.reserved == RESERVED_INPUT + 1_000 + 10 * 4_096
    assert (made.running.stopped, made.running.paused) == ([], [False])


def test_more_is_reserved_before_the_last_quarter_is_used() -> None:
    made = Budgeted(10**9).reserve().begin()
    assert made.limit == 4_096 - 1_024  # a token has one character at least
    made.say(4 * 3_071)
    assert made.accounts.extended == []
    assert made.limit == 4 * 3_071 + 1
    made.say(4 * 3_072)
    assert made.accounts.extended == [(USUAL + 10 * 4_096, INPUT + 3_072)]
    assert (made.budget.reserved, made.budget.extending) == (USUAL + 10 * 4_096, False)
    assert made.limit == 4 * 3_072 + (2 * 4_096 - 3_072) - 2_048


def test_a_stream_is_stopped_at_the_end_of_its_budget() -> None:
    made = Budgeted(int(USUAL)).reserve().begin()
    made.say(4 * 3_072)
    assert len(made.accounts.extended) == 1
    assert (made.budget.used_up_by, made.running.stopped, made.running.paused) == ("this key", [], [False])
    assert made.limit == 4 * 3_072 + 1_024 - 16
    made.say(4 * (4_096 - 17))
    assert (made.running.stopped, made.limit) == ([], 4 * (4_096 - 17) + 1)
    made.say(4 * (4_096 - 16))
    ((failure, ending),) = made.running.stopped
    assert (failure.code, failure.retryable, failure.client_may_retry, ending) == (
        "budget_exceeded",
        False,
        False,
        "truncated",
    )
    assert len(made.accounts.extended) == 1, "what has no more is not asked again"


def test_a_stream_waits_for_accounts_that_take_long() -> None:
    made = Budgeted(10**9).reserve().begin()
    waiting: list[Callable[[], None]] = []
    made.accounts.waiting = waiting
    made.say(4 * 3_072)
    assert (made.budget.extending, made.running.paused, made.limit) == (True, [], 4 * 3_072 + 1_024 - 16)
    made.say(4 * (4_096 - 16))
    assert (made.budget.extending, made.running.paused, len(waiting)) == (True, [True], 1)
    waiting.pop()()
    assert (made.budget.extending, made.running.paused, made.running.stopped) == (False, [True, False], [])
    assert made.limit > 4 * 4_096


def test_accounts_that_cannot_tell_are_asked_again_soon() -> None:
    made = Budgeted(10**9).reserve().begin()
    cost_reserved = made.budget.reserved
    made.accounts.answer = Grant(cost=cost_reserved)
    made.say(4 * 3_072)
    assert (made.budget.reserved, made.budget.used_up_by, made.limit) == (cost_reserved, "", 4 * 3_072 + 16)
    made.say(4 * 3_072 + 16)
    assert len(made.accounts.extended) == 2


def test_an_answer_of_the_accounts_is_of_no_use_to_a_call_that_is_over() -> None:
    made = Budgeted(10**9).reserve().begin()
    waiting: list[Callable[[], None]] = []
    made.accounts.waiting = waiting
    made.say(4 * 3_072)
    assert made.call.progress.control is not None
    made.call.progress.control.running = None
    cost_reserved = made.budget.reserved
    waiting.pop()()
    assert (made.budget.reserved, made.budget.extending) == (cost_reserved, False)


def test_sound_counts_against_the_budget() -> None:
    made = Budgeted(10**9).reserve().begin()
    made.call.progress.attempts[-1].audio_chars = 3_200 * 2_400  # so many tokens, beside 768 of text
    made.say(3_072)
    assert len(made.accounts.extended) == 1


def test_what_costs_nothing_reaches_no_end() -> None:
    made = Budgeted(10**9, price=PricedModel(Price(Rates()), "test")).reserve().begin()
    made.say(4 * 1_000_000)
    assert (made.accounts.extended, made.running.stopped) == ([], [])


def test_audio_is_reserved_at_the_price_of_audio() -> None:
    made = Budgeted(10**9, output=50, price=PricedModel(Price(Rates(1_000, 10_000, audio_input=40_000)), "test"))
    demand = TokenDemand(INPUT, 50, audio=INPUT)
    made.reservations.reserve(made.call, demand, [made.price], 60.0, made.reported.append)
    assert [asked.cost for asked in made.accounts.asked] == [40 * RESERVED_INPUT + 10 * 50]

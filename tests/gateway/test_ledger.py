"""The ledger of one process: which calls it admits, what it journals, what it books, and what it adopts."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.core.hub.failure import Failure
from penstock.core.hub.usage import Tokens, Usage
from penstock.gateway.billing.accounting import open_entry
from penstock.gateway.billing.ledger import Ledger, NoLedger
from penstock.gateway.billing.price_table import PriceTable
from penstock.gateway.billing.prices import PriceBook, PriceChanges
from penstock.gateway.calls.plan import Plan, Plans
from penstock.gateway.config import Config, load
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.quota import Quota
from penstock.gateway.limits.demand import TokenDemand
from penstock.gateway.record.attempt import Attempt, AttemptControl
from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import Entry
from penstock.gateway.record.price import Price, Rates
from tests.gateway.ledger_doubles import AccountsDouble, JournalDouble, WriterDouble
from tests.gateway.support import Clock

TEXT = """
[providers.acme]
base_url = "https://acme.example/v1"
api_key = "sk-acme-0123456789"
[routes.both]
targets = ["acme/a", "acme/free"]
"""
QUOTA = Quota(id="key_1", budget=10**9, period="month")
KEY = ClientKey(id="key_1", name="a key", tags={"team": "search"}, quotas=(QUOTA,))
PRICE = Price(Rates(input=1_000, output=10_000))


class Kept:
    """A ledger between fakes of its ports."""

    def __init__(self, loop: Clock, config: Config) -> None:
        self.loop = loop
        self.journal, self.writer, self.accounts = JournalDouble(), WriterDouble(), AccountsDouble()
        providers = {"acme": config.providers["acme"]}
        self.ledger = Ledger(self.journal, self.accounts, PriceBook(PriceTable(), {"acme/a": PRICE}), providers)
        self.ledger.book_writer = self.writer
        plans = Plans(config, "streamed", recorded=False)["both"]
        assert plans is not None
        self.plans: Sequence[Plan] = plans
        self.reported: list[Failure | None] = []

    def call(self, id: str = "req_1", key: ClientKey | None = None) -> Call:
        return Call(id, "both", stream=True, started=self.loop.time(), key=key, at_ms=int(time.time() * 1000))

    def admit(self, call: Call, demand: TokenDemand | None = None) -> bool:
        return self.ledger.admit(call, demand or TokenDemand(7, 50), self.plans, self.reported.append)

    async def later(self, seconds: float) -> None:
        """Advance the time, and run what is due."""
        self.loop.now += seconds
        for _ in range(3):
            await asyncio.sleep(0)

    def start(self, call: Call, plan: int = 0) -> Attempt:
        attempt = Attempt("acme", self.plans[plan].model)
        call.progress.attempts.append(attempt)
        call.progress.control = AttemptControl(attempt)
        self.ledger.start_attempt(call, attempt, self.plans[plan])
        return attempt

    def end(self, call: Call, input: int = 1, output: int = 1) -> Entry:
        call.progress.ending = call.progress.attempts[-1].ending = "completed"
        call.progress.attempts[-1].usage = Usage(input=input, output=output)
        return self.ledger.settle(call)


Runner = Callable[[Callable[[Kept], Awaitable[None] | None]], None]


@pytest.fixture
def kept(tmp_path: Path) -> Runner:
    """Runs a function with a ledger inside an event loop."""
    file = tmp_path / "penstock.toml"
    file.write_text(TEXT, encoding="utf-8")
    config = load(file, {})

    def run(test: Callable[[Kept], Awaitable[None] | None]) -> None:
        loop = Clock()

        async def inside() -> None:
            waiting = test(Kept(loop, config))
            if waiting is not None:
                await waiting

        try:
            loop.run_until_complete(inside())
        finally:
            loop.close()

    return run


def test_a_call_without_a_stored_key_is_admitted_at_once(kept: Runner) -> None:
    def test(it: Kept) -> None:
        call = it.call()
        assert it.ledger.ready
        assert it.admit(call, TokenDemand(7, 50, {"a": "b"}, "u-sk-acme", "flex"))
        assert (call.input_estimate, call.user, call.tags) == (7, "u-sk-acme", {"a": "b"})
        assert (call.tier.requested, it.accounts.used(QUOTA).reserved, it.reported) == ("flex", 0, [])

    kept(test)


def test_a_call_of_a_stored_key_is_admitted_when_something_is_reserved(kept: Runner) -> None:
    def test(it: Kept) -> None:
        call = it.call(key=KEY)
        assert not it.admit(call, TokenDemand(7, 50, {"a": "b"}))
        assert (it.reported, call.tags) == ([None], {"team": "search", "a": "b"})
        assert it.accounts.used(QUOTA).reserved == int(7 * 1.25) + 32 + 500

    kept(test)


@pytest.mark.parametrize(("team", "times", "source"), [("acme/x", 1.0, "-50% +100%"), ("", 0.5, "-50%")])
def test_a_markup_of_the_team_is_reserved_and_booked(kept: Runner, team: str, times: float, source: str) -> None:
    def test(it: Kept) -> None:
        changes = PriceChanges({"acme": -5_000}, {"acme": 10_000, "other": 7})
        it.ledger.prices = PriceBook(PriceTable(), {"acme/a": PRICE}, changes)
        call = it.call(key=replace(KEY, team=team))
        it.admit(call, TokenDemand(7, 50))
        assert it.accounts.used(QUOTA).reserved == int(times * (int(7 * 1.25) + 32 + 500))
        it.start(call)
        entry = it.end(call, input=1_000, output=1_000)
        assert (entry.cost, entry.attempts[0].price) == (int(times * 11_000), f"configured {source}")

    kept(test)


@pytest.mark.parametrize("missing", ["room", "writer", "its thread"])
def test_where_nothing_can_be_kept_no_one_is_admitted(kept: Runner, missing: str) -> None:
    def test(it: Kept) -> None:
        if missing == "room":
            it.journal.has_room = False
        elif missing == "writer":
            it.ledger.book_writer = None
        else:
            it.writer.alive = False
        assert not it.ledger.ready
        assert not it.admit(it.call())
        (failure,) = it.reported
        assert failure is not None
        assert (failure.code, failure.status, failure.retry_after) == ("ledger_unavailable", 503, "2")

    kept(test)


@pytest.mark.parametrize(
    ("accounts", "writer", "reported"),
    [("", "", ""), ("redis", "", "redis"), ("", "full", "ledger"), ("a", "b", "a,ledger")],
)
def test_what_is_out_of_order_is_reported(kept: Runner, accounts: str, writer: str, reported: str) -> None:
    def test(it: Kept) -> None:
        it.accounts.degraded, it.writer.trouble = accounts, writer
        assert it.ledger.degraded == reported
        call = it.call()
        assert it.admit(call)
        assert call.progress.headers.get("x-penstock-degraded", "") == reported

    kept(test)


def test_only_what_has_a_price_is_affordable(kept: Runner) -> None:
    def test(it: Kept) -> None:
        assert [plan.model for plan in it.ledger.affordable(list(it.plans))] == ["a"]
        it.ledger.prices = PriceBook(PriceTable(), {"acme/*": PRICE})
        assert [plan.model for plan in it.ledger.affordable(list(it.plans))] == ["a", "free"]

    kept(test)


def test_a_call_is_in_the_journal_while_it_is_under_way_and_in_the_book_soon(kept: Runner) -> None:
    def test(it: Kept) -> None:
        call = it.call(key=KEY)
        it.admit(call)
        it.loop.now += 0.25
        attempt = it.start(call)
        assert attempt.began_s == 0.25
        assert attempt.priced is not None
        assert call.progress.control is not None
        assert call.progress.control.on_limit is not None, "its budget is watched"
        assert [entry.id for entry in it.journal.open] == ["req_1"]
        entry = it.end(call, input=5, output=3)
        assert call.progress.over
        assert (it.journal.over, it.writer.batches) == ([entry], [])
        assert it.accounts.settled == [("key_1", "req_1", 35, 8)]
        it.ledger.flush()
        it.ledger.flush()
        assert it.writer.batches == [[entry]]
        it.ledger.booked([entry])
        it.ledger.booked([entry])
        assert (it.journal.done, it.accounts.done) == (["req_1", "req_1"], [("key_1", "req_1")])

    kept(test)


def test_a_refusal_is_not_kept_where_there_is_no_room(kept: Runner) -> None:
    def test(it: Kept) -> None:
        it.journal.has_room = False
        it.ledger.settle(it.call())
        assert it.journal.over == []
        it.journal.has_room = True
        it.ledger.settle(it.call())
        assert len(it.journal.over) == 1

    kept(test)


def test_tokens_are_learned_from_answers_that_were_completed(kept: Runner) -> None:
    def test(it: Kept) -> None:
        for ending, chars, usage, sound, estimate in (
            ("truncated", 64, Usage(input=1, output=32), 0, 25),
            ("completed", 64, Usage(input=1, output=32, reasoning=1), 0, 25),
            ("completed", 64, Usage(input=1, output=10**18), 0, 25),
            ("completed", 64, Usage(input=1, output=32), 3_200, 25),
            ("completed", 64, Usage(input=1, output=33, audio_output=1), 3_200, 50),
        ):
            call = it.call()
            attempt = it.start(call)
            attempt.output_chars, attempt.usage, attempt.audio_chars = chars, usage, sound
            call.progress.ending = ending  # type: ignore[assignment]
            it.ledger.settle(call)
            it.ledger.flush()
            later = it.call("req_2")
            later.progress.attempts.append(Attempt("acme", "a", output_chars=100))
            assert it.ledger.output(later) == estimate, usage

    kept(test)


def test_text_is_learned_by_all_tokens_of_its_output(kept: Runner) -> None:
    def test(it: Kept) -> None:
        call = it.call()
        it.start(call).output_chars = 64
        it.end(call, output=16)
        it.ledger.flush()
        later = it.call("req_2")
        later.progress.attempts.append(Attempt("acme", "a", output_chars=400))
        assert it.ledger.output(later) == 100

    kept(test)


def test_a_gateway_without_a_ledger_admits_every_call(kept: Runner) -> None:
    def test(it: Kept) -> None:
        none, call = NoLedger(), it.call(key=KEY)
        call.at_ms = 0
        assert none.admit(call, TokenDemand(7, 50), it.plans, it.reported.append)
        assert (call.input_estimate, it.reported, none.ready, none.degraded) == (7, [], True, "")
        assert abs(call.at_ms - time.time() * 1000) < 60_000
        assert none.affordable(list(it.plans)) == list(it.plans)
        it.loop.now += 0.25
        attempt = Attempt("acme", "a")
        call.progress.attempts.append(attempt)
        none.start_attempt(call, attempt, it.plans[0])
        none.guard(call)
        assert attempt.began_s == 0.25
        attempt.output_chars, call.progress.ending, attempt.ending = 100, "truncated", "truncated"
        entry = none.settle(call)
        assert (entry.id, entry.outcome, entry.tokens) == ("req_1", "truncated", Tokens(input=7, output=25))

    kept(test)


def test_what_a_running_call_has_sent_is_what_is_reported_or_estimated(kept: Runner) -> None:
    def test(it: Kept) -> None:
        call = it.call()
        call.progress.attempts.append(Attempt("acme", "a", frames=9))
        assert it.ledger.output(call) == NoLedger().output(call) == 0
        call.progress.attempts[-1].audio_chars = 3_201
        assert it.ledger.output(call) == 2
        call.progress.attempts[-1].output_chars = 100
        assert it.ledger.output(call) == NoLedger().output(call) == 27
        call.progress.attempts[-1].usage = Usage(input=1, output=0)
        assert it.ledger.output(call) == 27
        call.progress.attempts[-1].usage = Usage(input=1, output=12)
        assert it.ledger.output(call) == 12
        call.progress.attempts[-1].tokens = Tokens(input=1, output=13)
        assert it.ledger.output(call) == 13

    kept(test)


def left_behind(id: str, provider: str = "acme", key: ClientKey | None = None, at_ms: int = 10_000) -> Entry:
    call = Call(id, "both", stream=True, started=0.0, at_ms=at_ms, key=key, input_estimate=7)
    call.progress.attempts.append(Attempt(provider, "a"))
    return open_entry(call, call.progress.attempts[-1])


def test_what_a_dead_gateway_has_left_is_adopted(kept: Runner) -> None:
    def test(it: Kept) -> None:
        over = left_behind("req_0", key=KEY)
        orphans = [
            (left_behind("req_1", key=KEY), (3, 40)),
            (left_behind("req_2", "gone"), (0, 0)),
        ]
        adopted = it.ledger.adopt([over], orphans, 15_000)
        assert [entry.id for entry in adopted] == ["req_0", "req_1", "req_2"]
        assert it.journal.over == adopted
        _, priced, unpriced = adopted
        assert priced.duration_ms == unpriced.duration_ms == 7_000, "it died before it would have written again"
        assert (priced.attempts[0].tokens, priced.attempts[0].cost) == (Tokens(input=7, output=10), 7 + 100)
        assert (unpriced.attempts[0].tokens, unpriced.attempts[0].cost) == (Tokens(input=7), None)
        # Of its key, and of every further budget that the key may have had.
        assert [settled for settled in it.accounts.settled if settled[0] == "key_1"] == [
            ("key_1", "req_0", 0, 7),
            ("key_1", "req_1", 107, 17),
        ]
        assert {account for account, *_ in it.accounts.settled} == {
            "key_1",
            *(f"key_1:{period}" for period in ("day", "week", "month", "total")),
        }

    kept(test)


def test_a_gateway_that_died_just_now_did_not_die_later(kept: Runner) -> None:
    def test(it: Kept) -> None:
        now = round(time.time() * 1000)
        (orphaned,) = it.ledger.adopt([], [(left_behind("req_1", at_ms=now - 500), (0, 0))], now)
        assert 500 <= orphaned.duration_ms < 1_500

    kept(test)


def test_how_far_calls_have_come_is_noted_while_there_are_any(kept: Runner) -> None:
    async def test(it: Kept) -> None:
        one, two = it.call("req_1"), it.call("req_2")
        it.start(one).frames = 3
        one.progress.attempts[-1].output_chars = 40
        it.start(two)
        for seconds, marks in ((1.9, 0), (0.2, 1), (1.7, 1), (0.3, 2)):
            await it.later(seconds)
            assert it.journal.marks == [{"req_1": (3, 40)}] * marks
        it.end(one)
        it.end(two)
        await it.later(5.0)
        await it.later(5.0)
        assert len(it.journal.marks) == 2
        assert [len(batch) for batch in it.writer.batches] == [2]

    kept(test)


def test_a_completed_call_without_an_attempt_does_not_stop_the_batch(kept: Runner) -> None:
    """Such as an estimated count of tokens. The ledger learns from the calls after it."""

    async def test(it: Kept) -> None:
        count, call = it.call("req_1"), it.call("req_2")
        for each in (count, call):
            assert it.admit(each)
        count.progress.ending = "completed"
        it.ledger.settle(count)
        it.start(call)
        it.end(call)
        it.ledger.flush()
        assert [entry.id for batch in it.writer.batches for entry in batch] == ["req_1", "req_2"]

    kept(test)


def test_secrets_are_masked_in_the_names_of_end_users(kept: Runner) -> None:
    def test(it: Kept) -> None:
        it.ledger.secrets = ("sk-of-the-gateway",)
        both, named = "ann sk-of-the-gateway sk-of-the-client", list[str]()
        assert it.ledger.name_user(both, named.append) == "ann … sk-of-the-client"
        assert it.ledger.name_user(both, named.append, ("sk-of-the-client",)) == "ann sk-of-the-gateway …"

    kept(test)

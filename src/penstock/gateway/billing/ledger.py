"""Ledger: admits calls by what their keys may spend, keeps account of each until it is over, and has it booked.

    admit ──► trying (an attempt begins: the call is in the journal) ──► settle (its entry is in the journal)
                                                 └──► hand_over (the scribe has it) ──► booked (it is in the book)

Nothing here waits: the journal is a write to memory that outlives the process, booking happens in the scribe's thread,
and accounts that processes share answer by a callback. What is settled within a tenth of a second is handed over
together: a thread that is woken for each call gets in the way of the next one.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from penstock.core.failure import Failure
from penstock.core.price import ServiceTier
from penstock.gateway.billing.accounting import entry_of, open_entry, orphan
from penstock.gateway.billing.entry import Entry
from penstock.gateway.billing.output_estimate import BytesPerToken, estimate_audio
from penstock.gateway.billing.prices import PriceBook, PricedModel
from penstock.gateway.billing.tags import kept_tags, kept_text
from penstock.gateway.calls.call import Attempt, Call
from penstock.gateway.calls.plan import Plan
from penstock.gateway.config import Provider
from penstock.gateway.limits.accounts import Accounts
from penstock.gateway.limits.demand import TokenDemand
from penstock.gateway.limits.reservation import Reservations

# How often it is noted how far the calls under way have come.
_MARK_S = 2.0
# Calls that are over are handed to the scribe together: those of so many seconds. Until then the journal has them.
_GATHER_S = 0.1

_UNAVAILABLE = Failure(
    code="ledger_unavailable",
    message="the gateway cannot write its ledger now, and takes no calls that it could not account for; try again soon",
    retry_after="2",
)


class JournalPort(Protocol):
    """What outlives the process, as the ledger sees it."""

    @property
    def has_room(self) -> bool:
        """Whether one more call may begin."""

    def opened(self, entry: Entry) -> None:
        """A call is under way."""

    def marked(self, reached: Mapping[str, tuple[int, int]]) -> None:
        """Calls under way have come so far."""

    def settled(self, entry: Entry) -> None:
        """A call is over."""

    def booked(self, ids: Iterable[str]) -> None:
        """The book holds these."""


class BookWriterPort(Protocol):
    """Who books entries, as the ledger sees it."""

    @property
    def alive(self) -> bool:
        """Whether anybody does."""

    @property
    def trouble(self) -> str:
        """Why nobody can, now."""

    def put(self, entries: Sequence[Entry]) -> None:
        """Book these soon."""


class Ledger:
    """The account of one process's calls. `providers` are those that it may have asked, by their names."""

    def __init__(
        self, journal: JournalPort, accounts: Accounts, prices: PriceBook, providers: Mapping[str, Provider]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._journal = journal
        self._accounts = accounts
        self._ratios = BytesPerToken()
        self._reservations = Reservations(accounts, self._ratios)
        self._open: dict[str, Call] = {}
        self._held: set[str] = set()
        self._marking: asyncio.TimerHandle | None = None
        self._settled: list[tuple[Call, Entry]] = []
        self._gathering: asyncio.TimerHandle | None = None
        self.prices = prices
        self.providers = providers
        self.secrets: tuple[str, ...] = ()
        """What must not be booked, even where a client says it."""
        self.scribe: BookWriterPort | None = None

    @property
    def ready(self) -> bool:
        """Whether calls can be accounted for."""
        return self._journal.has_room and self.scribe is not None and self.scribe.alive

    @property
    def degraded(self) -> str:
        """What is out of order, in a word or two; empty if nothing is."""
        late = "ledger" if self.scribe is not None and self.scribe.trouble else ""
        return ",".join(filter(None, (self._accounts.degraded, late)))

    def affordable(self, plans: list[Plan]) -> list[Plan]:
        """What may be tried where a budget must hold: what has a price."""
        return [plan for plan in plans if self._price(plan) is not None]

    def admit(
        self, call: Call, wish: TokenDemand, plans: Sequence[Plan], then: Callable[[Failure | None], None]
    ) -> bool:
        """Whether a call may begin at once. If not, `then` is told whether it may, now or later."""
        call.input_estimate = wish.input
        call.cap = wish.output
        key = call.key
        if wish.tier:
            call.tier = ServiceTier(wish.tier)
        if wish.user:
            call.user = kept_text(wish.user, self.secrets)
        if wish.tags or key is not None:
            tags = kept_tags(wish.tags, key.tags if key is not None else {}, self.secrets)
            call.tags = {**tags, **call.tags} if call.tags else tags  # what the gateway says itself stays
        scribe = self.scribe
        if (self._accounts.degraded or (scribe is not None and scribe.trouble)) and (degraded := self.degraded):
            call.headers["x-penstock-degraded"] = degraded
        if scribe is None or not scribe.alive or not self._journal.has_room:
            then(_UNAVAILABLE)
            return False
        if key is None or not key.stored:
            return True
        self._reserve(call, wish, plans, then)
        return False

    def _reserve(
        self, call: Call, wish: TokenDemand, plans: Sequence[Plan], then: Callable[[Failure | None], None]
    ) -> None:
        prices = [priced for priced in map(self._price, plans) if priced is not None]
        self._reservations.reserve(call, wish, prices, max(plan.timeouts.total_s for plan in plans), then)

    def trying(self, call: Call, attempt: Attempt, plan: Plan) -> None:
        """An attempt begins."""
        attempt.began_s = self._loop.time() - call.started
        attempt.priced = self._price(plan)
        attempt.tier = call.tier
        self._open[call.id] = call
        self._journal.opened(open_entry(call, attempt))
        if call.reserved is not None:
            self._reservations.guard(call)
        if self._marking is None:
            self._marking = self._loop.call_later(_MARK_S, self._mark)

    def guard(self, call: Call) -> None:
        """Watch the last attempt, which is made now, or anew: its stream may reach the end of a budget."""
        if call.reserved is not None:
            self._reservations.guard(call)

    def output(self, call: Call) -> int:
        """About how many tokens the last attempt of a call has said so far."""
        return _output(self._ratios, call)

    def settle(self, call: Call) -> Entry:
        """A call is over; its entry. One that was refused while there is no room is not kept: nobody pays for it."""
        call.over = True
        entry = entry_of(call, self._ratios.output)
        if not call.attempts and call.reserved is None and not self._journal.has_room:
            return entry
        self._open.pop(call.id, None)
        self._journal.settled(entry)
        if call.reserved is not None:
            self._settle_hold(entry)
        self._settled.append((call, entry))
        if self._gathering is None:
            self._gathering = self._loop.call_later(_GATHER_S, self.hand_over)
        return entry

    def hand_over(self) -> None:
        """Have the calls booked that are over, and learn from them."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        settled, self._settled = self._settled, []
        if settled and self.scribe is not None:
            self.scribe.put([entry for _, entry in settled])
        for call, _ in settled:
            if call.ending == "completed":
                self._learn(call.attempts[-1])

    def _learn(self, attempt: Attempt) -> None:
        usage = attempt.tokens or attempt.usage
        if usage is not None and not usage.reasoning and (usage.audio_output or not attempt.audio_chars):
            written = (usage.output or 0) - (usage.audio_output or 0)
            self._ratios.learn(f"{attempt.provider}/{attempt.model}", attempt.output_chars, written)

    def booked(self, entries: Sequence[Entry]) -> None:
        """The book holds these entries."""
        self._journal.booked([entry.id for entry in entries])
        held = [(entry.key, entry.id) for entry in entries if entry.id in self._held] if self._held else []
        if held:
            self._held.difference_update([id for _, id in held])
            self._accounts.booked(held)

    def adopt(
        self, settled: Iterable[Entry], unsettled: Iterable[tuple[Entry, tuple[int, int]]], last_ms: int
    ) -> list[Entry]:
        """Take over what a gateway has left that died. Calls that it had not settled are orphaned, and estimated.

        `last_ms` is when it wrote its journal last. While calls are under way it writes every `_MARK_S`: it
        died before it would have written again, and before now.
        """
        adopted = list(settled)
        died_ms = min(last_ms + round(_MARK_S * 1000), round(time.time() * 1000))
        for left, reached in unsettled:
            last = left.attempts[-1]
            provider = self.providers.get(last.provider)
            priced = self.prices.find(provider, last.model, time.time()) if provider is not None else None
            adopted.append(orphan(left, reached, died_ms, priced, self._ratios.output))
        for entry in adopted:
            self._journal.settled(entry)
            if entry.key:
                self._settle_hold(entry)
        return adopted

    def _settle_hold(self, entry: Entry) -> None:
        """What was held for a call is now what it took, until the book holds it."""
        self._held.add(entry.id)
        tokens = entry.tokens
        self._accounts.settle(entry.key, entry.id, entry.priced, tokens.input + tokens.output)

    def _price(self, plan: Plan) -> PricedModel | None:
        """What a target costs now."""
        now, quote = time.time(), plan.quote
        if quote is None or quote.book is not self.prices or not quote.since_s <= now < quote.until_s:
            target = plan.target
            plan.quote = quote = self.prices.quote(target.provider, target.model, now)
        return quote.found

    def _mark(self) -> None:
        """Note how far the calls under way have come, so that little is unknown of them if this process dies.

        Where none has come to its first event, that is noted too: it tells that this process is alive.
        """
        self._marking = None
        reached = {id: call.reached for id, call in self._open.items()}
        reached = {id: (events, said) for id, (events, said) in reached.items() if events}
        if self._open:
            self._journal.marked(reached)
            self._marking = self._loop.call_later(_MARK_S, self._mark)


def _output(ratios: BytesPerToken, call: Call) -> int:
    attempt = call.attempts[-1]
    usage = attempt.tokens or attempt.usage
    if usage is not None and usage.output:
        return usage.output
    events, said = call.reached
    text = ratios.output(f"{attempt.provider}/{attempt.model}", said, events) if said else 0
    return text + estimate_audio(attempt.audio_chars)


class NoLedger:
    """Where no ledger is kept: every call may begin, and nothing is left of it."""

    ready = True
    degraded = ""

    def __init__(self) -> None:
        self._ratios = BytesPerToken()

    def affordable(self, plans: list[Plan]) -> list[Plan]:
        """All of them."""
        return plans

    def admit(self, call: Call, wish: TokenDemand, _plans: Sequence[Plan], _then: Callable[[None], None]) -> bool:
        """It may."""
        call.at_ms = int(time.time() * 1000)
        call.input_estimate = wish.input
        return True

    def trying(self, call: Call, attempt: Attempt, plan: Plan) -> None:  # noqa: ARG002
        """Nothing is noted but when."""
        attempt.began_s = asyncio.get_running_loop().time() - call.started

    def guard(self, call: Call) -> None:
        """There are no budgets."""

    def output(self, call: Call) -> int:
        """About how many tokens the last attempt of a call has said so far."""
        return _output(self._ratios, call)

    def settle(self, call: Call) -> Entry:
        """What the entry would be. Nobody keeps it."""
        return entry_of(call, self._ratios.output)

"""Ledger: admits calls within the limits of their keys, and passes the entry of each ended call to the book writer.

    admit ──► start_attempt (the open call is in the journal) ──► settle (its entry is in the journal)
                                      └──► flush (the book writer has the entry) ──► booked (it is in the book)

No method blocks. The journal (`stores/journal.py`) is a write to the page cache, which outlives the process: after
`kill -9` the next gateway reads it and books the calls (`adopt`). The book writer works in its own thread, and shared
accounts answer by callback. Calls that are settled within a tenth of a second are passed on as one batch, because
waking a thread for each call would delay the next one.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from penstock.core.hub.failure import Failure
from penstock.core.hub.usage import Usage
from penstock.gateway.billing.accounting import entry_of, open_entry, orphan
from penstock.gateway.billing.prices import PriceBook, Quote
from penstock.gateway.billing.tags import clean_tags, clean_text
from penstock.gateway.config import Target
from penstock.gateway.limits.accounts import Accounts, LocalAccounts
from penstock.gateway.limits.demand import TokenDemand
from penstock.gateway.limits.output_estimate import BytesPerToken, estimate_audio
from penstock.gateway.limits.provider_keys import ProviderKeyLimits
from penstock.gateway.limits.reservation import Reservations
from penstock.gateway.record.attempt import Attempt
from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import Entry
from penstock.gateway.record.price import OF_CLIENT, PricedModel, ServiceTier
from penstock.gateway.record.timeouts import AttemptTimeouts
from penstock.gateway.teams.chain import account_ids
from penstock.providers.provider import Provider

# How often the progress of open calls is written to the journal.
_MARK_S = 2.0
# Entries of this many seconds are one batch for the book writer. Until then only the journal has them.
BATCH_S = 0.1

_UNAVAILABLE = Failure(
    code="ledger_unavailable",
    message="the gateway cannot write its ledger now, and accepts no calls that it cannot account for; try again soon",
    retry_after="2",
)


class QuotedPlan(Protocol):
    """A plan for calling a target, as the ledger uses it."""

    target: Target
    timeouts: AttemptTimeouts
    quote: Quote | None
    """The result of the last price lookup."""


Planned = TypeVar("Planned", bound=QuotedPlan)


class JournalPort(Protocol):
    """The write-ahead journal, as the ledger uses it."""

    @property
    def has_room(self) -> bool:
        """Whether one more call may start."""

    def opened(self, entry: Entry) -> None:
        """Write the entry of an open call."""

    def marked(self, reached: Mapping[str, tuple[int, int]]) -> None:
        """Write the progress of open calls: events and characters, by call id."""

    def settled(self, entry: Entry) -> None:
        """Write the entry of a call that has ended."""

    def booked(self, ids: Iterable[str]) -> None:
        """The book has these entries: the journal may drop them."""


class BookWriterPort(Protocol):
    """The thread that writes entries into the book, as the ledger uses it."""

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""

    @property
    def trouble(self) -> str:
        """Why the book cannot be written now; empty if it can."""

    def put(self, entries: Sequence[Entry]) -> None:
        """Queue entries for the book."""


class UserNames(Protocol):
    """The pseudonyms of end users, as the ledger uses them."""

    def known(self, name: str) -> str:
        """The pseudonym of a user, if it is known; otherwise empty."""

    def find(self, name: str, then: Callable[[str], None]) -> None:
        """Call `then` with the pseudonym of a user, now or soon."""


class Ledger:
    """The ledger of one process's calls. `providers` are those of the configuration, by name."""

    def __init__(
        self,
        journal: JournalPort,
        accounts: Accounts,
        prices: PriceBook,
        providers: Mapping[str, Provider],
        *,
        batch_s: float = BATCH_S,
    ) -> None:
        self._batch_s = batch_s
        self._loop = asyncio.get_running_loop()
        self._journal = journal
        self._accounts = accounts
        self._ratios = BytesPerToken()
        self._reservations = Reservations(accounts, self._ratios)
        self.provider_keys = ProviderKeyLimits(accounts)
        """The limits of providers' keys."""
        self._open: dict[str, Call] = {}
        # By call: the accounts in which it has a hold until it is booked.
        self._unbooked_holds: dict[str, Sequence[str]] = {}
        self._mark_timer: asyncio.TimerHandle | None = None
        self._settled: list[tuple[Call, Entry]] = []
        self._flush_timer: asyncio.TimerHandle | None = None
        self.prices = prices
        self.providers = providers
        self.secrets: tuple[str, ...] = ()
        """Secrets that are masked in tags and users before they are stored."""
        self.users: UserNames | None = None
        """The pseudonyms of end users; None if entries have their names."""
        self.book_writer: BookWriterPort | None = None
        self.on_booked: Callable[[Sequence[tuple[Entry, Sequence[str]]]], None] | None = None
        """Called with entries that are booked, each with the accounts in which it was reserved."""

    def watch_budgets(self, on_exhausted: Callable[[str], None]) -> None:
        """Set the callback for an account that refuses a call because too little of its budget is left."""
        self._reservations.on_exhausted = on_exhausted

    @property
    def ready(self) -> bool:
        """Whether calls can be accounted for."""
        return self._journal.has_room and self.book_writer is not None and self.book_writer.alive

    @property
    def degraded(self) -> str:
        """The names of stores that do not work now; empty if all do."""
        trouble = "ledger" if self.book_writer is not None and self.book_writer.trouble else ""
        return ",".join(filter(None, (self._accounts.degraded, trouble)))

    def affordable(self, plans: list[Planned]) -> list[Planned]:
        """The plans that a key with a budget may use: those with a known price."""
        return [plan for plan in plans if self.price(plan) is not None]

    def admit(
        self, call: Call, demand: TokenDemand, plans: Sequence[QuotedPlan], then: Callable[[Failure | None], None]
    ) -> bool:
        """Return whether the call is admitted at once. If not, `then` is called with the decision, now or later."""
        key = call.key
        call.input_estimate = demand.input
        if demand.tier:
            call.tier = ServiceTier(demand.tier)
        secrets = self.secrets
        if call.credentials is not None:
            secrets += tuple(call.credentials.secrets.values())
        if demand.tags or (key is not None and key.tags):
            tags = clean_tags(demand.tags, key.tags if key is not None else {}, secrets)
            call.tags = {**tags, **call.tags} if call.tags else tags  # the gateway's own tags take precedence
        user = (key.subject if key is not None else "") or demand.user
        if user:
            name = self.name_user(user, call.guarded(partial(self._admit_user, call, demand, plans, then)), secrets)
            if name is None:
                return False
            call.user = name
        return self._admit(call, demand, plans, then)

    def name_user(self, user: str, then: Callable[[str], None], secrets: Sequence[str] | None = None) -> str | None:
        """The name of an end user in entries; None if `then` is called with it. `secrets` are masked in it."""
        name, users = clean_text(user, self.secrets if secrets is None else secrets), self.users
        if users is None:
            return name
        if known := users.known(name):
            return known
        users.find(name, then)
        return None

    def _admit_user(
        self,
        call: Call,
        demand: TokenDemand,
        plans: Sequence[QuotedPlan],
        then: Callable[[Failure | None], None],
        pseudonym: str,
    ) -> None:
        """Continue to admit a call, whose user has this pseudonym."""
        call.user = pseudonym
        if not call.progress.over and self._admit(call, demand, plans, then):
            then(None)

    def _admit(
        self, call: Call, demand: TokenDemand, plans: Sequence[QuotedPlan], then: Callable[[Failure | None], None]
    ) -> bool:
        key = call.key
        book_writer = self.book_writer
        if (self._accounts.degraded or (book_writer is not None and book_writer.trouble)) and (
            degraded := self.degraded
        ):
            call.progress.degrade(degraded)
        if book_writer is None or not book_writer.alive or not self._journal.has_room:
            then(_UNAVAILABLE)
            return False
        if key is None or not key.quotas:
            return True
        prices = [priced for priced in (self.price(plan, key.team) for plan in plans) if priced is not None]
        self._reservations.reserve(call, demand, prices, max(plan.timeouts.total_s for plan in plans), then)
        return False

    def start_attempt(self, call: Call, attempt: Attempt, plan: QuotedPlan) -> None:
        """An attempt starts: set its price and tier, write the call to the journal, and apply the budget's limit."""
        attempt.began_s = self._loop.time() - call.started
        attempt.priced = self.price(plan, call.key.team if call.key is not None else "")
        attempt.tier = call.tier
        self._open[call.id] = call
        self._journal.opened(open_entry(call, attempt, self._ratios.output))
        if call.id in self._reservations.budgets:
            self._reservations.guard(call)
        if self._mark_timer is None:
            self._mark_timer = self._loop.call_later(_MARK_S, self._mark)

    def guard(self, call: Call) -> None:
        """Apply the budget's limit to the last attempt, which starts or is repeated on a new connection."""
        if call.id in self._reservations.budgets:
            self._reservations.guard(call)

    def cover(self, call: Call, plans: Sequence[QuotedPlan], then: Callable[[Failure | None], None]) -> None:
        """Reserve what it costs that one of these targets goes on with the answer of a call, after its last attempt,
        and call `then`: with the failure if the budget has no room for it."""
        team = call.key.team if call.key is not None else ""
        prices = [priced for priced in (self.price(plan, team) for plan in plans) if priced is not None]
        self._reservations.cover(call, prices, self.output(call), then)

    def output(self, call: Call) -> int:
        """The reported or estimated output tokens of a call's last attempt so far."""
        return _output(self._ratios, call)

    def settle(self, call: Call) -> Entry:
        """A call has ended: store and return its entry. A refused call costs nothing, and is not stored if the journal
        is full."""
        call.progress.over = True
        entry = self._entry(call)
        self._open.pop(call.id, None)
        budget = self._reservations.budgets.pop(call.id, None)
        try:  # whatever one of these raises, the call is booked and its reservations end
            if call.progress.attempts or budget is not None or self._journal.has_room:
                self._settled.append((call, entry))
                if self._flush_timer is None:
                    self._flush_timer = self._loop.call_later(self._batch_s, self.flush)
                self._journal.settled(entry)
        finally:
            try:
                if call.id in self.provider_keys.holds:
                    self.provider_keys.settle(call, entry)
            finally:
                if budget is not None:
                    self._settle_hold(entry, [account.id for account in budget.chain])
        return entry

    def _entry(self, call: Call) -> Entry:
        """The entry of a call. If an exception of ours prevents it, the call is estimated, as an orphaned one is."""
        try:
            team = call.key.team if call.key is not None else ""
            return entry_of(call, self._ratios.output, partial(self.price_of, team))
        except Exception as error:
            if not call.progress.attempts:
                raise
            call.fail(error)
            last, now_ms = call.progress.attempts[-1], time.time_ns() // 1_000_000
            reached = last.frames, last.output_chars
            return orphan(
                open_entry(call, last, self._ratios.output), reached, now_ms, last.priced, self._ratios.output
            )

    def flush(self) -> None:
        """Pass the settled calls to the book writer, and learn the bytes per token from them."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        settled, self._settled = self._settled, []
        if settled and self.book_writer is not None:
            self.book_writer.put([entry for _, entry in settled])
        for call, _ in settled:
            if call.progress.ending == "completed" and call.progress.attempts:  # an estimated count of tokens has none
                self._learn(call.progress.attempts[-1])

    def close(self) -> None:
        """Flush, and stop: no timer may write to a journal that is closed."""
        self.flush()
        if self._mark_timer is not None:
            self._mark_timer.cancel()
            self._mark_timer = None

    def _learn(self, attempt: Attempt) -> None:
        usage = attempt.tokens or attempt.usage
        if isinstance(usage, Usage) and usage.absurd:
            return
        if usage is not None and not usage.reasoning and (usage.audio_output or not attempt.audio_chars):
            written = (usage.output or 0) - (usage.audio_output or 0)
            self._ratios.learn(f"{attempt.provider}/{attempt.model}", attempt.output_chars, written)

    def booked(self, entries: Sequence[Entry]) -> None:
        """The book has these entries."""
        self._journal.booked([entry.id for entry in entries])
        if not self._unbooked_holds:
            return
        with_hold = [(entry, self._unbooked_holds.pop(entry.id, ())) for entry in entries]
        if booked := [(account, entry.id) for entry, accounts in with_hold for account in accounts]:
            self._accounts.booked(booked)
        if self.on_booked is not None:
            self.on_booked([(entry, accounts) for entry, accounts in with_hold if accounts])

    def adopt(
        self, settled: Iterable[Entry], unsettled: Iterable[tuple[Entry, tuple[int, int]]], last_ms: int
    ) -> list[Entry]:
        """Take over the journal of a gateway that died. Calls that it had not settled are orphaned and estimated.

        `last_ms` is the time of the journal's last write. While calls are open the journal is written every `_MARK_S`,
        so the gateway died before the next write was due, and before now.
        """
        adopted = list(settled)
        died_ms = min(last_ms + round(_MARK_S * 1000), round(time.time() * 1000))
        for entry, reached in unsettled:
            last = entry.attempts[-1]
            provider = self.providers.get(last.provider)
            priced = self.prices.find(provider, last.model, time.time(), entry.team) if provider is not None else None
            if last.price == OF_CLIENT.version:
                priced = OF_CLIENT
            adopted.append(orphan(entry, reached, died_ms, priced, self._ratios.output))
        for entry in adopted:
            self._journal.settled(entry)
            if entry.key:
                self._settle_hold(entry, account_ids(entry.key, entry.team, entry.user, entry.owner))
        return adopted

    def _settle_hold(self, entry: Entry, accounts: Sequence[str]) -> None:
        """Replace the reservations of a call by its actual cost, which stays reserved until the entry is booked."""
        self._unbooked_holds[entry.id] = accounts
        tokens, cost = entry.tokens, entry.priced
        for account in accounts:
            self._accounts.settle(account, entry.id, cost, tokens.input + tokens.output)

    def price(self, plan: QuotedPlan, team: str = "") -> PricedModel | None:
        """The current price of a target for the calls of a team; None if it is unknown. Looked up again only when
        it may have changed."""
        now, quote = time.time(), plan.quote
        if quote is None or quote.book is not self.prices or not quote.since_s <= now < quote.until_s:
            target = plan.target
            plan.quote = quote = self.prices.quote(target.provider, target.model, now)
        return self.prices.of_team(quote, plan.target.provider.name, team) if team else quote.priced

    def price_of(self, team: str, provider: str, model: str) -> PricedModel | None:
        """The current price of a model that is no target, for the calls of a team; None if it is unknown."""
        known = self.providers.get(provider)
        return self.prices.find(known, model, time.time(), team) if known is not None else None

    def _mark(self) -> None:
        """Write the progress of open calls to the journal, from which they are estimated if this process dies.

        It is written even if no call has an event yet, because its time shows how long this process was alive.
        """
        self._mark_timer = None
        reached: dict[str, tuple[int, int]] = {}

        def add(call: Call) -> None:
            if call.progress.reached[0]:
                reached[call.id] = call.progress.reached

        for call in list(self._open.values()):
            call.guarded(add)(call)
        if self._open:
            self._journal.marked(reached)
            self._mark_timer = self._loop.call_later(_MARK_S, self._mark)


def _output(ratios: BytesPerToken, call: Call) -> int:
    attempt = call.progress.attempts[-1]
    usage = attempt.tokens or attempt.usage
    if usage is not None and usage.output:
        return usage.output
    events, chars = call.progress.reached
    text = ratios.output(f"{attempt.provider}/{attempt.model}", chars, events) if chars else 0
    return text + estimate_audio(attempt.audio_chars)


class NoLedger:
    """Null object for a gateway without a ledger: admits every call and stores nothing.

    `accounts` are those of providers' keys.
    """

    ready = True
    degraded = ""

    def __init__(self, accounts: Accounts | None = None) -> None:
        self._ratios = BytesPerToken()
        self.provider_keys = ProviderKeyLimits(accounts if accounts is not None else LocalAccounts())

    def affordable(self, plans: list[Planned]) -> list[Planned]:
        """All plans: no key has a budget."""
        return plans

    def price(self, plan: QuotedPlan) -> None:
        """No price is known."""

    def price_of(self, team: str, provider: str, model: str) -> None:
        """No price is known."""

    def admit(
        self, call: Call, demand: TokenDemand, _plans: Sequence[QuotedPlan], _then: Callable[[None], None]
    ) -> bool:
        """Admit the call."""
        call.at_ms = int(time.time() * 1000)
        call.input_estimate = demand.input
        return True

    def start_attempt(self, call: Call, attempt: Attempt, plan: QuotedPlan) -> None:  # noqa: ARG002
        """Set the start of the attempt."""
        attempt.began_s = asyncio.get_running_loop().time() - call.started

    def guard(self, call: Call) -> None:
        """Do nothing: no key has a budget."""

    def cover(self, _call: Call, _plans: Sequence[QuotedPlan], then: Callable[[Failure | None], None]) -> None:
        """Cover any cost: no key has a budget."""
        then(None)

    def output(self, call: Call) -> int:
        """The reported or estimated output tokens of a call's last attempt so far."""
        return _output(self._ratios, call)

    def settle(self, call: Call) -> Entry:
        """The entry, for metrics and logs. It is not stored."""
        call.progress.over = True
        entry = entry_of(call, self._ratios.output)
        if call.id in self.provider_keys.holds:
            self.provider_keys.settle(call, entry)
        return entry

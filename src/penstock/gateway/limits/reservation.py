"""Reservations: reserve the cost of a call before it starts, and stop a stream for which the budget has no more.

A reservation is meant to be sufficient: the input, and the output that the client allows. The cost includes a margin
for the input; the tokens, which count towards the rate limit, do not. If the client sets no limit, the usual output is
reserved, or what is left if that is less. As the stream continues, the reservation is extended while the budget has
more; when it has none, the stream ends with the error `budget_exceeded`. The request for more is sent before the
reservation is used up. If its answer takes long, the relay pauses the provider at the end of the reservation.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct, structs

from penstock.core.hub.failure import Failure
from penstock.core.hub.usage import Tokens
from penstock.gateway.keys.quota import Quota
from penstock.gateway.limits.accounts import Accounts
from penstock.gateway.limits.admission import Decision, Denial, Gauge, Reservation
from penstock.gateway.limits.chained import ChainedAccounts
from penstock.gateway.limits.demand import TokenDemand
from penstock.gateway.limits.output_estimate import BytesPerToken, estimate_audio
from penstock.gateway.record.call import Call
from penstock.gateway.record.price import Price, PricedModel, cost_of
from penstock.gateway.teams.chain import end_user_quotas

# The output tokens that are reserved if the client sets no limit. An answer of about 3,000 words.
USUAL_OUTPUT = 4_096
# In output tokens. A call does not start with less. More is requested when a quarter of the reservation is left, or
# this much if that is more. When this much is left, the stream pauses until the answer comes; a denial ends it.
LEAST_OUTPUT = 16
# The estimate of the input is inexact, relatively more so for short inputs.
_MARGIN = 1.25
_FIXED_MARGIN = 32
# A stream is checked again after this many characters per token that is left. A token is rarely shorter, so the check
# comes early, not late.
_CHARS_PER_TOKEN = 1
# How long after its total timeout a call may still be settled.
GRACE_S = 600.0
# Up to this `Retry-After` the client is advised to retry.
_SHORT_WAIT_S = 60.0


class CallBudget(Struct, eq=False):
    """The reservation of one call."""

    demand: TokenDemand
    chain: tuple[Quota, ...]
    """The accounts in which it is reserved."""
    reserved: int = 0
    """The reserved amount, in nanodollars."""
    spent: int = 0
    """What earlier attempts have cost whose answer the current one goes on with."""
    extending: bool = False
    """Whether a request to reserve more is not answered yet."""
    used_up_by: str = ""
    """Whose budget has no more than what is reserved; empty as far as all have more."""


class Reservations:
    """Reserves the costs of calls in the accounts of their keys."""

    def __init__(self, accounts: Accounts, ratios: BytesPerToken) -> None:
        self._accounts = accounts
        self._chained = ChainedAccounts(accounts)
        self._ratios = ratios
        self.budgets: dict[str, CallBudget] = {}
        """By id of the call, from its admission until the ledger settles it. Only calls with a reservation have one."""
        self.on_exhausted: Callable[[str], None] | None = None
        """Called with the id of an account that refuses a call because too little of its budget is left."""

    def reserve(
        self,
        call: Call,
        demand: TokenDemand,
        prices: Sequence[PricedModel],
        total_s: float,
        then: Callable[[Failure | None], None],
    ) -> None:
        """Reserve the cost of a call at the highest of these prices, for the time that it may take.

        It is the maximum cost if the client limits the output, otherwise the cost of the usual output.
        """
        assert call.key is not None
        possible = [price for priced in prices for price in call.tier.prices(priced.price)]
        input = _input(demand.input, demand.audio)
        output = demand.output if demand.output is not None else USUAL_OUTPUT
        least = demand.output if demand.output is not None else LEAST_OUTPUT
        now = call.at_ms
        reservation = Reservation(
            id=call.id,
            cost=_max_cost(possible, structs.replace(input, output=output)),
            least_cost=_max_cost(possible, structs.replace(input, output=least)),
            tokens=demand.input + output,
            least_tokens=demand.input + least,
            now=now,
            until=now + int((total_s + GRACE_S) * 1000),
        )
        key = call.key
        chain = key.quotas + end_user_quotas(key, call.user) if call.user and key.user_quotas else key.quotas
        decided = call.guarded(partial(self._decided, call, CallBudget(demand, chain), then))
        if len(chain) == 1:
            self._accounts.reserve(chain[0], reservation, decided)
        else:
            self._chained.reserve(chain, reservation, decided)

    def _decided(
        self, call: Call, budget: CallBudget, then: Callable[[Failure | None], None], answer: Decision
    ) -> None:
        if not isinstance(answer, Denial) and not call.progress.over:
            budget.reserved = answer.cost
            self.budgets[call.id] = budget  # first: from here on, the ledger ends the reservation
        for name, gauge in (("requests", answer.requests), ("tokens", answer.tokens)):
            if gauge is not None:
                call.progress.headers |= _headers(name, gauge)
        if isinstance(answer, Denial):
            self._report(answer)
            then(_refusal(answer))
        elif call.progress.over:
            self._chained.release(budget.chain, call.id)  # the client disconnected meanwhile
        else:
            then(None)

    def _report(self, denial: Denial) -> None:
        if denial.exhausted and self.on_exhausted is not None:
            self.on_exhausted(denial.exhausted)

    def cover(
        self,
        call: Call,
        prices: Sequence[PricedModel],
        last: int,
        then: Callable[[Failure | None], None],
    ) -> None:
        """Reserve what another attempt costs that goes on with the answer of the last one, which has these output
        tokens, and call `then`: with the failure if the budgets have no room for it."""
        budget = self.budgets.get(call.id)
        if budget is None:
            then(None)
            return
        attempt, demand = call.progress.attempts[-1], budget.demand
        ended = attempt.tier.prices(attempt.priced.price) if attempt.priced is not None else []
        budget.spent += _max_cost(ended, structs.replace(_input(demand.input, demand.audio), output=last))
        output = None if demand.output is None else max(demand.output - last, 0)
        budget.demand = demand = structs.replace(demand, input=demand.input + last, output=output)
        possible = [price for priced in prices for price in call.tier.prices(priced.price)]
        wanted, least = (
            budget.spent + _max_cost(possible, structs.replace(_input(demand.input, demand.audio), output=tokens))
            for tokens in ((USUAL_OUTPUT, LEAST_OUTPUT) if output is None else (output, output))
        )
        tokens = budget.demand.input * 2 + (output if output is not None else LEAST_OUTPUT)
        decided = call.guarded(partial(self._covered, call, budget, least, then))
        self._chained.extend(budget.chain, call.id, max(wanted, budget.reserved), tokens, decided)

    def _covered(
        self, call: Call, budget: CallBudget, least: int, then: Callable[[Failure | None], None], answer: Decision
    ) -> None:
        if isinstance(answer, Denial):
            self._report(answer)
        else:
            budget.reserved = max(budget.reserved, answer.cost)
        lacks = call.key is not None and call.key.budgeted and budget.reserved < least
        holder = answer.holder if isinstance(answer, Denial) else "the key"
        then(_used_up(holder) if lacks else None)

    def guard(self, call: Call) -> None:
        """Limit the attempt that starts, if its key has a budget."""
        budget = self.budgets.get(call.id)
        if budget is None or call.key is None or not call.key.budgeted or call.progress.attempts[-1].priced is None:
            return
        assert call.progress.control is not None  # every attempt has one
        call.progress.control.on_limit = call.guarded(partial(self._check, call, budget))
        self._check(call, budget)

    def _check(self, call: Call, budget: CallBudget) -> None:
        """Compute what is left of the reservation and when to check again; extend it if it is nearly used up.

        An answer within the client's cap needs no extension. An answer that exceeds the cap, by more than the error of
        the estimate, comes from a provider that ignores caps: it is treated like one without a cap.
        """
        progress, demand = call.progress, budget.demand
        attempt, control = progress.attempts[-1], progress.control
        if attempt.priced is None or control is None:
            return
        prices = attempt.tier.prices(attempt.priced.price)
        events, chars = progress.reached
        audio = estimate_audio(attempt.audio_chars)
        output = self._ratios.output(f"{attempt.provider}/{attempt.model}", chars, events) + audio
        if demand.output is not None and output <= (trusted := with_margin(demand.output)):
            control.limit = chars + (trusted - output + 1) * _CHARS_PER_TOKEN
            return
        input = _input(demand.input, demand.audio)
        reserved = budget.reserved - budget.spent
        left = _affordable(reserved, structs.replace(input, output=output, audio_output=audio), prices)
        # Request more while a quarter is left: the answer may take a moment, and the stream need not wait for it.
        whole = _affordable(reserved, input, prices)
        least = LEAST_OUTPUT if budget.used_up_by or budget.extending else max(LEAST_OUTPUT, whole // 4)
        if left > least or not chars:
            control.limit = chars + max(left - least, 1) * _CHARS_PER_TOKEN
        elif budget.used_up_by:
            if control.running is not None:
                control.running.stop(_used_up(budget.used_up_by), "truncated")
        elif budget.extending:
            if control.running is not None:
                control.running.pause_for_limit(True)
        else:
            budget.extending = True
            more = _max_cost(prices, Tokens(output=USUAL_OUTPUT))
            then = call.guarded(partial(self._extended, call, budget))
            self._chained.extend(budget.chain, call.id, budget.reserved + more, demand.input + output, then)
            if budget.extending:
                self._check(call, budget)

    def _extended(self, call: Call, budget: CallBudget, answer: Decision) -> None:
        control = call.progress.control
        running = control.running if control is not None else None
        budget.extending = False
        if control is None or running is None:
            return  # the attempt has ended
        if isinstance(answer, Denial):
            budget.used_up_by = answer.holder
            self._report(answer)
            self._check(call, budget)
        elif answer.cost > budget.reserved:
            budget.reserved = answer.cost
            self._check(call, budget)
        else:
            # The account could not decide: try again soon.
            control.limit = call.progress.attempts[-1].output_chars + LEAST_OUTPUT * _CHARS_PER_TOKEN
        if not budget.extending:
            running.pause_for_limit(False)


def _max_cost(prices: Sequence[Price], tokens: Tokens) -> int:
    """The maximum cost of tokens: how many of them will be reasoning or cache writes is unknown beforehand."""
    all_input = tokens.input
    variants = [
        structs.replace(tokens, cache_write=written, cache_write_1h=one_hour, reasoning=reasoning)
        for written, one_hour in {(0, 0), (all_input, 0), (all_input, all_input)}
        for reasoning in {0, tokens.output}
    ]
    return max((cost_of(variant, price) for price in prices for variant in variants), default=0)


def _affordable(reserved: int, used: Tokens, prices: Sequence[Price]) -> int:
    """How many more output tokens the reservation pays for after `used`, at the highest of the prices."""
    return min(_affordable_at(reserved - cost_of(used, price), price) for price in prices)


def _affordable_at(nanodollars: int, price: Price) -> int:
    price_per_thousand = cost_of(Tokens(output=1_000), price) - cost_of(Tokens(), price)
    return nanodollars * 1_000 // price_per_thousand if price_per_thousand else 1_000_000_000


def _input(tokens: int, audio: int) -> Tokens:
    """The tokens of an input for which the cost is reserved. A token count consumes none."""
    return Tokens(input=with_margin(tokens) if tokens else 0, audio_input=with_margin(audio) if audio else 0)


def with_margin(tokens: int) -> int:
    """The tokens to reserve for an estimate: the estimate and a margin."""
    return int(tokens * _MARGIN) + _FIXED_MARGIN


def _used_up(holder: str) -> Failure:
    return Failure(
        code="budget_exceeded",
        message=f"the budget of {holder} was used up during the answer: it ends here and is incomplete",
        retryable=False,
        client_may_retry=False,
    )


def _refusal(denial: Denial) -> Failure:
    wait = denial.retry_after_s
    short = wait is not None and wait <= _SHORT_WAIT_S
    return Failure(
        code=denial.code,
        message=denial.message,
        client_may_retry=short,
        retry_after=str(math.ceil(wait)) if wait is not None else "",
    )


def _headers(name: str, gauge: Gauge) -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{name}": str(gauge.limit),
        f"x-ratelimit-remaining-{name}": str(gauge.remaining),
        f"x-ratelimit-reset-{name}": _duration(gauge.reset_s),
    }


def _duration(seconds: float) -> str:
    """A time in OpenAI's notation: `6m0s`, `1.5s`, `120ms`."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    minutes, rest = divmod(round(seconds, 3), 60)
    return f"{int(minutes)}m{rest:g}s" if minutes else f"{rest:g}s"

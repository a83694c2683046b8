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

from msgspec import structs

from penstock.core.hub.failure import Failure
from penstock.core.hub.usage import Tokens
from penstock.core.price import Price, cost_of
from penstock.gateway.billing.output_estimate import BytesPerToken, estimate_audio
from penstock.gateway.billing.prices import PricedModel
from penstock.gateway.calls.call import Call
from penstock.gateway.limits.accounts import Accounts
from penstock.gateway.limits.admission import Answer, Denial, Gauge, Reservation
from penstock.gateway.limits.chained import ChainedAccounts
from penstock.gateway.limits.demand import TokenDemand
from penstock.gateway.teams.chain import end_user_accounts

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


class Reservations:
    """Reserves the costs of calls in the accounts of their keys."""

    def __init__(self, accounts: Accounts, ratios: BytesPerToken) -> None:
        self._accounts = accounts
        self._chained = ChainedAccounts(accounts)
        self._ratios = ratios
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
        if not key.further and not key.user_limits:
            self._accounts.reserve(key, reservation, call.guarded(partial(self._decided, call, then)))
            return
        users = end_user_accounts(key, call.user) if call.user and key.user_limits else ()
        call.chain = (key, *key.further, *users)
        self._chained.reserve(call.chain, reservation, call.guarded(partial(self._decided, call, then)))

    def _decided(self, call: Call, then: Callable[[Failure | None], None], answer: Answer) -> None:
        if not isinstance(answer, Denial) and not call.over:
            call.reserved = answer.cost  # first: from here on, `settle` ends the reservation
        for name, gauge in (("requests", answer.requests), ("tokens", answer.tokens)):
            if gauge is not None:
                call.headers |= _headers(name, gauge)
        if isinstance(answer, Denial):
            self._report(answer)
            then(_refusal(answer))
        elif call.over:
            assert call.key is not None
            self._chained.release(call.chain or (call.key,), call.id)  # the client disconnected meanwhile
        else:
            then(None)

    def _report(self, denial: Denial) -> None:
        if denial.exhausted and self.on_exhausted is not None:
            self.on_exhausted(denial.exhausted)

    def guard(self, call: Call) -> None:
        """Limit the attempt that starts, if its key has a budget."""
        key, attempt = call.key, call.attempts[-1]
        if key is None or call.reserved is None or attempt.priced is None or not key.budgeted:
            return
        assert call.control is not None  # every attempt has one
        call.control.on_limit = call.guarded(partial(self._check, call))
        self._check(call)

    def _check(self, call: Call) -> None:
        """Compute what is left of the reservation and when to check again; extend it if it is nearly used up.

        An answer within the client's cap needs no extension. An answer that exceeds the cap, by more than the error of
        the estimate, comes from a provider that ignores caps: it is treated like one without a cap.
        """
        attempt, control = call.attempts[-1], call.control
        if attempt.priced is None or call.reserved is None or call.key is None or control is None:
            return
        prices = attempt.tier.prices(attempt.priced.price)
        events, chars = call.reached
        audio = estimate_audio(attempt.audio_chars)
        output = self._ratios.output(f"{attempt.provider}/{attempt.model}", chars, events) + audio
        if call.cap is not None and output <= (trusted := with_margin(call.cap)):
            control.limit = chars + (trusted - output + 1) * _CHARS_PER_TOKEN
            return
        input = _input(call.input_estimate, call.audio_estimate)
        left = _affordable(call.reserved, structs.replace(input, output=output, audio_output=audio), prices)
        # Request more while a quarter is left: the answer may take a moment, and the stream need not wait for it.
        whole = _affordable(call.reserved, input, prices)
        least = LEAST_OUTPUT if call.used_up or call.extending else max(LEAST_OUTPUT, whole // 4)
        if left > least or not chars:
            control.limit = chars + max(left - least, 1) * _CHARS_PER_TOKEN
        elif call.used_up:
            if control.running is not None:
                control.running.stop(_used_up(call.used_up_by), "truncated")
        elif call.extending:
            if control.running is not None:
                control.running.pause_for_limit(True)
        else:
            call.extending = True
            more = _max_cost(prices, Tokens(output=USUAL_OUTPUT))
            tokens = call.input_estimate + output
            chain, then = call.chain or (call.key,), call.guarded(partial(self._extended, call))
            self._chained.extend(chain, call.id, call.reserved + more, tokens, then)
            if call.extending:
                self._check(call)

    def _extended(self, call: Call, answer: Answer) -> None:
        control = call.control
        running = control.running if control is not None else None
        call.extending = False
        if control is None or running is None:
            return  # the attempt has ended
        if isinstance(answer, Denial):
            call.used_up, call.used_up_by = True, answer.holder
            self._report(answer)
            self._check(call)
        elif answer.cost > (call.reserved or 0):
            call.reserved = answer.cost
            self._check(call)
        else:
            # The account could not decide: try again soon.
            control.limit = call.attempts[-1].output_chars + LEAST_OUTPUT * _CHARS_PER_TOKEN
        if not call.extending:
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
    """As OpenAI writes it: `6m0s`, `1.5s`, `120ms`."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    minutes, rest = divmod(round(seconds, 3), 60)
    return f"{int(minutes)}m{rest:g}s" if minutes else f"{rest:g}s"

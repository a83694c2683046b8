"""Reservations: what a call may cost is held for it before it begins; a stream that reaches the end of it is stopped.

What is held is meant to be enough: the input with a margin, and the output that the client allows. For a client that
does not say how long an answer may be, the usual length is held, or what is left if that is less; as its stream goes
on, more is held if there is more, and if there is none the stream ends with a truthful error. Where the answer to that
takes long, the provider waits for it at the end of what is held.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import structs

from penstock.core.failure import Failure
from penstock.core.price import Price, cost_of
from penstock.core.usage import Tokens
from penstock.gateway.billing.output_estimate import BytesPerToken, estimate_sound
from penstock.gateway.billing.prices import PricedModel
from penstock.gateway.calls.call import Call
from penstock.gateway.limits.accounts import Accounts
from penstock.gateway.limits.admission import Answer, Denial, Gauge, Reservation
from penstock.gateway.limits.demand import TokenDemand

# What is held for the output of a call that does not say how long it may be. An answer of some 3,000 words.
_USUAL_OUTPUT = 4_096
# Less than this is not worth beginning with; and so much is asked for before the last of what is held is used.
_LEAST_OUTPUT = 16
# Estimates of the input are somewhat off; short ones more so.
_MARGIN = 1.25
_FIXED_MARGIN = 32
# A stream is looked at again after so many characters for each token that is still held: budgets end early, not late.
_SHORTEST_TOKEN = 1
# How long after its time a call may still be settled.
_GRACE_S = 600.0
# A wait that a client may well sit out.
_SHORT_WAIT_S = 60.0


class Reservations:
    """Holds what calls may cost, in the accounts of their keys."""

    def __init__(self, accounts: Accounts, ratios: BytesPerToken) -> None:
        self._accounts = accounts
        self._ratios = ratios

    def reserve(
        self,
        call: Call,
        wish: TokenDemand,
        prices: Sequence[PricedModel],
        total_s: float,
        then: Callable[[Failure | None], None],
    ) -> None:
        """Hold what a call may cost at the dearest of these prices, for as long as it may take."""
        assert call.key is not None
        possible = [price for priced in prices for price in call.tier.prices(priced.price)]
        input = _with_margin(wish.input)
        output = wish.output if wish.output is not None else _USUAL_OUTPUT
        least = wish.output if wish.output is not None else _LEAST_OUTPUT
        now = call.at_ms
        demand = Reservation(
            id=call.id,
            cost=_dearest(possible, Tokens(input=input, output=output)),
            least_cost=_dearest(possible, Tokens(input=input, output=least)),
            tokens=wish.input + output,
            least_tokens=wish.input + least,
            now=now,
            until=now + int((total_s + _GRACE_S) * 1000),
        )
        self._accounts.reserve(call.key, demand, partial(self._decided, call, then))

    def _decided(self, call: Call, then: Callable[[Failure | None], None], answer: Answer) -> None:
        for name, gauge in (("requests", answer.requests), ("tokens", answer.tokens)):
            if gauge is not None:
                call.headers |= _headers(name, gauge)
        if isinstance(answer, Denial):
            then(_refusal(answer))
        elif call.over:
            assert call.key is not None
            self._accounts.release(call.key.id, call.id)  # the client has left before it was known
        else:
            call.reserved = answer.cost
            then(None)

    def guard(self, call: Call) -> None:
        """Watch the attempt that begins, if there is a budget that its stream may reach."""
        key, attempt = call.key, call.attempts[-1]
        if key is None or key.budget is None or call.reserved is None or attempt.priced is None:
            return
        assert call.control is not None  # every attempt has one
        call.control.on_limit = partial(self._look, call)
        self._look(call)

    def _look(self, call: Call) -> None:
        """See how much of what is held is left, and when to look again; hold more if it is nearly used up.

        An answer that keeps to its cap needs no more than is held. One that exceeds it, by more than an estimate may be
        off, comes from a provider that knows no caps: it is treated like one without.
        """
        attempt, control = call.attempts[-1], call.control
        if attempt.priced is None or call.reserved is None or call.key is None or control is None:
            return
        prices = attempt.tier.prices(attempt.priced.price)
        events, said = call.reached
        sound = estimate_sound(attempt.audio_chars)
        output = self._ratios.output(f"{attempt.provider}/{attempt.model}", said, events) + sound
        if call.cap is not None and output <= (trusted := _with_margin(call.cap)):
            control.limit = said + (trusted - output + 1) * _SHORTEST_TOKEN
            return
        input = Tokens(input=_with_margin(call.input_estimate))
        left = _affordable(call.reserved, structs.replace(input, output=output, audio_output=sound), prices)
        # More is asked for while there is some: the answer may take a moment, and the stream need not wait for it.
        whole = _affordable(call.reserved, input, prices)
        least = _LEAST_OUTPUT if call.used_up or call.extending else max(_LEAST_OUTPUT, whole // 4)
        if left > least or not said:
            control.limit = said + max(left - least, 1) * _SHORTEST_TOKEN
        elif call.used_up:
            if control.running is not None:
                control.running.stop(_USED_UP, "truncated")
        elif call.extending:
            if control.running is not None:
                control.running.pause_for_limit(True)
        else:
            call.extending = True
            more = _dearest(prices, Tokens(output=_USUAL_OUTPUT))
            tokens = call.input_estimate + output
            self._accounts.extend(call.key, call.id, call.reserved + more, tokens, partial(self._extended, call))
            if call.extending:
                self._look(call)

    def _extended(self, call: Call, answer: Answer) -> None:
        control = call.control
        running = control.running if control is not None else None
        call.extending = False
        if control is None or running is None:
            return  # it is over
        if isinstance(answer, Denial):
            call.used_up = True
            self._look(call)
        elif answer.cost > (call.reserved or 0):
            call.reserved = answer.cost
            self._look(call)
        else:
            # It is not known just now: ask again.
            control.limit = call.attempts[-1].output_chars + _LEAST_OUTPUT * _SHORTEST_TOKEN
        if not call.extending:
            running.pause_for_limit(False)


_USED_UP = Failure(
    code="budget_exceeded",
    message="the budget of this key was used up while the answer came: it ends here, and is not complete",
    retryable=False,
    client_may_retry=False,
)


def _dearest(prices: Sequence[Price], tokens: Tokens) -> int:
    """What tokens cost at most: nobody knows beforehand which of them will be thought, or written into a cache."""
    all_input = tokens.input
    kinds = [
        structs.replace(tokens, cache_write=written, cache_write_1h=hour, reasoning=thought)
        for written, hour in {(0, 0), (all_input, 0), (all_input, all_input)}
        for thought in {0, tokens.output}
    ]
    return max((cost_of(kind, price) for price in prices for kind in kinds), default=0)


def _affordable(held: int, used: Tokens, prices: Sequence[Price]) -> int:
    """How many more tokens of output can be had for what is held, behind what is used, at the dearest of the prices."""
    return min(_affordable_at(held - cost_of(used, price), price) for price in prices)


def _affordable_at(nanodollars: int, price: Price) -> int:
    for_a_thousand = cost_of(Tokens(output=1_000), price) - cost_of(Tokens(), price)
    return nanodollars * 1_000 // for_a_thousand if for_a_thousand else 1_000_000_000


def _with_margin(input: int) -> int:
    return int(input * _MARGIN) + _FIXED_MARGIN


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

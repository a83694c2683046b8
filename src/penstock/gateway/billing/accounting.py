"""Accounting: what a call was, as an entry. Tokens are the provider's own, or estimated and marked so.

| the attempt | measure | tokens |
|---|---|---|
| has usage of the provider's that can be true | reported | the provider's |
| completed, or said something, or was asked and then left by its client | estimated | of what was asked and said |
| had an answer of which nothing could be read | estimated | of what was asked |
| anything else: no connection, refused, an error, silence | void | none |

A provider does not see who has left it: one that is heard out without its client, and in vain, is estimated too.
"""

from collections.abc import Callable

from msgspec import structs

from penstock.core.losses import counted
from penstock.core.price import ServiceTier, charge
from penstock.core.usage import Tokens
from penstock.error_codes import ErrorCode
from penstock.gateway.billing.entry import AttemptEntry, Entry, Measure, Outcome
from penstock.gateway.billing.output_estimate import estimate_audio
from penstock.gateway.billing.prices import PricedModel
from penstock.gateway.calls.call import Attempt, Call

# Service tiers that are booked by name, beside those that have a price. Clients and providers choose the names, and
# might write a secret there: any other one is booked as `other`.
_KNOWN_TIERS = frozenset(("", "flex", "priority", "batch", "scale"))
# The code of a call whose gateway died.
DIED: ErrorCode = "gateway_died"
# For a target, characters that were said and events in which they were → tokens.
OutputEstimate = Callable[[str, int, int], int]


def entry_of(call: Call, output: OutputEstimate) -> Entry:
    """The entry of a call that is over."""
    outcome: Outcome = call.ending or "failed"
    if not call.attempts and outcome != "cancelled":
        outcome = "refused"
    first_s, attempts = call.first_event_s, call.attempts
    return Entry(
        id=call.id,
        at_ms=call.at_ms,
        key=call.key.id if call.key is not None else "",
        surface=call.surface,
        model=call.model,
        stream=call.stream,
        outcome=outcome,
        status=call.status,
        code=call.code,
        first_event_ms=round(first_s * 1000) if first_s is not None else None,
        duration_ms=round(call.total_s * 1000),
        repairs=call.repairs,
        losses=counted(call.losses) if call.losses else {},
        tags=call.tags,
        user=call.user,
        attempts=(
            (_attempt(call, attempts[0], output),)  # nearly all have one
            if len(attempts) == 1
            else tuple([_attempt(call, attempt, output) for attempt in attempts])
        ),
    )


def open_entry(call: Call, last: Attempt) -> Entry:
    """What the entry of a call that comes to this attempt would be, if its gateway died now."""
    attempt = AttemptEntry(
        provider=last.provider,
        model=last.model,
        outcome="orphaned",
        code=DIED,
        measure="estimated",
        tokens=Tokens(input=call.input_estimate),
        cost=None,
        tier=_tier(last),
        began_ms=round(last.began_s * 1000),
    )
    return Entry(
        id=call.id,
        at_ms=call.at_ms,
        key=call.key.id if call.key is not None else "",
        surface=call.surface,
        model=call.model,
        stream=call.stream,
        outcome="orphaned",
        code=DIED,
        tags=call.tags,
        user=call.user,
        attempts=(attempt,) if last is call.attempts[0] else (*_given_up(call), attempt),
    )


def _given_up(call: Call) -> list[AttemptEntry]:
    """The attempts before the last one."""
    return [_attempt(call, attempt, _no_output) for attempt in call.attempts[:-1]]


def orphan(
    left: Entry, reached: tuple[int, int], died_ms: int, priced: PricedModel | None, output: OutputEstimate
) -> Entry:
    """The entry of a call whose gateway died, at a time since 1970: what it had come to by the last mark, at the price
    of its last target.
    """
    *before, last = left.attempts
    duration_ms = max(died_ms - left.at_ms, last.began_ms)
    events, said = reached
    tokens = Tokens(input=last.tokens.input, output=output(f"{last.provider}/{last.model}", said, events))
    last = structs.replace(last, tokens=tokens, events=events, duration_ms=duration_ms - last.began_ms)
    if priced is not None:
        cost, approximate = charge(tokens, priced.price, ServiceTier(last.tier))
        last = structs.replace(last, cost=cost, approximate=approximate, price=priced.version)
    return structs.replace(left, duration_ms=duration_ms, attempts=(*before, last))


def _attempt(call: Call, attempt: Attempt, output: OutputEstimate) -> AttemptEntry:
    measure: Measure = "reported"
    tokens = attempt.tokens
    if tokens is None:
        measure, tokens = _measured(call, attempt, output)
    first_s, gaps = attempt.first_event_s, attempt.gaps
    priced, cost, price, approximate = attempt.priced, None, "", False
    if measure == "void":
        cost = 0
    elif priced is not None:
        price = priced.version
        cost, approximate = charge(tokens, priced.price, attempt.tier)
    return AttemptEntry(
        provider=attempt.provider,
        model=attempt.model,
        outcome=attempt.ending or "failed",
        status=attempt.status,
        code=attempt.code,
        measure=measure,
        tokens=tokens,
        cost=cost,
        approximate=approximate,
        price=price,
        tier=_tier(attempt),
        began_ms=round(attempt.began_s * 1000),
        first_event_ms=round(first_s * 1000) if first_s is not None else None,
        duration_ms=round(attempt.seconds * 1000),
        events=attempt.events,
        longest_gap_ms=round(gaps.longest_s * 1000),
        stalls=tuple(gaps.stalls),
    )


def _tier(attempt: Attempt) -> str:
    """The service tier as it is booked."""
    name, priced = attempt.tier.name, attempt.priced
    known = name in _KNOWN_TIERS or (priced is not None and priced.price.in_tier(name) is not None)
    return name if known else "other"


def _measured(call: Call, attempt: Attempt, output: OutputEstimate) -> tuple[Measure, Tokens]:
    usage = attempt.usage
    if usage is not None and usage.output and (sound := Tokens.of_sound(usage)) is not None:
        return "reported", sound
    if usage is not None and not usage.blank and not usage.absurd:
        tokens = Tokens.of(usage)
        said = _said(attempt, output)
        if usage.input is None and usage.total is None:
            tokens = structs.replace(tokens, input=call.input_estimate)
            return "estimated", tokens if tokens.output else _with(tokens, said)
        if tokens.output or not (attempt.output_chars or attempt.audio_chars):
            return "reported", tokens
        read = tokens.input if usage.input is not None else max(tokens.input - said.output, 0)
        return "estimated", _with(structs.replace(tokens, input=read), said)
    if (
        attempt.output_chars
        or attempt.audio_chars
        or attempt.ending == "completed"
        or attempt.answered
        or _left(call, attempt)
    ):
        return "estimated", structs.replace(_said(attempt, output), input=call.input_estimate)
    return "void", Tokens()


def _said(attempt: Attempt, output: OutputEstimate) -> Tokens:
    """About what was said, aloud and otherwise."""
    sound = estimate_audio(attempt.audio_chars)
    text = output(f"{attempt.provider}/{attempt.model}", attempt.output_chars, attempt.events)
    return Tokens(output=text + sound, audio_output=sound)


def _with(tokens: Tokens, said: Tokens) -> Tokens:
    return structs.replace(tokens, output=said.output, audio_output=said.audio_output)


def _left(call: Call, attempt: Attempt) -> bool:
    """Whether a provider was asked, and nobody waited for its answer."""
    in_vain = attempt.ending == "timed_out" and call.ending == "cancelled" and attempt is call.attempts[-1]
    return attempt.sent and (attempt.ending == "cancelled" or in_vain)


def _no_output(target: str, said: int, events: int) -> int:  # noqa: ARG001 - an attempt that was given up said nothing
    return 0

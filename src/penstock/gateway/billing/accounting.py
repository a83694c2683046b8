"""Accounting: makes the ledger entry of a call. Its tokens are those that the provider reported, or marked estimates.

| the attempt | measure | tokens |
|---|---|---|
| has plausible usage from the provider | reported | the provider's |
| completed, or sent output, or was sent and then cancelled by its client | estimated | of the request and the output |
| had an answer that could not be read | estimated | of the request |
| copies the answer of another call | void | none |
| anything else: no connection, refused, an error, no response | void | none |

An answer that is drained after its client has disconnected, and times out, is estimated too: the provider bills it.

Some providers let other models work on an answer (`Usage.others`), or go on with it (`Usage.model`). Their tokens are
added to those of the attempt, each at the price of its model. If that is unknown, the attempt's price applies, and the
cost is approximate. It is also
approximate if the provider bills requests of its own tools (`Usage.tool_requests`): their prices are not known.
"""

from collections.abc import Callable

from msgspec import structs

from penstock.core.hub.losses import counted
from penstock.core.hub.usage import Tokens, Usage
from penstock.error_codes import ErrorCode
from penstock.gateway.limits.output_estimate import estimate_audio
from penstock.gateway.record.attempt import Attempt
from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import AttemptEntry, Entry, Measure, Outcome
from penstock.gateway.record.price import OF_CLIENT, STANDARD, PricedModel, ServiceTier, charge, saved_by_cache

# Service tiers that are stored by name, besides those that have a price. Clients and providers choose the names and
# could put a secret there, so every other one is stored as `other`.
_KNOWN_TIERS = frozenset(("", "flex", "priority", "batch", "scale"))
# The code of a call whose gateway died.
DIED: ErrorCode = "gateway_died"
# Estimates the tokens of an output: target, characters and events → tokens.
OutputEstimate = Callable[[str, int, int], int]
# The price of a provider's model; None if it is unknown.
PriceLookup = Callable[[str, str], PricedModel | None]


def entry_of(call: Call, output: OutputEstimate, price: PriceLookup | None = None) -> Entry:
    """The entry of a call that has ended. `price` looks up the prices of further models that worked on it."""
    price = price or _no_price
    progress = call.progress
    commit_s, attempts = progress.commit_s, progress.attempts
    outcome: Outcome = progress.ending or "failed"
    if not attempts and outcome not in ("cancelled", "completed"):  # a token count is completed without any
        outcome = "refused"
    key = call.key
    return Entry(  # by position, which takes an eighth of the time
        call.id,
        call.at_ms,
        call.model,
        outcome,
        key.id if key is not None else "",
        call.surface,
        call.stream,
        progress.status,
        progress.code,
        progress.error,
        round(commit_s * 1000) if commit_s is not None else None,
        round(progress.total_s * 1000),
        progress.repairs,
        counted(progress.losses) if progress.losses else {},
        call.tags,
        call.user,
        key.team if key is not None else "",
        key.owner if key is not None else "",
        (
            (_attempt(call, attempts[0], output, price),)  # nearly all have one
            if len(attempts) == 1
            else tuple([_attempt(call, attempt, output, price) for attempt in attempts])
        ),
    )


def open_entry(call: Call, last: Attempt, output: OutputEstimate = lambda *_: 0) -> Entry:
    """The entry of a call with this last attempt in case the gateway dies. The journal stores it.

    `output` estimates the output of earlier attempts, which had some if the last one goes on with their answer."""
    attempt = AttemptEntry(
        provider=last.provider,
        model=last.model,
        outcome="orphaned",
        code=DIED,
        measure="estimated",
        tokens=Tokens(input=call.input_estimate + last.prefilled),
        cost=None,
        price=OF_CLIENT.version if last.priced is OF_CLIENT else "",  # which no table has
        tier=_tier(last),
        began_ms=round(last.began_s * 1000),
    )
    earlier = [_attempt(call, each, output, _no_price) for each in call.progress.attempts[:-1]]
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
        team=call.key.team if call.key is not None else "",
        owner=call.key.owner if call.key is not None else "",
        attempts=(*earlier, attempt),
    )


def orphan(
    entry: Entry, reached: tuple[int, int], died_ms: int, priced: PricedModel | None, output: OutputEstimate
) -> Entry:
    """The entry of a call whose gateway died at `died_ms`: estimated from the progress in the journal (`reached`), at
    the price of its last target.
    """
    *before, last = entry.attempts
    duration_ms = max(died_ms - entry.at_ms, last.began_ms)
    events, chars = reached
    tokens = Tokens(input=last.tokens.input, output=output(f"{last.provider}/{last.model}", chars, events))
    last = structs.replace(last, tokens=tokens, events=events, duration_ms=duration_ms - last.began_ms)
    if priced is not None:
        cost, approximate = charge(tokens, priced.price, ServiceTier(last.tier))
        last = structs.replace(last, cost=cost, approximate=approximate, price=priced.version)
    return structs.replace(entry, duration_ms=duration_ms, attempts=(*before, last))


def _attempt(call: Call, attempt: Attempt, output: OutputEstimate, lookup: PriceLookup) -> AttemptEntry:
    measure: Measure = "reported"
    tokens = attempt.tokens
    if tokens is None:
        measure, tokens = _measured(call, attempt, output)
    commit_s, gaps = attempt.commit_s, attempt.gaps
    usage, cost, price, saved = attempt.usage, None, "", 0
    priced, assumed, approximate = attempt.priced, False, False
    if usage is not None and usage.model:
        known = lookup(attempt.provider, usage.model)
        priced, assumed = known or priced, known is None
    if measure == "void":
        cost = 0
        if attempt.copied is not None:
            price, saved = attempt.copied.kind, attempt.copied.saved
    elif priced is not None:
        price = priced.version
        cost, approximate = charge(tokens, priced.price, attempt.tier)
        approximate = approximate or assumed
        saved = saved_by_cache(tokens, priced.price, attempt.tier)
    if usage is not None and measure == "reported" and (usage.others or usage.tool_requests):
        tokens, cost, approximate = _with_others(attempt, usage, (tokens, cost, approximate), lookup)
    return AttemptEntry(  # by position, as in `entry_of`
        attempt.provider,
        attempt.model,
        attempt.ending or "failed",
        attempt.status,
        attempt.code,
        measure,
        tokens,
        cost,
        approximate,
        saved,
        price,
        _tier(attempt),
        round(attempt.began_s * 1000),
        round(commit_s * 1000) if commit_s is not None else None,
        round(attempt.seconds * 1000),
        attempt.frames,
        round(gaps.longest_s * 1000),
        tuple(gaps.stalls),
    )


def _with_others(
    attempt: Attempt, usage: Usage, own: tuple[Tokens, int | None, bool], lookup: PriceLookup
) -> tuple[Tokens, int | None, bool]:
    """Tokens, cost and whether that is approximate, with the models and tools that the provider bills besides."""
    tokens, cost, approximate = own
    if attempt.priced is OF_CLIENT:
        return Tokens.sum((tokens, *(Tokens.of(other.usage) for other in usage.others))), cost, approximate
    for model, used in ((other.model, Tokens.of(other.usage)) for other in usage.others):
        tokens = Tokens.sum((tokens, used))
        priced = lookup(attempt.provider, model)
        approximate = approximate or priced is None
        priced = priced or attempt.priced
        if cost is not None and priced is not None:
            cost += charge(used, priced.price, attempt.tier)[0]
    return tokens, cost, cost is not None and (approximate or bool(usage.tool_requests))


def _no_price(_provider: str, _model: str) -> PricedModel | None:
    return None


def _tier(attempt: Attempt) -> str:
    """The service tier as it is stored."""
    if attempt.tier is STANDARD:
        return ""
    name, priced = attempt.tier.name, attempt.priced
    known = name in _KNOWN_TIERS or (priced is not None and priced.price.in_tier(name) is not None)
    return name if known else "other"


def _measured(call: Call, attempt: Attempt, output: OutputEstimate) -> tuple[Measure, Tokens]:
    usage = attempt.usage
    if attempt.copied is not None:
        return "void", Tokens()
    if usage is not None and usage.output and (consistent := Tokens.of_sound(usage)) is not None:
        return "reported", consistent
    if usage is not None and not usage.blank and not usage.absurd:
        tokens = Tokens.of(usage)
        estimate = _estimated_output(attempt, output)
        if usage.input is None and usage.total is None:
            tokens = structs.replace(tokens, input=call.input_estimate + attempt.prefilled)
            return "estimated", tokens if tokens.output else _with_output(tokens, estimate)
        if tokens.output or not (attempt.output_chars or attempt.audio_chars):
            return "reported", tokens
        read = tokens.input if usage.input is not None else max(tokens.input - estimate.output, 0)
        return "estimated", _with_output(structs.replace(tokens, input=read), estimate)
    if (
        attempt.output_chars
        or attempt.audio_chars
        or attempt.ending == "completed"
        or attempt.answered
        or _is_abandoned(call, attempt)
    ):
        return "estimated", structs.replace(
            _estimated_output(attempt, output), input=call.input_estimate + attempt.prefilled
        )
    return "void", Tokens()


def _estimated_output(attempt: Attempt, output: OutputEstimate) -> Tokens:
    """The estimated output tokens, text and audio."""
    audio = estimate_audio(attempt.audio_chars)
    text = output(f"{attempt.provider}/{attempt.model}", attempt.output_chars, attempt.frames)
    return Tokens(output=text + audio, audio_output=audio)


def _with_output(tokens: Tokens, estimate: Tokens) -> Tokens:
    return structs.replace(tokens, output=estimate.output, audio_output=estimate.audio_output)


def _is_abandoned(call: Call, attempt: Attempt) -> bool:
    """Whether the request was sent and its client disconnected before the answer was complete."""
    progress = call.progress
    is_last = attempt is progress.attempts[-1]
    drained_in_vain = attempt.ending == "timed_out" and progress.ending == "cancelled" and is_last
    return attempt.sent and (attempt.ending == "cancelled" or drained_in_vain)

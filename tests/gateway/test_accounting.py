"""Spoken output is counted as audio tokens, and is charged at their price."""

from penstock.core.hub.events import Event, Extra, TextDelta
from penstock.core.hub.usage import ModelUsage, Usage
from penstock.gateway.billing.accounting import entry_of
from penstock.gateway.limits.output_estimate import BytesPerToken
from penstock.gateway.record.attempt import Attempt
from penstock.gateway.record.call import Call, Progress
from penstock.gateway.record.entry import AttemptEntry
from penstock.gateway.record.price import Price, PricedModel, Rates
from penstock.gateway.record.transcript import count_chars

SECOND = "A" * 64_000
PRICE = PricedModel(Price(Rates(input=1_000, output=10_000, audio_output=1_000_000)), "test")


def test_sound_costs_what_sound_costs() -> None:
    events: list[Event] = [
        TextDelta(0, "four" * 10),
        Extra("delta", {"audio": {"id": "audio_1", "transcript": "heard" * 8}}, 0),
        *[Extra("delta", {"audio": {"data": SECOND}}, 0)] * 3,
        Extra("delta", {"audio": {"data": SECOND[: len(SECOND) // 2]}}, 1),
        Extra("delta", {"audio": None}, 0),
        Extra("delta", {"audio": {"data": 5, "expires_at": 1}}, 0),
        Extra("chunk", {"audio": {"data": SECOND}}),
    ]
    attempt = Attempt("main", "m", priced=PRICE, ending="truncated", frames=len(events))
    call = Call("req_1", "main/m", True, 0.0, progress=Progress(attempts=[attempt]), input_estimate=7)
    call.progress.watch(events)
    attempt.output_chars += count_chars(events)
    (booked,) = entry_of(call, BytesPerToken().output).attempts
    assert booked.measure == "estimated"
    assert (booked.tokens.input, booked.tokens.output, booked.tokens.audio_output) == (7, 20 + 70, 70)
    assert booked.cost == 7 * 1 + 20 * 10 + 70 * 1_000, "in nanodollars"


OTHER = PricedModel(Price(Rates(input=5_000, output=50_000)), "test")


def booked(usage: Usage, known: dict[str, PricedModel], priced: PricedModel | None = PRICE) -> AttemptEntry:
    attempt = Attempt("claude", "m", priced=priced, ending="completed", usage=usage)
    call = Call("req_1", "claude/m", True, 0.0, progress=Progress(attempts=[attempt], ending="completed"))
    (entry,) = entry_of(call, BytesPerToken().output, lambda provider, model: known.get(f"{provider}/{model}")).attempts
    return entry


def test_other_models_that_work_on_an_answer_are_booked_at_their_prices() -> None:
    others = (ModelUsage("advisor", Usage(input=100, output=10, cached=40)),)
    entry = booked(Usage(input=7, output=3, others=others), {"claude/advisor": OTHER})
    assert (entry.tokens.input, entry.tokens.output, entry.tokens.cached) == (107, 13, 40)
    assert entry.cost == (7 * 1_000 + 3 * 10_000 + 60 * 5_000 + 10 * 50_000) // 1_000
    assert not entry.approximate


def test_a_model_without_a_price_costs_about_as_much_as_the_one_that_answers() -> None:
    others = (ModelUsage("advisor", Usage(input=100, output=10)),)
    entry = booked(Usage(input=7, output=3, others=others), {})
    assert entry.cost == (107 * 1_000 + 13 * 10_000) // 1_000
    assert entry.approximate


def test_an_answer_without_a_price_has_no_cost_whatever_else_has_one() -> None:
    others = (ModelUsage("advisor", Usage(input=100, output=10)),)
    for known in ({}, {"claude/advisor": OTHER}):
        entry = booked(Usage(input=7, output=3, others=others, tool_requests={"web_search": 1}), known, None)
        assert (entry.cost, entry.approximate, entry.tokens.input) == (None, False, 107)


def test_requests_of_the_provider_s_own_tools_make_the_cost_approximate() -> None:
    entry = booked(Usage(input=7, output=3, tool_requests={"web_search": 2}), {})
    assert (entry.cost, entry.approximate) == (37, True)

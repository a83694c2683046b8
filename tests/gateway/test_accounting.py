"""What is said aloud is counted as sound, and costs what sound costs."""

from penstock.core.events import Event, Extra, TextDelta
from penstock.core.price import Price, Rates
from penstock.gateway.billing.accounting import entry_of
from penstock.gateway.billing.output_estimate import BytesPerToken
from penstock.gateway.billing.prices import PricedModel
from penstock.gateway.calls.call import Attempt, Call
from penstock.gateway.relay.transcript import count_chars

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
    attempt = Attempt("main", "m", priced=PRICE, ending="truncated", events=len(events))
    call = Call("req_1", "main/m", True, 0.0, attempts=[attempt], input_estimate=7)
    call.watch(events)
    attempt.output_chars += count_chars(events)
    (booked,) = entry_of(call, BytesPerToken().output).attempts
    assert booked.measure == "estimated"
    assert (booked.tokens.input, booked.tokens.output, booked.tokens.audio_output) == (7, 20 + 70, 70)
    assert booked.cost == 7 * 1 + 20 * 10 + 70 * 1_000, "in nanodollars"

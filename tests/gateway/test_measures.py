"""How an attempt is measured and booked: reported, estimated or void; and the call of a gateway that died."""

from typing import Any

import pytest
from msgspec.structs import asdict

from penstock.core.hub.usage import Tokens, Usage
from penstock.gateway.billing.accounting import entry_of, open_entry, orphan
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.limits.output_estimate import estimate_audio
from penstock.gateway.record.attempt import Attempt
from penstock.gateway.record.call import Call, Progress
from penstock.gateway.record.entry import AttemptEntry, Entry, Measure
from penstock.gateway.record.price import Price, PricedModel, Rates, ServiceTier

PRICE = PricedModel(
    Price(
        Rates(input=1_000, output=10_000, reasoning=10_000, audio_output=100_000),
        service_tiers=(("flex", Price(Rates(500, 5_000))),),
    ),
    "test",
)
ASKED = 7  # tokens of the input, as the gateway estimates them
SOUND = 6_400  # characters of audio: two tokens


def estimate(target: str, chars: int, events: int) -> int:
    """A fake estimate, in which characters and events can be distinguished."""
    assert target == "main/m"
    return 100 * chars + events


def booked(*, ending: Any = "completed", left: Any = None, **fields: Any) -> AttemptEntry:
    """The one attempt of a call."""
    call = Call("req_1", "main/m", stream=True, started=0.0, input_estimate=ASKED)
    call.progress.ending = left or ending
    call.progress.attempts.append(Attempt("main", "m", priced=PRICE, ending=ending, **fields))
    (attempt,) = entry_of(call, estimate).attempts
    return attempt


# An attempt, and what is booked for it: measure, input, output, audio in the output.
MEASURES: dict[str, tuple[dict[str, Any], Measure, tuple[int, int, int]]] = {
    "reported": ({"usage": Usage(input=5, output=3)}, "reported", (5, 3, 0)),
    "reported, and checked before": ({"tokens": Tokens(input=5, output=3)}, "reported", (5, 3, 0)),
    "reported, with reasoning beside the output": (
        {"usage": Usage(input=5, output=3, reasoning=2, total=10)},
        "reported",
        (5, 5, 0),
    ),
    "reported, no output and none was said": ({"usage": Usage(input=5, output=0)}, "reported", (5, 0, 0)),
    "reported by a total alone, and nothing was said": ({"usage": Usage(total=9)}, "reported", (9, 0, 0)),
    "no output is reported, though some was said": (
        {"usage": Usage(input=5, output=0), "output_chars": 2, "frames": 1},
        "estimated",
        (5, 201, 0),
    ),
    "no output is reported, though some was said aloud": (
        {"usage": Usage(input=5, output=0), "audio_chars": SOUND},
        "estimated",
        (5, 2, 2),
    ),
    "a total is reported, and some was said": (
        {"usage": Usage(total=300), "output_chars": 2},
        "estimated",
        (100, 200, 0),
    ),
    "a total is reported, and more was said": ({"usage": Usage(total=30), "output_chars": 2}, "estimated", (0, 200, 0)),
    "the output alone is reported": ({"usage": Usage(output=3), "output_chars": 2}, "estimated", (ASKED, 3, 0)),
    "a part of the input alone is reported": (
        {"usage": Usage(cached=3), "output_chars": 2, "frames": 1},
        "estimated",
        (ASKED, 201, 0),
    ),
    "a placeholder is reported": ({"usage": Usage(input=0, output=0), "output_chars": 2}, "estimated", (ASKED, 200, 0)),
    "nonsense is reported": ({"usage": Usage(input=-1, output=3), "output_chars": 2}, "estimated", (ASKED, 200, 0)),
    "completed, with nothing said": ({}, "estimated", (ASKED, 0, 0)),
    "broken off": ({"ending": "truncated", "output_chars": 2, "frames": 3}, "estimated", (ASKED, 203, 0)),
    "broken off in sound": ({"ending": "truncated", "audio_chars": SOUND}, "estimated", (ASKED, 2, 2)),
    "answered, and nothing could be read": ({"ending": "failed", "answered": True}, "estimated", (ASKED, 0, 0)),
    "asked, and left by the client": ({"ending": "cancelled", "sent": True}, "estimated", (ASKED, 0, 0)),
    "heard out in vain, without its client": (
        {"ending": "timed_out", "left": "cancelled", "sent": True},
        "estimated",
        (ASKED, 0, 0),
    ),
    "left by the client before it was asked": ({"ending": "cancelled"}, "void", (0, 0, 0)),
    "silent until it was given up": ({"ending": "timed_out", "sent": True}, "void", (0, 0, 0)),
    "refused": ({"ending": "failed", "sent": True}, "void", (0, 0, 0)),
    "refused, with a placeholder": ({"ending": "failed", "usage": Usage(input=0, output=0)}, "void", (0, 0, 0)),
}


@pytest.mark.parametrize(("known", "measure", "tokens"), MEASURES.values(), ids=MEASURES)
def test_an_attempt_is_measured(known: dict[str, Any], measure: Measure, tokens: tuple[int, int, int]) -> None:
    attempt = booked(**known)
    input, output, sound = tokens
    assert (attempt.measure, attempt.tokens.input, attempt.tokens.output) == (measure, input, output)
    assert attempt.tokens.audio_output == sound
    assert attempt.cost == input + 10 * (output - sound) + 100 * sound
    assert attempt.price == ("" if measure == "void" else "test")


def test_an_earlier_attempt_that_timed_out_was_not_left_by_the_client() -> None:
    call = Call(
        "req_1", "main/m", stream=True, started=0.0, progress=Progress(ending="cancelled"), input_estimate=ASKED
    )
    call.progress.attempts += [Attempt("main", "m", ending="timed_out", sent=True) for _ in range(2)]
    assert [attempt.measure for attempt in entry_of(call, estimate).attempts] == ["void", "estimated"]


def test_what_has_no_price_has_no_cost_but_where_nothing_was_consumed() -> None:
    call = Call("req_1", "main/m", stream=True, started=0.0, progress=Progress(ending="completed"))
    call.progress.attempts.append(Attempt("main", "m", ending="completed", usage=Usage(input=5, output=3)))
    call.progress.attempts.append(Attempt("main", "m", ending="failed"))
    assert [attempt.cost for attempt in entry_of(call, estimate).attempts] == [None, 0]


@pytest.mark.parametrize(
    ("asked", "reported", "name", "cost", "approximate"),
    [
        ("", "", "", 35, False),
        ("", "default", "", 35, False),
        ("flex", "flex", "flex", 18, False),
        ("flex", "", "flex", 35, True),
        ("", "batch", "batch", 35, True),
        ("sk-secret", "", "other", 35, True),
    ],
)
def test_a_tier_is_booked_by_a_name_that_is_known(
    asked: str, reported: str, name: str, cost: int, approximate: bool
) -> None:
    attempt = booked(usage=Usage(input=5, output=3), tier=ServiceTier(asked, reported))
    assert (attempt.tier, attempt.cost, attempt.approximate) == (name, cost, approximate)


def test_an_entry_has_all_that_is_known_of_a_call() -> None:
    key = ClientKey(id="key_1", name="a key")
    call = Call("req_1", "main/m", stream=True, started=5.0, key=key, at_ms=1_000, tags={"a": "b"}, user="u")
    call.progress.status, call.progress.ending, call.progress.code, call.surface = (
        200,
        "truncated",
        "upstream_truncated",
        "chat",
    )
    call.progress.commit_s, call.progress.total_s = 0.25, 1.5
    attempt = Attempt(
        "main", "m", began_s=0.125, status=200, code="upstream_truncated", frames=4, repairs={"no-done": 1}
    )
    attempt.commit_s, attempt.seconds = 0.0625, 1.375
    attempt.gaps.longest_s, attempt.gaps.stalls = 1.25, [(100, 1_250)]
    call.progress.attempts.append(attempt)
    entry = entry_of(call, estimate)
    assert asdict(entry) | {"attempts": ()} == asdict(
        Entry(
            id="req_1",
            at_ms=1_000,
            key="key_1",
            surface="chat",
            model="main/m",
            stream=True,
            outcome="truncated",
            status=200,
            code="upstream_truncated",
            first_event_ms=250,
            duration_ms=1_500,
            repairs={"no-done": 1},
            tags={"a": "b"},
            user="u",
        )
    )
    assert entry.attempts == (
        AttemptEntry(
            provider="main",
            model="m",
            outcome="failed",
            status=200,
            code="upstream_truncated",
            cost=0,
            began_ms=125,
            first_event_ms=62,
            duration_ms=1_375,
            events=4,
            longest_gap_ms=1_250,
            stalls=((100, 1_250),),
        ),
    )


@pytest.mark.parametrize(("ending", "outcome"), [(None, "refused"), ("failed", "refused"), ("cancelled", "cancelled")])
def test_a_call_without_an_attempt_was_refused_or_left(ending: Any, outcome: str) -> None:
    call = Call("req_1", "main/m", stream=True, started=0.0, progress=Progress(ending=ending))
    assert entry_of(call, estimate).outcome == outcome


def opened(*, began_s: float = 0.5) -> Entry:
    """The journal's entry of a call that has reached its second attempt."""
    call = Call("req_1", "main/m", stream=True, started=0.0, at_ms=10_000, input_estimate=ASKED, tags={"a": "b"})
    call.progress.attempts.append(Attempt("main", "m", ending="failed", status=503, seconds=0.25, output_chars=3))
    call.progress.attempts.append(Attempt("main", "m", began_s=began_s, tier=ServiceTier("flex"), priced=PRICE))
    return open_entry(call, call.progress.attempts[-1])


def test_a_call_under_way_is_in_the_journal_as_an_orphan_would_be() -> None:
    entry = opened()
    assert (entry.outcome, entry.code, entry.at_ms, entry.tags) == ("orphaned", "gateway_died", 10_000, {"a": "b"})
    first, last = entry.attempts
    assert (first.outcome, first.status, first.tokens) == ("failed", 503, Tokens(input=ASKED))
    assert (last.outcome, last.code, last.measure) == ("orphaned", "gateway_died", "estimated")
    assert (last.tokens, last.cost, last.tier, last.began_ms) == (Tokens(input=ASKED), None, "flex", 500)


def test_an_orphan_has_what_it_had_come_to_and_lasted_until_its_gateway_died() -> None:
    entry = orphan(opened(), (3, 2), 12_000, PRICE, estimate)
    first, last = entry.attempts
    assert first.outcome == "failed"
    assert (entry.duration_ms, last.duration_ms) == (2_000, 1_500)
    assert (last.tokens, last.events) == (Tokens(input=ASKED, output=203), 3)
    assert (last.cost, last.approximate, last.price) == (ASKED + 10 * 203, True, "test")  # no tier was reported


def test_an_orphan_lasted_at_least_until_its_last_attempt_began() -> None:
    entry = orphan(opened(began_s=30.0), (0, 0), 12_000, None, estimate)
    assert (entry.duration_ms, entry.attempts[-1].duration_ms, entry.attempts[-1].cost) == (30_000, 0, None)


@pytest.mark.parametrize(("chars", "tokens"), [(0, 0), (1, 1), (3_200, 1), (3_201, 2)])
def test_sound_is_counted_by_its_length(chars: int, tokens: int) -> None:
    assert estimate_audio(chars) == tokens

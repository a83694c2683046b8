"""Usage: however often and wherever a provider reports it, the result is one report, never a sum of reports."""

from typing import Any

import pytest

from penstock import Usage, UsageReport
from penstock.core.hub.usage import ModelUsage
from tests.streams import (
    DONE,
    ENVELOPE,
    Json,
    begins,
    bill,
    bytewise,
    choice,
    chunk,
    completion,
    counts,
    delta,
    finishes,
    read,
    repairs,
    says,
    sse,
)

ZEROS = counts(0, 0)
REAL = counts(8, 18)


def figures(**fields: Any) -> Usage:
    """A report with these figures; its raw object is not compared."""
    return Usage(**({"input": 8, "output": 18, "total": 26} | fields))


def bare(usage: Usage | None) -> Usage | None:
    return usage and Usage(**{name: getattr(usage, name) for name in usage.__struct_fields__ if name != "raw"})


PLACES: dict[str, tuple[list[Json], Usage | None, dict[str, int]]] = {
    "nowhere": ([begins(), says("Hi"), finishes()], None, {}),
    "null everywhere": ([begins() | {"usage": None}, says("Hi", usage=None), finishes(usage=None)], None, {}),
    "in a chunk of its own behind the finish": ([begins(), says("Hi"), finishes(), bill(**REAL)], figures(), {}),
    "in a chunk of its own before the finish": ([begins(), bill(**REAL), says("Hi"), finishes()], figures(), {}),
    "on the finish": ([begins(), says("Hi"), finishes(usage=REAL)], figures(), {}),
    "on a chunk with an empty delta": (
        [begins(), says("Hi"), finishes(), delta({"content": ""}, usage=REAL)],
        figures(),
        {},
    ),
    "on the second of two finishes": (
        [begins(), says("Hi"), finishes(), finishes(usage=REAL)],
        figures(),
        {"finish-repeated": 1},
    ),
    "in every chunk, growing": (
        [begins() | {"usage": counts(8, 0)}, says("Hi", usage=counts(8, 9)), finishes(usage=REAL)],
        figures(),
        {},
    ),
    "in every chunk, nulls until the end": (
        [
            begins() | {"usage": {"prompt_tokens": 8, "completion_tokens": None, "total_tokens": None}},
            finishes(usage={"prompt_tokens": None, "completion_tokens": 18, "total_tokens": 26}),
        ],
        figures(),
        {},
    ),
    "a preview first": ([bill(**counts(7, 1)), begins(), says("Hi"), finishes(), bill(**REAL)], figures(), {}),
    "zeros, then figures": ([begins(), finishes(usage=ZEROS), bill(**REAL)], figures(), {"usage-placeholder": 1}),
    "figures, then zeros": ([begins(), finishes(usage=REAL), bill(**ZEROS)], figures(), {"usage-placeholder": 1}),
    "zeros in every chunk": (
        [begins() | {"usage": ZEROS}, says("Hi", usage=ZEROS), finishes(usage=REAL)],
        figures(),
        {"usage-placeholder": 2},
    ),
    "zeros only": ([begins(), finishes(usage=ZEROS)], None, {"usage-placeholder": 1}),
    "an empty object": ([begins(), finishes(usage={})], None, {"usage-placeholder": 1}),
    "in a choice": ([begins(), chunk(choice({}, finish="stop", usage=REAL))], figures(), {}),
    "in a choice that speaks": ([begins(), chunk(choice({"content": "Hi"}, usage=REAL)), finishes()], figures(), {}),
    "in x_groq only": ([begins(), finishes(x_groq={"id": "req_1", "usage": REAL})], figures(), {}),
    "in x_groq and beside it": ([begins(), finishes(usage=REAL, x_groq={"usage": REAL})], figures(), {}),
    "three times over": (
        [begins(), finishes(usage=REAL, x_groq={"usage": REAL}), bill(**REAL)],
        figures(),
        {},
    ),
    "in a chunk without choices": ([begins(), says("Hi"), finishes(), ENVELOPE | {"usage": REAL}], figures(), {}),
    "in a bare object": ([begins(), says("Hi"), finishes(), {"usage": REAL}], figures(), {"object-missing": 1}),
    "null beside figures already sent": ([begins(), finishes(usage=REAL), chunk(usage=None)], figures(), {}),
    "no total": ([begins(), finishes(usage={"prompt_tokens": 8, "completion_tokens": 18})], figures(), {}),
    "the output only": (
        [begins(), finishes(usage={"completion_tokens": 18})],
        Usage(output=18),
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("payloads", "usage", "tolerated"), PLACES.values(), ids=PLACES)
def test_usage_is_found_wherever_it_stands(
    payloads: list[Json], usage: Usage | None, tolerated: dict[str, int]
) -> None:
    wire = sse(*payloads, DONE)
    assert bare(completion(wire).usage) == usage
    assert repairs(read(wire)) == tolerated
    assert read(*bytewise(wire)) == read(wire)


SPELLINGS: dict[str, tuple[Json, dict[str, int]]] = {
    "input_tokens, output_tokens": ({"input_tokens": 8, "output_tokens": 18}, {}),
    "zeros under the other names": (REAL | {"input_tokens": 0, "output_tokens": 0}, {}),
    "cached_tokens in the details": (REAL | {"prompt_tokens_details": {"cached_tokens": 4}}, {"cached": 4}),
    "cached_tokens in the other details": (REAL | {"input_tokens_details": {"cached_tokens": 4}}, {"cached": 4}),
    "cached_tokens": (REAL | {"cached_tokens": 4}, {"cached": 4}),
    "num_cached_tokens": (REAL | {"num_cached_tokens": 4}, {"cached": 4}),
    "prompt_cache_hit_tokens": (REAL | {"prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 4}, {"cached": 4}),
    "hits, in the details as well": (
        REAL | {"prompt_cache_hit_tokens": 4, "prompt_tokens_details": {"cached_tokens": 4}},
        {"cached": 4},
    ),
    "cache_read_input_tokens": (
        REAL | {"cache_read_input_tokens": 4, "cache_creation_input_tokens": 2},
        {"cached": 4, "cache_write": 2},
    ),
    "Anthropic's own, which counts caches beside the input": (
        {"input_tokens": 2, "output_tokens": 18, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 2},
        {"cached": 4, "cache_write": 2},
    ),
    "cache_write_tokens": (
        REAL | {"prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 2}},
        {"cached": 0, "cache_write": 2},
    ),
    "reasoning in the details": (REAL | {"completion_tokens_details": {"reasoning_tokens": 9}}, {"reasoning": 9}),
    "reasoning in the other details": (REAL | {"output_tokens_details": {"reasoning_tokens": 9}}, {"reasoning": 9}),
    "reasoning_tokens": (REAL | {"reasoning_tokens": 9}, {"reasoning": 9}),
    "audio": (
        REAL | {"prompt_tokens_details": {"audio_tokens": 3}, "completion_tokens_details": {"audio_tokens": 5}},
        {"audio_input": 3, "audio_output": 5},
    ),
    "details null": (REAL | {"prompt_tokens_details": None, "completion_tokens_details": None}, {}),
    "details of a wrong type": (REAL | {"prompt_tokens_details": [], "completion_tokens_details": "none"}, {}),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "more"), SPELLINGS.values(), ids=SPELLINGS)
def test_usage_is_read_in_every_spelling(raw: Json, more: dict[str, int]) -> None:
    wire = sse(begins(), says("Hi"), finishes(), bill(**raw), DONE)
    usage = completion(wire).usage
    assert bare(usage) == figures(**more)
    assert usage is not None
    assert usage.raw == raw
    assert repairs(read(wire)) == {}


DOUBTS: dict[str, tuple[Json, dict[str, int], dict[str, int]]] = {
    "a negative count": (counts(-8, 18), {"input": -8, "total": 10}, {"usage-absurd": 1}),
    "a count beyond any model": (
        counts(8, 10**12),
        {"output": 10**12, "total": 8 + 10**12},
        {"usage-absurd": 1},
    ),
    "a count of hundreds of digits": (
        counts(10**400, 10**400),
        {"input": 10**400, "output": 10**400, "total": 2 * 10**400},
        {"usage-absurd": 1},
    ),
    "a total that does not add up": (REAL | {"total_tokens": 400}, {"total": 400}, {"usage-total-differs": 1}),
    "a total of zero": (REAL | {"total_tokens": 0}, {"total": 0}, {"usage-total-differs": 1}),
    "reasoning beside the output": (
        REAL | {"total_tokens": 126, "completion_tokens_details": {"reasoning_tokens": 100}},
        {"total": 126, "reasoning": 100},
        {"usage-reasoning-apart": 1},
    ),
    "reasoning over the output": (
        REAL | {"completion_tokens_details": {"reasoning_tokens": 37}},
        {"reasoning": 37},
        {"usage-details-exceed": 1},
    ),
    "cached over the input": (
        REAL | {"prompt_tokens_details": {"cached_tokens": 373}},
        {"cached": 373},
        {"usage-details-exceed": 1},
    ),
    "cached beside the input, as the total shows": (
        REAL | {"total_tokens": 399, "prompt_tokens_details": {"cached_tokens": 373}},
        {"total": 399, "cached": 373},
        {"usage-details-apart": 1},
    ),
    "audio beside the input, as the total shows": (
        REAL | {"total_tokens": 401, "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 375}},
        {"total": 401, "cached": 3, "audio_input": 375},
        {"usage-details-apart": 1},
    ),
    "audio over the input": (
        REAL | {"prompt_tokens_details": {"audio_tokens": 9}},
        {"audio_input": 9},
        {"usage-details-exceed": 1},
    ),
    "two caches that exceed the input together": (
        REAL | {"prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 5}},
        {"cached": 5, "cache_write": 5},
        {"usage-details-exceed": 1},
    ),
    "a detail that exceeds, and a total that differs": (
        REAL | {"total_tokens": 27, "completion_tokens_details": {"reasoning_tokens": 37}},
        {"total": 27, "reasoning": 37},
        {"usage-total-differs": 1, "usage-details-exceed": 1},
    ),
    "counts as strings": (REAL | {"prompt_tokens": "8", "completion_tokens": "18"}, {}, {"usage-mistyped": 2}),
    "counts as fractions": (REAL | {"prompt_tokens": 8.0, "completion_tokens": 18.0}, {}, {"usage-mistyped": 2}),
    "a count that is no number": (REAL | {"reasoning_tokens": "many"}, {}, {"usage-mistyped": 1}),
    "a count that is a truth value": (REAL | {"reasoning_tokens": True}, {}, {"usage-mistyped": 1}),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "more", "tolerated"), DOUBTS.values(), ids=DOUBTS)
def test_figures_that_do_not_fit_are_kept_and_flagged(
    raw: Json, more: dict[str, int], tolerated: dict[str, int]
) -> None:
    wire = sse(begins(), says("Hi"), finishes(), bill(**raw), DONE)
    usage = completion(wire).usage
    assert bare(usage) == figures(**more)
    assert usage is not None
    assert usage.raw == raw
    assert repairs(read(wire)) == tolerated


@pytest.mark.parametrize("raw", [raw for raw, *_ in (*SPELLINGS.values(), *DOUBTS.values())], ids=[*SPELLINGS, *DOUBTS])
def test_a_field_that_is_unknown_changes_no_figure(raw: Json) -> None:
    """It decides which of the two decoders reads the usage."""
    alone, beside = (sse(begins(), says("Hi"), finishes(), bill(**usage), DONE) for usage in (raw, raw | {"cost": 1}))
    assert bare(completion(alone).usage) == bare(completion(beside).usage)
    assert repairs(read(alone)) == repairs(read(beside))


def test_digits_without_end_do_not_raise() -> None:
    digits = "9" * 4300
    payload = f'{{"choices":[],"usage":{{"prompt_tokens":{digits},"completion_tokens":{digits}}}}}'
    assert completion(sse(begins(), finishes(), payload, DONE)).ending in ("completed", "failed")


@pytest.mark.parametrize("usage", ["12", 12, [REAL], True], ids=str)
def test_usage_that_is_no_object_is_ignored(usage: object) -> None:
    wire = sse(begins(), says("Hi"), finishes(usage=usage), DONE)
    assert (completion(wire).ending, completion(wire).usage) == ("completed", None)
    assert repairs(read(wire)) == {"usage-mistyped": 1}


def test_the_raw_objects_are_laid_over_each_other() -> None:
    first: Json = {"prompt_tokens": 8, "cost": None, "prompt_tokens_details": {"cached_tokens": 4}}
    last: Json = {
        "completion_tokens": 18,
        "cost": 0.02,
        "prompt_tokens_details": {"text_tokens": 4, "cached_tokens": None},
    }
    usage = completion(sse(begins(), bill(**first), finishes(), bill(**last), DONE)).usage
    assert usage is not None
    assert usage.raw == {
        "prompt_tokens": 8,
        "completion_tokens": 18,
        "cost": 0.02,
        "prompt_tokens_details": {"cached_tokens": 4, "text_tokens": 4},
    }


def test_usage_is_reported_once_and_just_before_the_end() -> None:
    events = read(
        sse(begins() | {"usage": counts(8, 0)}, says("Hi", usage=counts(8, 9)), finishes(), bill(**REAL), DONE)
    )
    assert [type(event) for event in events].count(UsageReport) == 1
    assert isinstance(events[-2], UsageReport)


STILL_READ: dict[str, list[Json | str]] = {
    "in a cut stream": [begins(), says("Hi", usage=REAL)],
    "after an error": [begins(), says("Hi"), {"error": {"message": "boom"}}, bill(**REAL)],
    "on the error": [begins(), says("Hi"), {"error": {"message": "boom"}, "usage": REAL}],
    "on a chunk with an error": [begins(), finishes("error", error={"message": "boom"}, usage=REAL)],
    "after [DONE]": [begins(), says("Hi"), finishes(), DONE, bill(**REAL)],
    "without an answer": [bill(**REAL), DONE],
}


@pytest.mark.parametrize("payloads", STILL_READ.values(), ids=STILL_READ)
def test_usage_counts_however_the_stream_ends(payloads: list[Json | str]) -> None:
    assert bare(completion(sse(*payloads)).usage) == figures()


def test_a_later_report_keeps_what_it_does_not_name() -> None:
    other = ModelUsage("advisor-1", Usage(input=7, output=2))
    first = Usage(input=5, output=1, tool_requests={"web_search": 2}, others=(other,), tier="flex")
    merged = first.updated(Usage(output=3))
    assert (merged.output, merged.tool_requests, merged.others, merged.tier) == (3, {"web_search": 2}, (other,), "flex")
    assert merged.updated(Usage(tool_requests={"web_search": 3})).tool_requests == {"web_search": 3}

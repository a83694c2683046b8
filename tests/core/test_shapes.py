"""The shape of chunks: all deviations of providers in roles, content, choices and finish reasons."""

from typing import Any

import pytest

from penstock import Choice, ReasoningDelta
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
    dumps,
    finishes,
    read,
    repairs,
    says,
    sse,
)

# What a choice says; its extras have tests of their own.
SENT_TEXT = ("index", "role", "text", "reasoning", "refusal", "tool_calls", "finish_reason", "native_finish_reason")


def answer(payloads: list[Json]) -> tuple[list[Choice], dict[str, int]]:
    """The choices of a stream that must be completed, without their extras, and the repairs."""
    wire = sse(*payloads, DONE)
    folded = completion(wire)
    assert folded.ending == "completed", folded
    assert read(*bytewise(wire)) == read(wire)
    bare = [Choice(**{name: getattr(choice, name) for name in SENT_TEXT}) for choice in folded.choices]
    return bare, repairs(read(wire))


def hi(**fields: Any) -> list[Choice]:
    """One choice that says Hi and stops."""
    return [Choice(0, **({"text": "Hi", "finish_reason": "stop"} | fields))]


def without(chunk: Json, *keys: str) -> Json:
    return {key: value for key, value in chunk.items() if key not in keys}


def message(content: object, *, finish: object = "stop", **fields: object) -> Json:
    """A chunk whose choice has a whole message, and a delta only if one is given."""
    return chunk({"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish} | fields)


def thinks(*texts: str, field: str) -> list[Json]:
    return [delta({field: text}) for text in texts]


HI = choice({"role": "assistant", "content": "Hi"})
YO = choice({"role": "assistant", "content": "Yo"}, index=1)
THOUGHT: Json = {"type": "reasoning.text", "text": "Hm."}
SUMMARY: Json = {"type": "reasoning.summary", "summary": " In short: hm."}
AZURE_PREAMBLE: Json = {
    "id": "",
    "object": "",
    "created": 0,
    "model": "",
    "choices": [],
    "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False}}}],
}

SHAPES: dict[str, tuple[list[Json], list[Choice], dict[str, int]]] = {
    # The role
    "role once, with empty content": ([begins(), says("Hi"), finishes()], hi(), {}),
    "role with the first text": ([delta({"role": "assistant", "content": "Hi"}), finishes()], hi(), {}),
    "no role": ([says("Hi"), finishes()], hi(), {"role-missing": 1}),
    "role null or empty": (
        [delta({"role": None, "content": "H"}), delta({"role": "", "content": "i"}), finishes()],
        hi(),
        {"role-missing": 1},
    ),
    "role in every chunk": (
        [begins(), delta({"role": "assistant", "content": "Hi"}), delta({"role": "assistant"}, finish="stop")],
        hi(),
        {"role-repeated": 2},
    ),
    "role after the text": (
        [says("H"), delta({"role": "assistant", "content": "i"}), finishes()],
        hi(),
        {"role-missing": 1, "role-repeated": 1},
    ),
    # The content
    "content null, absent or empty": (
        [delta({"role": "assistant", "content": None}), delta({}), says(""), says("Hi"), says(None), finishes()],
        hi(),
        {},
    ),
    "content of text parts": (
        [begins(), says([{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]), finishes()],
        hi(),
        {"content-parts": 1},
    ),
    "content of one part": ([begins(), says({"type": "text", "text": "Hi"}), finishes()], hi(), {"content-parts": 1}),
    "content of strings": ([begins(), says(["H", "i"]), finishes()], hi(), {"content-parts": 1}),
    "content of parts without type": ([begins(), says([{"text": "Hi"}]), finishes()], hi(), {"content-parts": 1}),
    "content of thinking parts, then text": (
        [
            begins(),
            says([{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]),
            says([{"type": "thinking", "thinking": "m."}, {"type": "text", "text": "H"}]),
            says("i"),
            finishes(),
        ],
        hi(reasoning="Hmm."),
        {"content-parts": 2},
    ),
    "an empty list of parts": ([begins(), says([]), says("Hi"), finishes()], hi(), {}),
    # The choices
    "choices empty": ([chunk(), begins(), chunk(moderation={"flagged": False}), says("Hi"), finishes()], hi(), {}),
    "choices null": ([begins(), says("Hi"), chunk(choices=None), finishes()], hi(), {"choices-missing": 1}),
    "choices absent": ([begins(), says("Hi"), without(chunk(), "choices"), finishes()], hi(), {"choices-missing": 1}),
    "choices an object": (
        [begins(), chunk(choices=choice({"content": "Hi"})), finishes()],
        hi(),
        {"choices-missing": 1},
    ),
    "a choice null": ([begins(), chunk(choices=[None]), says("Hi"), finishes()], hi(), {}),
    "index absent": (
        [chunk(without(choice({"role": "assistant", "content": "Hi"}, finish="stop"), "index"))],
        hi(),
        {"choice-index-missing": 1},
    ),
    "index null, then a string": (
        [begins(), chunk(choice({"content": "H"}, index=None)), chunk(choice({"content": "i"}, index="0")), finishes()],
        hi(),
        {"choice-index-missing": 2},
    ),
    "delta null on the finish": (
        [begins(), says("Hi"), chunk(choice(None, finish="stop"))],
        hi(),
        {"delta-missing": 1},
    ),
    "delta absent": (
        [begins(), says("Hi"), chunk({"index": 0, "content_filter_offsets": {"end_offset": 2}}), finishes()],
        hi(),
        {"delta-missing": 1},
    ),
    "null in every field": (
        [
            begins(),
            delta({"role": None, "content": "Hi", "refusal": None, "tool_calls": None, "reasoning_content": None}),
            chunk(choice({}, finish="stop", logprobs=None, matched_stop=None), system_fingerprint=None, usage=None),
        ],
        hi(),
        {},
    ),
    # The envelope
    "Azure's empty first chunk": (
        [AZURE_PREAMBLE, begins(), says("Hi"), finishes()],
        hi(),
        {"object-missing-no-choices": 1},
    ),
    "a new id in every chunk": (
        [begins(), says("H") | {"id": "b"}, says("i") | {"id": "c"}, finishes() | {"id": "d"}],
        hi(),
        {"id-changed": 3},
    ),
    "another model and time": (
        [begins(), says("Hi") | {"model": "sluice-2", "created": 1_700_000_001}, finishes()],
        hi(),
        {"model-changed": 1, "created-changed": 1},
    ),
    "object absent": (
        [without(payload, "object") for payload in (begins(), says("Hi"), finishes())],
        hi(),
        {"object-missing": 3},
    ),
    "object absent beside the usage": (
        [begins(), says("Hi"), finishes(), without(bill(**counts(1, 2)), "object")],
        hi(),
        {"object-missing": 1},
    ),
    "object of another API": (
        [begins(), says("Hi"), finishes() | {"object": "chat.completion.done"}],
        hi(),
        {"object-missing": 1},
    ),
    "created a float, then a string": (
        [begins() | {"created": 1.7e9}, says("Hi") | {"created": "1700000000"}, finishes()],
        hi(),
        {"envelope-mistyped": 2},
    ),
    # The finish
    "finish on the text": ([begins(), delta({"content": "Hi"}, finish="stop")], hi(), {}),
    "finish with the whole answer": ([delta({"role": "assistant", "content": "Hi"}, finish="stop")], hi(), {}),
    "finish empty until the end": ([begins(), delta({"content": "Hi"}, finish=""), finishes()], hi(), {}),
    "finish absent until the end": (
        [chunk({"index": 0, "delta": {"role": "assistant", "content": "Hi"}}), finishes()],
        hi(),
        {},
    ),
    "finish twice": ([begins(), says("Hi"), finishes(), finishes(usage=counts(1, 1))], hi(), {"finish-repeated": 1}),
    "finish changed": (
        [begins(), says("Hi"), finishes(), finishes("length")],
        hi(finish_reason="length"),
        {"finish-changed": 1},
    ),
    "text after the finish": (
        [begins(), says("H"), finishes(), says("i")],
        hi(),
        {"content-after-finish": 1},
    ),
    "an empty chunk after the finish": ([begins(), says("Hi"), finishes(), delta({"content": ""})], hi(), {}),
    # Whole messages and legacy text
    "the whole message beside every delta": (
        [
            chunk(choice({"role": "assistant", "content": "H"}, message={"role": "assistant", "content": "H"})),
            chunk(choice({"content": "i"}, message={"role": "assistant", "content": "Hi"}, finish="stop")),
        ],
        hi(),
        {"message-beside-delta": 2},
    ),
    "the whole message at the end": ([begins(), says("Hi"), message("Hi")], hi(), {"message-beside-delta": 1}),
    "the whole message and nothing else": ([message("Hi")], hi(), {}),
    "the whole message beside an empty delta": ([message("Hi", delta={})], hi(), {}),
    "the whole message beside a role": ([message("Hi", delta={"role": "assistant", "content": ""})], hi(), {}),
    "the whole message after the reasoning": (
        [begins(), delta({"reasoning_content": "Hm."}), message("Hi")],
        hi(reasoning="Hm."),
        {},
    ),
    "legacy text": (
        [chunk({"index": 0, "text": "H"}), chunk({"index": 0, "text": "i", "finish_reason": "stop"})],
        hi(),
        {"role-missing": 1, "text-without-delta": 2},
    ),
    "legacy text beside the delta": (
        [begins(), chunk(choice({"content": "Hi"}, text="Hi")), finishes()],
        hi(),
        {},
    ),
    # Refusal and reasoning
    "refusal": (
        [delta({"role": "assistant", "refusal": ""}), *thinks("I ", "won't.", field="refusal"), finishes()],
        hi(text="", refusal="I won't."),
        {},
    ),
    "reasoning_content": (
        [begins(), *thinks("H", "m.", field="reasoning_content"), says("Hi"), finishes()],
        hi(reasoning="Hm."),
        {},
    ),
    "reasoning": ([begins(), *thinks("H", "m.", field="reasoning"), says("Hi"), finishes()], hi(reasoning="Hm."), {}),
    "thinking": ([begins(), *thinks("H", "m.", field="thinking"), says("Hi"), finishes()], hi(reasoning="Hm."), {}),
    "reasoning_details only": (
        [begins(), delta({"reasoning_details": [THOUGHT, SUMMARY]}), says("Hi"), finishes()],
        hi(reasoning="Hm. In short: hm."),
        {},
    ),
    "reasoning in two fields": (
        [begins(), delta({"reasoning": "Hm.", "reasoning_content": "Hm."}), says("Hi"), finishes()],
        hi(reasoning="Hm."),
        {},
    ),
    "reasoning with its details": (
        [begins(), delta({"reasoning": "Hm.", "reasoning_details": [THOUGHT]}), says("Hi"), finishes()],
        hi(reasoning="Hm."),
        {},
    ),
    "reasoning and text in one delta": (
        [begins(), delta({"reasoning_content": "Hm.", "content": "Hi"}), finishes()],
        hi(reasoning="Hm."),
        {},
    ),
    # Several choices
    "two choices, interleaved": (
        [
            *(begins(0), begins(1), says("H"), says("Y", index=1), says("i"), says("o", index=1)),
            *(finishes("length", index=1), finishes()),
        ],
        [*hi(), Choice(1, text="Yo", finish_reason="length")],
        {},
    ),
    "two choices in one chunk": (
        [chunk(HI, YO), chunk(choice({}, index=1, finish="stop"), choice({}, finish="stop"))],
        [*hi(), Choice(1, text="Yo", finish_reason="stop")],
        {},
    ),
    "two choices in one chunk without indexes": (
        [chunk(without(HI, "index"), without(YO, "index")), finishes(), finishes(index=1)],
        [*hi(), Choice(1, text="Yo", finish_reason="stop")],
        {"choice-index-missing": 2},
    ),
    "the second choice comes first": (
        [chunk(YO), finishes(index=1), chunk(HI), finishes()],
        [*hi(), Choice(1, text="Yo", finish_reason="stop")],
        {},
    ),
    # Heartbeats
    "heartbeats as events": (
        [{"type": "keepalive"}, begins(), {}, says("Hi"), {"type": "ping", "cost": "0"}, finishes()],
        hi(),
        {"keepalive-event": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("payloads", "choices", "tolerated"), SHAPES.values(), ids=SHAPES)
def test_a_shape_is_read_as_what_it_means(
    payloads: list[Json], choices: list[Choice], tolerated: dict[str, int]
) -> None:
    assert answer(payloads) == (choices, tolerated)


def test_azures_empty_first_values_are_never_reported() -> None:
    folded = completion(sse(AZURE_PREAMBLE, begins(), says("Hi"), finishes(), DONE))
    assert (folded.id, folded.model, folded.created) == (ENVELOPE["id"], ENVELOPE["model"], ENVELOPE["created"])
    assert folded.extras["prompt_filter_results"] == AZURE_PREAMBLE["prompt_filter_results"]


def test_the_first_id_stands_for_the_whole_stream() -> None:
    assert completion(sse(begins(), says("Hi") | {"id": "other"}, finishes(), DONE)).id == ENVELOPE["id"]


def test_reasoning_keeps_the_name_of_its_field() -> None:
    for name in ("reasoning_content", "reasoning", "thinking"):
        assert ReasoningDelta(0, "Hm.", name) in read(sse(begins(), delta({name: "Hm."}), finishes(), DONE))


WRONG_TYPES = {
    "content a number": says(42),
    "content zero": says(0),
    "content false": says(False),
    "content true": says(True),
    "a part with text that is no text": says([{"type": "text", "text": {"value": "Hi"}}]),
    "refusal a number": delta({"refusal": 42}),
    "delta a string": delta("Hi"),
    "delta a list": delta([{"content": "Hi"}]),
    "a choice a string": chunk(choices=["Hi"]),
    "choices a string": chunk(choices="Hi"),
    "tool_calls a string": delta({"tool_calls": "get_tide()"}),
    "a tool call a string": delta({"tool_calls": ["get_tide()"]}),
    "function_call a string": delta({"function_call": "get_tide()"}),
    "finish_reason an object": finishes({"type": "stop"}),
}


@pytest.mark.parametrize("payload", WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_what_carries_the_answer_in_a_wrong_type_is_refused(payload: Json) -> None:
    folded = completion(sse(begins(), payload, finishes(), DONE))
    assert folded.fault is not None
    assert (folded.ending, folded.fault.code) == ("failed", "bad-shape")


# Text in a place other than a delta. However it is read, it must not be missing from a completed answer.
MISPLACED: dict[str, list[Json]] = {
    "messages that grow": [message("H", finish=None), message("Hi")],
    "messages in pieces": [message("H", finish=None), message("i")],
    "a message, then deltas": [message("Hi", finish=None), says("Hi"), finishes()],
    "a delta in place of the choices": [begins(), says("H"), ENVELOPE | {"delta": {"content": "i"}}, finishes()],
    "a delta and nothing else": [begins(), says("H"), {"delta": {"content": "i"}}, finishes()],
}


@pytest.mark.parametrize("payloads", MISPLACED.values(), ids=MISPLACED)
def test_misplaced_text_does_not_vanish_from_a_completed_answer(payloads: list[Json]) -> None:
    folded = completion(sse(*payloads, DONE))
    assert folded.ending == "failed" or folded.text == "Hi"


HALVES = {
    "content": ("content", "text"),
    "reasoning": ("reasoning", "reasoning"),
    "refusal": ("refusal", "refusal"),
}


@pytest.mark.parametrize(("field", "attribute"), HALVES.values(), ids=HALVES)
def test_halves_of_a_character_are_joined(field: str, attribute: str) -> None:
    halves = [dumps(delta({field: "~"})).replace("~", half) for half in ("a\\ud83c", "\\udf0db")]
    wire = sse(begins(), *halves, finishes(), DONE)
    assert getattr(completion(wire).choices[0], attribute) == "a\N{EARTH GLOBE EUROPE-AFRICA}b"
    assert repairs(read(wire)) == {"split-surrogate": 1}
    assert read(*bytewise(wire)) == read(wire)


@pytest.mark.parametrize(("field", "attribute"), HALVES.values(), ids=HALVES)
def test_half_a_character_at_the_end_is_replaced(field: str, attribute: str) -> None:
    wire = sse(begins(), dumps(delta({field: "a~"})).replace("~", "\\ud83c"), finishes(), DONE)
    assert getattr(completion(wire).choices[0], attribute) == "a\N{REPLACEMENT CHARACTER}"
    assert repairs(read(wire)) == {"lone-surrogate": 1}

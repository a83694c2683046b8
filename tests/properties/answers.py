"""Any whole answer in the legal order, as a strategy."""

import json

from hypothesis import strategies as st

from penstock import (
    ChoiceStart,
    End,
    Event,
    Extra,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
    UsageReport,
)
from penstock.core.dialects.openai_chat.choice import REASONING_FIELDS
from penstock.core.hub.events import ToolKind

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)


values: st.SearchStrategy[object] = st.one_of(
    texts, st.integers(1, 9), st.just(True), st.lists(st.integers(), min_size=1, max_size=2)
)


extras: st.SearchStrategy[dict[str, object]] = st.dictionaries(
    st.sampled_from(["seed", "channel", "token_ids", "trace"]), values, min_size=1, max_size=2
)


# Arguments of a function: a JSON object, or a text that is none and never becomes one. What follows a closed object is
# refused as ambiguous while another call is open, and styles cut arguments anywhere.
objects: st.SearchStrategy[str] = extras.map(json.dumps)
open_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="]}"), min_size=1, max_size=10)


counts = st.integers(0, 10_000)


@st.composite
def answers(draw: st.DrawFn) -> list[Event]:
    """The events of a whole answer, in the form in which a reader gives them."""
    choices = range(draw(st.integers(1, 3)))
    speech: list[list[Event]] = [[ChoiceStart(choice, "assistant")] for choice in choices]
    called: list[list[bool]] = [[] for _ in choices]
    for number in range(draw(st.integers(0, 12))):
        choice = draw(st.sampled_from(choices))
        speech.append(_sent_text(draw, choice, called, number))
    finishes: list[Event] = [
        Finish(choice, draw(_reasons(calls=bool(called[choice]))), draw(st.none() | texts)) for choice in choices
    ]
    return [
        Start(draw(texts), draw(texts), draw(st.integers(1, 2**40))),
        *(event for events in speech for event in events),
        *finishes,
        UsageReport(_usage(draw(counts), draw(st.integers(1, 99)))),
        End("completed"),
    ]


def _sent_text(draw: st.DrawFn, choice: int, called: list[list[bool]], number: int) -> list[Event]:
    """One thing that a choice says, with the extras that come before it.

    `called` has the calls of each choice so far, with whether more arguments may follow.
    """
    before: list[Event] = draw(
        st.lists(
            st.one_of(
                # Extras of the chunk are emitted when they change: `number` makes each one different.
                st.sampled_from(["obfuscation", "service_tier"]).map(lambda key: Extra("chunk", {key: number})),
                extras.map(lambda fields: Extra("choice", fields, choice)),
                extras.map(lambda fields: Extra("delta", fields, choice)),
            ),
            max_size=1,
        )
    )
    kind = draw(st.sampled_from(["text", "reasoning", "refusal", "call", "more arguments"]))
    text = draw(texts)
    match kind:
        case "text":
            return [*before, TextDelta(choice, text)]
        case "reasoning":
            return [*before, ReasoningDelta(choice, text, draw(st.sampled_from(REASONING_FIELDS)))]
        case "refusal":
            return [*before, RefusalDelta(choice, text)]
        case "more arguments" if called[choice] and called[choice][-1]:
            return [ToolCallDelta(choice, len(called[choice]) - 1, draw(open_texts))]
    call = len(called[choice])
    tool: ToolKind = draw(st.sampled_from(("function", "custom")))
    whole = tool == "function" and draw(st.booleans())
    called[choice].append(not whole)
    start = ToolCallStart(choice, call, f"call-{choice}-{call}", text, tool)
    with_extras = [Extra("tool", draw(extras), choice, call)] if draw(st.booleans()) else []
    arguments = draw(objects if whole else open_texts if tool == "function" else texts)
    return [*before, start, *with_extras, ToolCallDelta(choice, call, arguments)]


def _reasons(*, calls: bool) -> st.SearchStrategy[str]:
    return st.sampled_from(["length", "content_filter", "tool_calls" if calls else "stop"])


def _usage(input: int, output: int) -> Usage:
    raw = {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output}
    return Usage(input=input, output=output, total=input + output, raw=dict(raw))

"""What is peculiar to the streams of each provider, one claim each."""

import json
import re
from typing import Any

import pytest

from penstock import ChoiceStart, End, Event, Finish, Start, TextDelta, Usage, UsageReport
from penstock.replay.styles import write_in_style
from penstock.replay.styles.catalog import load_style
from penstock.replay.styles.framing import frame
from penstock.replay.styles.style import Framing
from tests.judges.cases import COMPLETED_EVENTS
from tests.streams import completion

TEXT, REASONING, CALLS = (COMPLETED_EVENTS[name] for name in ("text", "reasoning", "tools in parallel"))


def written(events: list[Event], name: str, *, include_usage: bool = True) -> list[dict[str, Any]]:
    """The chunks of an answer in a style."""
    wire = b"".join(write_in_style(events, load_style(name), include_usage=include_usage))
    return [json.loads(chunk) for chunk in re.findall(rb"(?m)^(?:data: ?)?(\{.*\})", wire)]


def deltas(events: list[Event], name: str) -> list[dict[str, Any]]:
    return [choice["delta"] for chunk in written(events, name) for choice in chunk["choices"]]


def thought(usage: Usage) -> list[Event]:
    return [Start("x", "m", 1), ChoiceStart(0, "assistant"), TextDelta(0, "Hi"), Finish(0, "stop"), UsageReport(usage)]


def test_openai_fills_every_line_up() -> None:
    lines = [line for line in write_in_style(TEXT, load_style("openai")) if b"obfuscation" in line]
    assert {len(line.rstrip()) % 16 for line in lines} == {7}
    assert len({line[-12:] for line in lines}) > 3


def test_openai_writes_several_calls_with_another_hand() -> None:
    chunks = written(CALLS[:2] + CALLS[3:], "openai")  # without the words before
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert [list(chunk).index("usage") < list(chunk).index("choices") for chunk in chunks] == [True] * 7 + [False] * 2


def test_openai_begins_with_a_single_call() -> None:
    single = COMPLETED_EVENTS["a tool without arguments"]
    first = deltas(single, "openai")[0]
    assert list(first) == ["role", "content", "tool_calls", "refusal"]
    assert first["tool_calls"] == [
        {"index": 0, "id": "call_a", "type": "function", "function": {"name": "now", "arguments": ""}}
    ]


@pytest.mark.parametrize("asked", [True, False])
def test_openai_sends_usage_only_if_asked(asked: bool) -> None:
    chunks = written(TEXT, "openai", include_usage=asked)
    assert ["usage" in chunk for chunk in chunks] == [asked] * len(chunks)
    assert (chunks[-1]["choices"] == []) == asked


def test_azure_begins_with_what_the_filters_say() -> None:
    first, second, third = written(TEXT, "azure")[:3]
    assert (first["id"], first["model"], first["object"], first["created"], first["choices"]) == ("", "", "", 0, [])
    assert list(second) == sorted(second)
    assert [list(chunk["choices"][0]["content_filter_results"]) for chunk in (second, third)] == [
        [],
        ["hate", "self_harm", "sexual", "violence"],
    ]


@pytest.mark.parametrize(("asked", "times"), [(True, 3), (False, 2)])
def test_groq_tells_usage_so_often(asked: bool, times: int) -> None:
    chunks = written(TEXT, "groq", include_usage=asked)
    usages = [place["usage"] for chunk in chunks for place in (chunk, chunk.get("x_groq", {})) if "usage" in place]
    assert len(usages) == times
    assert all(usage == usages[0] for usage in usages)


def test_groq_escapes_as_go_does() -> None:
    events: list[Event] = [Start("x", "m", 1), ChoiceStart(0, "assistant"), TextDelta(0, "<b>"), End("truncated")]
    assert b"\\u003cb\\u003e" in write_in_style(events, load_style("groq"))[-1]


def test_xai_counts_reasoning_apart_and_openai_does_not() -> None:
    within = Usage(input=10, output=30, total=40, reasoning=20)
    apart = Usage(input=10, output=10, total=40, reasoning=20)
    for usage in (within, apart):
        figures = {name: written(thought(usage), name)[-1]["usage"] for name in ("xai", "openai")}
        assert [figures[name]["completion_tokens"] for name in ("xai", "openai")] == [10, 30]
        assert [figures[name]["total_tokens"] for name in ("xai", "openai")] == [40, 40]


def test_xai_speaks_at_once_and_leaves_nulls_out() -> None:
    assert deltas(TEXT, "xai") == [
        {"content": "Hello", "role": "assistant"},
        {"content": ", "},
        {"content": "world!"},
        {},
    ]
    assert b"null" not in b"".join(write_in_style(TEXT, load_style("xai")))


def test_openrouter_comments_first_and_now_and_then() -> None:
    long = [*TEXT[:2], *[TextDelta(0, "word ")] * 50, *TEXT[-3:]]
    comments = [
        number for number, event in enumerate(write_in_style(long, load_style("openrouter"))) if event[:1] == b":"
    ]
    assert comments == [0, 21, 42]


def test_openrouter_repeats_the_role_and_tells_usage_beside_a_delta() -> None:
    assert {delta["role"] for delta in deltas(REASONING, "openrouter")} == {"assistant"}
    last = written(REASONING, "openrouter")[-1]
    assert last["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert last["usage"]["is_byok"] is False
    details = deltas(REASONING, "openrouter")[0]["reasoning_details"]
    assert [detail["text"] for detail in details] == ["Let me "]


def test_the_reseller_tells_zeros_first() -> None:
    usages = [chunk["usage"] for chunk in written(TEXT, "reseller")]
    assert [usage and usage["total_tokens"] for usage in usages] == [None] * 4 + [0, 15]


def test_deepseek_counts_its_cache_both_ways() -> None:
    usage = written(thought(Usage(input=10, output=1, total=11, cached=4)), "deepseek")[-1]["usage"]
    assert (usage["prompt_cache_hit_tokens"], usage["prompt_cache_miss_tokens"]) == (4, 6)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 4}


def test_deepseek_has_both_texts_while_it_thinks() -> None:
    assert deltas(REASONING, "deepseek") == [
        {"role": "assistant", "content": None, "reasoning_content": ""},
        {"content": None, "reasoning_content": "Let me "},
        {"content": None, "reasoning_content": "see."},
        {"content": "42", "reasoning_content": None},
        {"content": "", "reasoning_content": None},
    ]


def test_mistral_thinks_in_parts_and_calls_with_the_finish() -> None:
    assert deltas(REASONING, "mistral")[1]["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Let me "}]}
    ]
    last = written(CALLS, "mistral")[-1]
    assert [call["function"]["name"] for call in last["choices"][0]["delta"]["tool_calls"]] == ["weather", "time"]
    assert (last["choices"][0]["finish_reason"], last["usage"]["total_tokens"]) == ("tool_calls", 15)


def test_cerebras_just_stops() -> None:
    assert write_in_style(TEXT, load_style("cerebras"))[-1].startswith(b'data: {"id":')


def test_an_id_that_looks_right_stays() -> None:
    wire = b"".join(write_in_style(TEXT, load_style("xai")))
    again = b"".join(write_in_style(completion(wire), load_style("xai")))
    assert completion(again).id == completion(wire).id != "chatcmpl-1"


def test_the_ids_of_calls_stay() -> None:
    calls = deltas(CALLS, "mistral")[-1]["tool_calls"]
    assert [call["id"] for call in calls] == ["call_a", "call_b"]


def test_a_framing_with_other_line_ends() -> None:
    framing = Framing(data="data:", line="\r\n", last="\r\n")
    assert frame([("", "{}"), ("error", "{}")], framing, completed=False) == [
        b"data:{}\r\n\r\n",
        b"event: error\r\ndata:{}\r\n\r\n",
    ]
    assert frame([("", "{}")], framing, completed=True) == [b"data:{}\r\n\r\n", b"data:[DONE]\r\n"]

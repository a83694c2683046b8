"""The small streams of other dialects beside the corpus: `inspect --json` reports each as expected.

Its README defines the terms: usage in normal form (`input` includes the caches), finish reasons of chat completions.
"""

import json
from typing import Any

import pytest

from penstock import StreamReader
from penstock.core.dialects.detect import detect
from penstock.core.dialects.registry import DIALECTS
from tests.cli.support import invoke
from tests.corpus import DEFECTS_OF_DIALECTS as DEFECTS
from tests.corpus import ENDINGS
from tests.streams import bytewise, fold, read

LIST = DEFECTS / "EXPECT.jsonl"
NAMES = {"anthropic": "anthropic_messages", "responses": "openai_responses", "gemini": "gemini"}
ROWS: list[dict[str, Any]] = [
    row
    for row in (map(json.loads, LIST.read_text().splitlines()) if LIST.exists() else ())
    if NAMES.get(row["api"]) in DIALECTS
]

pytestmark = pytest.mark.skipif(not ROWS, reason=f"there are no streams in {DEFECTS}, beside the corpus")


@pytest.mark.parametrize("row", ROWS or [{"file": "none"}], ids=lambda row: row["file"])
def test_a_defect_is_reported_as_expected(row: dict[str, Any]) -> None:
    file = DEFECTS / row["file"]
    assert detect([file.read_bytes()]).dialect in (NAMES[row["api"]], "openai_chat")  # an error alone proves nothing
    reported = json.loads(invoke("inspect", "--json", "--dialect", NAMES[row["api"]], str(file)).stdout)
    assert reported["ending"] in {ENDINGS[outcome] for outcome in (row["outcome"], *row.get("outcome_also", ()))}
    choice: dict[str, Any] = (
        reported["choices"][0] if reported["choices"] else {"text": "", "reasoning": "", "tool_calls": []}
    )
    assert choice["text"] == row["text"]
    assert choice["reasoning"] == row.get("reasoning", "")
    assert choice.get("finish_reason") in (row["finish"], *row.get("finish_also", ()))
    calls = [[call["name"], call["arguments"]] for call in choice["tool_calls"]]
    assert calls == row.get("tools", [])
    usage = reported["usage"] or {}
    if row["usage"] is not None:
        assert [usage["input"], usage["output"]] == row["usage"]
    else:
        assert usage.get("output") is None
        assert usage.get("input") == row.get("usage_input")
    for name, counted in (("cached", "cached"), ("reasoning", "reasoning_tokens")):
        if counted in row:
            assert usage[name] == row[counted]
    if row["outcome"] == "error":
        assert row["error"] in reported["fault"]["message"]
        assert reported["fault"]["code"] == "provider-error"
    assert reported["repairs"] or row["outcome"] != "ok_with_warning"


# What says that an answer is over, in the streams of an API that has neither an end marker nor a closing event.
FINISHES = (b'"finishReason"', b'"blockReason"')


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in ROWS if row["api"] == "gemini"], ids=lambda row: row["file"])
def test_a_stream_of_gemini_is_not_completed_before_its_finish_reason(row: dict[str, Any]) -> None:
    data = (DEFECTS / row["file"]).read_bytes()
    finish = min(place for place in map(data.find, FINISHES) if place >= 0)
    for place in range(finish):
        assert fold(read(data[:place], reader=StreamReader("gemini"))).ending in ("truncated", "failed"), place


@pytest.mark.parametrize("row", ROWS or [{"file": "none"}], ids=lambda row: row["file"])
def test_a_defect_is_read_the_same_one_byte_at_a_time(row: dict[str, Any]) -> None:
    data, dialect = (DEFECTS / row["file"]).read_bytes(), NAMES[row["api"]]
    assert read(*bytewise(data), reader=StreamReader(dialect)) == read(data, reader=StreamReader(dialect))

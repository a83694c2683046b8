"""The small streams with one defect each beside the corpus: each is read as its list of expectations says."""

import json
from typing import Any

import pytest

from tests.corpus import DEFECTS, ENDINGS
from tests.streams import bytewise, completion, read

LIST = DEFECTS / "EXPECT.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in LIST.read_text().splitlines()] if LIST.exists() else []
pytestmark = pytest.mark.skipif(not ROWS, reason=f"there are no streams in {DEFECTS}, beside the corpus")


@pytest.mark.parametrize("row", ROWS or [{"file": "none"}], ids=lambda row: row["file"])
def test_a_defect_is_read_as_expected(row: dict[str, Any]) -> None:
    wire = (DEFECTS / row["file"]).read_bytes()
    answer = completion(wire)
    assert answer.ending == ENDINGS[row["outcome"]], answer
    assert answer.text == row["text"]
    assert (answer.usage and [answer.usage.input, answer.usage.output]) == row["usage"]
    choice = answer.choices[0] if answer.choices else None
    assert (choice and choice.finish_reason) == row["finish"]
    calls = [[call.name, call.arguments] for call in choice.tool_calls] if choice else []
    assert calls == row.get("tools", [])
    assert (answer.fault is not None and answer.fault.code == "provider-error") == (row["outcome"] == "error")
    assert answer.repairs or row["outcome"] != "ok_with_warning"
    assert read(*bytewise(wire)) == read(wire)

"""`scripts/judge-open-responses` and `scripts/judge-compatible`: what they run the suites of others against."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from scripts.judge_open_responses import SUITE, find_bun
from scripts.suites import KEY, MODEL, PROVIDERS, MissingError, Verdict, judge, served, table
from tests.open_responses import problems, stream_problems

TOOL = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}


def ask(address: str, provider: str, given: str, **fields: object) -> bytes:
    body = json.dumps({"model": f"{provider}/{MODEL}", "input": given, **fields}).encode()
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{address}/v1/responses", body, headers)) as response:
        data: bytes = response.read()
    return data


@pytest.mark.slow
def test_the_scripted_providers_answer_what_they_are_asked() -> None:
    with served() as address:
        for provider in PROVIDERS:
            streamed = ask(address, provider, "Reply with exactly HELLO", stream=True)
            assert stream_problems(streamed) == []
            assert b'"text":"HELLO"' in streamed
            called: Any = json.loads(ask(address, provider, "What is the weather like?", tools=[TOOL]))
            assert problems(called) == []
            assert [(item["type"], item["name"]) for item in called["output"]] == [("function_call", "get_weather")]
            assert json.loads(called["output"][0]["arguments"])["location"]


def test_the_table_counts_what_passed() -> None:
    lines = table({"chat": {"b": "passed", "a": "failed"}, "gemini": {"a": "passed", "b": "passed"}}).splitlines()
    assert [line.split() for line in lines] == [
        ["chat", "gemini"],
        ["a", "failed", "passed"],
        ["b", "passed", "passed"],
        ["passed", "1", "of", "2", "2", "of", "2"],
    ]


@pytest.mark.slow
def test_a_test_that_fails_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    def run(_address: str, model: str) -> list[Verdict]:
        return [Verdict("a", "failed", ("no body",)) if model.startswith("gemini") else Verdict("a", "passed")]

    assert judge(run) == 1
    assert "gemini: a: no body" in capsys.readouterr().out


@pytest.mark.slow
def test_a_folder_without_the_suite_or_without_bun_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingError, match="is no checkout of openresponses"):
        find_bun(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / SUITE).touch()
    with pytest.raises(MissingError, match="npm install --no-save bun zod"):
        find_bun(tmp_path)

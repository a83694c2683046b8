"""`scripts/judge-goldens`: a difference from another project's result is reported, unless it was judged."""

import json
import tomllib
from pathlib import Path

import pytest

from scripts.judge_goldens import VERDICTS, Goldens, judge_requests, report

BODY = {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}


def run(folder: Path, result: object) -> int:
    """Run one request of our own, of which another project is said to make this; the exit status."""
    fixtures = folder / "requests" / "completions"
    fixtures.mkdir(parents=True)
    (fixtures / "own.json").write_text('{"messages": [{"role": "user", "content": "Hi"}]}')
    (fixtures / "own.bedrock.snap").write_text(f"---\nsource: x\n---\n{json.dumps({'request': result})}\n")
    found = Goldens()
    judge_requests(folder, found)
    assert (found.runs, found.compared) == (8, 1)
    return report(found, "")


def test_a_difference_without_a_verdict_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, BODY | {"inferenceConfig": {"maxTokens": 5}}) == 1
    out = capsys.readouterr().out
    assert 'not judged: "requests/completions/own to bedrock"' in out
    assert "theirs: inferenceConfig.maxTokens = 5" in out


def test_the_same_values_are_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, BODY)
    assert "own to bedrock" not in capsys.readouterr().out


def test_every_verdict_has_a_reason() -> None:
    rows = tomllib.loads(VERDICTS.read_text())["verdicts"]
    assert all(row["verdict"] in ("ours right", "rival right") and row["reason"] and row["cases"] for row in rows)

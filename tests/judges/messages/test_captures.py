"""Clients read our captures of Messages, and a sample of the corpus, through the gateway, as our own reader does.

An answer that is not completed makes them raise an error, whatever the defect of the capture.
"""

import json
from pathlib import Path

import pytest

from penstock import Completion
from tests.faults.upstream import chunk, head, last_chunk
from tests.judges.cases import CORPUS, CORPUS_STEP, NO_CORPUS, ROOT
from tests.judges.messages.asks import VOICES, Report, Voice
from tests.judges.messages.bench import Bench
from tests.messages import completion
from tests.tables import table

CAPTURES = {path.stem: path for path in sorted((ROOT / "tests/captures/anthropic_messages").glob("*.sse"))}
READERS = [voice for voice in VOICES if voice.way in ("create", "stream", "plain", "fullStream", "generateText")]
# The AI SDK has closed unions of events and deltas: it refuses what Anthropic adds, from Anthropic as from us.
UNKNOWN_TO_VERCEL = ("delta-unknown", "event-unknown")
# Each client treats arguments that are no JSON in a way of its own.
UNPARSED = "tool-arguments-broken"


def corpus() -> list[Path]:
    """A sample of the corpus's streams of Messages."""
    index = CORPUS / "INDEX.jsonl"
    if not index.exists():
        return []
    rows = [json.loads(line) for line in index.read_text().splitlines()]
    files = [row["file"] for row in rows if row["api"] == "anthropic" and row["kind"] == "stream"]
    return [CORPUS / file for file in files[::CORPUS_STEP]]


@pytest.mark.parametrize(("voice", "capture"), table(READERS, [name for name in CAPTURES if name != UNPARSED]), ids=str)
def test_a_capture_is_seen(bench: Bench, voice: Voice, capture: str) -> None:
    wire = CAPTURES[capture].read_bytes()
    report = bench.ask(voice, bench.play("claude", [head(), chunk(wire), last_chunk()]))
    if voice.way == "fullStream" and capture in UNKNOWN_TO_VERCEL:
        assert report.error is not None
    else:
        compare(report, completion(wire))


@pytest.mark.parametrize("voice", [voice for voice in READERS if voice.client.startswith("anthropic")], ids=str)
def test_the_corpus_is_seen(bench: Bench, voice: Voice) -> None:
    paths = corpus()
    if not paths:
        pytest.skip(NO_CORPUS)
    for path in paths:
        wire = path.read_bytes()
        report = bench.ask(voice, bench.play("claude", [head(), chunk(wire), last_chunk()]))
        try:
            compare(report, completion(wire))
        except AssertionError as error:
            raise AssertionError(f"{path.name}: {error}") from error


def compare(report: Report, meant: Completion) -> None:
    """A completed answer says to the client what it says to us; any other makes it raise."""
    if meant.ending != "completed":
        assert report.error is not None
        assert not report.turns
        return
    assert report.error is None, report.error
    seen = report.turns[0]  # the AI SDK answers calls of tools that it was not given
    choice = meant.choices[0]
    assert (seen.text, seen.thinking) == (choice.text, choice.reasoning)
    own = [call for call in choice.tool_calls if not call.server]
    assert [(call.name, call.input) for call in seen.calls] == [
        (call.name, json.loads(call.arguments or "{}")) for call in own
    ]
    if meant.usage is not None and seen.usage is not None:
        assert seen.usage["output"] == (meant.usage.output or 0)

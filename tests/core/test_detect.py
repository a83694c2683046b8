"""The dialect of an answer is detected by its first frames, however they are split; a chat stream is never another."""

import json
from collections import Counter
from pathlib import Path

import pytest

from penstock.core.dialects.detect import MAX_BYTES, MAX_FRAMES, Detected, Detection, detect
from penstock.core.dialects.registry import DIALECTS
from tests.corpus import CORPUS, DEFECTS
from tests.dialects.support import HELLO, OPEN, OVER, TICKER_BODY, TICKER_STREAM, frames
from tests.dialects.ticker import TICKER
from tests.streams import DONE, begins, finishes, says, sse

HERE = Path(__file__).resolve().parents[1]
CHAT = sse(begins(), says("Hello"), finishes(), DONE)
HEARTBEAT = b"event: wait\ndata: {}\n\n"
TICKERS = Detected("ticker", "events")
ASSUMED = Detected("openai_chat", "default")


# By the names that the corpus has for them; others have the same name.
_DIALECTS = {
    "chat": "openai_chat",
    "completions": "openai_chat",
    "anthropic": "anthropic_messages",
    "responses": "openai_responses",
    "bedrock": "bedrock_converse",
}


# What Amazon Bedrock sends in the chunks of an event stream: the answer in the API of the model's vendor.
_IN_CHUNKS = {"bedrock_converse": ("anthropic_messages", "openai_chat")}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DIALECTS, "ticker", TICKER)


@pytest.mark.parametrize(
    ("wire", "found"),
    [
        (CHAT, Detected("openai_chat", "events")),
        (TICKER_STREAM, TICKERS),
        (TICKER_BODY, TICKERS),
        (HEARTBEAT * (MAX_FRAMES - 1) + TICKER_STREAM, TICKERS),
        (HEARTBEAT * MAX_FRAMES + TICKER_STREAM, ASSUMED),
        (TICKER_STREAM.replace(b"\n", b"\r\n"), TICKERS),
        (TICKER_STREAM[:60], TICKERS),
        (b"", ASSUMED),
        (b"<html>no stream</html>" + TICKER_STREAM, ASSUMED),
        (b"\x1f\x8b\x08" + TICKER_STREAM, ASSUMED),
        (b'{"error": {"message": "no"}}', ASSUMED),
        (b"[" * 100_000, ASSUMED),
        (b"data: " + b"{}" * 400_000 + b"\n\n", ASSUMED),
        (frames(OPEN) + sse(begins()), ASSUMED),
    ],
    ids=[
        "chat",
        "a ticker",
        "not streamed",
        "heartbeats first",
        "too many heartbeats",
        "CRLF",
        "cut off",
        "nothing",
        "a page",
        "compressed",
        "anyone's error",
        "deep",
        "too complex",
        "as much for one as for another",
    ],
)
def test_the_first_frames_tell(wire: bytes, found: Detected) -> None:
    assert detect([wire]) == found
    assert detect([bytes([byte]) for byte in wire[:3_000]] + [wire[3_000:]]) == found


def test_a_request_tells_where_the_events_do_not_and_loses_where_they_do() -> None:
    error = b'{"error": {"message": "no"}}'
    assert detect([error], "/v1/ticker") == Detected("ticker", "request")
    assert detect([error], "/openai/v1/chat/completions") == Detected("openai_chat", "request")
    assert detect([CHAT], "/v1/ticker") == Detected("openai_chat", "events")


def test_no_more_is_looked_at_than_needed() -> None:
    detection = Detection()
    assert detection.feed(frames(OPEN, *HELLO * 4, OVER))
    assert not Detection().feed(b"data: {")
    assert Detection().feed(b"data: {" + b" " * MAX_BYTES)


def chat_streams() -> list[Path]:
    """Every stream of this repository, and those beside it, that a chat provider sent, or that is broken."""
    return [
        *(HERE / "captures").glob("*.sse"),
        *(HERE / "seeds").glob("*.txt"),
        *DEFECTS.glob("*.sse"),
        *(file for file in DEFECTS.parent.joinpath("seeds").glob("*") if file.is_file()),
    ]


def test_no_chat_stream_of_ours_is_taken_for_another() -> None:
    found = {file.name: detect([file.read_bytes()]) for file in chat_streams()}
    assert {name for name, each in found.items() if each.dialect != "openai_chat"} <= {"other-dialect.sse"}
    assert sum(each.by == "events" for each in found.values()) > 0.9 * len(found)


@pytest.mark.slow
@pytest.mark.skipif(not (CORPUS / "INDEX.jsonl").exists(), reason=f"there is no corpus in {CORPUS}")
def test_no_recorded_stream_is_taken_for_another() -> None:
    wrong, streams, emitted = [], Counter[str](), Counter[str]()
    for row in map(json.loads, (CORPUS / "INDEX.jsonl").read_text().splitlines()):
        dialect = _DIALECTS.get(row["api"], row["api"])
        found = detect([(CORPUS / row["file"]).read_bytes()])
        streams[dialect] += row["kind"] == "stream"
        emitted[dialect] += row["kind"] == "stream" and found.by == "events"
        if found.by != "default" and found.dialect not in (dialect, *_IN_CHUNKS.get(dialect, ())):
            wrong.append((row["file"], row["api"], found))
    assert wrong == []
    known = ("openai_chat", "anthropic_messages", "openai_responses", "gemini", "ollama")
    assert [name for name in known if emitted[name] < 0.98 * streams[name]] == []

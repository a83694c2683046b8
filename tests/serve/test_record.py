"""The recorder alone: what it buffers while it records, and what happens when its queue is full."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.capture import CaptureEnd, parse
from penstock.gateway.config import Captures
from penstock.gateway.relay.recording import RecordedRequest
from penstock.http.upstream_connection import UpstreamError
from penstock.serve.recording.recorder import Recorder
from tests.replay.support import until

HEADERS = {"content-type": "text/event-stream"}
PIECE = b"data: {}\n\n" * 10_000


class Relay:
    """Takes what comes."""

    def __init__(self) -> None:
        self.size = 0

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        pass

    def on_data(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002
        self.size += len(data)

    def on_end(self) -> None:
        pass

    def on_error(self, error: UpstreamError) -> None:
        pass


def asked(folder: Path, number: int = 1) -> RecordedRequest:
    return RecordedRequest(
        directory=str(folder),
        at=1_700_000_000.25,
        call=f"req_{number}",
        attempt=1,
        provider="main",
        model="some/model: one",
        dialect="openai_chat",
        url="http://127.0.0.1/v1/chat/completions?key=secret",
        body=b'{"model":"m"}',
        secrets=(),
    )


@pytest.mark.slow
def test_what_comes_too_fast_is_dropped_counted_and_logged(tmp_path: Path) -> None:
    sent_text: list[str] = []
    recorder, relay = Recorder(Captures(max_capture=10**12), sent_text.append), Relay()
    try:
        captured = recorder.record(asked(tmp_path), relay)
        captured.on_head(200, HEADERS)
        for _ in range(1000):
            captured.on_data(PIECE)
        captured.on_end()
        assert relay.size == 1000 * len(PIECE)  # the client got all of it
        until(lambda: sent_text)
        assert sent_text == ["1 capture was discarded: they came faster than they could be written"]
        until(lambda: not list(tmp_path.iterdir()))
        after = recorder.record(asked(tmp_path, 2), relay)
        after.on_head(200, HEADERS)
        after.on_end()
    finally:
        recorder.close()
    (file,) = tmp_path.iterdir()
    assert parse(file.read_bytes()).header.call == "req_2"


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_many_streams_under_way_hold_no_descriptors(tmp_path: Path) -> None:
    recorder, relay = Recorder(Captures(), print), Relay()
    try:
        captured_files = [recorder.record(asked(tmp_path, number), relay) for number in range(50)]
        before = len(os.listdir("/proc/self/fd"))
        for captured in captured_files:
            captured.on_head(200, HEADERS)
            captured.on_data(PIECE)
        until(lambda: len(list(tmp_path.iterdir())) == 50)
        assert len(os.listdir("/proc/self/fd")) <= before + 1
        for captured in captured_files:
            captured.on_end()
    finally:
        recorder.close()
    captures = [parse(file.read_bytes()) for file in tmp_path.iterdir()]
    assert {capture.closing.how for capture in captures if capture.closing} == {"complete"}
    assert {capture.data for capture in captures} == {PIECE}


def test_a_name_tells_when_and_what_and_no_query_is_kept(tmp_path: Path) -> None:
    recorder = Recorder(Captures(), print)
    captured = recorder.record(asked(tmp_path), Relay())
    captured.on_error(UpstreamError("upstream_reset", ""))
    captured.on_end()  # nothing comes after an error, and nothing of it would be kept
    recorder.close()
    (file,) = tmp_path.iterdir()
    assert file.name == "20231114T221320.250Z-main-some-model-one-req_1-1.capture"
    capture = parse(file.read_bytes())
    assert capture.header.at == "2023-11-14T22:13:20.250000Z"
    assert capture.header.request is not None
    assert capture.header.request.path == "/v1/chat/completions"
    assert isinstance(capture.closing, CaptureEnd)
    assert (capture.closing.how, capture.header.status) == ("reset", None)
    assert b"secret" not in file.read_bytes()

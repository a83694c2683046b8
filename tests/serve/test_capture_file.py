"""What a capture keeps of a compressed answer: its text, or how far it could be read."""

import gzip
from pathlib import Path

import pytest

from penstock.capture import CaptureEnd, Read, parse
from penstock.gateway.mask import Secrets
from penstock.gateway.relay.recording import RecordedHead, RecordedRequest
from penstock.serve.recording.capture_file import CaptureFile

TEXT = b'data: {"text": "Hello."}\n\n' * 40


def recorded(folder: Path, coding: str, *pieces: bytes, max_bytes: int = 10_000) -> tuple[bytes, str]:
    """The bytes of a capture, and how it ends."""
    request = RecordedRequest(
        directory=str(folder),
        at=1_767_225_600.0,
        call="req_1",
        attempt=1,
        provider="p",
        model="m",
        dialect="openai_chat",
        url="http://p.example/v1",
        body=b"{}",
        secrets=(),
    )
    file = CaptureFile(request, Secrets(()), max_bytes)
    file.begin(RecordedHead(0.1, 200, {"content-type": "text/event-stream", "content-encoding": coding}))
    for piece in pieces:
        file.add(Read(0.2, piece))
    file.end(CaptureEnd(0.3, "closed"))
    file.flush()
    capture = parse(file.path.read_bytes())
    assert capture.closing is not None
    return capture.data, capture.closing.how


@pytest.mark.parametrize("coding", ["gzip", ""])
def test_an_answer_is_kept_as_it_is_without_its_coding(tmp_path: Path, coding: str) -> None:
    sent = gzip.compress(TEXT) if coding else TEXT
    assert recorded(tmp_path, coding, sent[:30], sent[30:]) == (TEXT, "closed")


def test_of_what_cannot_be_decompressed_nothing_more_is_kept(tmp_path: Path) -> None:
    data, how = recorded(tmp_path, "gzip", gzip.compress(TEXT), b"no gzip", gzip.compress(TEXT))
    assert (TEXT.startswith(data), how) == (True, "invalid")


def test_of_what_is_very_large_the_beginning_is_kept(tmp_path: Path) -> None:
    data, how = recorded(tmp_path, "gzip", gzip.compress(TEXT), gzip.compress(b" " * 20_000), gzip.compress(TEXT))
    assert (data, how) == (TEXT, "limit")

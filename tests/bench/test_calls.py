"""The benchmark of short calls: its answers are whole, and it measures every kind of them."""

import subprocess
import sys

import pytest

from bench.calls.__main__ import PAIRS
from bench.calls.answers import CALLS, KINDS, Kind
from bench.gateway.judge import ROOT
from penstock import Accumulator, End, StreamReader


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CALLS)
def test_an_answer_is_whole(name: str, kind: Kind) -> None:
    data = b"".join(CALLS[name].answer(kind))
    reader, answer = StreamReader(CALLS[name].api.dialect), Accumulator()
    events = [*reader.feed(_body(data)), *reader.close()]
    answer.extend(events)
    assert events[-1] == End("completed")
    assert bool(answer.completion.text) is (kind != "tool call")
    assert answer.completion.usage is not None


def test_every_kind_of_call_is_measured() -> None:
    command = [sys.executable, "-m", "bench.calls", "--rounds", "1", "--peers", "", "--only", "chat,"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "chat, streamed " in line]
    rows = [line for line in done.stdout.splitlines() if "chat," in line]
    assert len(rows) == len(KINDS) * sum(provider == "chat" for _, provider in PAIRS)


def _body(data: bytes) -> bytes:
    """The body of a response, without chunk framing."""
    head, _, body = data.partition(b"\r\n\r\n")
    if b"chunked" not in head:
        return body
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        parts.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    return b"".join(parts)

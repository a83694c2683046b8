"""A player: what a receiver gets of a capture, in which order, and how it is paused and stopped."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from penstock.capture import How
from penstock.http.upstream_connection import UpstreamError
from penstock.replay.library import load
from penstock.replay.playback import AS_FAST_AS_POSSIBLE, PlaybackOptions
from penstock.replay.upstream import Replay, ReplayConnection
from tests.replay.support import keep

DATA = (b"one", b"two", b"three")


class RecordingReceiver:
    """A receiver that records its calls."""

    def __init__(self) -> None:
        self.words: list[object] = []
        self.over = asyncio.Event()
        self.after_each: Callable[[], None] = lambda: None

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        self._receive(status, headers["content-type"])

    def on_data(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002
        self._receive(data)

    def on_end(self) -> None:
        self._receive("end")
        self.over.set()

    def on_error(self, error: UpstreamError) -> None:
        self._receive(error.code)
        self.over.set()

    def _receive(self, *words: object) -> None:
        self.words += words
        self.after_each()


async def connection(folder: Path, how: How = "complete", status: int | None = 200) -> ReplayConnection:
    keep(folder / "a.capture", *DATA, how=how, status=status)
    library, _ = load([folder])
    return Replay(library, PlaybackOptions(speed=AS_FAST_AS_POSSIBLE)).endpoint("", {}).idle_connection()


BEGUN = [200, "text/event-stream", *DATA]
ENDINGS: dict[How, list[object]] = {
    "complete": [*BEGUN, "end"],
    "abandoned": [*BEGUN, "end"],
    "closed": [*BEGUN, "upstream_truncated"],
    "limit": [*BEGUN, "upstream_truncated"],
    "reset": [*BEGUN, "upstream_reset"],
}


@pytest.mark.parametrize(("how", "words"), ENDINGS.items())
def test_a_receiver_reads_all_of_it_and_how_it_ended(tmp_path: Path, how: How, words: list[object]) -> None:
    async def play() -> None:
        received = RecordingReceiver()
        (await connection(tmp_path, how)).send(b"{}", received)
        await asyncio.wait_for(received.over.wait(), 30.0)
        assert received.words == words

    asyncio.run(play())


def test_where_there_was_no_head_there_is_none(tmp_path: Path) -> None:
    async def play() -> None:
        received = RecordingReceiver()
        keep(tmp_path / "a.capture", how="closed", status=None)
        library, _ = load([tmp_path])
        Replay(library).endpoint("", {}).idle_connection().send(b"{}", received)
        await asyncio.wait_for(received.over.wait(), 30.0)
        assert received.words == ["upstream_truncated"]

    asyncio.run(play())


def test_a_pause_holds_it_also_before_it_begins(tmp_path: Path) -> None:
    async def play() -> None:
        received = RecordingReceiver()
        asked = await connection(tmp_path)
        asked.pause()
        asked.send(b"{}", received)
        await asyncio.sleep(0.1)  # for the thread that prepares it
        assert received.words == []
        received.after_each = asked.pause  # one thing at a time
        for count in (2, 3, 4, 5):
            asked.resume()
            async with asyncio.timeout(30):
                while len(received.words) < count:  # noqa: ASYNC110 - it is called by timers
                    await asyncio.sleep(0.001)
            assert received.words == BEGUN[:count]
        received.after_each = lambda: None
        asked.resume()
        await asyncio.wait_for(received.over.wait(), 30.0)

    asyncio.run(play())


def test_who_wants_no_more_reads_no_more(tmp_path: Path) -> None:
    async def play() -> None:
        received = RecordingReceiver()
        asked = await connection(tmp_path)
        received.after_each = lambda: asked.abandon(received)
        asked.send(b"{}", received)
        asked.abandon(RecordingReceiver())  # another receiver
        await asyncio.sleep(0.05)
        assert received.words == BEGUN[:2]

    asyncio.run(play())

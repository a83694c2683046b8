"""Large captures beside a live stream: they are loaded, prepared and played without delaying the stream."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.client import CLIENT_KEY, RawClient, body, post
from tests.faults.gateway import Gateway, settings
from tests.faults.upstream import Upstream, chunk, head, sleep
from tests.promptness import in_time, prompt
from tests.replay.support import keep
from tests.streams import DONE, finishes, says, sse

pytestmark = pytest.mark.slow

# With captures of this size, each step took a second or more when the event loop did it itself.
_EVENTS = 30_000
_FILES = 3
_WORD_S = 0.02
_LONGEST_S = 600
# The longest delay of a stream. On an idle machine it is some 2 ms more than the time between words.
_GAP_S = 0.5

# In its own process, so that it does not delay the processes that measure.
_FETCH = """
import sys, urllib.request
_, url, key, body = sys.argv
headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
with urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers)) as answer:
    sys.stdout.buffer.write(answer.read())
"""


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of many reads; the same as one read; and some more to be loaded."""
    folder = tmp_path_factory.mktemp("captures")
    events = [sse(says(f" word {number}")) for number in range(_EVENTS)]
    end = sse(finishes(), DONE)
    keep(folder / "reads.capture", *events, end, model="reads", gap_s=0.0)
    keep(folder / "whole.capture", b"".join((*events, end)), model="whole", gap_s=0.0)
    for number in range(_FILES):
        keep(folder / f"more-{number}.capture", *events, end, model=f"more-{number}", gap_s=0.0)
    return folder


class Gaps:
    """A live stream, and the longest time between two of its reads while something is done."""

    def __init__(self, gateway: Gateway) -> None:
        words = [step for _ in range(round(_LONGEST_S / _WORD_S)) for step in (sleep(_WORD_S), chunk(sse(says(" on"))))]
        self._model = gateway.upstream.play([head(), chunk(sse(says("Hello"))), *words])
        self._gateway = gateway

    def during(self, work: Callable[[], None]) -> float:
        with RawClient(self._gateway.port) as client:
            client.send(post(body(f"main/{self._model}", stream=True)))
            client.read_until(b"Hello")
            longest, over = 0.0, threading.Event()

            def watch() -> None:
                nonlocal longest
                before = time.monotonic()
                with suppress(OSError):
                    while not over.is_set() and client._socket.recv(65_536):
                        now = time.monotonic()
                        longest, before = max(longest, now - before), now

            thread = threading.Thread(target=watch)
            thread.start()
            time.sleep(10 * _WORD_S)
            work()
            over.set()
            thread.join()
            return longest


@prompt
def test_a_live_stream_goes_on_beside_large_captures(tmp_path: Path, captures: Path) -> None:
    with Upstream() as upstream:
        text = settings(upstream.url, 0, server={"drain_s": 0.1})
        text += f'[providers.past]\nreplay = "{captures}"\nreplay_speed = "max"\n'
        with Gateway(tmp_path, upstream, text) as gateway:
            gaps = Gaps(gateway)

            def play(model: str) -> None:
                url = f"http://127.0.0.1:{gateway.port}/v1/chat/completions"
                command = [sys.executable, "-c", _FETCH, url, CLIENT_KEY, body(f"past/{model}", stream=True).decode()]
                fetched = subprocess.run(command, capture_output=True, check=True).stdout
                assert fetched.count(b" word ") == _EVENTS
                assert b"[DONE]" in fetched

            def reload() -> None:
                gateway.signal(signal.SIGHUP)
                gateway.says("the configuration was reloaded")

            found = {
                "a capture of many reads": gaps.during(lambda: play("reads")),
                "a capture of one read": gaps.during(lambda: play("whole")),
                "a reload": gaps.during(reload),
            }
            print(found)  # noqa: T201 - told where it fails
            in_time(max(found.values()), _GAP_S)

"""What the tests of captures share: directories that fill, a process that replays, a gateway in front of it."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from penstock.capture import Capture, CaptureEnd, CaptureHeader, How, Read, dump, parse
from tests.faults.client import RawClient, Response, body, post

_PLAYS = re.compile(r"penstock replays \d+ captures? on http://(?:127\.0\.0\.1|0\.0\.0\.0):(\d+)/v1")
_WAIT_S = 30.0


def recorded(folder: Path, count: int = 1) -> list[Capture]:
    """The captures in a directory, the oldest first, once there are this many and all have ended."""
    return [parse(file.read_bytes()) for file in recorded_files(folder, count)]


def recorded_files(folder: Path, count: int = 1) -> list[Path]:
    """Their files."""
    files: list[Path] = []

    def whole() -> bool:
        found = {file: parse(file.read_bytes()) for file in folder.glob("*.capture")}
        files[:] = sorted(found, key=lambda file: found[file].header.at)
        # A file in which nothing stands yet reads as a bare stream, which has no time.
        return len(found) >= count and all(each.header.at and each.closing is not None for each in found.values())

    until(whole)
    assert len(files) == count, files
    return files


def until(true: Callable[[], object], timeout_s: float = _WAIT_S) -> None:
    """Wait for an action of another process that it does not report."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.01)


def keep(
    file: Path,
    *data: bytes,
    model: str = "m",
    how: How | None = "complete",
    gap_s: float = 0.02,
    status: int | None = 200,
    **header: Any,
) -> Path:
    """Write a capture of reads that came so far apart. `header` are further members of its header."""
    reads = tuple(Read(round((number + 1) * gap_s, 6), part) for number, part in enumerate(data))
    closing = CaptureEnd(round((len(data) + 1) * gap_s, 6), how) if how is not None else None
    about = CaptureHeader(provider="main", model=model, status=status, head_s=0.0 if status else None, **header)
    file.write_bytes(dump(Capture(about, reads, closing)))
    return file


class Player:
    """`penstock replay`, as a process."""

    def __init__(self, *arguments: str | Path, module: str = "penstock") -> None:
        self._module = module
        self._arguments = [str(argument) for argument in arguments]
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.output: list[str] = []
        self.port = 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module, "replay", "--port", "0", *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        until(lambda: _PLAYS.search("".join(self.output)) or self._process is None or self._process.poll() is not None)
        found = _PLAYS.search("".join(self.output))
        assert found, "".join(self.output)
        self.port = int(found[1])
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._reader is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            assert self._process.wait(_WAIT_S) == 0
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join(_WAIT_S)
            assert self._process.stderr is not None
            self._process.stderr.close()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        self.output.extend(iter(self._process.stderr.readline, ""))

    @property
    def url(self) -> str:
        """What a provider has as its `base_url`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def begin(self, model: str = "m", **fields: object) -> RawClient:
        """Ask; the answer is still to be read."""
        client = RawClient(self.port)
        client.send(post(body(model, stream=True, **fields)))
        return client

    def ask(self, model: str = "m", **fields: object) -> Response:
        """Ask, and read the answer."""
        with self.begin(model, **fields) as client:
            return client.response()

    def get(self, path: str) -> Response:
        """What is at a path."""
        with RawClient(self.port) as client:
            client.send(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            return client.response()


def replayed_by(provider: str, url: str, **keys: object) -> str:
    """A configuration of one provider."""
    table = {"base_url": url} | keys
    lines = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
    head = '[server]\nlog = "json"\ndrain_s = 1.0\n[retries]\nsame_target = 0'
    return "\n".join([head, f"[providers.{provider}]", *lines, ""])

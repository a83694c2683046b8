"""ByLines: a judge in a process of its own, asked by lines of JSON."""

import os
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

AskT = TypeVar("AskT", bound=Struct)
ReportT = TypeVar("ReportT", bound=Struct)

# Nothing of ours: neither a proxy, nor a key, nor where to send traces.
_KEPT = ("PATH", "HOME", "LANG", "SYSTEMROOT")
# More than any ask may take, its client's own timeout and retries included.
_TIMEOUT_S = 30.0
_END_S = 5.0


class ByLines(Generic[AskT, ReportT]):
    """A process that reads an ask a line and writes a report a line."""

    def __init__(self, command: Sequence[str | Path], home: Path, report: type[ReportT]) -> None:
        self._report = report
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._process = subprocess.Popen(
            command, cwd=home, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def ask(self, ask: AskT) -> ReportT:
        """Put it to the gateway."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(msgspec.json.encode(ask) + b"\n")
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([stdout], [], [], _TIMEOUT_S)
            assert ready, f"no report on {ask}"
            piece = os.read(stdout.fileno(), 1 << 20)
            assert piece, f"the judge has ended: {self._process.wait()}"
            line += piece
        return msgspec.json.decode(line, type=self._report)

    def close(self) -> None:
        """End it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

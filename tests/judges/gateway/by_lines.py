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
# More than any ask may take, its client's own timeout and retries included; and the first one, which has to wait until
# the packages are imported.
_TIMEOUT_S = 30.0
_FIRST_TIMEOUT_S = 120.0
_END_S = 0.2


class ByLines(Generic[AskT, ReportT]):
    """A process that reads an ask a line and writes a report a line.

    One that does not report in time is ended, and the next ask starts another: its late report would be taken for that
    of the next ask.
    """

    def __init__(self, command: Sequence[str | Path], home: Path, report: type[ReportT]) -> None:
        self._command, self._home, self._report = command, home, report
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, ask: AskT) -> ReportT:
        """Put it to the gateway."""
        timeout_s = _TIMEOUT_S if self._process else _FIRST_TIMEOUT_S
        process = self._process = self._process or self._started()
        line = b""
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(msgspec.json.encode(ask) + b"\n")
            while not line.endswith(b"\n"):
                ready, _, _ = select.select([process.stdout], [], [], timeout_s)
                assert ready, f"no report on {ask}"
                piece = os.read(process.stdout.fileno(), 1 << 20)
                assert piece, f"the judge has ended: {process.wait()}"
                line += piece
        except BaseException:
            process.kill()
            self.close()
            raise
        return msgspec.json.decode(line, type=self._report)

    def _started(self) -> "subprocess.Popen[bytes]":
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        pipe = subprocess.PIPE
        return subprocess.Popen(self._command, cwd=self._home, env=environment, stdin=pipe, stdout=pipe, bufsize=0)

    def close(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

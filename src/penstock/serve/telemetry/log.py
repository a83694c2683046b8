"""Log: one line per call and per message, on standard error. Never content, never secrets.

A line is JSON with the fields of `log_lines.py`, or text for people. A separate thread writes queued lines every 50 ms.
A new line wakes that thread only if the log has been idle for a second, so logging costs the event loop no system call
under load; a crash loses at most the lines of the last 50 ms. Standard error can block (a stopped terminal, a full
pipe) without blocking a stream: lines that do not fit the bounded queue are dropped, and a later line reports how many.

Several workers write to the same pipe or file. The kernel writes up to PIPE_BUF bytes atomically, so batches for a pipe
are no longer than that and contain whole lines; lines of different workers do not interleave.
"""

import os
import select
import stat
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from penstock.core.hub.repairs import by_level
from penstock.gateway.record.call import EMBEDDINGS, Call
from penstock.gateway.record.entry import Entry, Outcome
from penstock.serve.telemetry.log_lines import AttemptFields, CallLine, Level, MessageLine

_LEVELS: dict[Outcome, Level] = {"truncated": "warning", "failed": "warning", "timed_out": "warning"}
BATCH_S = 0.05
# After so many empty batches the thread sleeps until a line wakes it.
_IDLE_BATCHES = 20
_MAX_QUEUED = 10_000
_MAX_FILE_BATCH = 65_536
# A client chooses the model name, and could send megabytes.
_MAX_NAME = 200
_CLOSE_S = 1.0
# Of a traceback in the log: a recursion has a thousand.
_MAX_FRAMES = 40


def is_pretty(setting: str, descriptor: int) -> bool:
    """Whether lines are text for people, by the setting `server.log`; otherwise they are JSON."""
    return setting == "pretty" or (setting != "json" and os.isatty(descriptor))


def where(error: BaseException) -> str:
    """The type of an error and where it was raised. Not its message, which may contain content or secrets."""
    frames = traceback.extract_tb(error.__traceback__, limit=-_MAX_FRAMES)
    places = [f"{frame.filename}:{frame.lineno}" for frame in frames]
    return f"{type(error).__name__} at {' > '.join(places)}"


def write_now(descriptor: int, message: str, level: Level = "info", *, pretty: bool) -> None:
    """Write one line at once: for a process without a `Log`, because it forks or does not serve.

    Drops the line if the descriptor is not writable within a second.
    """
    _, writable, _ = select.select([], [descriptor], [], _CLOSE_S)
    if writable:
        os.write(descriptor, _message(message, level, pretty=pretty))


class Log:
    """Writes lines to a file descriptor that may block. A buffered stream's lock could block the exit of the process.

    All methods except `close` are thread-safe.
    """

    def __init__(self, descriptor: int, *, pretty: bool, enabled: bool = True, batch_s: float = BATCH_S) -> None:
        self._descriptor = descriptor
        self._pretty = pretty
        self._batch_s = batch_s
        self.enabled = enabled
        """Whether each call is logged."""
        self._max_batch = _MAX_FILE_BATCH if stat.S_ISREG(os.fstat(descriptor).st_mode) else select.PIPE_BUF
        self._queue: deque[bytes] = deque()
        self._dropped = 0
        self._idle = False
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="penstock-log")
        self._thread.start()

    def call(self, call: Call, entry: Entry, client: str) -> None:
        """Log a settled call. `client` is the client's address. The caller checks `enabled`."""
        line = _call_line(call, entry, client)
        self._put(_pretty_line(line) if self._pretty else _json_line(line))

    def write(self, message: str, level: Level = "info") -> None:
        """Log a message about the gateway itself."""
        self._put(_message(message, level, pretty=self._pretty))

    def warning(self, message: str) -> None:
        """Log a message about something that does not work."""
        self.write(message, "warning")

    def close(self) -> None:
        """Write the queued lines, for at most a second."""
        self._closing.set()
        self._wake.set()
        self._thread.join(timeout=_CLOSE_S)

    def _put(self, line: bytes) -> None:
        if len(self._queue) >= _MAX_QUEUED:
            self._dropped += 1
            return
        self._queue.append(line)
        if self._idle:
            self._wake.set()

    def _run(self) -> None:
        missing = reported = idle_batches = 0
        while True:
            self._closing.wait(self._batch_s)
            closing = self._closing.is_set()  # lines that are queued later may be lost
            lines = [self._queue.popleft() for _ in range(len(self._queue))]
            missing += self._write_lines(lines) + self._dropped - reported
            reported = self._dropped
            if missing and lines:
                message = f"{missing} lines of the log were dropped: standard error did not accept them in time"
                missing *= self._write_lines([_message(message, "warning", pretty=self._pretty)])
            if closing and not self._queue:
                return
            idle_batches = 0 if lines else idle_batches + 1
            if idle_batches == _IDLE_BATCHES:
                self._sleep()
                idle_batches = 0

    def _sleep(self) -> None:
        """Wait for the next line.

        No wake-up is missed: `_put` appends a line before it reads `_idle`; this sets `_idle` before
        it reads the queue.
        """
        self._wake.clear()
        self._idle = True
        if not self._queue and not self._closing.is_set():
            self._wake.wait()
        self._idle = False

    def _write_lines(self, lines: list[bytes]) -> int:
        """Write lines. Returns how many could not be written."""
        lost = 0
        for batch in _batches(lines, self._max_batch):
            rest = memoryview(b"".join(batch))
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:  # another process has made the pipe or terminal non-blocking
                    select.select([], [self._descriptor], [], BATCH_S)
                except OSError:  # the disk is full, or the reader has gone: both may change
                    lost += len(batch)
                    break
        return lost


def _batches(lines: list[bytes], max_bytes: int) -> Iterator[list[bytes]]:
    """Group lines into batches of at most `max_bytes`, in order. A longer line is a batch of its own."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and size + len(line) > max_bytes:
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield batch


def _now() -> str:
    return _written(int(time.time()))


@lru_cache(maxsize=1)
def _written(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


def _message(message: str, level: Level, *, pretty: bool) -> bytes:
    if pretty:
        return f"{message}\n".encode(errors="replace")
    return _json_line(MessageLine(time=_now(), level=level, message=message))


def _json_line(line: MessageLine | CallLine) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def _call_line(call: Call, entry: Entry, client: str) -> CallLine:
    progress, answers = call.progress, call.surface != EMBEDDINGS
    last = progress.attempts[-1] if progress.attempts else None
    usage = last.tokens or last.usage if last is not None else None
    repairs, findings, notices = by_level(entry.repairs) if entry.repairs else ({}, {}, {})
    targets = [f"{tried.provider}/{tried.model[:_MAX_NAME]}" for tried in progress.attempts]
    return CallLine(  # by position, which takes an eighth of the time
        _now(),
        _LEVELS.get(entry.outcome, "warning" if findings else "info"),
        call.id,
        client,
        call.key.name if call.key is not None else None,
        call.surface,
        call.model[:_MAX_NAME],
        call.stream,
        progress.status,
        entry.outcome,
        progress.code or None,
        last.provider if last else None,
        targets[-1] if last else None,
        [
            AttemptFields(
                target,
                tried.dialect if answers else None,
                tried.provider_key or None,
                tried.why[:_MAX_NAME],
                tried.client_credentials,
                tried.status,
                tried.code,
                _rounded(tried.seconds),
            )
            for target, tried in zip(targets, progress.attempts, strict=True)
        ],
        usage.input if usage else None,
        usage.output if usage else None,
        _rounded(progress.commit_s) if progress.commit_s is not None else None,
        _rounded(progress.total_s),
        repairs,
        findings,
        notices,
        list(progress.breakpoints),
        dict(entry.losses),
    )


def _rounded(seconds: float) -> float:
    """Seconds with four decimals. `round` takes eight times as long."""
    return int(seconds * 10_000 + 0.5) / 10_000


def _pretty_line(line: CallLine) -> bytes:
    parts = [
        time.strftime("%H:%M:%SZ", time.gmtime()),
        f"{line.status}",
        line.ending,
        line.model.encode("unicode_escape").decode(),
        f"→ {line.target}" if line.target and line.target != line.model else "",
        f"{line.input}+{line.output} tokens" if line.output is not None else "",
        f"first {line.first_event_s} s" if line.first_event_s is not None else "",
        f"total {line.total_s} s",
        f"({line.code})" if line.code else "",
        _codes("repairs", line.repairs),
        _codes("findings", line.findings),
        _codes("losses", line.losses),
        f"key {line.key}" if line.key else "",
        line.request_id,
    ]
    return ("  ".join(filter(None, parts)) + "\n").encode(errors="replace")


def _codes(name: str, counts: dict[str, int]) -> str:
    return f"{name} {', '.join(f'{code} ×{count}' for code, count in counts.items())}" if counts else ""

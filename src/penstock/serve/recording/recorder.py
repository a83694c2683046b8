"""Recorder: writes captures of providers' responses, in a thread of its own.

The relay never waits for the disk: a `RecordingReceiver` appends items to a queue that the thread empties ten times a
second. The queue is bounded by bytes; a capture whose item does not fit is discarded. A capture is stored complete or
not at all. Discarded captures are counted and reported in the log.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec import structs

from penstock.capture import CaptureEnd, Read
from penstock.gateway.config import Captures
from penstock.gateway.mask import Secrets
from penstock.gateway.relay.recording import Discarded, Item, RecordedHead, RecordedRequest, RecordingReceiver
from penstock.http.upstream_connection import Receiver
from penstock.serve.recording.capture_directory import CaptureDirectory
from penstock.serve.recording.capture_file import CaptureFile

_INTERVAL_S = 0.1
# After so many items, which take a fraction of a millisecond, the thread sleeps to release the GIL to the event loop.
_BATCH = 32
_SLEEP_S = 0.0002
# The bound of the queue, in bytes: several seconds of the most that one process relays.
_MAX_QUEUED = 33_554_432
_ITEM_BYTES = 300
# The buffer of a capture is written when it has so many bytes, or after so many seconds.
_FLUSH_BYTES = 65_536
_FLUSH_S = 2.0
# Larger request bodies contain images. They are omitted: the response is what matters.
_MAX_BODY = 1_000_000
_REPORT_INTERVAL_S = 10.0
_QUEUE_FULL = "they came faster than they could be written"


class Recorder:
    """Writes captures. Calls `warn` with what goes wrong."""

    def __init__(self, limits: Captures, warn: Callable[[str], None]) -> None:
        self.limits = limits
        self._warn = warn
        self._items: deque[tuple[RecordingReceiver, Item]] = deque()
        # Each counter has one writer, so no lock is needed: the first line the event loop's thread, the second ours.
        self._put_bytes = self._overflows = 0
        self._taken_bytes = self._overflows_reported = 0
        self._stopping = threading.Event()
        self._files: dict[RecordingReceiver, CaptureFile] = {}
        self._secrets: tuple[tuple[str, ...], Secrets] = ((), Secrets(()))
        self._directories: dict[str, CaptureDirectory] = {}
        self._discarded: Counter[str] = Counter()
        self._reported_at = -_REPORT_INTERVAL_S
        self._thread = threading.Thread(target=self._run, daemon=True, name="penstock-record")
        self._thread.start()

    # Called by the event loop's thread.

    def record(self, request: RecordedRequest, receiver: Receiver) -> RecordingReceiver:
        """Start to record an attempt. Returns a receiver for its response that passes everything on to `receiver`."""
        if len(request.body) > _MAX_BODY:
            request = structs.replace(request, body=b"", omitted=f"it has {len(request.body)} bytes")
        return RecordingReceiver(request, receiver, self._put, time.monotonic, self.limits.max_capture)

    def close(self) -> None:
        """Write the queued items, for at most two seconds."""
        self._stopping.set()
        self._thread.join(timeout=2.0)

    def _put(self, recording: RecordingReceiver, item: Item) -> bool:
        size = _size(item)
        if self._put_bytes - self._taken_bytes + size > _MAX_QUEUED and not isinstance(item, CaptureEnd | Discarded):
            self._overflows += 1
            if not isinstance(item, RecordedRequest):
                self._items.append((recording, Discarded()))
                self._put_bytes += _ITEM_BYTES
            return False
        self._put_bytes += size
        self._items.append((recording, item))
        return True

    # Runs in the recorder's thread.

    def _run(self) -> None:
        stopping = False
        while not stopping:
            stopping = self._stopping.wait(_INTERVAL_S)
            while self._items:
                for _ in range(min(len(self._items), _BATCH)):
                    recording, item = self._items.popleft()
                    self._taken_bytes += _size(item)
                    self._take(recording, item)
                time.sleep(_SLEEP_S)
            self._flush_files(all_files=stopping)
            for path, directory in self._directories.items():
                if directory.is_due(self.limits):
                    directory.prune(path, self.limits)
            self._report_discarded(at_once=stopping)

    def _take(self, recording: RecordingReceiver, item: Item) -> None:
        if isinstance(item, RecordedRequest):
            self._files[recording] = CaptureFile(item, self._secrets_of(item), self.limits.max_capture)
            return
        file = self._files.get(recording)
        if file is None:
            return  # it failed earlier, and was counted then
        try:
            match item:
                case RecordedHead():
                    file.begin(item)
                case Read():
                    file.add(item)
                    if len(file.buffer) >= _FLUSH_BYTES:
                        file.flush()
                case CaptureEnd():
                    file.end(item)
                    self._store(recording, file)
                case Discarded():
                    self._drop(recording, file)
        except (OSError, msgspec.DecodeError) as error:
            self._drop(recording, file, error)

    def _flush_files(self, *, all_files: bool) -> None:
        """Write buffers that are old enough; all when the process ends. Captures in progress then have no end."""
        now = time.monotonic()
        for recording, file in list(self._files.items()):
            if all_files or now - file.written_at >= _FLUSH_S:
                try:
                    file.flush()
                except OSError as error:
                    self._drop(recording, file, error)

    def _store(self, recording: RecordingReceiver, file: CaptureFile) -> None:
        file.flush()
        self._files.pop(recording, None)
        directory = self._directories.setdefault(str(file.path.parent), CaptureDirectory())
        directory.total += file.size

    def _drop(self, recording: RecordingReceiver, file: CaptureFile, error: Exception | None = None) -> None:
        self._files.pop(recording, None)
        if error is not None:
            self._discarded[getattr(error, "strerror", None) or str(error)] += 1
        with suppress(OSError):
            file.remove()

    def _secrets_of(self, request: RecordedRequest) -> Secrets:
        if self._secrets[0] != request.secrets:
            self._secrets = (request.secrets, Secrets(request.secrets))
        return self._secrets[1]

    def _report_discarded(self, *, at_once: bool) -> None:
        now = time.monotonic()
        if overflows := self._overflows - self._overflows_reported:
            self._overflows_reported += overflows
            self._discarded[_QUEUE_FULL] += overflows
        if self._discarded and (at_once or now - self._reported_at >= _REPORT_INTERVAL_S):
            for reason, count in self._discarded.items():
                captures = "1 capture was" if count == 1 else f"{count} captures were"
                self._warn(f"{captures} discarded: {reason}")
            self._discarded.clear()
            self._reported_at = now


def _size(item: Item) -> int:
    match item:
        case Read():
            return _ITEM_BYTES + len(item.data)
        case RecordedRequest():
            return _ITEM_BYTES + len(item.body)
        case _:
            return _ITEM_BYTES

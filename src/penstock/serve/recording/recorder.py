"""Recorder: keeps captures of what upstreams send, in a thread of its own.

The relay never waits: tapes put items where the thread finds them a few times a second, and what would make too much
of them wait is not kept. A capture is kept whole or not at all. What is not kept is counted, and said in the log.
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
from penstock.http.client import Receiver
from penstock.serve.recording.capture_directory import CaptureDirectory
from penstock.serve.recording.capture_file import CaptureFile

_EVERY_S = 0.1
# After so many items, which take a fraction of a millisecond, the thread rests, so that the loop's can go on.
_BATCH = 32
_REST_S = 0.0002
# What may wait for the thread, in bytes: a few seconds of more than one process relays.
_MAX_WAITING = 33_554_432
_ITEM_BYTES = 300
# A capture under way is written out when it has so many bytes, or is so old.
_FLUSH_BYTES = 65_536
_FLUSH_S = 2.0
# Larger ones hold pictures. The stream is what matters.
_MAX_BODY = 1_000_000
_SAY_EVERY_S = 10.0
_OVERFULL = "they came faster than they could be written"


class Recorder:
    """Takes what tapes bring, and writes it. `say` is told what goes wrong."""

    def __init__(self, limits: Captures, say: Callable[[str], None]) -> None:
        self.limits = limits
        self._say = say
        self._items: deque[tuple[RecordingReceiver, Item]] = deque()
        # Each is written by one thread only: those by the loop's, the others by ours.
        self._put_bytes = self._overfull = 0
        self._taken_bytes = self._overfull_told = 0
        self._stopping = threading.Event()
        self._files: dict[RecordingReceiver, CaptureFile] = {}
        self._secrets: tuple[tuple[str, ...], Secrets] = ((), Secrets(()))
        self._shelves: dict[str, CaptureDirectory] = {}
        self._not_kept: Counter[str] = Counter()
        self._said = -_SAY_EVERY_S
        self._thread = threading.Thread(target=self._run, daemon=True, name="penstock-record")
        self._thread.start()

    # What the loop's thread calls.

    def tape(self, asked: RecordedRequest, receiver: Receiver) -> RecordingReceiver:
        """A tape for an attempt whose request is sent now."""
        if len(asked.body) > _MAX_BODY:
            asked = structs.replace(asked, body=b"", omitted=f"it has {len(asked.body)} bytes")
        return RecordingReceiver(asked, receiver, self._put, time.monotonic, self.limits.max_capture)

    def close(self) -> None:
        """Write what is waiting, within two seconds."""
        self._stopping.set()
        self._thread.join(timeout=2.0)

    def _put(self, tape: RecordingReceiver, item: Item) -> bool:
        size = _size(item)
        if self._put_bytes - self._taken_bytes + size > _MAX_WAITING and not isinstance(item, CaptureEnd | Discarded):
            self._overfull += 1
            if not isinstance(item, RecordedRequest):
                self._items.append((tape, Discarded()))
                self._put_bytes += _ITEM_BYTES
            return False
        self._put_bytes += size
        self._items.append((tape, item))
        return True

    # What the recorder's own thread does.

    def _run(self) -> None:
        stopping = False
        while not stopping:
            stopping = self._stopping.wait(_EVERY_S)
            while self._items:
                for _ in range(min(len(self._items), _BATCH)):
                    tape, item = self._items.popleft()
                    self._taken_bytes += _size(item)
                    self._take(tape, item)
                time.sleep(_REST_S)
            self._write_out(everything=stopping)
            for directory, shelf in self._shelves.items():
                if shelf.is_due(self.limits):
                    shelf.tidy(directory, self.limits)
            self._say_what_is_missing(at_once=stopping)

    def _take(self, tape: RecordingReceiver, item: Item) -> None:
        if isinstance(item, RecordedRequest):
            self._files[tape] = CaptureFile(item, self._secrets_of(item), self.limits.max_capture)
            return
        file = self._files.get(tape)
        if file is None:
            return  # it could not be written, which has been counted
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
                    self._store(tape, file)
                case Discarded():
                    self._drop(tape, file)
        except (OSError, msgspec.DecodeError) as error:
            self._drop(tape, file, error)

    def _write_out(self, *, everything: bool) -> None:
        """Write what has waited long enough. Whatever is still under way when the process ends, ends cut off."""
        now = time.monotonic()
        for tape, file in list(self._files.items()):
            if everything or now - file.written_at >= _FLUSH_S:
                try:
                    file.flush()
                except OSError as error:
                    self._drop(tape, file, error)

    def _store(self, tape: RecordingReceiver, file: CaptureFile) -> None:
        file.flush()
        self._files.pop(tape, None)
        shelf = self._shelves.setdefault(str(file.path.parent), CaptureDirectory())
        shelf.total += file.size

    def _drop(self, tape: RecordingReceiver, file: CaptureFile, error: Exception | None = None) -> None:
        self._files.pop(tape, None)
        if error is not None:
            self._not_kept[getattr(error, "strerror", None) or str(error)] += 1
        with suppress(OSError):
            file.remove()

    def _secrets_of(self, asked: RecordedRequest) -> Secrets:
        if self._secrets[0] != asked.secrets:
            self._secrets = (asked.secrets, Secrets(asked.secrets))
        return self._secrets[1]

    def _say_what_is_missing(self, *, at_once: bool) -> None:
        now = time.monotonic()
        if overfull := self._overfull - self._overfull_told:
            self._overfull_told += overfull
            self._not_kept[_OVERFULL] += overfull
        if self._not_kept and (at_once or now - self._said >= _SAY_EVERY_S):
            for reason, count in self._not_kept.items():
                captures = "1 capture was" if count == 1 else f"{count} captures were"
                self._say(f"{captures} not kept: {reason}")
            self._not_kept.clear()
            self._said = now


def _size(item: Item) -> int:
    match item:
        case Read():
            return _ITEM_BYTES + len(item.data)
        case RecordedRequest():
            return _ITEM_BYTES + len(item.body)
        case _:
            return _ITEM_BYTES

"""Detection: finds the dialect of an answer by evidence in its first frames.

1. Every dialect that can be read and has a `Detector` counts the evidence for it: in each of the first frames, and in
   the path of the request and the content type, if a capture has them.
2. The dialect with the most points wins. On a tie, or without any points, the default dialect is assumed. Its reader
   also recognises the events of some dialects that are not registered.
3. Only the first frames count, at most `MAX_FRAMES` or `MAX_BYTES`. The caller buffers these bytes, and then feeds them
   to the reader of the detected dialect.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.core.dialects.dialect import Detector
from penstock.core.dialects.registry import DEFAULT_DIALECT, DIALECTS
from penstock.core.hub.events import Fault
from penstock.core.wire.frame import Frame, Framed
from penstock.core.wire.payload import TooComplexError, decode, is_too_deep
from penstock.core.wire.sniff import Sniffer

# A stream may begin with heartbeats, which are no evidence.
MAX_FRAMES = 16
# The maximum size of one event: an answer that is not streamed is one event.
MAX_BYTES = 1_000_000
# The bytes that are framed at a time. Most streams need no more.
_STEP = 16_384

FoundBy: TypeAlias = Literal["option", "capture", "events", "request", "default"]
"""How a dialect was found: named by the user (`option`) or by the capture's header, detected by the events or the
request, or assumed."""


class Detected(Struct, frozen=True):
    """The dialect of an answer, and how it was found."""

    dialect: str
    by: FoundBy


class Detection:
    """Detects the dialect of one answer by its beginning, however its bytes are split.

    `path` is that of the request and `content_type` that of the answer; each is empty if it is unknown.
    """

    def __init__(self, path: str = "", content_type: str = "") -> None:
        self._detectors: dict[str, Detector] = {
            name: dialect.detector
            for name, dialect in DIALECTS.items()
            if dialect.detector is not None and dialect.upstream is not None
        }
        exchanged = {name: DIALECTS[name].rate_exchange(path, content_type) for name in self._detectors}
        self._exchanged, self._framed = Counter(exchanged), Counter[str]()
        self._framer = Sniffer(MAX_BYTES)
        self._frames = self._size = 0
        self._enough = False

    def feed(self, data: bytes) -> bool:
        """Read bytes; return whether they are enough, so that no more need to be fed."""
        for start in range(0, len(data), _STEP):
            if self._enough:
                break
            step = data[start : start + _STEP]
            self._size += len(step)
            self._enough = self._look(self._framer.feed(step)) or self._size >= MAX_BYTES
        return self._enough

    def close(self) -> Detected:
        """Return the dialect, by the evidence so far."""
        if not self._enough:
            self._look(self._framer.close())
            self._enough = True
        points = self._framed + self._exchanged
        best = max(points.values(), default=0)
        leading = [name for name, count in points.items() if count == best]
        if len(leading) != 1:
            return Detected(DEFAULT_DIALECT, "default")
        return Detected(leading[0], "events" if self._framed[leading[0]] else "request")

    def _look(self, items: Iterable[Framed]) -> bool:
        """Count the evidence in frames; return whether they are enough."""
        for item in items:
            if isinstance(item, Fault):
                return True  # an HTML page, or no text at all
            if isinstance(item, Frame) and self._frames < MAX_FRAMES:
                self._frames += 1
                for value in _objects(item.data):
                    for name, detector in self._detectors.items():
                        self._framed[name] += detector.in_frame(value, item.event)
        return self._frames >= MAX_FRAMES


def detect(reads: Iterable[bytes], path: str = "", content_type: str = "") -> Detected:
    """The dialect of an answer whose bytes are available."""
    detection = Detection(path, content_type)
    for data in reads:
        if detection.feed(data):
            break
    return detection.close()


def _objects(data: bytes) -> Iterator[dict[str, object]]:
    """The JSON objects of a frame; none if it is not JSON, or would take too long to decode."""
    try:
        payload = None if is_too_deep(data) else decode(data)
    except TooComplexError:
        payload = None
    for value in payload.values[:MAX_FRAMES] if payload is not None else ():
        for each in value[:MAX_FRAMES] if isinstance(value, list) else (value,):
            if isinstance(each, dict):
                yield each

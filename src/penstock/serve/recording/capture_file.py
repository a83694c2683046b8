"""CaptureFile: one capture on its way to the disk, without secrets.

No request header is written, no query, and only the response headers of a list. Whatever secret the gateway knows is
masked, wherever it stands. The file is opened to be written to and closed again, so that a stream holds no descriptor.
"""

import os
import re
import time
import zlib
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from penstock.capture import CaptureEnd, CaptureHeader, CaptureRequest, CaptureWriter, How, Read
from penstock.gateway.mask import Secrets
from penstock.gateway.relay.recording import RecordedHead, RecordedRequest
from penstock.serve.recording.scrub import Scrubber, scrubbed

# Response headers that help to explain a stream, and hold no secret. All others are left out.
_KEPT = frozenset(
    (
        "cache-control",
        "cf-ray",
        "content-type",
        "date",
        "openai-processing-ms",
        "openai-version",
        "request-id",
        "retry-after",
        "retry-after-ms",
        "server",
        "via",
        "x-accel-buffering",
        "x-envoy-upstream-service-time",
        "x-request-id",
        "x-should-retry",
    )
)
_KEPT_PREFIXES = ("ratelimit-", "x-ratelimit-", "anthropic-ratelimit-")
_MAX_VALUE = 1_000
_DECODERS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._]+")
# The names that the recorder gives, and no others, are those of files that it may remove again.
NAMES = re.compile(r"\d{8}T\d{6}\.\d{3}Z-.+\.capture")


class CaptureFile:
    """Gathers what a tape brings, and appends it to a file when `flush` is called. Raises `OSError`."""

    def __init__(self, asked: RecordedRequest, secrets: Secrets, max_bytes: int) -> None:
        self._asked = asked
        self._secrets = secrets
        self._scrubber = Scrubber(secrets)
        self._writer = CaptureWriter()
        self._unpack: _BoundedDecompressor | None = None
        self._begun = False
        self._created = False
        self._how: How | None = None
        self._max_bytes = max_bytes
        self.path = Path(os.path.expanduser(asked.directory)) / _name(asked, secrets)
        self.buffer = bytearray()
        self.size = 0
        self.written_at = time.monotonic()

    def begin(self, head: RecordedHead | None) -> None:
        """The head has come, or never will."""
        self._begun = True
        asked, self._asked = self._asked, structs.replace(self._asked, body=b"")
        headers = head.headers if head is not None else {}
        coding = headers.get("content-encoding", "").lower()
        if coding in _DECODERS:
            self._unpack = _BoundedDecompressor(_DECODERS[coding], self._max_bytes)
        header = CaptureHeader(
            at=_stamp(asked.at, "%Y-%m-%dT%H:%M:%S", 6),
            call=asked.call,
            attempt=asked.attempt,
            provider=asked.provider,
            model=asked.model,
            dialect=asked.dialect,
            request=_request(asked),
            status=head.status if head is not None else None,
            head_s=round(head.at_s, 6) if head is not None else None,
            headers={name: self._masked(value)[:_MAX_VALUE] for name, value in headers.items() if _is_kept(name)},
        )
        try:
            self.buffer += self._writer.begin(scrubbed(msgspec.json.encode(header), self._secrets))
        except msgspec.DecodeError:  # a secret that looks like JSON went over the seams of the body
            asked = structs.replace(asked, body=b"", omitted="a secret went over its seams")
            header = structs.replace(header, request=_request(asked))
            self.buffer += self._writer.begin(scrubbed(msgspec.json.encode(header), self._secrets))

    def add(self, read: Read) -> None:
        """A read has come. One that is compressed is kept unpacked: no secret could be found in it otherwise."""
        data = read.data
        if self._unpack is not None:
            try:
                data = self._unpack(data)
            except zlib.error:
                self._how = "invalid"
            except OverflowError:
                self._how = "limit"
        if data and self._how is None:
            self._write(self._scrubber.feed(Read(read.at_s, data)))

    def end(self, closing: CaptureEnd) -> None:
        """Nothing more will come."""
        if not self._begun:
            self.begin(None)
        self._write(self._scrubber.close())
        self.buffer += self._writer.end(CaptureEnd(closing.at_s, self._how or closing.how))

    def flush(self) -> None:
        """Append to the file what has gathered."""
        self.written_at = time.monotonic()
        if not self.buffer:
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.path, flags if self._created else flags | os.O_CREAT | os.O_EXCL, 0o600)
        self._created = True
        try:
            view = memoryview(bytes(self.buffer))
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
        self.size += len(self.buffer)
        self.buffer.clear()

    def remove(self) -> None:
        """Leave nothing of it."""
        if self._created:
            self.path.unlink(missing_ok=True)

    def _masked(self, text: str) -> str:
        return scrubbed(text.encode(), self._secrets).decode()

    def _write(self, reads: list[Read]) -> None:
        for read in reads:
            self.buffer += self._writer.read(read)


class _BoundedDecompressor:
    """Compressed reads → what they hold, up to a limit: no bomb goes off."""

    def __init__(self, window: int, max_bytes: int) -> None:
        self._window = window
        self._decoder = zlib.decompressobj(window)
        self._room = max_bytes

    def __call__(self, data: bytes) -> bytes:
        """Raises `zlib.error`, and `OverflowError` beyond the limit."""
        unpacked = b""
        while data:
            unpacked += self._decoder.decompress(data, self._room + 1)
            if len(unpacked) > self._room:
                raise OverflowError
            data = self._decoder.unused_data  # a member of its own
            if data:
                self._decoder = zlib.decompressobj(self._window)
        self._room -= len(unpacked)
        return unpacked


def _request(asked: RecordedRequest) -> CaptureRequest:
    """Without the query, which may hold a key, and without a body that was left out."""
    body = msgspec.Raw(asked.body) if asked.body else None
    return CaptureRequest(method="POST", path=urlsplit(asked.url).path, body=body, omitted=asked.omitted)


def _is_kept(name: str) -> bool:
    return name in _KEPT or name.startswith(_KEPT_PREFIXES)


def _name(asked: RecordedRequest, secrets: Secrets) -> str:
    """What the file is called: when, who, which call. In the order of time, and nobody else's."""
    model = scrubbed(asked.model.encode(), secrets).decode()  # which a client may have put anything into
    words = (f"{asked.provider}-{model[:60]}", asked.call, str(asked.attempt))
    named = "-".join(_NOT_IN_NAMES.sub("-", word) for word in words)
    return f"{_stamp(asked.at, '%Y%m%dT%H%M%S', 3)}-{named}.capture"


def _stamp(at: float, form: str, digits: int) -> str:
    fraction = int(at % 1 * 10**digits)
    return f"{time.strftime(form, time.gmtime(at))}.{fraction:0{digits}d}Z"

"""CaptureFile: writes one capture to a file, without secrets.

Request headers and the query are not written, and only the response headers of an allow-list. Every secret that the
gateway knows is masked, wherever it occurs. The file is opened for each write and closed again, so that thousands of
streams do not use up the file descriptors.
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
from penstock.http.decompression import Decompressor, can_decompress
from penstock.serve.recording.scrub import Scrubber, scrubbed

# Response headers that help to explain a stream and contain no secret. All others are omitted.
_ALLOWED = frozenset(
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
        "x-amzn-errortype",
        "x-amzn-requestid",
        "x-envoy-upstream-service-time",
        "x-request-id",
        "x-should-retry",
    )
)
_ALLOWED_PREFIXES = ("ratelimit-", "x-ratelimit-", "anthropic-ratelimit-")
_MAX_HEADER_CHARS = 1_000
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._]+")
# The naming scheme of captures. Only files with such a name are ever removed.
NAMES = re.compile(r"\d{8}T\d{6}\.\d{3}Z-.+\.capture")


class CaptureFile:
    """Buffers the items of one recording, and appends them to the file when `flush` is called. Raises `OSError`."""

    def __init__(self, request: RecordedRequest, secrets: Secrets, max_bytes: int) -> None:
        self._request = request
        self._secrets = secrets
        self._scrubber = Scrubber(secrets)
        self._writer = CaptureWriter()
        self._decompress: _BoundedDecompressor | None = None
        self._has_head = False
        self._created = False
        self._how: How | None = None
        self._max_bytes = max_bytes
        self.path = Path(os.path.expanduser(request.directory)) / _name(request, secrets)
        self.buffer = bytearray()
        self.size = 0
        self.written_at = time.monotonic()

    def begin(self, head: RecordedHead | None) -> None:
        """Write the capture's header. `head` is None if the provider sent no response head."""
        self._has_head = True
        request, self._request = self._request, structs.replace(self._request, body=b"")
        headers = head.headers if head is not None else {}
        coding = headers.get("content-encoding", "")
        if can_decompress(coding):
            self._decompress = _BoundedDecompressor(coding, self._max_bytes)
        header = CaptureHeader(
            at=_stamp(request.at, "%Y-%m-%dT%H:%M:%S", 6),
            call=request.call,
            attempt=request.attempt,
            provider=request.provider,
            model=request.model,
            dialect=request.dialect,
            request=_capture_request(request),
            status=head.status if head is not None else None,
            head_s=round(head.at_s, 6) if head is not None else None,
            headers={
                name: self._masked(value)[:_MAX_HEADER_CHARS] for name, value in headers.items() if _is_allowed(name)
            },
        )
        try:
            self.buffer += self._writer.begin(scrubbed(msgspec.json.encode(header), self._secrets))
        except msgspec.DecodeError:  # a secret with JSON syntax spanned the end of the body
            request = structs.replace(request, body=b"", omitted="a secret spanned the end of the body")
            header = structs.replace(header, request=_capture_request(request))
            self.buffer += self._writer.begin(scrubbed(msgspec.json.encode(header), self._secrets))

    def add(self, read: Read) -> None:
        """Add a read. Compressed data is stored decompressed, because secrets can be found and masked only there."""
        data = read.data
        if self._decompress is not None:
            try:
                data = self._decompress(data)
            except zlib.error:
                self._how = "invalid"
            except OverflowError:
                self._how = "limit"
        if data and self._how is None:
            self._write(self._scrubber.feed(Read(read.at_s, data)))

    def end(self, closing: CaptureEnd) -> None:
        """Write the end of the capture."""
        if not self._has_head:
            self.begin(None)
        self._write(self._scrubber.close())
        self.buffer += self._writer.end(CaptureEnd(closing.at_s, self._how or closing.how))

    def flush(self) -> None:
        """Append the buffer to the file."""
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
        """Delete the file."""
        if self._created:
            self.path.unlink(missing_ok=True)

    def _masked(self, text: str) -> str:
        return scrubbed(text.encode(), self._secrets).decode()

    def _write(self, reads: list[Read]) -> None:
        for read in reads:
            self.buffer += self._writer.read(read)


class _BoundedDecompressor:
    """Decompresses reads, up to a total number of bytes: a decompression bomb must not exhaust the memory."""

    def __init__(self, coding: str, max_bytes: int) -> None:
        self._decompressor = Decompressor(coding)
        self._room = max_bytes

    def __call__(self, data: bytes) -> bytes:
        """Raises `zlib.error`, and `OverflowError` beyond the limit."""
        blocks = []
        for block in self._decompressor.blocks(data):
            blocks.append(block)
            self._room -= len(block)
            if self._room < 0:
                raise OverflowError
        return b"".join(blocks)


def _capture_request(request: RecordedRequest) -> CaptureRequest:
    """The request without its query, which may contain a key."""
    body = msgspec.Raw(request.body) if request.body else None
    return CaptureRequest(method="POST", path=urlsplit(request.url).path, body=body, omitted=request.omitted)


def _is_allowed(name: str) -> bool:
    return name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)


def _name(request: RecordedRequest, secrets: Secrets) -> str:
    """The file name: time, provider, model, call and attempt. Sorts by time, and is unique."""
    model = scrubbed(request.model.encode(), secrets).decode()  # chosen by the client, so it may contain anything
    target = _NOT_IN_NAMES.sub("-", f"{request.provider}-{model[:60]}")
    return f"{_stamp(request.at, '%Y%m%dT%H%M%S', 3)}-{target}{suffix(request.call, request.attempt)}"


def suffix(call: str, attempt: int) -> str:
    """The end of the file name, which tells the attempts of all calls apart."""
    return f"-{_NOT_IN_NAMES.sub('-', call)}-{attempt}.capture"


def _stamp(at: float, form: str, digits: int) -> str:
    fraction = int(at % 1 * 10**digits)
    return f"{time.strftime(form, time.gmtime(at))}.{fraction:0{digits}d}Z"

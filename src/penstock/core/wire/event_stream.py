"""AWS event stream: binary messages with checksums, as Amazon Bedrock sends them.

A message is, with all integers in big-endian order:

    total length (4 bytes) · length of the headers (4) · CRC-32 of these 8 bytes (4)
    headers · payload
    CRC-32 of everything before it (4)

A header is the length of its name (1), the name, its type (1) and a value, whose length depends on the type. The
header `:message-type` distinguishes three kinds of messages:

| kind | becomes a frame with the event name | and the data |
|---|---|---|
| `event` | the value of `:event-type` | the payload |
| `exception` | `error` | the payload, with the value of `:exception-type` as its member `__type` |
| `error` | `error` | the values of `:error-message` and `:error-code`, as `message` and `__type` |

`__type` is the member that names the type of an error in the JSON protocols of AWS.

The payload is JSON, in which bytes are written in base64. An event of the type `chunk` holds only bytes: the part of
another stream (`{"bytes": "…"}`). The data of its frame are these bytes.

A wrong checksum, or lengths that do not fit together, are a fault. Nothing after it is read: where the next message
begins would be a guess. The line of a frame is the number of its message.
"""

from binascii import a2b_base64, crc32
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from penstock.core.hub.events import Fault
from penstock.core.wire.frame import Frame, Framed

PRELUDE = 12
"""The bytes before the headers: two lengths and their checksum."""
CHUNK = "chunk"
"""The type of an event that holds a part of another stream."""
_CHECKSUM = 4
_OVERHEAD = PRELUDE + _CHECKSUM
# Larger messages do not exist: AWS allows 24 MB of payload and 128 KB of headers.
_MAX_TOTAL = 1 << 25
_MAX_HEADERS = 1 << 17
# The sizes of header values by their types; two of them begin with their length.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_TEXT = 7
_WITH_LENGTH = (6, _TEXT)


def is_prelude(data: bytes) -> bool:
    """Whether these bytes can begin a message: the lengths fit together. The checksum is not examined."""
    total, headers = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
    return _OVERHEAD + headers <= total <= _MAX_TOTAL and headers <= _MAX_HEADERS


class EventStreamReader:
    """Splits an AWS event stream into frames."""

    name = "event-stream"
    cut = False

    def __init__(self, max_event: int) -> None:
        self._max_event = max_event
        self._buffer = bytearray()
        self._offset = 0
        self._messages = 0
        self._dead = False

    def feed(self, data: bytes) -> list[Framed]:
        """Read bytes; return the frames of the messages that they complete."""
        items: list[Framed] = []
        if self._dead:
            return items
        self._buffer += data
        start = 0
        while (left := len(self._buffer) - start) >= PRELUDE:
            prelude = bytes(self._buffer[start : start + PRELUDE])
            total = int.from_bytes(prelude[:4], "big")
            if int.from_bytes(prelude[8:], "big") != crc32(prelude[:8]):
                self._fault(items, "event-stream-damaged", "the checksum of a message's lengths is wrong")
            elif not is_prelude(prelude):
                self._fault(items, "event-stream-damaged", "the lengths of a message do not fit together")
            elif total > self._max_event:
                self._fault(items, "event-too-large", f"an event exceeds {self._max_event} bytes")
            elif left < total:
                break
            else:
                self._read(bytes(self._buffer[start : start + total]), items)
                start += total
                self._offset += total
                self._messages += 1
        del self._buffer[:start]
        return items

    def close(self) -> list[Framed]:
        """End the stream: sets `cut` if it stops in the middle of a message."""
        self.cut = bool(self._buffer)
        return []

    def _read(self, message: bytes, items: list[Framed]) -> None:
        if int.from_bytes(message[-_CHECKSUM:], "big") != crc32(message[:-_CHECKSUM]):
            self._fault(items, "event-stream-damaged", "the checksum of a message is wrong")
            return
        end = PRELUDE + int.from_bytes(message[4:8], "big")
        try:
            headers = _headers(message[PRELUDE:end])
        except (ValueError, IndexError):
            self._fault(items, "event-stream-damaged", "the headers of a message cannot be read")
            return
        kind, data = headers.get(":message-type", "event"), message[end:-_CHECKSUM]
        event = headers.get(":event-type", "")
        if kind == "exception":
            event, data = "error", _exception(data, headers.get(":exception-type", ""))
        elif kind == "error":
            message = msgspec.json.encode({"message": headers.get(":error-message", "")})
            event, data = "error", _exception(message, headers.get(":error-code", ""))
        elif event == CHUNK:
            data = _bytes_in(data)
        items.append(Frame(data, self._offset, self._messages + 1, event))

    def _fault(self, items: list[Framed], code: str, message: str) -> None:
        items.append(Fault(code, message, self._offset, self._messages + 1))
        self._dead = True
        self._buffer.clear()


def _exception(payload: bytes, type: str) -> bytes:
    """The payload of an exception, with its type; the payload itself if it is no JSON object."""
    try:
        members = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):
        return payload
    return msgspec.json.encode({"__type": type} | members)


class _Chunk(Struct):
    """The payload of an event that holds bytes."""

    bytes: str


_CHUNKS = msgspec.json.Decoder(_Chunk)


def _bytes_in(payload: bytes) -> bytes:
    """The bytes in the payload of a `chunk`; the payload itself if it has none."""
    try:
        return a2b_base64(_CHUNKS.decode(payload).bytes, strict_mode=True)
    except (ValueError, RecursionError):
        return payload


def _headers(data: bytes) -> dict[str, str]:
    """The headers with text; raises `ValueError` or `IndexError` if they cannot be read."""
    headers: dict[str, str] = {}
    position = 0
    while position < len(data):
        end = position + 1 + data[position]
        name, type = data[position + 1 : end].decode(), data[end]
        position = end + 1
        if type in _WITH_LENGTH:
            size = int.from_bytes(data[position : position + 2], "big")
            position += 2
        elif type in _SIZES:
            size = _SIZES[type]
        else:
            raise ValueError(f"a header of the type {type}")
        value = data[position : position + size]
        position += size
        if position > len(data):
            raise ValueError("a header that is longer than the headers")
        if type == _TEXT:
            headers[name] = value.decode()
    return headers


def write_message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """A message with these headers, all of them text, and this payload."""
    written = b"".join(_header(name.encode(), value.encode()) for name, value in headers.items())
    return _message(written, payload)


def payload_of(message: bytes) -> bytes:
    """The payload of a whole message."""
    return message[PRELUDE + int.from_bytes(message[4:8], "big") : -_CHECKSUM]


def with_payload(message: bytes, payload: bytes) -> bytes:
    """The message with the same headers and another payload."""
    return _message(message[PRELUDE : PRELUDE + int.from_bytes(message[4:8], "big")], payload)


def _header(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + bytes((_TEXT,)) + len(value).to_bytes(2, "big") + value


def _message(headers: bytes, payload: bytes) -> bytes:
    total = _OVERHEAD + len(headers) + len(payload)
    lengths = total.to_bytes(4, "big") + len(headers).to_bytes(4, "big")
    checked = lengths + crc32(lengths).to_bytes(_CHECKSUM, "big") + headers + payload
    return checked + crc32(checked).to_bytes(_CHECKSUM, "big")

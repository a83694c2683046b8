"""AWS event streams: builders of messages."""

import json
from base64 import b64encode
from binascii import crc32

from tests.streams import Json


def message(payload: bytes, **headers: str) -> bytes:
    """A message with this payload; `event_type="x"` becomes the header `:event-type`."""
    return framed(b"".join(header(f":{name}".replace("_", "-"), value) for name, value in headers.items()), payload)


def framed(headers: bytes, payload: bytes) -> bytes:
    """A message with these headers and this payload."""
    body = prelude(len(headers) + len(payload) + 16, len(headers)) + headers + payload
    return body + crc32(body).to_bytes(4, "big")


def prelude(total: int, headers: int = 0) -> bytes:
    """The beginning of a message: its lengths, and their checksum."""
    lengths = total.to_bytes(4, "big") + headers.to_bytes(4, "big")
    return lengths + crc32(lengths).to_bytes(4, "big")


def header(name: str, value: str, type: int = 7) -> bytes:
    """A header, usually with text."""
    written = value.encode()
    return bytes((len(name),)) + name.encode() + bytes((type,)) + len(written).to_bytes(2, "big") + written


def event(type: str, value: Json) -> bytes:
    """An event with this JSON."""
    payload = json.dumps(value, ensure_ascii=False).encode()
    return message(payload, event_type=type, content_type="application/json", message_type="event")


def exception(type: str, words: str) -> bytes:
    """An exception."""
    payload = json.dumps({"message": words}).encode()
    return message(payload, exception_type=type, content_type="application/json", message_type="exception")


def chunk(value: Json) -> bytes:
    """An event that holds the bytes of this JSON."""
    return event("chunk", {"bytes": b64encode(json.dumps(value).encode()).decode(), "p": "abcdef"})


def chunks(wire: bytes) -> bytes:
    """Server-sent events with JSON, each as the bytes in an event."""
    lines = [line.removeprefix(b"data: ") for line in wire.split(b"\n") if line.startswith(b"data: {")]
    return b"".join(chunk(json.loads(line)) for line in lines)

"""AWS event streams: builders of messages."""

import json
from base64 import b64encode
from binascii import crc32

from tests.streams import Json


def message(payload: bytes, **headers: str) -> bytes:
    """A message with this payload; `event_type="x"` becomes the header `:event-type`."""
    head = b"".join(
        bytes((len(name) + 1,)) + f":{name}".replace("_", "-").encode() + b"\7" + len(value).to_bytes(2, "big") + value
        for name, value in ((name, value.encode()) for name, value in headers.items())
    )
    lengths = (len(head) + len(payload) + 16).to_bytes(4, "big") + len(head).to_bytes(4, "big")
    body = lengths + crc32(lengths).to_bytes(4, "big") + head + payload
    return body + crc32(body).to_bytes(4, "big")


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

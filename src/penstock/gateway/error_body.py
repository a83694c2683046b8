"""ErrorBody: what the body of a provider's error says: the provider's own words, and an envelope for the client.

- It may be compressed, although nothing compressed was asked for: it is unpacked, but not further than it is read.
- It may be a list of one error, as Gemini answers: the client gets the error itself, in OpenAI's envelope.
- It may be no JSON at all: a text is taken for words, a page for nothing.
"""

import zlib

import msgspec
from msgspec import Struct

from penstock.core.dialects.openai_errors import read_error

# So much of an error is read, packed and unpacked.
MAX_ERROR_BODY = 65_536
_GZIP = (16 + zlib.MAX_WBITS,)
# What is called deflate has a head, or has none.
_WINDOWS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": (zlib.MAX_WBITS, -zlib.MAX_WBITS)}


class ErrorBody(Struct, frozen=True):
    """What an error says. `envelope` is empty where it has none; `unreadable` is why it says nothing."""

    words: str = ""
    envelope: bytes = b""
    unreadable: str = ""


def read_body(body: bytes, coding: str = "") -> ErrorBody:
    """What the body of an error says that came with this `Content-Encoding`."""
    body = body[:MAX_ERROR_BODY]
    coding = coding.strip().lower()
    if coding not in ("", "identity") and not _is_in_the_clear(body):
        unpacked = _unpacked(body, coding)
        if unpacked is None:
            why = f", with a body that cannot be read: it is encoded as {coding}, which was not asked for"
            return ErrorBody(unreadable=why if body else "")
        body = unpacked
    try:
        return _read_json(body, msgspec.json.decode(body))
    except (ValueError, RecursionError):
        text = body.decode(errors="replace").strip()
        return ErrorBody("" if text.startswith("<") else text)


def _is_in_the_clear(body: bytes) -> bool:
    """Whether it is JSON, whatever its headers say: proxies unpack bodies and forget to say so."""
    return body.lstrip()[:1] in (b"{", b"[")


def _unpacked(body: bytes, coding: str) -> bytes | None:
    """The body in the clear, no more of it than is read; None where it cannot be unpacked."""
    for window in _WINDOWS.get(coding, ()):
        try:
            return zlib.decompressobj(window).decompress(body, MAX_ERROR_BODY)
        except zlib.error:
            continue
    return None


def _read_json(body: bytes, parsed: object) -> ErrorBody:
    if isinstance(parsed, list):
        first = parsed[0] if parsed else None
        if not isinstance(first, dict) or not isinstance(first.get("error"), dict) or not first["error"]:
            return ErrorBody()
        words = _words(first)
        error = {"type": "invalid_request_error", "param": None, "code": None} | first["error"] | {"message": words}
        return ErrorBody(words, msgspec.json.encode({"error": error}))
    if not isinstance(parsed, dict):
        return ErrorBody()
    return ErrorBody(_words(parsed), body if isinstance(parsed.get("error"), dict) else b"")


def _words(parsed: dict[str, object]) -> str:
    error = read_error(parsed, "error")
    return error[0] if error else ""

"""ErrorBody: what the body of a provider's error says: the provider's own words, and an envelope for the client.

- It may be compressed, although nothing compressed was asked for: it is unpacked, but not further than it is read.
- It may be a list of one error, as Gemini answers: the client gets the error itself, in OpenAI's envelope.
- It may be no JSON at all: a text is taken for words, a page for nothing.
"""

import msgspec
from msgspec import Struct

from penstock.core.dialects.openai_chat.errors import read_error
from penstock.core.wire.complexity import outline_of
from penstock.core.wire.payload import is_json
from penstock.gateway.unpacking import is_packed, unpacked

# So much of an error is read, packed and unpacked.
MAX_ERROR_BODY = 65_536
# A larger one is not passed on as it is, only its words: to look for secrets in it would hold up other calls.
_MAX_PASSED_ON = 4_096


class ErrorBody(Struct, frozen=True):
    """What an error says. `envelope` is empty where it has none; `unreadable` is why it says nothing."""

    words: str = ""
    envelope: bytes = b""
    unreadable: str = ""


def read_body(body: bytes, coding: str = "") -> ErrorBody:
    """What the body of an error says that came with this `Content-Encoding`."""
    body = body[:MAX_ERROR_BODY]
    if is_packed(coding) and not _is_in_the_clear(body):
        clear = unpacked(body, coding, MAX_ERROR_BODY)
        if clear is None:
            why = f", with a body that cannot be read: it is encoded as {coding}, which was not asked for"
            return ErrorBody(unreadable=why if body else "")
        body = clear.data
    if not outline_of(body).is_costly():  # else it is a text, however much it looks like JSON
        try:
            return _read_json(body, msgspec.json.decode(body))
        except (ValueError, RecursionError):
            pass
    text = body.decode(errors="replace").strip()
    return ErrorBody("" if text.startswith("<") else text)


def _is_in_the_clear(body: bytes) -> bool:
    """Whether it is JSON, whatever its headers say: proxies unpack bodies and forget to say so."""
    return is_json(body)


def _read_json(body: bytes, parsed: object) -> ErrorBody:
    if isinstance(parsed, list):
        first = parsed[0] if parsed else None
        if not isinstance(first, dict) or not isinstance(first.get("error"), dict) or not first["error"]:
            return ErrorBody()
        words = _words(first)
        error = {"type": "invalid_request_error", "param": None, "code": None} | first["error"] | {"message": words}
        return ErrorBody(words, msgspec.json.encode({"error": error}) if len(body) <= _MAX_PASSED_ON else b"")
    if not isinstance(parsed, dict):
        return ErrorBody()
    passed_on = isinstance(parsed.get("error"), dict) and len(body) <= _MAX_PASSED_ON
    return ErrorBody(_words(parsed), body if passed_on else b"")


def _words(parsed: dict[str, object]) -> str:
    error = read_error(parsed, "error")
    return error[0] if error else ""

"""ErrorBody: what the body of a provider's error says: the provider's own words, and an envelope for the client.

- It may be compressed, although nothing compressed was asked for: it is unpacked, but not further than it is read.
- It may be no JSON at all: a text is taken for words, a page for nothing.
- What its JSON says is for the provider's dialect to know.
"""

from msgspec import Struct

from penstock.core.dialects.registry import DEFAULT_DIALECT, upstream_dialect
from penstock.core.wire.complexity import outline_of
from penstock.core.wire.payload import is_json
from penstock.gateway.relay.decompression import decompress, is_compressed

# So much of an error is read, packed and unpacked. Of a larger one the client gets the beginning, as a text.
MAX_ERROR_BODY = 65_536


class ErrorBody(Struct, frozen=True):
    """What an error says. `envelope` is empty where it has none; `unreadable` is why it says nothing."""

    words: str = ""
    envelope: bytes = b""
    unreadable: str = ""


def read_body(body: bytes, coding: str = "", dialect: str = DEFAULT_DIALECT) -> ErrorBody:
    """What the body of an error says that came with this `Content-Encoding` from a provider of this dialect."""
    body = body[:MAX_ERROR_BODY]
    if is_compressed(coding) and not _is_in_the_clear(body):
        clear = decompress(body, coding, MAX_ERROR_BODY)
        if clear is None:
            why = f", with a body that cannot be read: it is encoded as {coding}, which was not asked for"
            return ErrorBody(unreadable=why if body else "")
        body = clear.data
    if not outline_of(body).is_costly():  # else it is a text, however much it looks like JSON
        try:
            error = upstream_dialect(dialect).read_error(body)
        except (ValueError, RecursionError):
            pass
        else:
            return ErrorBody(error.message, error.envelope)
    text = body.decode(errors="replace").strip()
    return ErrorBody("" if text.startswith("<") else text)


def _is_in_the_clear(body: bytes) -> bool:
    """Whether it is JSON, whatever its headers say: proxies unpack bodies and forget to say so."""
    return is_json(body)

"""ErrorBody: the parsed body of a provider's error response: its message, and an envelope for the client.

- The body may be compressed, although the request does not accept that. It is decompressed up to `MAX_ERROR_BODY`.
- The body may not be JSON. A plain text is the message; an HTML page is ignored.
- The provider's dialect reads its JSON.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from penstock.core.dialects.registry import DEFAULT_DIALECT, upstream_dialect
from penstock.core.provider_errors.error_shapes import codes_of
from penstock.core.wire.complexity import outline_of
from penstock.core.wire.payload import is_json
from penstock.http.decompression import decompress, is_compressed

# In bytes, before and after decompression. The client gets the beginning of a larger error, as text.
MAX_ERROR_BODY = 65_536


class ErrorBody(Struct, frozen=True):
    """A parsed error. `envelope` is empty if the body is not JSON; `unreadable` is why there is no message.

    `status` and `retry_after` are those of `ProviderError`.
    """

    words: str = ""
    envelope: bytes = b""
    unreadable: str = ""
    status: int = 0
    retry_after: str = ""
    codes: Sequence[str] = ()
    """The words by which the error names its kind: see `codes_of`."""


def read_body(body: bytes, coding: str = "", dialect: str = DEFAULT_DIALECT) -> ErrorBody:
    """Parse an error body with this `Content-Encoding` from a provider of this dialect."""
    body = body[:MAX_ERROR_BODY]
    if is_compressed(coding) and not _is_in_the_clear(body):
        clear = decompress(body, coding, MAX_ERROR_BODY)
        if clear is None:
            why = f", with a body that cannot be read: it is encoded as {coding}, which was not requested"
            return ErrorBody(unreadable=why if body else "")
        body = clear.data
    if not outline_of(body).is_costly():  # else it is treated as text, even if it looks like JSON
        try:
            error = upstream_dialect(dialect).read_error(body)
        except (ValueError, RecursionError):
            pass
        else:
            parsed = msgspec.json.decode(body)
            whole = parsed[0] if isinstance(parsed, list) and parsed else parsed
            return ErrorBody(
                error.message,
                error.envelope,
                status=error.status,
                retry_after=error.retry_after,
                codes=codes_of(whole) if isinstance(whole, dict) else (),
            )
    text = body.decode(errors="replace").strip()
    return ErrorBody("" if text.startswith("<") else text)


def _is_in_the_clear(body: bytes) -> bool:
    """Whether the body is JSON, despite its headers: some proxies decompress bodies and leave `Content-Encoding`."""
    return is_json(body)

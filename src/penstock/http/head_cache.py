"""CachedHead: recognises a request whose head is the same, byte for byte, as that of the last request on a connection.

Why: a client repeats its head with every request of a connection; only the digits of Content-Length change. Parsing the
head, and everything that the gateway derives from it (path, key digest, host check: `serve/request_head.py`), depends
on nothing but its bytes. So for the same bytes the result is the same, and is reused instead of computed again.

Why it is safe (in particular against request smuggling):

1. Equality is decided by the bytes alone. `body_of` builds the expected head with the length of the received body and
   compares it as a whole. So the length must be the canonical decimal number of exactly the bytes that follow. A head
   that differs in one byte, a length with a leading zero, a pipelined second request: all of these do not match and
   take the normal path through the parser.
2. Only heads that the parser itself has accepted are cached, and only plain ones: HTTP/1.1, POST, exactly one
   Content-Length, no Transfer-Encoding, Expect or Upgrade, printable ASCII, keep-alive. No header that changes the
   framing of the body can be among the cached bytes.
3. The parser stays in step. The cache is used only between two requests: llhttp has finished a message on a keep-alive
   connection, and no other byte has arrived since (otherwise `ServerConnection` drops the cache). A request that
   matches bypasses the parser completely, so the parser is still between two messages. A request that arrives in
   several reads is collected as long as it matches (`matches_start`); if it stops matching, all of its bytes go to the
   parser.
4. The limits hold for every reuse: a head is cached only if it is within its limit even with `_MAX_DIGITS` more digits,
   and the size of the body is checked each time.
5. What may change between two requests is not cached: whether the key is valid is looked up for each request.
6. A connection caches one head of at most `_MAX_CACHED` bytes, and drops it as soon as another request is parsed.
"""

import re

from penstock.http.exchange import HttpRequest
from penstock.http.limits import FrontLimits

# A header line that does not affect the framing of the body (rule 2).
_LINE = rb"(?!content-length|transfer-encoding|expect|upgrade)[!-9;-~]+:[\t -~]*\r\n"
_PLAIN = re.compile(
    rb"(POST [!-~]+ HTTP/1\.1\r\n(?:%b)*content-length: *)([0-9]{1,15})(\r\n(?:%b)*\r\n)" % (_LINE, _LINE),
    re.IGNORECASE,
)
_END = b"\r\n\r\n"
# Every connection has a cached head, and most connections are idle.
_MAX_CACHED = 8_192
# A request that arrives in parts is joined and compared again with each part, so it must be small.
_MAX_PARTIAL = 65_536
# Digits of a Content-Length (rule 4).
_MAX_DIGITS = 15


class CachedHead:
    """A cached head, and its parsed request without the body."""

    __slots__ = ("_digits_at", "_max_body", "_prefix", "_suffix", "_suffix_size", "_template", "request")

    def __init__(self, prefix: bytes, suffix: bytes, request: HttpRequest, max_body: int) -> None:
        """`prefix` and `suffix` are the bytes before and after the digits of Content-Length."""
        self._prefix = prefix
        self._suffix = suffix
        self._digits_at = len(prefix)
        self._suffix_size = len(suffix)
        self._template = b"%d".join(part.replace(b"%", b"%%") for part in (prefix, suffix.removesuffix(_END)))
        self._max_body = max_body
        self.request = request

    def body_of(self, data: bytes) -> bytes | None:
        """The body, if `data` is exactly one request with this head; otherwise None."""
        head, end, body = data.partition(_END)
        size = len(body)
        return body if end and head == self._template % size and size <= self._max_body else None

    def matches_start(self, data: bytes) -> bool:
        """Whether `data` is this head with any length, followed by an incomplete body that is small."""
        end = data.find(b"\r", self._digits_at)
        digits = data[self._digits_at : end]
        if len(digits) > _MAX_DIGITS or not digits.isdigit():
            return False
        same = data.startswith(self._prefix) and data.startswith(self._suffix, end)
        return same and len(data) - end - self._suffix_size < int(digits) <= min(self._max_body, _MAX_PARTIAL)


def cache_head(data: bytes, request: HttpRequest, limits: FrontLimits) -> CachedHead | None:
    """The cached head of a request that was parsed from exactly `data`; None if it must not be cached (rule 2)."""
    match = _PLAIN.match(data, 0, min(_MAX_CACHED, limits.max_head - _MAX_DIGITS))
    if match is None or not request.keep_alive or len(data) - match.end() != int(match[2]):
        return None
    return CachedHead(match[1], match[3], request, limits.max_body)

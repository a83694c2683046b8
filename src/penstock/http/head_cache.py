"""CachedHead: the head of a request that was read before. Clients send the same one again and again on a connection.

Only the digits of its Content-Length change. Where all other bytes are the same, so is what they mean: nothing of it is
parsed or checked once more.

1. Whether it is the same head is decided by its bytes alone. A request that differs by one of them, or that has
   something behind it, is parsed like any other.
2. Only the head of a plain request is kept: HTTP/1.1, a POST, one length in decimal digits, nothing that changes how
   the body is sent, and a connection that is used again.
"""

import re

from penstock.http.exchange import HttpRequest
from penstock.http.limits import FrontLimits

# A header that leaves the body as it is. (Which of the others came is not looked at: they are the same bytes again.)
_LINE = rb"(?!content-length|transfer-encoding|expect|upgrade)[!-9;-~]+:[\t -~]*\r\n"
_PLAIN = re.compile(
    rb"(POST [!-~]+ HTTP/1\.1\r\n(?:%b)*content-length: *)([0-9]{1,15})(\r\n(?:%b)*\r\n)" % (_LINE, _LINE),
    re.IGNORECASE,
)
# What ends a head.
_END = b"\r\n\r\n"
# Every connection keeps one, and most of them wait.
_MAX_KEPT = 8_192
# What comes in parts is put together again with each of them.
_MAX_HELD = 65_536
# With another length a head may be so much longer, and must still be within its limit.
_MAX_DIGITS = 15


class CachedHead:
    """A head, and the request that it is, but for the body."""

    __slots__ = ("_at", "_before", "_behind", "_form", "_max_body", "_rest", "request")

    def __init__(self, before: bytes, behind: bytes, request: HttpRequest, max_body: int) -> None:
        """`before` and `behind` are what stands on both sides of the digits."""
        self._before = before
        self._behind = behind
        self._at = len(before)
        self._rest = len(behind)
        self._form = b"%d".join(part.replace(b"%", b"%%") for part in (before, behind.removesuffix(_END)))
        self._max_body = max_body
        self.request = request

    def body_of(self, data: bytes) -> bytes | None:
        """The body of a request with this head, where `data` is that and nothing else; None where it is not."""
        head, end, body = data.partition(_END)
        size = len(body)
        return body if end and head == self._form % size and size <= self._max_body else None

    def begins(self, data: bytes) -> bool:
        """Whether `data` is this head with a length, and a part of that small body, or nothing of it."""
        end = data.find(b"\r", self._at)
        digits = data[self._at : end]
        if len(digits) > _MAX_DIGITS or not digits.isdigit():
            return False
        same = data.startswith(self._before) and data.startswith(self._behind, end)
        return same and len(data) - end - self._rest < int(digits) <= min(self._max_body, _MAX_HELD)


def known_head(data: bytes, request: HttpRequest, limits: FrontLimits) -> CachedHead | None:
    """What is kept of a request that was read from `data` and from nothing else; None if its head is not plain."""
    found = _PLAIN.match(data, 0, min(_MAX_KEPT, limits.max_head - _MAX_DIGITS))
    if found is None or not request.keep_alive or len(data) - found.end() != int(found[2]):
        return None
    return CachedHead(found[1], found[3], request, limits.max_body)

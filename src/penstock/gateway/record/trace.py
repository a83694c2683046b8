"""Trace: the distributed trace that a call belongs to, by the W3C header `traceparent`, and its span in it."""

import re
import secrets
from collections.abc import Mapping

from msgspec import Struct, field

from penstock.core.hub.request import Request

HEADER = "traceparent"
# version, trace id, parent id, flags; a later version may add more fields. Ids that are all zeros are invalid.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_FIRST = "00"


def new_span() -> str:
    """A new span id."""
    return secrets.token_hex(8)


class Trace(Struct, eq=False):
    """The trace of a call: the parent span, which is empty if the call is the root, the span of the call, and what the
    span has of the request."""

    id: str
    parent: str = ""
    sampled: bool = True
    span: str = field(default_factory=new_span)
    parameters: Mapping[str, bool | int | float] = {}
    """The numeric and boolean parameters of the request. They contain no text of the client."""
    request: Request | None = None
    """The request, if traces include content."""

    def header(self, span: str) -> str:
        """The `traceparent` header for a request that this span makes."""
        return f"{_FIRST}-{self.id}-{span}-{int(self.sampled):02x}"


def trace_of(header: str) -> Trace:
    """The trace in a `traceparent` header, or a new one if the header is missing or invalid."""
    match = _TRACEPARENT.fullmatch(header)
    if match is None or (header.startswith(f"{_FIRST}-") and match[4]):
        return Trace(secrets.token_hex(16))
    return Trace(match[1], match[2], bool(int(match[3], 16) & 1))

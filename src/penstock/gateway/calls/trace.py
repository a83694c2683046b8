"""Trace: the distributed trace that a call belongs to, by the W3C header `traceparent`, and the ids of its spans."""

import re
import secrets

from msgspec import Struct

HEADER = "traceparent"
# version, trace id, parent id, flags; a later version may add more fields. Ids that are all zeros are invalid.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_FIRST = "00"


class Trace(Struct, frozen=True):
    """A trace, and the parent span of this call in it; `parent` is empty if the call is the root."""

    id: str
    parent: str = ""
    sampled: bool = True

    def header(self, span: str) -> str:
        """The `traceparent` header for a request that this span makes."""
        return f"{_FIRST}-{self.id}-{span}-{int(self.sampled):02x}"


def trace_of(header: str) -> Trace:
    """The trace in a `traceparent` header, or a new one if the header is missing or invalid."""
    match = _TRACEPARENT.fullmatch(header)
    if match is None or (header.startswith(f"{_FIRST}-") and match[4]):
        return Trace(secrets.token_hex(16))
    return Trace(match[1], match[2], bool(int(match[3], 16) & 1))


def new_span() -> str:
    """A new span id."""
    return secrets.token_hex(8)

"""Trace: whose call this is a part of, by the W3C's `traceparent`; and the name of each attempt in it."""

import re
import secrets

from msgspec import Struct

HEADER = "traceparent"
# version, trace, parent, flags; a later version may have more behind them. Names of zeros alone are none.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_FIRST = "00"


class Trace(Struct, frozen=True):
    """A trace, and what this call is a part of in it; `parent` is empty where it is the first."""

    id: str
    parent: str = ""
    sampled: bool = True

    def header(self, span: str) -> str:
        """What those are told who are asked by a part of it."""
        return f"{_FIRST}-{self.id}-{span}-{int(self.sampled):02x}"


def trace_of(header: str) -> Trace:
    """The trace that a header names; a new one where it names none."""
    found = _TRACEPARENT.fullmatch(header)
    if found is None or (header.startswith(f"{_FIRST}-") and found[4]):
        return Trace(secrets.token_hex(16))
    return Trace(found[1], found[2], bool(int(found[3], 16) & 1))


def new_span() -> str:
    """A name for one part of a trace."""
    return secrets.token_hex(8)

"""Glance: whether a body with a good status is an answer at all, before it is passed on as it is.

An answer is one JSON object with something in it that is not an error. What its numbers are is not looked at: they may
be millions, and would hold up every other call. For the same reason not more than a part of a very large one is read.
"""

import re

import msgspec

from penstock.core.error_shapes import read_error
from penstock.core.events import Fault
from penstock.core.failure import Failure
from penstock.error_codes import ErrorCode
from penstock.gateway.calls.failure import from_fault, from_transport
from penstock.gateway.relay.decompression import can_unpack, is_packed, unpacked

TRUNCATED: ErrorCode = "upstream_truncated"
_BAD: ErrorCode = "upstream_bad_response"
_EMPTY: ErrorCode = "upstream_empty"
_CUT_SHORT = "the answer ended before it was complete"
# A larger body is not looked through: this takes some 15 ms. Nor is more than this unpacked.
_MAX_LOOKED_THROUGH = 16_000_000
# A larger one is no error.
_MAX_ERROR = 65_536
# What is no number in JSON, and a number for all that write and read it in Python.
_NO_NUMBER = re.compile(rb"-?\b(?:NaN|Infinity)\b")
_NO_NUMBERS = (b"-NaN", b"NaN", b"-Infinity", b"Infinity")
# Where the answer stands: what has one of these is no error for having a message besides.
_ANSWERS = ("data", "embeddings", "embedding")


def look_through(body: bytes, coding: str) -> bytes | Failure:
    """The answer in the clear, as far as it was unpacked, or why it is none. An unknown coding is not ours to judge."""
    if not is_packed(coding):
        return _failure_in(body, part=False) or body
    if not can_unpack(coding):
        return body
    clear = unpacked(body, coding, _MAX_LOOKED_THROUGH)
    if clear is None:
        return from_transport(_BAD, "the answer cannot be decompressed")
    if clear.extent == "cut":
        return from_transport(TRUNCATED, _CUT_SHORT)
    return _failure_in(clear.data, part=clear.extent == "part") or clear.data


def _failure_in(body: bytes, *, part: bool) -> Failure | None:
    first = body.lstrip()[:1]
    if not first:
        return from_transport(_EMPTY, "the answer is empty")
    if first != b"{":
        return from_transport(_BAD, "the answer is not a JSON object")
    if part:
        return None
    if len(body) > _MAX_LOOKED_THROUGH:
        cut = not body[-_MAX_ERROR:].rstrip().endswith(b"}")
        return from_transport(TRUNCATED, _CUT_SHORT) if cut else None
    try:
        _check(body)
    except ValueError as error:
        if "truncated" in str(error):
            return from_transport(TRUNCATED, _CUT_SHORT)
        return from_transport(_BAD, "the answer is not valid JSON")
    except RecursionError:
        return from_transport(_BAD, "the answer is nested too deeply")
    if body.lstrip()[1:].lstrip()[:1] == b"}":
        return from_transport(_EMPTY, "the answer has nothing in it")
    return _error_in(body) if len(body) <= _MAX_ERROR else None


def _check(body: bytes) -> None:
    """Raise `ValueError` or `RecursionError` where the body is not one JSON value. Nothing in it is decoded."""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except ValueError:
        mended = body
        for name in _NO_NUMBERS:  # in texts, too, which are not looked at
            mended = mended.replace(name, b"null")
        if mended == body:
            raise
        msgspec.json.decode(mended, type=msgspec.Raw)


def _error_in(body: bytes) -> Failure | None:
    """The failure that an error in a small answer is."""
    try:
        parsed = msgspec.json.decode(_NO_NUMBER.sub(b"0", body))
        if any(map(parsed.get, _ANSWERS)):
            parsed["choices"] = None  # as a chat's answer has
        error = read_error(parsed, "")
    except (ValueError, RecursionError):
        return None  # its outline is sound
    return from_fault(Fault("provider-error", error[0], 0, 0, error[1])) if error else None

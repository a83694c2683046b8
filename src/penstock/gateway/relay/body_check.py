"""Body check: whether the body of a 2xx response is an answer, before it is forwarded unchanged.

An answer is one JSON object that is neither empty nor an error. The values are not decoded: there may be millions of
numbers, and to decode them would block the event loop. For the same reason only a part of a very large body is read.
"""

import re

import msgspec

from penstock.core.hub.events import Fault
from penstock.core.hub.failure import Failure
from penstock.core.provider_errors.error_shapes import read_error
from penstock.core.wire.payload import is_too_deep
from penstock.error_codes import ErrorCode
from penstock.gateway.record.failure import from_fault, from_transport
from penstock.http.decompression import can_decompress, decompress, is_compressed

TRUNCATED: ErrorCode = "upstream_truncated"
_BAD: ErrorCode = "upstream_bad_response"
_EMPTY: ErrorCode = "upstream_empty"
_CUT_SHORT = "the answer ended before it was complete"
# In bytes. A larger body is not parsed: this much takes about 15 ms. Not more than this is decompressed, either.
_MAX_CHECKED = 16_000_000
# In bytes. A larger body is not searched for an error.
_MAX_ERROR = 65_536
# Python's JSON module writes and reads these by default, although JSON has no such numbers.
_NON_JSON_NUMBER = re.compile(rb"-?\b(?:NaN|Infinity)\b")
_NON_JSON_NUMBERS = (b"-NaN", b"NaN", b"-Infinity", b"Infinity")
# The fields of an answer. A body with one of them is no error, even if it has a message, too.
_ANSWER_FIELDS = ("data", "embeddings", "embedding")


def check_body(body: bytes, coding: str) -> bytes | Failure:
    """The decompressed answer, at most `_MAX_CHECKED` bytes of it, or the failure. An unknown coding is not checked."""
    if not is_compressed(coding):
        return _failure_in(body, part=False) or body
    if not can_decompress(coding):
        return body
    clear = decompress(body, coding, _MAX_CHECKED)
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
    if len(body) > _MAX_CHECKED:
        cut = not body[-_MAX_ERROR:].rstrip().endswith(b"}")
        return from_transport(TRUNCATED, _CUT_SHORT) if cut else None
    if is_too_deep(body):
        return from_transport(_BAD, "the answer is nested too deep")
    try:
        _check(body)
    except ValueError as error:
        if "truncated" in str(error):
            return from_transport(TRUNCATED, _CUT_SHORT)
        return from_transport(_BAD, "the answer is not valid JSON")
    if body.lstrip()[1:].lstrip()[:1] == b"}":
        return from_transport(_EMPTY, "the answer has nothing in it")
    return _error_in(body) if len(body) <= _MAX_ERROR else None


def _check(body: bytes) -> None:
    """Raise `ValueError` if the body is not one JSON value. Nothing in it is decoded."""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except ValueError:
        replaced = body
        for name in _NON_JSON_NUMBERS:  # also within strings, which are not read here
            replaced = replaced.replace(name, b"null")
        if replaced == body:
            raise
        msgspec.json.decode(replaced, type=msgspec.Raw)


def _error_in(body: bytes) -> Failure | None:
    """The failure, if a small body is an error."""
    try:
        parsed = msgspec.json.decode(_NON_JSON_NUMBER.sub(b"0", body))
        if any(map(parsed.get, _ANSWER_FIELDS)):
            parsed["choices"] = None  # marks it as an answer for `read_error`
        error = read_error(parsed, "")
    except ValueError:
        return None  # `_check` has accepted it
    return from_fault(Fault("provider-error", error[0], 0, 0, error[1])) if error else None

"""JSON text in the style of a given writer: compact or with spaces, its characters raw or escaped.

The style makes no difference to a parser, but it does to clients that search or split the bytes. Small numbers are
written as Go and JavaScript write them, in plain digits down to a millionth, because most providers use these.
"""

import json
import math
import re
from decimal import Decimal
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Literal

from msgspec import Struct

# The smallest number that is written in plain digits.
_MIN_PLAIN = 1e-6
# Go escapes these in JSON, so that it can be embedded in HTML.
_UNSAFE_IN_HTML = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


class JsonStyle(Struct, frozen=True, forbid_unknown_fields=True):
    """How a program writes JSON. `escape`: only what must be, all but ASCII, or also characters special in HTML."""

    spaced: bool = False
    escape: Literal["none", "ascii", "html"] = "none"


def write_json(value: object, style: JsonStyle) -> str:
    """The value as JSON text."""
    match value:
        case dict():
            colon = ": " if style.spaced else ":"
            members = [write_json(str(key), style) + colon + write_json(item, style) for key, item in value.items()]
            return "{" + (", " if style.spaced else ",").join(members) + "}"
        case list() | tuple():
            return "[" + (", " if style.spaced else ",").join(write_json(item, style) for item in value) + "]"
        case str():
            # The functions that `json.dumps` calls for a string, without the encoder that it makes for each call.
            text = encode_basestring_ascii(value) if style.escape == "ascii" else encode_basestring(value)
            return text.translate(_UNSAFE_IN_HTML) if style.escape == "html" else text
        case float():
            return _number(value)
        case _:
            return json.dumps(value)


def style_of(text: str) -> JsonStyle:
    """The style that JSON text seems to be written in."""
    spaced = re.match(r'[{\["\w]*": ', text) is not None
    if re.search(r"\\u00(3c|3e|26)", text):
        return JsonStyle(spaced, "html")
    escaped = text.isascii() and re.search(r"\\u(?!00[0-7])[0-9a-fA-F]{4}", text) is not None
    return JsonStyle(spaced, "ascii" if escaped else "none")


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "null"
    text = repr(value)
    if "e" not in text:
        return text
    if _MIN_PLAIN <= abs(value) < 1:
        return f"{Decimal(text):f}"
    return re.sub(r"e([+-])0+", r"e\1", text)

"""Surrogate pairs that are split between two deltas: joins the halves, and replaces lone ones."""

from typing import TypeAlias

from penstock.core.hub.sink import Sink

TextPath: TypeAlias = tuple[str, ...]
"""The path of a text in JSON: keys, and `*` for any item of a list."""

# Characters that some clients take for line ends (those that split decoded text), and their JSON escapes.
LINE_ENDS_TO_SOME = {b"\xe2\x80\xa8": b"\\u2028", b"\xe2\x80\xa9": b"\\u2029", b"\xc2\x85": b"\\u0085"}
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class SurrogateJoiner:
    """Buffers the first half of a surrogate pair until the second one arrives.

    There are many texts. The key of a text is a number, as of its choice or block, and its field.
    """

    def __init__(self) -> None:
        self.halves: dict[tuple[int, str], str] = {}

    def join(self, key: tuple[int, str], text: str, sink: Sink, *, more: bool = True) -> str:
        """The text with its halves joined. A first half at its end is buffered for the next call with this key.

        If no `more` of the text can follow, such a half is replaced. So every reader calls this at the end of a text.
        """
        before = self.halves.pop(key, "")
        if before and "\udc00" <= text[:1] <= "\udfff":
            sink.repair("split-surrogate")
        text = before + text
        if more and "\ud800" <= text[-1:] <= "\udbff":
            self.halves[key] = text[-1]
            text = text[:-1]
        return whole(text, sink)


def without_line_ends(data: bytes) -> bytes:
    """JSON text in which the characters of `LINE_ENDS_TO_SOME` are escaped."""
    if not data.isascii():
        for raw, escaped in LINE_ENDS_TO_SOME.items():
            data = data.replace(raw, escaped)
    return data


def whole(text: str, sink: Sink) -> str:
    """The text with pairs of surrogates joined and lone ones replaced."""
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if joined.count(REPLACEMENT) > text.count(REPLACEMENT):
        sink.repair("lone-surrogate")
    return joined


def whole_json(value: object, sink: Sink) -> object:
    """A JSON value with `whole` applied to every string in it."""
    match value:
        case str():
            return whole(value, sink)
        case list():
            return [whole_json(item, sink) for item in value]
        case dict():
            return {whole(str(key), sink): whole_json(item, sink) for key, item in value.items()}
        case _:
            return value


def whole_json_except(value: object, paths: frozenset[TextPath], sink: Sink, at: TextPath = ()) -> object:
    """A JSON value with `whole` applied to its strings, except at these paths, which a later event may continue."""
    if isinstance(value, dict | list) and any(path[: len(at)] == at for path in paths):
        if isinstance(value, list):
            return [whole_json_except(item, paths, sink, (*at, "*")) for item in value]
        return {
            (key := whole(str(name), sink)): whole_json_except(item, paths, sink, (*at, key))
            for name, item in value.items()
        }
    return value if isinstance(value, str) and at in paths else whole_json(value, sink)

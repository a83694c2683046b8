"""Secret: a key that can be used but not shown."""

from hmac import compare_digest

# From this length on the last characters tell keys apart without giving one away.
_LONG = 12
_SHOWN = 4


class Secret:
    """A string that no log line, error, page or encoder shows by accident. `source` says where it came from."""

    __slots__ = ("_source", "_value")

    def __init__(self, value: str, source: str = "") -> None:
        self._value = value
        self._source = source

    @property
    def source(self) -> str:
        """The variables it came from, or the file that holds it."""
        return self._source

    def reveal(self) -> str:
        """The string itself, for the one place that sends it or compares it."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret(…{self._value[-_SHOWN:]})" if len(self._value) >= _LONG else "Secret(…)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __eq__(self, other: object) -> bool:
        """Takes the same time wherever the two differ."""
        if not isinstance(other, Secret):
            return NotImplemented
        return compare_digest(_encoded(self._value), _encoded(other._value))

    def __hash__(self) -> int:
        return hash(self._value)


def _encoded(value: str) -> bytes:
    return value.encode(errors="surrogatepass")

"""Secret: a string, such as an API key, that is not shown by accident."""

from hmac import compare_digest

# From this length on, the last characters are shown: they identify a key without disclosing it.
_LONG = 12
_SHOWN = 4


class Secret:
    """A string whose `repr`, `str` and format hide it, so that no log, error or page shows it."""

    __slots__ = ("_source", "_value")

    def __init__(self, value: str, source: str = "") -> None:
        self._value = value
        self._source = source

    @property
    def source(self) -> str:
        """The environment variables or the file that it was read from."""
        return self._source

    def reveal(self) -> str:
        """The string itself, for the code that sends or compares it."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret(…{self._value[-_SHOWN:]})" if len(self._value) >= _LONG else "Secret(…)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __eq__(self, other: object) -> bool:
        """Compare in constant time, to resist timing attacks."""
        if not isinstance(other, Secret):
            return NotImplemented
        return compare_digest(_encoded(self._value), _encoded(other._value))

    def __hash__(self) -> int:
        return hash(self._value)


def _encoded(value: str) -> bytes:
    return value.encode(errors="surrogatepass")

"""The headers of an answer: kept as they came, and read when somebody asks for one that may be among them."""

from collections.abc import Iterator, Mapping


class Headers(Mapping[str, str]):
    """Headers by their names in lower case. Hardly anybody asks for any, and then for one that is not there."""

    _read: dict[str, str] | None = None

    def __init__(self, fields: dict[bytes, bytes]) -> None:
        self._fields = fields.copy()

    def __contains__(self, name: object) -> bool:
        # What is not in all the names together is not one of them.
        return str(name).encode() in b"\n".join(self._fields).lower() and name in self._all()

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, str]:
        if self._read is None:
            self._read = {
                name.lower().decode("latin-1"): value.decode("latin-1") for name, value in self._fields.items()
            }
        return self._read

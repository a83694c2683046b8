"""The headers of a response, decoded lazily: raw bytes until a lookup that may succeed."""

from collections.abc import Iterator, Mapping


class Headers(Mapping[str, str]):
    """Headers by their lower-case names. Lookups are rare, and most are for headers that are absent."""

    _decoded: dict[str, str] | None = None

    def __init__(self, fields: dict[bytes, bytes]) -> None:
        self._fields = fields.copy()

    def __contains__(self, name: object) -> bool:
        # A cheap negative check: no name is as long.
        return len(str(name)) in map(len, self._fields) and name in self._decode()

    def __getitem__(self, name: str) -> str:
        return self._decode()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decode())

    def __len__(self) -> int:
        return len(self._decode())

    def _decode(self) -> dict[str, str]:
        if self._decoded is None:
            self._decoded = {
                name.lower().decode("latin-1"): value.decode("latin-1") for name, value in self._fields.items()
            }
        return self._decoded

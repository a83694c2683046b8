"""Scrubbing: secrets become stars of the same length, also where one is spread over several reads."""

from urllib.parse import quote

import msgspec

from penstock.capture import Read

# The beginning of a secret at the end of a stream is masked from this length on: more than a word gives it away.
_TELLING = 8


class Secrets:
    """Secrets in every form in which somebody might quote them: as they are, in JSON, in a URL."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        forms = {form for secret in secrets for form in _forms(secret)}
        self.forms = sorted(forms, key=len, reverse=True)  # the longer first: one may begin with another
        self.longest = len(self.forms[0]) if self.forms else 0

    def mask(self, data: bytes) -> bytes:
        """The data with stars where a secret was. One search after another: each lets other threads go on soon."""
        for form in self.forms:
            if form in data:
                data = data.replace(form, b"*" * len(form))
        return data


class Scrubber:
    """Reads without secrets. What may be the beginning of one is held back until it is known."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held: list[Read] = []

    def feed(self, read: Read) -> list[Read]:
        """Take in a read; return those that are safe, in their order and of their size."""
        self._held.append(read)
        data = self._secrets.mask(b"".join(held.data for held in self._held))
        return self._release(data, len(data) - self._begun(data))

    def close(self) -> list[Read]:
        """Nothing more comes: return what was held."""
        data = self._secrets.mask(b"".join(held.data for held in self._held))
        begun = self._begun(data)
        if begun >= _TELLING:
            data = data[:-begun] + b"*" * begun
        return self._release(data, len(data))

    def _release(self, data: bytes, safe: int) -> list[Read]:
        """Put masked data back into its reads; those that end beyond what is safe stay."""
        released: list[Read] = []
        start = 0
        while self._held and start + len(self._held[0].data) <= safe:
            read = self._held.pop(0)
            end = start + len(read.data)
            released.append(Read(read.at_s, data[start:end]))
            start = end
        return released

    def _begun(self, data: bytes) -> int:
        """How many bytes at the end may be the beginning of a secret."""
        most = 0
        tail = data[-(self._secrets.longest - 1) :] if self._secrets.longest > 1 else b""
        for form in self._secrets.forms:
            at = tail.find(form[:1])
            while at >= 0:
                if form.startswith(tail[at:]):
                    most = max(most, len(tail) - at)
                    break
                at = tail.find(form[:1], at + 1)
        return most


def _forms(secret: str) -> set[bytes]:
    in_json = msgspec.json.encode(secret)[1:-1]
    return {secret.encode(), in_json, in_json.replace(b"/", b"\\/"), quote(secret, safe="").encode()}

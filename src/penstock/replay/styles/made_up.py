"""Forms: what made-up values look like, such as `chatcmpl-{alnum:29}`.

Nothing here is random: the same seed gives the same value, so that the same answer gives the same bytes.
"""

import re
from hashlib import sha256
from string import ascii_letters, ascii_lowercase, digits

_ALNUM = digits + ascii_letters
_ALPHABETS = {
    "alnum": _ALNUM,
    "hex": digits + "abcdef",
    "digits": digits,
    "base32": digits + "abcdefghjkmnpqrstvwxyz",  # Crockford's, without the letters that look like digits
}
_RUN = ascii_lowercase + digits
_SLOT = re.compile(r"\{(\w+)(?::(\d+))?\}")
_UUID = (8, 4, 4, 4, 12)


def mint(form: str, seed: str, *, created: int = 0) -> str:
    """A value of that form.

    `{alnum:9}`, `{hex:9}`, `{digits:9}` and `{base32:9}` are so many characters, `{uuid}` is one, `{created}` the time
    of the answer, and `{run}` the beginning of the alphabet, of any length.
    """

    def fill(slot: re.Match[str]) -> str:
        name, size = slot[1], int(slot[2] or 0)
        if name == "created":
            return str(created)
        here = f"{seed} {slot.start()}"
        if name == "uuid":
            return "-".join(_characters("hex", size, f"{here} {part}") for part, size in enumerate(_UUID))
        if name == "run":
            return _RUN[: 1 + sha256(here.encode()).digest()[0] % len(_RUN)]
        return _characters(name, size, here)

    return _SLOT.sub(fill, form)


def padding(size: int, seed: str) -> str:
    """So many letters and digits."""
    return _characters("alnum", size, seed)


def _characters(alphabet: str, size: int, seed: str) -> str:
    letters = _ALPHABETS[alphabet]
    number = int.from_bytes(b"".join(sha256(f"{seed} {part}".encode()).digest() for part in range(1 + size // 40)))
    found = []
    for _ in range(size):
        number, index = divmod(number, len(letters))
        found.append(letters[index])
    return "".join(found)

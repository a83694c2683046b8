"""Generated values, such as ids, from a form: `chatcmpl-{alnum:29}`.

No value is random: the same seed gives the same value, so that the same answer gives the same bytes.
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


def make_value(form: str, seed: str, *, created: int = 0) -> str:
    """Generate a value of that form.

    `{alnum:9}`, `{hex:9}`, `{digits:9}` and `{base32:9}` are that many characters, `{uuid}` is a UUID, `{created}` the
    time of the answer, and `{run}` a prefix of the alphabet of any length.
    """

    def fill(slot: re.Match[str]) -> str:
        name, size = slot[1], int(slot[2] or 0)
        if name == "created":
            return str(created)
        slot_seed = f"{seed} {slot.start()}"
        if name == "uuid":
            return "-".join(_characters("hex", size, f"{slot_seed} {part}") for part, size in enumerate(_UUID))
        if name == "run":
            return _RUN[: 1 + sha256(slot_seed.encode()).digest()[0] % len(_RUN)]
        return _characters(name, size, slot_seed)

    return _SLOT.sub(fill, form)


def padding(size: int, seed: str) -> str:
    """Generate that many letters and digits."""
    return _characters("alnum", size, seed)


def _characters(alphabet: str, size: int, seed: str) -> str:
    letters = _ALPHABETS[alphabet]
    number = int.from_bytes(b"".join(sha256(f"{seed} {part}".encode()).digest() for part in range(1 + size // 40)))
    characters = []
    for _ in range(size):
        number, index = divmod(number, len(letters))
        characters.append(letters[index])
    return "".join(characters)

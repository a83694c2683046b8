"""`${NAME}` in a string becomes the environment variable of that name.

`${NAME:-default}` has a default, which may be empty, and has no variable in it; `$$` is a plain `$`; any other `$`
stands for itself. A variable that is set but empty counts as one that is not set: that is how containers pass what
nobody gave them.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

_REFERENCE = re.compile(r"\$(?:\$|\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})?)")


class Expansion(Struct, frozen=True):
    """A string with its variables filled in: which they were, which are missing, and whether one is written wrongly."""

    text: str
    variables: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    malformed: bool = False


def expand(text: str, env: Mapping[str, str]) -> Expansion:
    """Fill in the variables of a string."""
    variables: list[str] = []
    missing: list[str] = []
    malformed = False

    def fill(found: re.Match[str]) -> str:
        nonlocal malformed
        name, default = found[1], found[2]
        if name is None:
            malformed |= found[0] == "${"
            return "$"
        malformed |= default is not None and "${" in default  # the first } would end both
        variables.append(name)
        value = env.get(name) or default
        if value is None:
            missing.append(name)
            return ""
        return value

    filled = _REFERENCE.sub(fill, text)
    return Expansion(filled, tuple(variables), tuple(missing), malformed)

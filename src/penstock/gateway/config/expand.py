"""`${NAME}` in a string becomes the environment variable of that name.

`${NAME:-default}` has a default, which may be empty and must not contain a variable; `$$` is a literal `$`; any other
`$` is literal, too. A variable that is set but empty counts as not set, because container tools pass unset variables
as empty ones.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

_REFERENCE = re.compile(r"\$(?:\$|\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})?)")


class Expansion(Struct, frozen=True):
    """A string with its variables replaced: their names, those that are missing, and whether one is malformed."""

    text: str
    variables: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    malformed: bool = False


def expand(text: str, env: Mapping[str, str]) -> Expansion:
    """Replace the variables of a string."""
    variables: list[str] = []
    missing: list[str] = []
    malformed = False

    def fill(match: re.Match[str]) -> str:
        nonlocal malformed
        name, default = match[1], match[2]
        if name is None:
            malformed |= match[0] == "${"
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

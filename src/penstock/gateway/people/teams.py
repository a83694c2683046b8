"""Names of teams: paths such as `acme/search`."""

import re

from penstock.errors import KeyTermsError

_TEAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,63}){0,2}")


def is_team(path: str) -> bool:
    """Whether a text is the path of a team."""
    return _TEAM.fullmatch(path) is not None


def check_team(path: str) -> str:
    """The path of a team. Raises if a text is none."""
    if not is_team(path):
        raise KeyTermsError(
            "a team is a path such as acme/search: up to three names of letters, digits, dots, dashes and underscores",
            param="team",
        )
    return path

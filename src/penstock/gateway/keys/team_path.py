"""Paths of teams: the organisation `acme`, its team `acme/search`, and the project `acme/search/prod`."""

import re

from penstock.errors import AdminError

_LEVELS = ("organisation", "team", "project")
_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,63}){0,2}")


def is_team_path(text: str) -> bool:
    """Whether a text is the path of a team."""
    return _PATH.fullmatch(text) is not None


def check_team_path(text: str) -> str:
    """The path of a team. Raises if a text is none."""
    if not is_team_path(text):
        raise AdminError(
            "a team is a path such as acme/search: up to three names of letters, digits, dots, dashes and underscores",
            param="team",
        )
    return text


def level_of(path: str) -> str:
    """The name of the level of a team."""
    return _LEVELS[path.count("/")]


def ancestry(path: str) -> list[str]:
    """The paths of a team and of the teams above it, from the innermost to the organisation."""
    parts = path.split("/")
    return ["/".join(parts[:length]) for length in range(len(parts), 0, -1)] if path else []


def within(path: str, team: str) -> bool:
    """Whether a path is a team or below it."""
    return path == team or path.startswith(f"{team}/")

"""The keys to which the calls of clients with a JWT belong: one for each team. They are in no store."""

from collections.abc import Iterable

from penstock.gateway.keys.keys import Key

_PREFIX = "jwt:"


def team_keys(teams: Iterable[str]) -> dict[str, Key]:
    """The key of each team. No secret opens it: it has no digest."""
    return {
        team: Key(id=f"{_PREFIX}{team}", name=f"{_PREFIX}{team}", digest=b"", hint="", created_ms=1, team=team)
        for team in teams
    }

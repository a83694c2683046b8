"""Declaration: the teams and keys that a file for `penstock apply` says there should be.

What the file does not say of a team or a key of its own is as in a new one: no limit, all models, no tags. Only
`blocked` stays as it is, so that no run unblocks by mistake what was blocked in an incident.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, structs

from penstock.errors import AdminError
from penstock.gateway.keys.fields import KEY_FIELDS, TEAM_FIELDS, updated, updated_key
from penstock.gateway.keys.keys import Key, Limited, new_id
from penstock.gateway.keys.team_path import check_team_path
from penstock.gateway.keys.terms import KeySettings, check_name, is_duration, parse_moment
from penstock.gateway.teams.changes import TeamSettings
from penstock.gateway.teams.team import Team

Prune: TypeAlias = Literal["delete", "block", "keep"]
# Fields that a file does not reset to the value of a new key or team.
_KEPT = ("name", "blocked", "managed_by")


class Declaration(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file: its teams by path, and its keys by name."""

    managed_by: str
    """The name of the file, by which it knows what is its own."""
    prune: Prune = "delete"
    """What happens to keys and teams of its own that it no longer has."""
    teams: Mapping[str, TeamSettings] = {}
    keys: Mapping[str, KeySettings] = {}


def declared_team(path: str, settings: TeamSettings, present: Team | None, manager: str, now_ms: int) -> Team:
    """The team as it should be. Raises `AdminError` if a value is invalid."""
    base = present or Team(path=check_team_path(path), created_ms=now_ms)
    team = updated(structs.replace(base, **_TEAM_DEFAULTS), settings, now_ms)
    return structs.replace(team, managed_by=manager)


def declared_key(name: str, settings: KeySettings, present: Key | None, manager: str, now_ms: int) -> Key:
    """The key as it should be; a new one has no secret yet. Raises `AdminError` if a value is invalid."""
    base = present or Key(id=new_id(), name=check_name(name), digest=b"", hint="", created_ms=now_ms)
    key = updated_key(structs.replace(base, **_KEY_DEFAULTS), structs.replace(settings, expires=UNSET), now_ms)
    return structs.replace(key, managed_by=manager, expires_ms=_expiry(settings, now_ms))


def _expiry(settings: KeySettings, now_ms: int) -> int | None:
    """When a key expires. It may be in the past: a file stays the same while time passes."""
    if not settings.expires:
        return None
    if is_duration(settings.expires):
        raise AdminError(
            "expires must be a date here, such as 2027-01-01: a duration would be another one at each run",
            param="expires",
        )
    return parse_moment(settings.expires, now_ms, "expires")


def _defaults(bare: Limited, fields: Any) -> dict[str, Any]:
    stored = (field.stored or field.name for field in fields if field.name not in _KEPT)
    return {name: getattr(bare, name) for name in stored}


_KEY_DEFAULTS = _defaults(Key(id="", name="", digest=b"", hint="", created_ms=0), KEY_FIELDS)
_TEAM_DEFAULTS = _defaults(Team(path="", created_ms=0), TEAM_FIELDS)

"""Audit: the append-only record of administrative acts and of looks at content. No secret is in it."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from penstock.amounts import moment
from penstock.gateway.keys.keys import Key
from penstock.gateway.keys.report import facts
from penstock.gateway.people.roles import Via
from penstock.gateway.teams.team import Team

# The fields of keys that entries do not have. All others are recorded, so a new field is too.
_UNCHANGING = frozenset({"id", "created"})


class Actor(Struct, frozen=True):
    """Who acts, how it was authenticated, and from which address."""

    who: str
    via: Via
    address: str = ""
    keep_days: int | None = None
    """Days after which entries are deleted, as configured; None keeps them."""


# For changes that no user made.
GATEWAY = Actor("penstock", "gateway")


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One act. `before` and `after` have the fields that it changed."""

    at_ms: int
    who: str
    via: str
    address: str
    action: str
    """Such as `key.create`."""
    subject: str
    """The id of what it concerns."""
    before: Mapping[str, Any] = {}
    after: Mapping[str, Any] = {}


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Selects entries of the audit log. An empty field does not filter."""

    since_ms: int | None = None
    until_ms: int | None = None
    who: str = ""
    """A user, or its name without the id."""
    action: str = ""
    """An action, or the first part of one, such as `key`."""
    subject: str = ""


def entry_of(
    actor: Actor,
    at_ms: int,
    action: str,
    subject: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """The record of an act."""
    return AuditEntry(
        at_ms=at_ms,
        who=actor.who,
        via=actor.via,
        address=actor.address,
        action=action,
        subject=subject,
        before=before or {},
        after=after or {},
    )


def key_change(actor: Actor, at_ms: int, before: Key | None, after: Key) -> AuditEntry | None:
    """The record of a change of a key; None if nothing changed."""
    if before is None:
        return entry_of(actor, at_ms, "key.create", after.id, after=_facts(after))
    if before.digest != after.digest:
        action = "key.rotate"
    else:
        action = "key.revoke" if before.revoked_ms != after.revoked_ms else "key.update"
    return _change(actor, at_ms, action, after.id, _facts(before), _facts(after))


def team_change(actor: Actor, at_ms: int, before: Team | None, after: Team) -> AuditEntry | None:
    """The record of a change of a team; None if nothing changed."""
    if before is None or (before.deleted_ms is not None and after.deleted_ms is None):
        return entry_of(actor, at_ms, "team.create", after.path, after=_facts(after))
    action = "team.delete" if before.deleted_ms != after.deleted_ms else "team.update"
    return _change(actor, at_ms, action, after.path, _facts(before), _facts(after))


def _change(
    actor: Actor, at_ms: int, action: str, subject: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> AuditEntry | None:
    before = {name: old[name] for name in new if new[name] != old[name]}
    return entry_of(actor, at_ms, action, subject, before, {name: new[name] for name in before}) if before else None


def _facts(subject: Key | Team) -> dict[str, Any]:
    """What is recorded of a key or a team."""
    shown = facts(subject)
    return {name: shown[name] for name in shown if name not in _UNCHANGING} if isinstance(subject, Key) else shown


def audit_json(entry: AuditEntry) -> dict[str, object]:
    """An entry as the admin API shows it."""
    fields = structs.asdict(entry)
    return {"at": moment(fields.pop("at_ms"))} | fields

"""Audit: the append-only record of administrative acts and of looks at content. No secret is in it."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from penstock.amounts import moment, money
from penstock.gateway.content.end_users import PREFIX
from penstock.gateway.keys.keys import Key
from penstock.gateway.keys.report import end_users
from penstock.gateway.people.roles import Via
from penstock.gateway.teams.team import Team

# The fields of keys that entries do not have: digests of secrets, what never changes, what is not stored. All others
# are recorded, so a new field is too.
_NOT_RECORDED = frozenset(
    {
        *("digest", "previous", "id", "created_ms", "subject", "holder", "spender"),
        *("further", "user_limits", "team_models", "team_refusal"),
    }
)
_MONEY = frozenset({"budget"})


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


def user_subject(name: str) -> str:
    """How an act on an end user names it: by its pseudonym. A name would outlive the user's erasure here."""
    return name if name.startswith(PREFIX) else "(given by name)"


def key_change(actor: Actor, at_ms: int, before: Key | None, after: Key) -> AuditEntry | None:
    """The record of a change of a key; None if nothing changed."""
    if before == after:
        return None
    new = _facts(after)
    if before is None:
        return entry_of(actor, at_ms, "key.create", after.id, after=new)
    old = _facts(before)
    changed = [name for name in new if new[name] != old[name]]
    if before.digest != after.digest:
        action = "key.rotate"
    elif "revoked" in changed:
        action = "key.revoke"
    else:
        action = "key.update"
    return entry_of(
        actor, at_ms, action, after.id, {name: old[name] for name in changed}, {name: new[name] for name in changed}
    )


def team_change(actor: Actor, at_ms: int, before: Team | None, after: Team) -> AuditEntry | None:
    """The record of a change of a team; None if nothing changed."""
    new, old = _facts(after), _facts(before) if before is not None else {}
    changed = [name for name in new if new[name] != old.get(name)]
    if before is None or (before.deleted_ms is not None and after.deleted_ms is None):
        return entry_of(actor, at_ms, "team.create", after.path, after=new)
    if not changed:
        return None
    action = "team.delete" if "deleted" in changed else "team.update"
    return entry_of(
        actor, at_ms, action, after.path, {name: old[name] for name in changed}, {name: new[name] for name in changed}
    )


def _facts(subject: Key | Team) -> dict[str, Any]:
    """The public fields of a key or a team, as the API shows them."""
    facts: dict[str, Any] = {}
    for name, value in structs.asdict(subject).items():
        if name in _NOT_RECORDED and isinstance(subject, Key):
            continue
        if name.endswith("_ms"):
            facts[name.removesuffix("_ms")] = moment(value)
        elif name in _MONEY:
            facts[name] = money(value)
        elif name == "budgets":
            facts[name] = {period: money(amount) for period, amount in value.items()}
        elif name == "end_users":
            facts[name] = end_users(value)
        else:
            facts[name] = value
    return facts


def audit_json(entry: AuditEntry) -> dict[str, object]:
    """An entry as the admin API shows it."""
    fields = structs.asdict(entry)
    return {"at": moment(fields.pop("at_ms"))} | fields

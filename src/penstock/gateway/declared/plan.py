"""DeclaredPlan: what has to change so that the ledger has the teams and keys that a file declares. Pure.

1. A file owns what has its name in `managed_by`. It changes, blocks, revokes and deletes nothing else.
2. What it declares and no file manages is a conflict, unless it may adopt it; what another file manages is always one.
3. A plan with a conflict is not carried out, not even in parts.
4. A key is found by its name: the active one, or the last one of its own that has expired. A key that was revoked is
   made anew.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs

from penstock.errors import AdminError
from penstock.gateway.declared.declaration import Declaration, declared_key, declared_team
from penstock.gateway.keys.fields import KEY_FIELDS, TEAM_FIELDS
from penstock.gateway.keys.keys import Key, Limited
from penstock.gateway.keys.report import facts
from penstock.gateway.keys.team_path import ancestry, is_team_path, level_of, within
from penstock.gateway.keys.terms import check_manager
from penstock.gateway.teams.team import NO_POLICY, Team

Action: TypeAlias = Literal["create", "update", "adopt", "delete", "block"]
Kind: TypeAlias = Literal["organisation", "team", "project", "key"]
Table: TypeAlias = Literal["managed_by", "teams", "keys"]
ENDS: tuple[Action, ...] = ("delete", "block")
"""The actions that end something which works now."""


class PlannedChange(Struct, frozen=True, kw_only=True):
    """One change. `before` and `after` have the values that it changes, by the names of fields: `budgets.month`."""

    action: Action
    kind: Kind
    name: str
    """The name of the key, or the path of the team."""
    id: str | None = None
    """The id of the key; null if it is created."""
    before: Mapping[str, Any] = {}
    after: Mapping[str, Any] = {}


class Conflict(Struct, frozen=True, kw_only=True):
    """Why a plan cannot be carried out: where in the file, and what to do."""

    table: Table
    name: str
    field: str
    message: str


class PlanReport(Struct, frozen=True, kw_only=True):
    """A plan, as it is shown. `fingerprint` is the same for the same changes."""

    changes: Sequence[PlannedChange]
    conflicts: Sequence[Conflict]
    notes: Sequence[str]
    fingerprint: str


class SecretDigest(Struct, frozen=True):
    """The secret of a new key, which its owner made: its SHA-256, and its last four characters."""

    digest: Annotated[bytes, Meta(min_length=32, max_length=32)]
    hint: Annotated[str, Meta(min_length=4, max_length=4)]


class DeclaredPlan(NamedTuple):
    """What is shown, and what is stored."""

    report: PlanReport
    teams: list[Team]
    keys: list[Key]


def make_plan(
    declaration: Declaration, teams: Sequence[Team], keys: Sequence[Key], now_ms: int, *, adopt: bool
) -> DeclaredPlan:
    """The plan for the present teams and keys. New keys have no secrets yet."""
    draft = _Draft(declaration, now_ms, adopt=adopt)
    draft.teams = {team.path: team for team in teams if team.deleted_ms is None}
    draft.keys = {key.id: key for key in keys if not key.unusable(now_ms)}
    draft.add_all(keys)
    changes = draft.changes
    fingerprint = blake2b(msgspec.json.encode(changes, order="sorted"), digest_size=16).hexdigest()
    report = PlanReport(changes=changes, conflicts=draft.conflicts, notes=draft.notes, fingerprint=fingerprint)
    return DeclaredPlan(report, list(draft.changed_teams.values()), list(draft.changed_keys.values()))


def check(declaration: Declaration, now_ms: int) -> Sequence[Conflict]:
    """The values of a file that are invalid, whatever the ledger has."""
    draft = _Draft(declaration, now_ms, adopt=False)
    draft.check_manager()
    for path in declaration.teams:
        draft.wanted_team(path)
    for name in declaration.keys:
        draft.wanted_key(name, None)
    return draft.conflicts


class _Draft:
    """A plan while it is made. `teams` and `keys` are those that can be used after it."""

    def __init__(self, declaration: Declaration, now_ms: int, *, adopt: bool) -> None:
        self._declared = declaration
        self._now_ms = now_ms
        self._adopt = adopt
        self.teams: dict[str, Team] = {}
        self.keys: dict[str, Key] = {}
        self.changes: list[PlannedChange] = []
        self.conflicts: list[Conflict] = []
        self.notes: list[str] = []
        self.changed_teams: dict[str, Team] = {}
        self.changed_keys: dict[str, Key] = {}

    def add_all(self, keys: Sequence[Key]) -> None:
        """Add all changes: first those that make something, then those that end something."""
        self.check_manager()
        for path in sorted(self._declared.teams):
            self._declare_team(path)
        own = [key for key in self.keys.values() if self._owns(key)]
        declared = self._declare_keys(keys)
        gone = [key for key in own if key.id not in declared]
        empty = [team for team in self.teams.values() if self._owns(team) and team.path not in self._declared.teams]
        if self._declared.prune == "keep":
            left: list[Team | Key] = [*gone, *empty]
            self.notes += [f"{_noun(each)} is not in the file any more; it stays, because of prune" for each in left]
        else:
            for key in gone:
                self._end_key(key)
            for team in sorted(empty, key=lambda each: each.path, reverse=True):
                self._end_team(team)
        self._check_places()

    def check_manager(self) -> None:
        """Report a missing or invalid name of the file."""
        try:
            if not check_manager(self._declared.managed_by):
                raise AdminError('is missing: give the file a name of its own, such as managed_by = "platform"')
        except AdminError as error:
            self._conflict("managed_by", "", str(error))

    def wanted_team(self, path: str) -> Team | None:
        """The team that the file declares; None if a value is invalid."""
        try:
            settings = self._declared.teams[path]
            return declared_team(path, settings, self.teams.get(path), self._declared.managed_by, self._now_ms)
        except AdminError as error:
            self._conflict("teams", path, str(error), error.param)
            return None

    def wanted_key(self, name: str, present: Key | None) -> Key | None:
        """The key that the file declares; None if a value is invalid."""
        try:
            settings = self._declared.keys[name]
            return declared_key(name, settings, present, self._declared.managed_by, self._now_ms)
        except AdminError as error:
            self._conflict("keys", name, str(error), error.param)
            return None

    def _declare_team(self, path: str) -> None:
        present, wanted = self.teams.get(path), self.wanted_team(path)
        if wanted is None or (present is not None and not self._may_change("teams", path, present)):
            return
        self.teams[path] = wanted
        if present == wanted:
            self._note_blocked(wanted)
            return
        self.changed_teams[path] = wanted
        self._change(level_of(path), path, present, wanted)

    def _declare_keys(self, keys: Sequence[Key]) -> set[str]:
        """Add the changes that make the declared keys; returns the ids of those that were there."""
        expired = [key for key in keys if self._owns(key) and key.state(self._now_ms) == "expired"]
        found = {key.name: key for key in (*expired, *self.keys.values())}  # the last one wins
        ids = set()
        for name in self._declared.keys:
            present = found.get(name)
            if present is not None:
                ids.add(present.id)
            if present is None or self._may_change("keys", name, present):
                self._declare_key(name, present)
        return ids

    def _declare_key(self, name: str, present: Key | None) -> None:
        wanted = self.wanted_key(name, present)
        if wanted is None:
            return
        expired = wanted.unusable(self._now_ms)
        if present is None and expired:
            self.notes.append(f"the key {name} is not made, because it would have expired: change its expires")
            return
        if not expired:
            self.keys[wanted.id] = wanted
        else:
            self.keys.pop(wanted.id, None)
        if present == wanted:
            self._note_blocked(wanted)
            return
        self.changed_keys[wanted.id] = wanted
        self._change("key", name, present, wanted)

    def _may_change(self, table: Table, name: str, present: Team | Key) -> bool:
        """Whether the file owns something, or may adopt it; otherwise a conflict is noted."""
        if self._owns(present) or (not present.managed_by and self._adopt):
            return True
        if not present.managed_by:
            self._conflict(table, name, "exists, and no file manages it: --adopt takes it over, or use another name")
        else:
            command = f"penstock {table} update {name} --managed-by none"
            self._conflict(
                table, name, f"is managed by {present.managed_by}: remove it there, or release it: {command}"
            )
        return False

    def _owns(self, subject: Team | Key) -> bool:
        return bool(subject.managed_by) and subject.managed_by == self._declared.managed_by

    def _end_key(self, key: Key) -> None:
        """Revoke or block a key that the file no longer has."""
        if self._declared.prune == "delete":
            del self.keys[key.id]
            self.changed_keys[key.id] = structs.replace(key, revoked_ms=self._now_ms)
            self._ended("delete", "key", key.name, key.id)
        elif key.blocked_ms is None:
            self.changed_keys[key.id] = self.keys[key.id] = structs.replace(key, blocked_ms=self._now_ms)
            self._ended("block", "key", key.name, key.id)

    def _end_team(self, team: Team) -> None:
        """Delete or block a team that the file no longer has. Those below it come first."""
        level = level_of(team.path)
        if self._declared.prune == "block":
            if team.blocked_ms is None:
                self.changed_teams[team.path] = structs.replace(team, blocked_ms=self._now_ms)
                self._ended("block", level, team.path)
            return
        users = [_noun(each) for each in self.teams.values() if each.path != team.path and within(each.path, team.path)]
        users += [_noun(each) for each in self.keys.values() if each.team == team.path]
        if users:
            what = f"{users[0]}{f' and {len(users) - 1} more' if len(users) > 1 else ''}"
            self._conflict(
                "teams",
                team.path,
                f"is not in the file any more, but has {what}: move or delete that first, keep the team in the file, "
                'or set prune = "block"',
            )
            return
        del self.teams[team.path]
        self.changed_teams[team.path] = structs.replace(team, deleted_ms=self._now_ms)
        self._ended("delete", level, team.path)

    def _check_places(self) -> None:
        """Report teams and keys below a team that neither exists nor is declared."""
        known = {*self.teams, *self._declared.teams}
        for path in sorted(self._declared.teams):
            missing = [above for above in ancestry(path)[1:] if above not in known]
            if missing:
                self._conflict("teams", path, f'there is no team {missing[-1]}: add [teams."{missing[-1]}"]')
        for name, settings in self._declared.keys.items():
            if settings.team and settings.team not in known and is_team_path(settings.team):
                message = f'there is no team {settings.team}: add [teams."{settings.team}"]'
                self._conflict("keys", name, message, "team")

    def _note_blocked(self, subject: Team | Key) -> None:
        declared = self._declared.keys[subject.name] if isinstance(subject, Key) else self._declared.teams[subject.path]
        if subject.blocked_ms is not None and declared.blocked is not True:
            self.notes.append(f"{_noun(subject)} is blocked, and stays so: blocked = false unblocks it")

    def _change(self, kind: str, name: str, present: Team | Key | None, wanted: Team | Key) -> None:
        before, after = _shown(present), _shown(wanted)
        names = [each for each in {**before, **after} if before.get(each) != after.get(each)]
        action: Action = "update" if present is not None else "create"
        if present is not None and not present.managed_by:
            action = "adopt"
        self.changes.append(
            PlannedChange(
                action=action,
                kind=kind,  # type: ignore[arg-type]  # a level, or `key`
                name=name,
                id=present.id if isinstance(present, Key) else None,
                before={each: before[each] for each in names if each in before},
                after={each: after[each] for each in names if each in after},
            )
        )

    def _ended(self, action: Action, kind: str, name: str, id: str | None = None) -> None:
        self.changes.append(PlannedChange(action=action, kind=kind, name=name, id=id))  # type: ignore[arg-type]

    def _conflict(self, table: Table, name: str, message: str, field: str | None = None) -> None:
        self.conflicts.append(Conflict(table=table, name=name, field=field or "", message=message))


def _noun(subject: Team | Key) -> str:
    return f"the key {subject.name}" if isinstance(subject, Key) else f"the {subject.level} {subject.path}"


def _shown(subject: Limited | None) -> dict[str, Any]:
    """The values of a team or a key that a file can declare, except those of a new one."""
    if subject is None:
        return {}
    fields, all_facts = KEY_FIELDS if isinstance(subject, Key) else TEAM_FIELDS, facts(subject)
    shown = {field.name: all_facts[field.name] for field in fields if field.name not in ("name", "managed_by")}
    shown["blocked"] = subject.blocked_ms is not None
    if shown.get("budget") is None:
        shown.pop("period", None)
    if isinstance(subject, Team) and subject.member_keys == NO_POLICY:
        del shown["member_keys"]
    return dict(_flat("", shown))


def _flat(prefix: str, value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for name, each in value.items():
        if isinstance(each, Mapping):
            flat += _flat(f"{prefix}{name}.", each)
        elif each not in (None, "", (), False):
            flat.append((f"{prefix}{name}", each))
    return flat

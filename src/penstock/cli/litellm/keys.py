"""Converts LiteLLM's organizations, teams, projects and keys into teams and keys of Penstock.

LiteLLM stores the SHA-256 of a key, in hexadecimal. It looks up keys without the prefix `sk-` as they are, so a
database may have such keys. Penstock stores the SHA-256 of every key, so all of them go on working.

LiteLLM counts what a key, a team and an organization have spent in three counters, which it resets at different times,
or never where there is no budget. Penstock sums up entries. So that the same is left of every budget:

- A key with a budget has one entry of what its counter says. What a key without a budget has spent is not taken over.
- A team with a budget has an entry of the difference between its counter and what the entries below it add up to. It
  is negative if the team's counter was reset later than those of its keys. Inner teams come first.
- A counter whose reset is due counts as zero, as it will be in LiteLLM after the next run of its job.

A key or a team that exists is left as it is, so an import can be repeated.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain
from typing import Any

from msgspec import structs

from penstock.amounts import NANODOLLARS
from penstock.cli.litellm.database import LitellmTables, TableRow
from penstock.cli.litellm.durations import MONTH_S, seconds_of
from penstock.cli.litellm.findings import UNKNOWN, Findings
from penstock.errors import AdminError
from penstock.gateway.billing.queries import TakenOver
from penstock.gateway.keys.key_secret import digest_of
from penstock.gateway.keys.keys import Key
from penstock.gateway.keys.quota import Period
from penstock.gateway.keys.team_path import within
from penstock.gateway.keys.terms import MAX_TAGS, check_limit, check_models, check_name, is_text
from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.gateway.teams.team import Team

_HASHED = re.compile(r"[0-9a-f]{64}")
_NOT_IN_A_PATH = re.compile(r"[^A-Za-z0-9._-]+")
_PERIODS: tuple[tuple[int, Period], ...] = ((86_400, "day"), (604_800, "week"), (MONTH_S, "month"))
# Names in lists of models that mean all models, or those of the team.
ALL_MODELS = frozenset(("all-proxy-models", "all-team-models", "*"))
_LIMITS = {
    "rpm_limit": "requests_per_minute",
    "tpm_limit": "tokens_per_minute",
    "max_parallel_requests": "concurrent",
}
# Columns without a meaning for Penstock, or read with others.
_SILENT = frozenset(
    (
        "token", "key_name", "key_alias", "team_id", "team_alias", "organization_id", "organization_alias",
        "project_id", "project_alias", "budget_id", "description", "created_at", "created_by", "updated_at",
        "updated_by", "settings_updated_at", "last_active", "budget_reset_at", "total_spend", "model_spend",
        "soft_budget_cooldown", "rotation_count", "last_rotation_at", "spend", "max_budget",
        "budget_duration", "models", "expires", "blocked", "user_id", "admins", "members",
        "members_with_roles", "key_type", "model_id", "team_member_permissions", "rpm_limit", "tpm_limit",
        "max_parallel_requests",
    )
)  # fmt: skip
_NOTES = {
    "metadata": "Penstock keeps no metadata of teams; give their keys tags",
    "model_max_budget": "a budget for one model: create a key for it with --model and --budget",
    "budget_limits": "several budgets: penstock keys update NAME --further-budget 5/day",
    "soft_budget": "warnings are not made from it: see docs/alerts.yaml",
    "tpd_limit": "Penstock limits tokens per minute, and dollars per day",
    "aliases": "write a route for each alias",
    "allowed_routes": "a key can use all APIs for models, and no admin API",
}
# The columns of a key that say where it belongs, the innermost first.
ABOVE = ("project_id", "team_id", "organization_id")
# Metadata of a key that LiteLLM acts on.
_INCREASE, _INCREASE_UNTIL = "temp_budget_increase", "temp_budget_expiry"
_LITELLM_METADATA = frozenset((
    _INCREASE, _INCREASE_UNTIL, "model_rpm_limit", "model_tpm_limit", "rpm_limit_type", "tpm_limit_type", "guardrails",
    "logging", "policies", "enforced_params", "service_account_id", "disable_global_guardrails",
))  # fmt: skip


class KeyConversion:
    """Converts the tables for one state of the book."""

    def __init__(
        self, tables: LitellmTables, findings: Findings, now_ms: int, access_groups: Mapping[str, list[str]]
    ) -> None:
        """`access_groups` are the model names of each access group."""
        self._tables = tables
        self._access_groups = access_groups
        self._findings = findings
        self._now_ms = now_ms
        self._teams: dict[str, Team] = {}
        self._keys: list[Key] = []
        self._spent: list[tuple[str, Key | Team, int]] = []

    def convert(self, teams: Iterable[Team], keys: Iterable[Key]) -> TakenOver:
        """What to add to these teams and keys."""
        existing = {team.path for team in teams if team.deleted_ms is None}
        paths = self._organise()
        digests = {digest: key for key in keys for digest in (key.digest, key.previous)}
        names = {key.name for key in keys if not key.unusable(self._now_ms)}
        for row in self._tables.keys:
            self._key(row, paths, digests, names)
        for path in existing & self._teams.keys():
            self._findings.approximated(f"team {path}", "there is a team with this path: it is left as it is")
        for table, (number, note) in self._tables.others.items():
            self._findings.impossible(f"{table} ({number})", note)
        new = {path: team for path, team in self._teams.items() if path not in existing}
        return TakenOver(list(new.values()), self._keys, self._entries(new))

    def _organise(self) -> dict[str, str]:
        """Convert organizations, teams and projects; returns their paths by their ids."""
        paths: dict[str, str] = {}
        levels = (
            ("organization", self._tables.organizations, ""),
            ("team", self._tables.teams, "organization_id"),
            ("project", self._tables.projects, "team_id"),
        )
        for level, rows, above in levels:
            for row in rows:
                parent = paths.get(str(row.get(above) or ""), "") if above else ""
                name = _NOT_IN_A_PATH.sub("-", str(row.get(f"{level}_alias") or row[f"{level}_id"]))
                path = self._free_path(f"{parent}/" if parent else "", name.strip("-._")[:60] or level)
                paths[row[f"{level}_id"]] = path
                try:
                    terms = self._terms(f"{level} {path}", row)
                except AdminError as error:
                    raise AdminError(f"nothing was imported: {level} {path}: {error}") from None
                period, budget = terms.pop("period", "total"), terms.pop("budget", None)
                team = Team(path=path, created_ms=self._now_ms, budgets={} if budget is None else {period: budget})
                self._teams[path] = structs.replace(team, **terms)
                self._spend(f"{level} {path}", row, self._teams[path])
        return paths

    def _free_path(self, above: str, name: str) -> str:
        path, number = above + name, 1
        while path in self._teams:
            number += 1
            path = f"{above}{name}-{number}"
        return path

    def _key(self, row: TableRow, paths: Mapping[str, str], digests: Mapping[bytes, Key], names: set[str]) -> None:
        token, digest = str(row["token"]), digest_in(row)
        name = str(row.get("key_alias") or f"litellm-{digest.hex()[:8]}")
        field = f"key {name}"
        if digest in digests:
            self._findings.taken(field, f"is the key {digests[digest].id} already, and left as it is")
            return
        free, number = name, 1
        while free in names:
            number += 1
            free = f"{name}-{number}"
        try:
            check_name(free)
            terms = self._terms(field, row)
        except AdminError as error:
            self._findings.impossible(field, f"was not imported: {error}")
            return
        names.add(free)
        if free != name:
            self._findings.approximated(f"{field}.key_alias", f"is named {free}, because there is a key {name}")
        path = next((paths[id] for each in ABOVE if (id := str(row.get(each) or "")) in paths), "")
        terms["tags"] = self._tags(field, row)
        if (expires := _moment(row.get("expires"))) is not None:
            terms["expires_ms"] = expires
            self._findings.taken(f"{field}.expires")
        shown = str(row.get("key_name") or "") if _HASHED.fullmatch(token) else token
        key = Key(
            id=f"key_{digest.hex()[:12]}",
            name=free,
            digest=digest,
            hint=shown[-4:],
            created_ms=_moment(row.get("created_at")) or self._now_ms,
            team=path,
        )
        key = structs.replace(key, **terms)
        self._keys.append(key)
        self._findings.taken(field, f"{key.id} in the team {path}" if path else key.id)
        self._spend(field, row, key)

    def _tags(self, field: str, row: TableRow) -> dict[str, str]:
        """The tags of a key: its user, and its metadata that are texts or numbers, or lists of them."""
        tags: dict[str, str] = {}
        if is_text(user := str(row.get("user_id") or "")):
            tags["litellm_user"] = user
            self._findings.approximated(f"{field}.user_id", "the tag litellm_user")
        metadata = row.get("metadata")
        for name, value in metadata.items() if isinstance(metadata, dict) else ():
            where, text = f"{field}.metadata.{name}", _tag_value(value)
            if name in _LITELLM_METADATA:
                if name not in (_INCREASE, _INCREASE_UNTIL):
                    self._findings.impossible(where, UNKNOWN)
            elif text is None or not is_text(name) or len(tags) >= MAX_TAGS:
                self._findings.impossible(where, f"no tag: a key has at most {MAX_TAGS}, of at most 200 characters")
            else:
                tags[name] = text
                self._findings.taken(where, "a tag of its calls")
        return tags

    def _budget(self, field: str, given: TableRow) -> tuple[int | None, Period]:
        """The budget in nanodollars, and its period."""
        budget = budget_of(given, self._now_ms)
        if budget is None:
            if given.get("max_budget") is not None:
                self._findings.approximated(f"{field}.max_budget", "no budget: LiteLLM does not check this one")
            return None, "total"
        period, note, exact = _period(given.get("budget_duration"))
        (self._findings.taken if exact else self._findings.approximated)(f"{field}.max_budget", note)
        if _increase(given, self._now_ms):
            until = given["metadata"][_INCREASE_UNTIL]
            note = f"part of the budget: lower it when it ends, at {until}"
            self._findings.approximated(f"{field}.metadata.{_INCREASE}", note)
        return budget, period

    def _terms(self, field: str, row: TableRow) -> dict[str, Any]:
        """The limits of a key or a team."""
        given = self._tables.columns(row)
        terms: dict[str, Any] = {}
        blocked = bool(row.get("blocked"))
        if blocked:
            self._findings.taken(f"{field}.blocked")
        budget, period = self._budget(field, given)
        if budget is not None:
            terms["budget"], terms["period"] = budget, period
        for theirs, ours in _LIMITS.items():
            limit = given.get(theirs)
            if limit is not None and limit <= 0:
                blocked = True
                self._findings.approximated(f"{field}.{theirs}", "it is 0, which allows no call: blocked")
            elif limit is not None:
                terms[ours] = check_limit(int(limit), ours)
                self._findings.taken(f"{field}.{theirs}")
        if models := given.get("models"):
            allowed = chain.from_iterable(self._access_groups.get(name, [name]) for name in models)
            terms["models"] = check_models(tuple(dict.fromkeys(allowed))) if not ALL_MODELS & set(models) else ()
            self._findings.taken(f"{field}.models")
        if blocked:
            terms["blocked_ms"] = self._now_ms
        for name, value in given.items():
            is_tags = name == "metadata" and field.startswith("key ")
            if name not in _SILENT and not is_tags and value not in (None, "", 0, False, [], {}):
                self._findings.impossible(f"{field}.{name}", _NOTES.get(name, UNKNOWN))
        return terms

    def _spend(self, field: str, row: TableRow, of: Key | Team) -> None:
        """Note what a key or a team has spent, if it has a budget."""
        counter, spent = _nanodollars(row.get("spend")) or 0, spent_of(self._tables.columns(row), self._now_ms)
        if not (of.budgets if isinstance(of, Team) else of.budget is not None):
            if counter > 0:
                self._findings.approximated(f"{field}.spend", "not taken over: no budget counts it")
            return
        if spent != counter:
            self._findings.approximated(f"{field}.spend", "nothing: the reset of its budget is due")
        self._spent.append((field, of, spent))

    def _entries(self, new: Mapping[str, Team]) -> list[Entry]:
        """One entry for what each key has spent, then for the rest of each team, from the innermost outwards."""
        entries: list[Entry] = []
        keys = [(field, of, spent) for field, of, spent in self._spent if isinstance(of, Key)]
        for field, key, spent in keys:
            if spent > 0:
                entries.append(self._entry(key.id, key.id, key.team, spent))
                self._findings.taken(f"{field}.spend", "one ledger entry of today")
        teams = [(field, of, spent) for field, of, spent in self._spent if isinstance(of, Team) and of.path in new]
        for field, team, spent in sorted(teams, key=lambda each: -each[1].path.count("/")):
            rest = spent - sum(entry.priced for entry in entries if within(entry.team, team.path))
            if rest:
                entries.append(self._entry(team.path, "", team.path, rest))
                self._findings.taken(f"{field}.spend", "one ledger entry of today, without what entries below it have")
        return entries

    def _entry(self, subject: str, key: str, team: str, spent: int) -> Entry:
        attempt = AttemptEntry(
            provider="litellm", model="imported", outcome="completed", measure="reported", cost=spent, price="litellm"
        )
        return Entry(
            id=f"litellm-{digest_of(subject).hex()[:24]}",
            at_ms=self._now_ms,
            key=key,
            team=team,
            model="litellm/imported",
            outcome="completed",
            attempts=(attempt,),
        )


def budget_of(given: TableRow, now_ms: int) -> int | None:
    """The budget that LiteLLM checks, in nanodollars. None if there is none; it ignores one of 0 of an organization."""
    budget = _nanodollars(given.get("max_budget"))
    if budget is None or (budget <= 0 and "organization_alias" in given):
        return None
    return budget + _increase(given, now_ms)


def spent_of(given: TableRow, now_ms: int) -> int:
    """What counts as spent, in nanodollars: nothing if the reset of the counter is due."""
    reset = _moment(given.get("budget_reset_at"))
    due = given.get("budget_duration") and reset is not None and reset <= now_ms
    return 0 if due else _nanodollars(given.get("spend")) or 0


def _increase(given: TableRow, now_ms: int) -> int:
    """The temporary increase of a key's budget."""
    metadata = given.get("metadata")
    until = _moment(metadata.get(_INCREASE_UNTIL)) if isinstance(metadata, dict) else None
    return (_nanodollars(metadata.get(_INCREASE)) or 0) if metadata and until is not None and until > now_ms else 0


def expired(row: TableRow, now_ms: int) -> bool:
    """Whether a key has expired."""
    return (until := _moment(row.get("expires"))) is not None and until <= now_ms


def digest_in(row: TableRow) -> bytes:
    """The SHA-256 of a key in the database, which has it, or the key as it is."""
    token = str(row["token"])
    return bytes.fromhex(token) if _HASHED.fullmatch(token) else digest_of(token)


def _period(duration: object) -> tuple[Period, str, bool]:
    """The period for a duration, a note, and whether it is the same. Never one that allows more."""
    seconds = seconds_of(duration) if duration else None
    if seconds is None:
        return "total", "in total", duration is None
    period = next((name for length, name in _PERIODS if seconds <= length), None)
    if period is None:
        return "total", f"in total, instead of for each {duration}: raise it when it is used up", False
    exact = (seconds, period) in _PERIODS
    return period, f"for each {period} of the calendar (UTC)" + ("" if exact else f", instead of {duration}"), exact


def _nanodollars(dollars: object) -> int | None:
    """An amount of the database; None if it is missing or not finite, which LiteLLM takes as no limit."""
    amount = Decimal(str(dollars)) if dollars is not None else None
    return int(amount * NANODOLLARS) if amount is not None and amount.is_finite() else None


def _tag_value(value: object) -> str | None:
    items = value if isinstance(value, list) else [value]
    if not items or not all(isinstance(each, str | int | float) for each in items):
        return None
    text = ",".join(map(str, items))
    return text if is_text(text) else None


def _moment(text: object) -> int | None:
    """Milliseconds since 1970 of a time in the database, which is in UTC."""
    if not isinstance(text, str):
        return None
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)

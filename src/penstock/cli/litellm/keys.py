"""Converts LiteLLM's organizations, teams, projects and keys into teams and keys of Penstock.

LiteLLM stores the SHA-256 of a key, in hexadecimal. It looks up keys without the prefix `sk-` as they are, so a
database may have such keys. Penstock stores the SHA-256 of every key, so all of them go on working.

What was spent becomes one ledger entry for each key. A team has spent what its keys have; the rest of what LiteLLM says
becomes an entry without a key. A key or a team that exists is left as it is, so an import can be repeated.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from msgspec import structs

from penstock.cli.litellm.database import LitellmTables, TableRow
from penstock.cli.litellm.findings import Findings
from penstock.errors import KeyTermsError
from penstock.gateway.billing.book import TakenOver
from penstock.gateway.billing.entry import NANODOLLARS, AttemptEntry, Entry
from penstock.gateway.keys.keys import Key, Period, digest_of
from penstock.gateway.keys.terms import check_limit, check_models, check_name
from penstock.gateway.teams.team import Team, within

_HASHED = re.compile(r"[0-9a-f]{64}")
_NOT_IN_A_PATH = re.compile(r"[^A-Za-z0-9._-]+")
_DURATION = re.compile(r"(\d+)(s|m|h|d|w|mo)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "mo": 31 * 86_400}
_PERIODS: tuple[tuple[int, Period], ...] = ((86_400, "day"), (604_800, "week"), (31 * 86_400, "month"))
# Names in lists of models that mean all models, or those of the team.
_ALL_MODELS = frozenset(("all-proxy-models", "all-team-models", "*"))
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
        "max_parallel_requests", "temp_budget_expiry",
    )
)  # fmt: skip
_NOTES = {
    "metadata": "give the key tags: penstock keys update NAME --tag NAME=VALUE",
    "model_max_budget": "a budget for one model: create a key for it with --model and --budget",
    "budget_limits": "several budgets: penstock keys update NAME --further-budget 5/day",
    "soft_budget": "warnings are not made from it: see docs/alerts.yaml",
    "tpd_limit": "Penstock limits tokens per minute, and dollars per day",
    "aliases": "write a route for each alias",
    "allowed_routes": "a key can use all APIs for models, and no admin API",
}
# The columns of a key that say where it belongs, the innermost first.
_ABOVE = ("project_id", "team_id", "organization_id")
_OTHER = "Penstock has no such setting"


class KeyConversion:
    """Converts the tables for one state of the book."""

    def __init__(self, tables: LitellmTables, findings: Findings, now_ms: int) -> None:
        self._tables = tables
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
                except KeyTermsError as error:
                    raise KeyTermsError(f"nothing was imported: {level} {path}: {error}") from None
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
        token = str(row["token"])
        digest = bytes.fromhex(token) if _HASHED.fullmatch(token) else digest_of(token)
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
        except KeyTermsError as error:
            self._findings.impossible(field, f"was not imported: {error}")
            return
        names.add(free)
        if free != name:
            self._findings.approximated(f"{field}.key_alias", f"is named {free}, because there is a key {name}")
        path = next((paths[id] for each in _ABOVE if (id := str(row.get(each) or "")) in paths), "")
        user = str(row.get("user_id") or "")
        if user and user.isprintable() and user == user.strip() and len(user) <= 200:  # the length of a tag
            terms["tags"] = {"litellm_user": user}
            self._findings.approximated(f"{field}.user_id", "the tag litellm_user")
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

    def _terms(self, field: str, row: TableRow) -> dict[str, Any]:
        """The limits of a key or a team, also those of its row in the table of budgets."""
        shared = self._tables.budgets.get(str(row.get("budget_id") or ""), {})
        given = {**shared, **{name: value for name, value in row.items() if value is not None or name not in shared}}
        terms: dict[str, Any] = {}
        blocked = bool(row.get("blocked"))
        if blocked:
            self._findings.taken(f"{field}.blocked")
        if (budget := given.get("max_budget")) is not None:
            terms["budget"] = _nanodollars(budget)
            terms["period"], note, exact = _period(given.get("budget_duration"))
            (self._findings.taken if exact else self._findings.approximated)(f"{field}.max_budget", note)
        for theirs, ours in _LIMITS.items():
            limit = given.get(theirs)
            if limit is not None and limit <= 0:
                blocked = True
                self._findings.approximated(f"{field}.{theirs}", "it is 0, which allows no call: blocked")
            elif limit is not None:
                terms[ours] = check_limit(int(limit), ours)
                self._findings.taken(f"{field}.{theirs}")
        if models := given.get("models"):
            terms["models"] = check_models(tuple(models)) if not _ALL_MODELS & set(models) else ()
            self._findings.taken(f"{field}.models")
        if blocked:
            terms["blocked_ms"] = self._now_ms
        for name, value in given.items():
            if name not in _SILENT and value not in (None, "", 0, False, [], {}):
                self._findings.impossible(f"{field}.{name}", _NOTES.get(name, _OTHER))
        return terms

    def _spend(self, field: str, row: TableRow, of: Key | Team) -> None:
        if (spent := _nanodollars(row.get("spend") or 0)) > 0:
            self._spent.append((field, of, spent))

    def _entries(self, new: Mapping[str, Team]) -> list[Entry]:
        """One entry for what each key has spent, then for the rest of each team, from the innermost outwards."""
        entries: list[Entry] = []
        keys = [(field, of, spent) for field, of, spent in self._spent if isinstance(of, Key)]
        for field, key, spent in keys:
            entries.append(self._entry(key.id, key.id, key.team, spent))
            self._findings.approximated(f"{field}.spend", "one ledger entry of today")
        teams = [(field, of, spent) for field, of, spent in self._spent if isinstance(of, Team) and of.path in new]
        for field, team, spent in sorted(teams, key=lambda each: -each[1].path.count("/")):
            rest = spent - sum(entry.priced for entry in entries if within(entry.team, team.path))
            if rest > 0:
                entries.append(self._entry(team.path, "", team.path, rest))
            self._findings.approximated(f"{field}.spend", "what its keys have spent, and an entry for the rest")
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


def _period(duration: object) -> tuple[Period, str, bool]:
    """The period for a duration, a note, and whether it is the same. Never one that allows more."""
    match = _DURATION.fullmatch(str(duration)) if duration else None
    if match is None:
        return "total", "in total", duration is None
    seconds = int(match[1]) * _SECONDS[match[2]]
    period = next((name for length, name in _PERIODS if seconds <= length), None)
    if period is None:
        return "total", f"in total, instead of for each {duration}: raise it when it is used up", False
    exact = (seconds, period) in _PERIODS
    return period, f"for each {period} of the calendar (UTC)" + ("" if exact else f", instead of {duration}"), exact


def _nanodollars(dollars: object) -> int:
    return int(Decimal(str(dollars)) * NANODOLLARS)


def _moment(text: object) -> int | None:
    """Milliseconds since 1970 of a time in the database, which is in UTC."""
    if not isinstance(text, str):
        return None
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)

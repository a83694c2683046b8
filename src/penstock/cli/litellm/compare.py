"""Compares what LiteLLM and Penstock would do with a call of one key for one model.

LiteLLM's side is what its own checks say of the rows of its database: the key, its project, team and organization can
each be blocked, allow some models, and have a budget. Penstock's side is what its gateway says of the imported key.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from msgspec import Struct

from penstock.amounts import money
from penstock.cli.litellm.config import Imported
from penstock.cli.litellm.database import LitellmTables, TableRow
from penstock.cli.litellm.keys import ABOVE, ALL_MODELS, budget_of, digest_in, expired, spent_of
from penstock.gateway.config import Config
from penstock.gateway.keys.key_secret import digest_of
from penstock.gateway.keys.period import period_at
from penstock.gateway.teams.chain import Chain
from penstock.stores.book.sql_book import Book

_WIDTH = 60


class Verdict(Struct, frozen=True):
    """What one gateway would do. `refused` is why the call would be refused; empty if it would be sent."""

    refused: str
    targets: list[str]
    left: list[str]
    """What is left of each budget, in dollars: that of the key, then those above it."""


class Comparison(Struct, frozen=True):
    """What both would do."""

    key: str
    model: str
    litellm: Verdict
    penstock: Verdict
    same: bool
    """Whether both would send or both refuse it, with the same left of every budget."""


def compare(
    tables: LitellmTables, imported: Imported, penstock: tuple[Config, Book], of: tuple[str, str], now_ms: int
) -> Comparison | None:
    """What both would do with a call: `of` is the key (its secret or alias) and the model. None without such a key."""
    which, model = of
    digest = digest_of(which)
    row = next((row for row in tables.keys if digest_in(row) == digest or row.get("key_alias") == which), None)
    if row is None:
        return None
    theirs, ours = _litellm(tables, imported, row, model, now_ms), _penstock(*penstock, digest_in(row), model, now_ms)
    same = bool(theirs.refused) == bool(ours.refused) and theirs.left == ours.left
    return Comparison(str(row.get("key_alias") or "the key"), model, theirs, ours, same)


def side_by_side(both: Comparison) -> str:
    """The comparison as text."""
    rows = [
        ("", "LiteLLM", "Penstock"),
        ("call", both.litellm.refused or "sent", both.penstock.refused or "sent"),
        ("targets", *(", ".join(each.targets) or "none" for each in (both.litellm, both.penstock))),
        ("left", *(", ".join(each.left) or "no budget" for each in (both.litellm, both.penstock))),
    ]
    lines = [f"{name:<8} {theirs[:_WIDTH]:<{_WIDTH}} {ours[:_WIDTH]}".rstrip() for name, theirs, ours in rows]
    end = "both do the same" if both.same else "THEY DIFFER"
    return "\n".join([f"{both.key}, {both.model}", *lines, "", end])


def _litellm(tables: LitellmTables, imported: Imported, key: TableRow, model: str, now_ms: int) -> Verdict:
    above = {
        "project_id": {row["project_id"]: row for row in tables.projects},
        "team_id": {row["team_id"]: row for row in tables.teams},
        "organization_id": {row["organization_id"]: row for row in tables.organizations},
    }
    rows, inner = [key], key
    for column in ABOVE:
        found = above[column].get(key.get(column) or inner.get(column))
        if found is not None:
            rows.append(found)
            inner = found
    refused, left = "this key has expired" if expired(key, now_ms) else "", []
    given = [tables.columns(row) for row in rows]
    for number, columns in enumerate(given):
        what = "this key" if not number else "a team or organization of it"
        if columns.get("blocked"):
            refused = refused or f"{what} is blocked"
        if not _allows(columns.get("models"), model, imported.access_groups):
            refused = refused or f"{what} does not allow the model"
        if (budget := budget_of(columns, now_ms)) is not None:
            rest = max(0, budget - spent_of(columns, now_ms))
            left.append(str(money(rest)))
            if not rest:
                refused = refused or f"the budget of {what} is used up"
    targets = _deployments(imported.deployments, model)
    return Verdict(refused or ("" if targets else "there is no such model"), targets, left)


def _allows(models: object, model: str, access_groups: Mapping[str, list[str]]) -> bool:
    if not isinstance(models, list) or not models or ALL_MODELS & set(models):
        return True
    names = [name for each in models for name in access_groups.get(each, [each])]
    return any(fnmatchcase(model, name) for name in names)


def _deployments(given: Mapping[str, list[str]], model: str) -> list[str]:
    if model in given:
        return given[model]
    patterns = [name for name in given if "*" in name and fnmatchcase(model, name)]
    return given[max(patterns, key=len)] if patterns else []


def _penstock(config: Config, book: Book, digest: bytes, model: str, now_ms: int) -> Verdict:
    keys = book.keys()
    stored = next((key for key in keys if digest in (key.digest, key.previous)), None)
    if stored is None:
        return Verdict("the key is not in the ledger: import it first", [], [])
    key = Chain(book.teams()).client_key(stored)
    route = config.route(model)
    refused = key.refusal(now_ms)
    if route is None:
        refused = refused or "there is no such model"
    elif not key.allows(route.name):
        refused = refused or "the key or a team of it does not allow the model"
    left = []
    for quota in key.quotas:
        if quota.budget is not None:
            spent = book.spent(quota.spender, period_at(quota.period, now_ms).since).total
            rest = max(0, quota.budget - spent)
            left.append(str(money(rest)))
            if not rest:
                refused = refused or f"the budget of {quota.holder} is used up"
    return Verdict(refused, [target.name for target in route.targets] if route is not None else [], left)

"""A plan for people: what is made, what changes from what to what, and what ends."""

from collections.abc import Iterator
from typing import Any

import click

from penstock.cli.text import one_line
from penstock.gateway.declared.plan import Action, PlannedChange, PlanReport

# The sign of each action, its colour, and its word in the summary.
_SIGNS: dict[Action, tuple[str, str, str]] = {
    "create": ("+", "green", "to create"),
    "adopt": ("~", "yellow", "to adopt"),
    "update": ("~", "yellow", "to change"),
    "block": ("-", "red", "to block"),
    "delete": ("-", "red", "to delete"),
}
_WIDTH = 24  # of names of fields; longer ones make it wider


def plan_lines(plan: PlanReport) -> Iterator[str]:
    """The lines of a plan, with its notes and a summary."""
    for change in plan.changes:
        sign, colour, _ = _SIGNS[change.action]
        yield click.style(f"  {sign} ", fg=colour) + one_line(f"{change.kind} {change.name}{_about(change)}")
        names = {**change.before, **change.after}
        width = max(_WIDTH, *(len(name) + 2 for name in names)) if names else _WIDTH
        for name in names:
            if change.action == "create":
                yield one_line(f"      {name:<{width}}{_text(change.after[name])}")
            else:
                old, new = (_text(each.get(name)) for each in (change.before, change.after))
                yield one_line(f"      {name:<{width}}{old} → {new}")
    for note in plan.notes:
        yield one_line(f"  note: {note}")
    if plan.changes or plan.notes:
        yield ""
    yield summary(plan)


def summary(plan: PlanReport) -> str:
    """One line: how many changes of each kind."""
    counts = [(sum(each.action == action for each in plan.changes), words[2]) for action, words in _SIGNS.items()]
    listed = ", ".join(f"{count:,} {words}" for count, words in counts if count)
    return f"Plan: {listed}." if listed else "No changes: the ledger is as the file says."


def _about(change: PlannedChange) -> str:
    if change.action == "adopt":
        return ": managed by this file from now on"
    if change.action == "delete" and change.kind == "key":
        return f" ({change.id}): is revoked, for good"
    if change.action == "delete":
        return ": is deleted; its calls stay in the ledger"
    return f" ({change.id}): is blocked" if change.id and change.action == "block" else ""


def _text(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(map(str, value))
        case _:
            return str(value)

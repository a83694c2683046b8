"""Output for people: a table of keys, or the details of one key."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import click

from penstock.cli.table import Column, Table
from penstock.cli.text import one_line
from penstock.gateway.keys.fields import RATES

_HEAD = ("id", "name", "key", "state", "spent", "budget", "limits", "models", "expires", "team")
# Columns that must not be wrapped.
_NO_WRAP = ("id", "key", "state", "expires")
# Of a time, a terminal shows the day.
_EXPIRES = _HEAD.index("expires")
# The order in which columns are dropped on a narrow terminal, highest first.
_SPARE = {"team": 4, "expires": 3, "models": 2, "limits": 1}
_COLUMNS = [
    Column(
        head,
        styles={"active": "green"} if head == "state" else {},
        spare=_SPARE.get(head, 0),
        wraps=head not in _NO_WRAP,
    )
    for head in _HEAD
]

Report: TypeAlias = Mapping[str, Any]


def table(reports: Sequence[Report]) -> None:
    """Print one line per key: tab-separated values with a header, or a table of the used columns on a terminal."""
    rows = [_row(report) for report in reports]
    if sys.stdout.isatty():
        used = [column for column in range(len(_HEAD)) if any(row[column] for row in rows)]
        Table([_COLUMNS[each] for each in used]).show(
            [[row[each][:10] if each == _EXPIRES else row[each] for each in used] for row in rows]
        )
        return
    for row in (_HEAD, *rows):
        click.echo("\t".join(map(one_line, row)))


def details(report: Report) -> str:
    """The details of one key."""
    spent = f"${report['spent']} this {report['period']}" if report["period"] != "total" else f"${report['spent']}"
    rows = {
        "key": f"{report['id']} ({report['name']}), which ends in {report['hint']}",
        "state": f"{report['state']}{_since(report)}",
        "created": report["created"],
        "rotated": _rotated(report),
        "expires": report["expires"] or "never",
        "budget": _budget(report) or "none",
        "spent": spent if report["budget"] is None else f"{spent}; ${report['left']} left{renewed(report)}",
        **{
            f"per {each['period']}": f"${each['spent']} spent of ${each['budget']}; ${each['left']} left"
            for each in report["budgets"]
        },
        "limits": limits(report) or "none",
        "per user": user_limits(report) or "no limits",
        "models": ", ".join(report["models"]) or "all",
        "strict": "yes" if report["strict"] else "no",
        **({"own keys": ", ".join(report["client_credentials"])} if report["client_credentials"] else {}),
        "team": report["team"] or "none",
        **({"managed": f"by {report['managed_by']}"} if report["managed_by"] else {}),
        "tags": ", ".join(f"{name}={value}" for name, value in report["tags"].items()) or "none",
    }
    return "\n".join(one_line(f"{label:<9}{value}") for label, value in rows.items())


def _row(report: Report) -> tuple[str, ...]:
    users = user_limits(report)
    return (
        report["id"],
        report["name"],
        f"…{report['hint']}",
        report["state"],
        f"${report['spent']}",
        _budget(report),
        ", ".join(filter(None, (limits(report), users and f"per user {users}"))),
        ", ".join(report["models"]),
        report["expires"] or "",
        report["team"] or "",
    )


def _budget(report: Report) -> str:
    if report["budget"] is None:
        return ""
    return f"${report['budget']} in all" if report["period"] == "total" else f"${report['budget']}/{report['period']}"


def limits(report: Report) -> str:
    """The limits of a key or a team; empty if it has none."""
    return ", ".join(f"{report[rate.name]} {rate.unit}" for rate in RATES if report[rate.name] is not None)


def user_limits(report: Report) -> str:
    """The limits of each end user of a key or a team; empty if there are none."""
    return limits_of(report["end_users"])


def limits_of(given: Report) -> str:
    """Budgets and limits that are not those of a key or a team itself; empty if there are none."""
    budgets = (f"${amount}/{period}" for period, amount in given["budgets"].items())
    return ", ".join(filter(None, (*budgets, limits(given))))


def policy(given: Report) -> str:
    """The policy for keys of members; empty if there is none."""
    number, days = given["number"], given["days"]
    parts = (
        f"{number} each" if number is not None else "",
        f"for {days} days" if days is not None else "",
        limits_of(given),
        f"models {', '.join(given['models'])}" if given["models"] else "",
    )
    text = ", ".join(filter(None, parts))
    return f"{text}; raised by {given['raised_by']}" if text or given["raised_by"] != "team_admin" else ""


def _since(report: Report) -> str:
    if report["revoked"] is None or report["state"] == "expired":
        return ""
    word = "since" if report["state"] == "revoked" else "until"
    return f" {word} {report['revoked']}"


def _rotated(report: Report) -> str:
    if report["rotated"] is None:
        return "never"
    if report["previous_until"] == report["rotated"]:
        return f"{report['rotated']}; the old secret ended at once"
    return f"{report['rotated']}; the old secret until {report['previous_until']}"


def renewed(budget: Report) -> str:
    """When a budget is renewed, after what is left of it; empty if it never is."""
    return f", whole again on {budget['renewed']}" if budget["renewed"] else ""

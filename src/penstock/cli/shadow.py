"""`penstock shadow`: how targets at which calls were repeated compare with those that answered the clients."""

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import click
from msgspec import Struct

from penstock.amounts import money, short_dollars
from penstock.cli.book import reading
from penstock.cli.options import config_option, json_option, moment_option
from penstock.cli.table import Column, Table
from penstock.cli.text import counted, to_json
from penstock.gateway.billing.queries import Filter
from penstock.gateway.calls.comparison import SHADOW_COMPARED, SHADOW_KEY, SHADOW_OF, AnswerComparison
from penstock.gateway.record.entry import Entry

# The most calls that are read: the newest ones.
_MOST = 1_000
# Below these figures a change is not called safe.
_LEAST_CALLS = 30
_LEAST_COMPLETED = 0.99
_LEAST_SAME_FINISH = 0.97
_LEAST_SAME_TOOLS = 0.95
_LEAST_SIMILARITY = 0.3
_MOST_LATE = 1.5


class RepeatedPair(Struct, frozen=True):
    """A call that was repeated, and its repetition; how the answers differ, if both are complete."""

    original: Entry
    repeated: Entry
    comparison: AnswerComparison | None


class ShadowFigures(Struct, frozen=True, kw_only=True):
    """How a target compares with the one that answered clients. Ratios are medians, of the shadow to the original."""

    calls: int
    completed: float
    same_finish: float
    same_tools: float
    similarity: float
    length: float
    first_event: float
    pace: float
    cost: int
    original_cost: int


@click.command(short_help="Compare the targets that calls were repeated at.")
@click.argument("route", required=False, default="")
@moment_option("--since", "Calls since then: 7d, 12h, 2026-11-01 (UTC).")
@config_option
@json_option
def command(route: str, since_ms: int | None, file: Path | None, *, as_json: bool) -> None:
    """Say how the shadows of routes compare, and whether a change to one is safe.

    The newest 1,000 repeated calls count. The exit status is 1 if one is not safe.
    """
    groups: defaultdict[tuple[str, str, str], list[RepeatedPair]] = defaultdict(list)
    with reading(file) as book:
        wanted = Filter(keys=(SHADOW_KEY,), since_ms=since_ms)
        for _, entry in book.entries(wanted, limit=_MOST):
            original = book.entry(entry.tags.get(SHADOW_OF, ""))
            if original is not None and original.attempts and entry.attempts and route in ("", original.model):
                pair = RepeatedPair(original, entry, AnswerComparison.parse(entry.tags.get(SHADOW_COMPARED, "")))
                groups[original.model, _target(original), _target(entry)].append(pair)
    rows = [(name, figures_of(pairs)) for name, pairs in sorted(groups.items())]
    verdicts = [verdict(figures) for _, figures in rows]
    if as_json:
        for (names, figures), why in zip(rows, verdicts, strict=True):
            click.echo(to_json(_json(names, figures, why)))
    elif not rows:
        click.echo("No repeated calls: [routes.NAME.shadow] in the configuration repeats some.")
    else:
        _show(rows, verdicts)
    sys.exit(1 if any(verdicts) else 0)


def _target(entry: Entry) -> str:
    return f"{entry.attempts[-1].provider}/{entry.attempts[-1].model}"


def figures_of(pairs: Sequence[RepeatedPair]) -> ShadowFigures:
    """The figures of the calls that were repeated at one target."""
    found = [pair.comparison for pair in pairs if pair.comparison is not None]
    answered = [pair for pair in pairs if pair.comparison is not None]
    return ShadowFigures(
        calls=len(pairs),
        completed=len(answered) / len(pairs),
        same_finish=_share([each.finish for each in found]),
        same_tools=_share([each.tools == "same" for each in found]),
        similarity=median([each.similarity for each in found] or [0.0]),
        length=median([each.length for each in found] or [0.0]),
        first_event=median([_ratio(*map(_first_ms, (pair.original, pair.repeated))) for pair in answered] or [0.0]),
        pace=median([_ratio(*map(_pace, (pair.original, pair.repeated))) for pair in answered] or [0.0]),
        cost=sum(pair.repeated.priced for pair in answered),
        original_cost=sum(pair.original.priced for pair in answered),
    )


def verdict(figures: ShadowFigures) -> str:
    """Why a change to the target is not known to be safe; empty if it is."""
    if figures.calls < _LEAST_CALLS:
        return f"too few calls: {figures.calls} of {_LEAST_CALLS}"
    reasons = (
        (figures.completed < _LEAST_COMPLETED, f"{1 - figures.completed:.0%} of the calls failed"),
        (figures.same_finish < _LEAST_SAME_FINISH, f"{1 - figures.same_finish:.0%} end for another reason"),
        (figures.same_tools < _LEAST_SAME_TOOLS, f"{1 - figures.same_tools:.0%} have other tool calls or arguments"),
        (figures.similarity < _LEAST_SIMILARITY, f"texts share only {figures.similarity:.0%} of their words"),
        (figures.first_event > _MOST_LATE, f"the first event takes {figures.first_event:.1f} times as long"),
    )
    return "; ".join(why for applies, why in reasons if applies)


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else 0.0


def _ratio(first: float, second: float) -> float:
    return second / first if first else 1.0


def _first_ms(entry: Entry) -> float:
    last = entry.attempts[-1]
    return float(last.duration_ms if last.first_event_ms is None else last.first_event_ms)


def _pace(entry: Entry) -> float:
    """The output tokens per second after the first event."""
    last = entry.attempts[-1]
    seconds = (last.duration_ms - (last.first_event_ms or 0)) / 1_000
    return last.tokens.output / seconds if seconds > 0 else 0.0


def _show(rows: Sequence[tuple[tuple[str, str, str], ShadowFigures]], verdicts: Sequence[str]) -> None:
    heads = ("route", "target", "shadow", "calls", "finish", "tools", "words", "length", "first", "pace", "cost")
    table = Table([Column(head, head not in ("route", "target", "shadow"), wraps=head in heads[:3]) for head in heads])
    table.show([[*names, *_cells(figures)] for names, figures in rows])
    for (names, figures), why in zip(rows, verdicts, strict=True):
        saved = short_dollars(abs(figures.original_cost - figures.cost))
        change = "costs less" if figures.cost <= figures.original_cost else "costs more"
        outcome = f"not known to be safe: {why}" if why else "safe by these figures"
        click.echo(f"\n{names[0]} by {names[2]}: {outcome}; {saved} {change} for {counted(figures.calls, 'call')}.")


def _cells(figures: ShadowFigures) -> list[str]:
    return [
        f"{figures.calls:,}",
        f"{figures.same_finish:.0%}",
        f"{figures.same_tools:.0%}",
        f"{figures.similarity:.0%}",
        *(f"× {value:.2f}" for value in (figures.length, figures.first_event, figures.pace)),
        f"× {_ratio(figures.original_cost, figures.cost):.2f}",
    ]


def _json(names: tuple[str, str, str], figures: ShadowFigures, why: str) -> dict[str, object]:
    costs = ("cost", "original_cost")
    values = {name: getattr(figures, name) for name in ShadowFigures.__struct_fields__ if name not in costs}
    return {
        **dict(zip(("route", "target", "shadow"), names, strict=True)),
        **{name: round(value, 4) for name, value in values.items()},
        **{f"{name}_usd": money(getattr(figures, name)) for name in costs},
        "safe": not why,
        "why": why or None,
    }

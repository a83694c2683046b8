"""Lists of keys and of teams: searched, sorted and cut into pages. They are read whole from the book.

What sorts by amounts needs the spending of everything that was found; the other orders need names only.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from penstock.gateway.keys.keys import KeyBudgets, KeyName
from penstock.gateway.keys.quota import Period, Spender
from penstock.gateway.keys.report import spent_in
from penstock.gateway.keys.team_path import within
from penstock.gateway.teams.team import Team
from penstock.serve.admin.queries import MAX_LIMIT, MAX_NAMES, Parameter, Query, invalid_parameter, read_limit
from penstock.stores.book.sql_book import Book

T = TypeVar("T")
_MAX_TEXT = 200
_LARGE = "; `-spent` begins with the largest."
KEY_ORDERS = ("created", "name", "team", "spent", "used")
TEAM_ORDERS = ("path", "keys", "spent", "used")
FIND = Parameter("A text: the keys with it in their name, id, team or owner (not case-sensitive).")
FIND_TEAM = Parameter("A text: the teams with it in their path (not case-sensitive).")
KEY_SORT = Parameter(f"{', '.join(f'`{each}`' for each in KEY_ORDERS)} (the share of the budget){_LARGE}")
TEAM_SORT = Parameter(f"{', '.join(f'`{each}`' for each in TEAM_ORDERS)} (the share of a budget){_LARGE}")


class Page(NamedTuple):
    """The ids of one page, the last one of it if there are more, and how many were found in all."""

    ids: list[str]
    next: str | None
    total: int


def page_of_keys(book: Book, keys: Sequence[KeyName], query: Query, now_ms: int) -> Page:
    """The keys that a query selects."""
    part, team = query.one("find").strip()[:_MAX_TEXT].lower(), query.one("team")
    found = [key for key in keys if (not team or within(key.team, team)) and (not part or _has(key, part))]
    order, backwards = _read_order(query, KEY_ORDERS)
    if order in ("spent", "used"):
        ids = {key.id for key in found}
        ranks = _ranks_of_keys(book, [each for each in book.key_budgets() if each.id in ids], now_ms)
        found.sort(key=lambda key: ranks[key.id][order], reverse=backwards)
    elif order == "created":
        found = found[::-1] if backwards else found
    else:
        found.sort(key=lambda key: (getattr(key, order) == "", getattr(key, order).lower()), reverse=backwards)
    usable = None if query.flag("all") else {key.id for key in found if not key.unusable(now_ms)}
    limit = read_limit(query, MAX_NAMES if query.flag("names") else MAX_LIMIT)
    return _page([key.id for key in found], query, limit, usable)


def page_of_teams(book: Book, teams: Sequence[Team], active_keys: Mapping[str, int], query: Query, now_ms: int) -> Page:
    """The teams that a query selects: all of them without `limit`."""
    part = query.one("find").strip()[:_MAX_TEXT].lower()
    found = [team for team in teams if part in team.path.lower()]
    order, backwards = _read_order(query, TEAM_ORDERS)
    if order in ("spent", "used"):
        ranks = _ranks_of_teams(book, found, now_ms)
        found.sort(key=lambda team: ranks[team.path][order], reverse=backwards)
    elif order == "keys":
        found.sort(key=lambda team: active_keys[team.path], reverse=backwards)
    elif backwards:
        found.reverse()
    limit = read_limit(query) if query.one("limit") else max(1, len(found))
    return _page([team.path for team in found], query, limit, None)


def _has(key: KeyName, part: str) -> bool:
    return any(part in text.lower() for text in (key.name, key.id, key.team, key.owner))


def _read_order(query: Query, orders: Sequence[str]) -> tuple[str, bool]:
    given = query.one("sort") or orders[0]
    if given.removeprefix("-") not in orders:
        raise invalid_parameter("sort", f"sort is one of {', '.join(orders)}, with - before it for the reverse")
    return given.removeprefix("-"), given.startswith("-")


def _page(ids: list[str], query: Query, limit: int, usable: set[str] | None) -> Page:
    """The page after the id that the query names. Ids that are not `usable` are left out, but a page may follow one."""
    after, start = query.one("after"), 0
    if after:
        if after not in ids:
            raise invalid_parameter("after", "after is `next` of the previous page, of the same list")
        start = ids.index(after) + 1
    rest = [id for id in ids[start:] if usable is None or id in usable]
    total = len(ids) if usable is None else len(usable)
    return Page(rest[:limit], rest[limit - 1] if len(rest) > limit else None, total)


def _ranks_of_keys(book: Book, keys: Sequence[KeyBudgets], now_ms: int) -> dict[str, Mapping[str, float]]:
    """What each has spent in the current period of its budget, and the share of the budget that is used most."""
    spent = spent_in(book, [(Spender(key=key.id), (key.period, *key.budgets)) for key in keys], now_ms)
    ranks: dict[str, Mapping[str, float]] = {}
    for key, by_period in zip(keys, spent, strict=True):
        budgets = [*key.budgets.items(), *([(key.period, key.budget)] if key.budget is not None else [])]
        ranks[key.id] = {"spent": by_period[key.period], "used": _used(budgets, by_period)}
    return ranks


def _ranks_of_teams(book: Book, teams: Sequence[Team], now_ms: int) -> dict[str, Mapping[str, float]]:
    spent = spent_in(book, [(Spender(team=team.path), ("month", *team.budgets)) for team in teams], now_ms)
    return {
        team.path: {"spent": by_period["month"], "used": _used(list(team.budgets.items()), by_period)}
        for team, by_period in zip(teams, spent, strict=True)
    }


def _used(budgets: Sequence[tuple[Period, int]], spent: Mapping[Period, int]) -> float:
    """-1 without a budget, so that those come last."""
    return max((spent[period] / budget if budget else 1.0 for period, budget in budgets), default=-1.0)


def in_order(reports: Sequence[T], ids: Sequence[str], id_of: Callable[[T], str]) -> list[T]:
    """Reports in the order of their ids."""
    known = {id_of(each): each for each in reports}
    return [known[id] for id in ids if id in known]

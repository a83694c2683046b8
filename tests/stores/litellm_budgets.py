"""Run by the interpreter that has LiteLLM: what LiteLLM's own checks leave of budgets, as JSON.

With the argument `sql`, prints LiteLLM's query for a key. Otherwise reads rows from standard input, by kind and name,
and prints how much each may still spend: the least amount, found by bisection, after which LiteLLM's check refuses a
call. Only the functions and the one constructor that decide are compiled, because LiteLLM's dependencies are not
installed.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import json
import math
import sys
import types
from datetime import datetime
from pathlib import Path
from typing import Any

_CHECKS = {
    "key": "_virtual_key_max_budget_check",
    "team": "_team_max_budget_check",
    "project": "_project_max_budget_check",
    "organization": "_organization_max_budget_check",
}
_INCREASE = {"_get_temp_budget_increase", "_update_key_budget_with_temp_budget_increase"}
_MOST = 1e6


class BudgetExceededError(Exception):
    def __init__(self, **_: object) -> None: ...


class Row:
    """A row of the database, as an object."""

    token = team_id = org_id = user_id = team_alias = key_alias = soft_budget = max_budget = None

    def __init__(self, **fields: object) -> None:
        self.__dict__.update(fields)


class Anything:
    """What LiteLLM tells of a refused call, and how."""

    def __init__(self, **_: object) -> None: ...

    def __getattr__(self, name: str) -> object:
        return None

    async def budget_alerts(self, **_: object) -> None: ...


def _file(name: str) -> ast.Module:
    found = importlib.util.find_spec("litellm")
    assert found is not None
    assert found.origin is not None
    return ast.parse((Path(found.origin).parent / "proxy" / name).read_text(encoding="utf-8"))


def sql() -> str:
    """LiteLLM's query for a key, with `$1` for its hash."""
    texts = (each.value for each in ast.walk(_file("utils.py")) if isinstance(each, ast.Constant))
    return next(text for text in texts if isinstance(text, str) and "AS litellm_budget_table_max_budget" in text)


def litellm() -> dict[str, Any]:
    """LiteLLM's own functions, and its class for a key."""
    kept: list[ast.stmt] = []
    for file, wanted in (("auth/auth_checks.py", {*_CHECKS.values()}), ("auth/user_api_key_auth.py", _INCREASE)):
        functions = (each for each in _file(file).body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
        kept += [each for each in functions if each.name in wanted]
    views = (each for each in _file("_types.py").body if isinstance(each, ast.ClassDef))
    view = next(each for each in views if each.name == "LiteLLM_VerificationTokenView")
    view.bases = [ast.Name("Row", ast.Load())]
    view.body = [each for each in view.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    tree = ast.fix_missing_locations(ast.Module([*kept, view], []))
    server = types.ModuleType("litellm.proxy.proxy_server")

    async def get_current_spend(fallback_spend: float, **_: object) -> float:
        return fallback_spend

    async def get_org_object(org_id: Row, **_: object) -> Row:
        return org_id

    server.__dict__["get_current_spend"] = get_current_spend
    sys.modules |= {"litellm": types.ModuleType("litellm"), "litellm.proxy": types.ModuleType("litellm.proxy")}
    sys.modules["litellm.proxy.proxy_server"] = server
    names: dict[str, Any] = {
        "Row": Row, "CallInfo": Anything, "Litellm_EntityType": Anything(), "asyncio": asyncio, "math": math,
        "litellm": types.SimpleNamespace(BudgetExceededError=BudgetExceededError), "datetime": datetime,
        "get_org_object": get_org_object,
    }  # fmt: skip
    exec(compile(tree, "litellm", "exec", flags=annotations.compiler_flag), names)
    return names


def may_spend(names: dict[str, Any], kind: str, row: dict[str, Any], extra: float) -> bool:
    """Whether LiteLLM accepts a call if this much more was spent."""
    row = {**row, "spend": (row.get("spend") or 0.0) + extra}
    check, alerts = names[_CHECKS[kind]], Anything()
    if kind == "key":
        increased = names["_update_key_budget_with_temp_budget_increase"]
        work = check(increased(names["LiteLLM_VerificationTokenView"](**row)), alerts)
    else:
        budget = row.pop("budget", None)
        found = Row(**row, litellm_budget_table=Row(**budget) if budget else None)
        arguments = (Row(org_id=found), None, alerts, None, alerts) if kind == "organization" else (found, None, alerts)
        work = check(*arguments)

    async def run() -> None:
        await work

    try:
        asyncio.run(run())
    except BudgetExceededError:
        return False
    return True


def left(names: dict[str, Any], kind: str, row: dict[str, Any]) -> str:
    """What may still be spent, in cents; empty if there is no limit."""
    if may_spend(names, kind, row, _MOST):
        return ""
    low, high = 0, int(_MOST * 100)  # in cents: `high` is refused
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if may_spend(names, kind, row, middle / 100 - 1e-6) else (low, middle)
    return f"{max(0, low - 1) / 100:.2f}"


if __name__ == "__main__":
    if sys.argv[1:] == ["sql"]:
        sys.stdout.write(sql())
    else:
        code, given = litellm(), json.load(sys.stdin)
        found = {kind: {name: left(code, kind, row) for name, row in rows.items()} for kind, rows in given.items()}
        sys.stdout.write(json.dumps(found))

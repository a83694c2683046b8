"""Shared by the tests of budget warnings: a warning, and the documented code that verifies a signature."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.gateway.limits.warnings import BudgetWarning

DOCS = Path(__file__).parent.parent.parent / "docs" / "teams.md"
WARNING = BudgetWarning(
    account="team:acme:month",
    label="2026-11",
    percent=50,
    period="month",
    kind="organisation",
    name="acme",
    title="acme",
    budget=10**9,
    spent=5 * 10**8,
    refused=False,
    at_ms=1_794_700_800_000,
)


def documented() -> Callable[[str, dict[str, str], bytes], bool]:
    """The function of the documentation."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    found: Callable[[str, dict[str, str], bytes], bool] = names["is_genuine"]
    return found

"""The generated pages are up to date."""

from pathlib import Path

import pytest

from scripts.reference import ROOT, pages


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_reference_page_is_fresh(page: Path) -> None:
    written = page.read_text(encoding="utf-8") if page.exists() else ""
    assert written == pages()[page], f"{page.relative_to(ROOT)} is stale: run scripts/reference"

"""The generated pages are up to date."""

from scripts.reference import ROOT, pages


def test_the_reference_pages_are_fresh() -> None:
    stale = [
        str(page.relative_to(ROOT))
        for page, text in pages().items()
        if not page.exists() or page.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run scripts/reference"

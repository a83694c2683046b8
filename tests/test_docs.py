"""What docs/captures.md shows is true: its capture is one, its configuration loads, its words are all there are."""

import re
from pathlib import Path

import pytest

from penstock.capture import HOWS, CaptureHeader, dump, parse
from penstock.gateway.config import load
from tests.cli.support import invoke

PAGE = (Path(__file__).parent.parent / "docs" / "captures.md").read_text(encoding="utf-8")
(CAPTURE,) = re.findall(r"^````\n(.*?)^````$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_capture_on_the_page_is_one() -> None:
    capture = parse(CAPTURE.encode())
    assert dump(capture) == CAPTURE.encode()
    assert len(capture.reads) == 4


def test_inspect_says_of_it_what_the_page_says() -> None:
    (shown,) = re.findall(r"^```\n(recorded .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert shown in invoke("inspect", "-", stdin=CAPTURE.encode()).output


@pytest.mark.parametrize("example", re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
def test_an_example_loads(example: str, tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    file = tmp_path / "penstock.toml"
    file.write_text(example.replace('"captures"', f'"{tmp_path}/captures"'), encoding="utf-8")
    assert load(file, {"GROQ_API_KEY": "gsk-0123456789"}).warnings == ()


def test_every_ending_and_every_field_is_explained() -> None:
    assert re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE) == [
        "complete",
        "closed",
        "reset",
        "timed-out",
        "abandoned",
        "cancelled",
        "limit",
        "invalid",
    ]
    assert len(HOWS) == 8
    for field in CaptureHeader.__struct_fields__:
        assert f"`{field}`" in PAGE

"""`penstock inspect` on a terminal: in colour, wrapped to the window, and with all control characters escaped."""

import re
import sys
from pathlib import Path

import pytest

from tests.cli.support import CUT, FAILED, HEALTHY, RESELLER, on_terminal
from tests.streams import begins, finishes, says, sse

pytestmark = pytest.mark.slow


if sys.platform == "win32":
    pytest.skip("needs a pseudo-terminal", allow_module_level=True)

COLOUR = re.compile(r"\x1b\[[\d;]*3[0-7]m")
STYLE = re.compile(r"\x1b\[[\d;]*m")


def shown(*arguments: str, columns: int = 80, **environment: str) -> str:
    """What a terminal of that width receives of `penstock inspect`."""
    return on_terminal("inspect", *arguments, columns=columns, **environment)


@pytest.mark.parametrize("columns", [80, 120])
def test_a_seed_is_shown_in_colour_and_fits_the_window(columns: int) -> None:
    output = shown(RESELLER, columns=columns)
    assert COLOUR.search(output)
    lines = STYLE.sub("", output).splitlines()
    assert all(len(line) <= columns for line in lines)
    words = " ".join(" ".join(lines).split())
    for expected in (
        "pondering abfora today?",
        "ending completed",
        "usage 8 input, 18 output, 26 total",
        "provider reseller, guessed",
        "json-on-next-line ×2 line 4",
        "its JSON is on the next line, without a prefix.",
    ):
        assert expected in words


def test_no_color_is_respected() -> None:
    output = shown(RESELLER, NO_COLOR="1")
    assert "completed" in output
    assert not COLOUR.search(output)


def test_endings_differ_in_colour(tmp_path: Path) -> None:
    colours = {}
    for ending, wire in {
        "completed": HEALTHY,
        "truncated": CUT,
        "failed": FAILED,
    }.items():
        path = tmp_path / ending
        path.write_bytes(wire)
        found = re.search(rf"((?:\x1b\[[\d;]*m)+){ending}", shown(str(path)))
        assert found is not None
        colours[ending] = found[1]
    assert len(set(colours.values())) == len(colours)


def test_a_stream_can_style_nothing(tmp_path: Path) -> None:
    path = tmp_path / "evil.sse"
    path.write_bytes(
        sse(begins(), says("\x1b[2J\x1b]0;gotcha\x07 [bold red]loud[/bold red] [/nonsense] :smiley:"), finishes())
    )
    output = shown(str(path), str(path))
    assert "\x1b" not in STYLE.sub("", output)
    assert r"\x1b[2J\x1b]0;gotcha\x07 [bold red]loud[/bold red] [/nonsense] :smiley:" in output


def test_a_terminal_with_nothing_piped_in_shows_the_usage() -> None:
    output = shown()
    assert "Usage: " in output
    assert "Give a file with a stream, or pipe one in." in output

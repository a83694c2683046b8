"""The README and docs/ are true: links, commands, examples, the capture, the configuration."""

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from penstock.capture import HOWS, CaptureHeader, dump, parse
from penstock.gateway.config import load
from penstock.replay.styles.catalog import load_style, style_names
from tests.cli.support import invoke
from tests.replay.support import Player

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "captures.md").read_text(encoding="utf-8")
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


# What docs/provider-styles.md shows, run as it is printed.

STYLES_PAGE = (ROOT / "docs" / "provider-styles.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(which("curl") is None, reason="the page uses curl")
@pytest.mark.parametrize("shown", re.findall(r"^```console\n(.*?)^```$", STYLES_PAGE, re.MULTILINE | re.DOTALL))
def test_the_commands_on_the_page_say_what_the_page_says(shown: str) -> None:
    replay, announced, ask, *sent_text = shown.splitlines()
    seed, *options = replay.removeprefix("$ penstock replay ").removesuffix(" &").split()
    with Player(ROOT / seed, *options) as player:  # on a port of its own
        assert player.output[0] == announced.replace("8090", str(player.port)) + "\n"
        command = ask.removeprefix("$ ").replace("8090", str(player.port))
        command = command.replace("penstock inspect", f"{sys.executable} -m penstock inspect")
        finished = subprocess.run(
            command,
            shell=True,
            capture_output=True,
            text=True,
            env=os.environ | {"no_proxy": "127.0.0.1"},
            check=False,  # it says that the stream is not whole
            timeout=60,
        )
    assert finished.stdout == "\n".join([*sent_text, ""])


def test_the_page_lists_every_style() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.*) \|$", STYLES_PAGE, re.MULTILINE)
    assert dict(rows) == {name: load_style(name).about for name in style_names()}


# The README and the other pages, as a reader would use them.

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "bench" / "README.md"]


def test_inspect_prints_what_the_readme_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = re.findall(r"^```\n(answer\n.*?)^```$", README, re.MULTILINE | re.DOTALL)
    (file,) = re.findall(r"penstock inspect (\S+)$", README, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    assert invoke("inspect", file).output == shown


def test_every_script_and_command_of_the_readme_exists() -> None:
    for page in (README, (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")):
        for script in re.findall(r"\bscripts/([a-z-]+)", page):
            assert (ROOT / "scripts" / script).exists(), script
    for words, options in re.findall(r"^    .*?bin/penstock((?: [a-z]+)+)(.*)$", README, re.MULTILINE):
        shown = invoke(*words.split(), "--help").output  # `--help` goes before whatever else is given
        for option in re.findall(r"--[a-z]+", options):
            assert option in shown, f"penstock{words} {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_somewhere(page: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in _anchors(target), f"{path}#{anchor}"


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "images/" in page.read_text(encoding="utf-8")], ids=lambda page: page.name
)
def test_a_picture_is_there_and_is_described_in_words(page: Path) -> None:
    for words, path in re.findall(r"!\[([^]]*)\]\(([^)]*images/[^)]+)\)", page.read_text(encoding="utf-8")):
        picture = (page.parent / path).read_bytes()
        assert len(words) > 60
        assert picture.startswith(b"\x89PNG\r\n\x1a\n")
        assert len(picture) <= 200_000


def test_the_readme_has_a_picture_and_the_two_commands_on_its_first_screen() -> None:
    first_screen = "\n".join(README.splitlines()[:20])
    for shown in ("    scripts/serve ", "    scripts/test ", "](docs/images/"):
        assert shown in first_screen


MAPS = [ROOT / "docs" / name for name in ("architecture.md", "where.md", "bounds.md")]


@pytest.mark.parametrize("page", MAPS, ids=lambda page: page.name)
def test_a_file_that_a_map_of_the_code_names_exists(page: Path) -> None:
    """A name without a folder is that of a file beside the one that is named before it in the same line."""
    missing = []
    for line in page.read_text(encoding="utf-8").splitlines():
        folder = ROOT
        for name in re.findall(r"`([\w./-]+(?:\.(?:py|toml|js|md|json|yaml)|/))`", line):
            found = [each for each in (ROOT / "src" / "penstock" / name, ROOT / name, folder / name) if each.exists()]
            if found:
                folder = found[0] if found[0].is_dir() else found[0].parent
            else:
                missing.append(name)
    assert missing == []


def test_the_architecture_is_a_map() -> None:
    assert len((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").splitlines()) <= 200

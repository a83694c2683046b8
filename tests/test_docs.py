"""What docs/captures.md and docs/mimicry.md show is true: the capture, the configuration, the commands, the words."""

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from penstock.capture import HOWS, CaptureHeader, dump, parse
from penstock.gateway.config import load
from penstock.replay.styles.catalog import manner, names
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


# What docs/mimicry.md shows, run as it is printed.

MIMICRY = (ROOT / "docs" / "mimicry.md").read_text(encoding="utf-8")


@pytest.mark.skipif(which("curl") is None, reason="the page uses curl")
def test_the_commands_on_the_page_say_what_the_page_says() -> None:
    (shown,) = re.findall(r"^```console\n(.*?)^```$", MIMICRY, re.MULTILINE | re.DOTALL)
    replay, announced, ask, *said = shown.splitlines()
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
    assert finished.stdout == "\n".join([*said, ""])


def test_the_page_lists_every_manner() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.*) \|$", MIMICRY, re.MULTILINE)
    assert dict(rows) == {name: manner(name).about for name in names()}


def test_the_picture_in_the_readme_is_there_and_is_told_in_words() -> None:
    ((words, path),) = re.findall(r"!\[([^]]*)\]\((docs/images/[^)]+)\)", (ROOT / "README.md").read_text())
    picture = (ROOT / path).read_bytes()
    assert len(words) > 60
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(picture) <= 200_000

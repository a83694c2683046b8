"""PriceTable: the prices of genai-prices, compiled into integers and cached in a file that is read in milliseconds.

To import the package takes a third of a second and 30 MB, so a gateway never imports it:

1. A child process (`price_compiler.py`) compiles the table once for each version of the package.
2. The file is in Penstock's cache folder. Its name has the version of the package and that of the format below. It is
   written under a temporary name and renamed, so that it is always complete. If it cannot be read, it is compiled
   again.
3. If the cache cannot be written, the table works all the same and is compiled again at the next start.
4. Nothing is downloaded: prices are as old as the installed package.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from penstock.gateway.record.price import Price
from penstock.upstream.local.weights import cache_folder

PACKAGE = "genai-prices"
# The version of the structs below and of their compilation. Change it with either.
FORMAT = 3
_COMPILER = "penstock.gateway.billing.price_compiler"
# The compilation takes 0.35 s on an idle machine; a busy one may need much longer.
_COMPILE_S = 60.0
# The environment variables that Python needs to find its packages. The providers' keys are not passed on.
_PASSED_VARIABLES = ("PATH", "HOME", "LANG", "SYSTEMROOT", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")

ClauseKind = Literal["equals", "starts_with", "ends_with", "contains", "regex", "or", "and"]


class Clause(Struct, frozen=True, array_like=True):
    """Matches names: by a text in lower case, a regular expression, or nested clauses."""

    kind: ClauseKind
    text: str = ""
    parts: tuple["Clause", ...] = ()


class Term(Struct, frozen=True, array_like=True):
    """A price and when it is valid. The price is None if it is not for tokens, but for hours or pages."""

    price: Price | None
    since_s: int | None = None
    """Valid from this time on, in seconds since 1970."""
    daily_s: tuple[int, int] | None = None
    """Valid between these two seconds of each UTC day; the end may be before the start, across midnight."""
    service_terms: tuple["ServiceTerm", ...] = ()
    """If several of one tier are valid, the first counts."""


class ServiceTerm(Struct, frozen=True, array_like=True):
    """The price in a service tier other than the standard one, and from when it is valid."""

    tier: str
    price: Price
    since_s: int | None = None


class ModelRow(Struct, frozen=True, array_like=True):
    """A model: the names that it matches, and its prices; the last valid one counts, else the first."""

    match: Clause
    terms: tuple[Term, ...]


class Seller(Struct, frozen=True, array_like=True):
    """A company that sells models. `models` are encoded `ModelRow`s, decoded at their first use."""

    id: str
    api_pattern: str
    match: Clause | None
    fallbacks: tuple[str, ...]
    """Sellers whose prices apply to models that this seller has no price for."""
    models: msgspec.Raw

    def rows(self) -> tuple[ModelRow, ...]:
        """The seller's models, in the order in which they are matched."""
        return msgspec.msgpack.decode(self.models, type=tuple[ModelRow, ...])


class PriceTable(Struct, frozen=True, array_like=True):
    """All sellers. `version` is the name and version of the package."""

    version: str = ""
    sellers: tuple[Seller, ...] = ()


def load_table(environment: Mapping[str, str], warn: Callable[[str], None]) -> PriceTable:
    """Read the table from the cache; if it is not there, compile it first, and wait for that.

    If neither is possible the table is empty and `warn` gets the reason: calls are unpriced, but answered.
    """
    version = _installed()
    if version is None:
        warn(f"there are no prices: {PACKAGE} is not installed")
        return PriceTable()
    file = cache_folder(environment) / "prices" / f"{PACKAGE}-{version}-{FORMAT}.msgpack"
    with suppress(OSError, msgspec.MsgspecError):
        return _decoded(_read_cached(file))
    try:
        data = _compile(environment)
        table = _decoded(data)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        words = getattr(error, "stderr", b"") or str(error).encode()
        last = words.decode(errors="replace").strip().rpartition("\n")[2]
        warn(f"there are no prices: those of {PACKAGE} {version} cannot be compiled: {last}")
        return PriceTable()
    with suppress(OSError):  # rule 3
        _write_cached(file, data)
    return table


def encoded(table: PriceTable) -> bytes:
    """A table as the bytes of its file."""
    return msgspec.msgpack.encode(table)


def _decoded(data: bytes) -> PriceTable:
    return msgspec.msgpack.decode(data, type=PriceTable)


def _installed() -> str | None:
    """The package's version, from the name of its `dist-info` folder; None if it is not installed."""
    name = PACKAGE.replace("-", "_")
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return None
    folders = [folder.name for folder in Path(spec.origin).parent.parent.glob(f"{name}-*.dist-info")]
    if len(folders) == 1:
        return folders[0].removeprefix(f"{name}-").removesuffix(".dist-info")
    from importlib.metadata import version  # noqa: PLC0415 - a slow import that is rarely needed

    return version(PACKAGE)


def _read_cached(file: Path) -> bytes:
    """The file's content, if this user or root owns it: without a home, the cache is in a folder that all can write."""
    with file.open("rb") as source:
        if os.fstat(source.fileno()).st_uid not in (0, os.getuid()):
            raise PermissionError(f"{file} belongs to another user")
        return source.read()


def _compile(environment: Mapping[str, str]) -> bytes:
    variables = {name: environment[name] for name in _PASSED_VARIABLES if name in environment}
    command = [sys.executable, "-P", "-m", _COMPILER]
    return subprocess.run(
        command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMPILE_S, check=True
    ).stdout


def _write_cached(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    written = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        written.write_bytes(data)
        written.replace(file)
    finally:
        written.unlink(missing_ok=True)

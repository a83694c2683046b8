"""PriceTable: the prices of genai-prices, compiled into whole numbers and kept in a file that is read in milliseconds.

The package itself takes a third of a second and 30 MB to import, so a gateway never imports it:

1. The table is compiled by a child process (`price_compiler.py`), once for each version of the package.
2. It is kept in Penstock's cache folder, under a name that holds the package's version and that of our own format. A
   file appears under its name only when it is whole. One that cannot be read is compiled anew.
3. Where nothing can be kept, the table is there all the same, and is compiled again at the next start.
4. Nothing is ever fetched: prices are as old as the installed package.
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

from penstock.core.price import Price
from penstock.upstream.local.weights import cache_folder

PACKAGE = "genai-prices"
# Of the structs below, and of how they are compiled. A change of either needs another number.
FORMAT = 2
_COMPILER = "penstock.gateway.billing.price_compiler"
# It takes 0.35 s on an idle machine; this has room for a busy one.
_COMPILE_S = 60.0
# What a Python needs to find its packages. The providers' keys are none of its business.
_KEPT = ("PATH", "HOME", "LANG", "SYSTEMROOT", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")

ClauseKind = Literal["equals", "starts_with", "ends_with", "contains", "regex", "or", "and"]


class Clause(Struct, frozen=True, array_like=True):
    """Whether a name is meant: by a text in lower case, a regular expression, or further clauses."""

    kind: ClauseKind
    text: str = ""
    parts: tuple["Clause", ...] = ()


class Term(Struct, frozen=True, array_like=True):
    """A price, and when it holds. None is one that is not for tokens, but for hours or pages."""

    price: Price | None
    since_s: int | None = None
    """From this moment on, since 1970."""
    daily_s: tuple[int, int] | None = None
    """Between these two seconds of each day, in UTC; the second may be smaller."""
    service_terms: tuple["ServiceTerm", ...] = ()
    """Of several for one tier that hold, the first counts."""


class ServiceTerm(Struct, frozen=True, array_like=True):
    """A price in another service tier than the standard one, and since when it holds."""

    tier: str
    price: Price
    since_s: int | None = None


class ModelRow(Struct, frozen=True, array_like=True):
    """A model: what it is called, and its prices; the last that holds counts, else the first."""

    match: Clause
    terms: tuple[Term, ...]


class Seller(Struct, frozen=True, array_like=True):
    """Whoever sells models. `models` are `ModelRow`s, read when they are first asked for."""

    id: str
    api_pattern: str
    match: Clause | None
    fallbacks: tuple[str, ...]
    """Sellers whose prices count for models that have none here."""
    models: msgspec.Raw

    def rows(self) -> tuple[ModelRow, ...]:
        """Its models, in the order in which they are compared with a name."""
        return msgspec.msgpack.decode(self.models, type=tuple[ModelRow, ...])


class PriceTable(Struct, frozen=True, array_like=True):
    """All sellers. `version` says where the prices come from."""

    version: str = ""
    sellers: tuple[Seller, ...] = ()


def load_table(environment: Mapping[str, str], say: Callable[[str], None]) -> PriceTable:
    """Read the table from the cache; where it is not there, compile it first, and wait for that.

    Where neither can be done it is empty, and `say` is told why: calls are unpriced then, and answered all the same.
    """
    version = _installed()
    if version is None:
        say(f"there are no prices: {PACKAGE} is not installed")
        return PriceTable()
    file = cache_folder(environment) / "prices" / f"{PACKAGE}-{version}-{FORMAT}.msgpack"
    with suppress(OSError, msgspec.MsgspecError):
        return _decoded(_kept(file))
    try:
        data = _compile(environment)
        table = _decoded(data)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        words = getattr(error, "stderr", b"") or str(error).encode()
        last = words.decode(errors="replace").strip().rpartition("\n")[2]
        say(f"there are no prices: those of {PACKAGE} {version} cannot be compiled: {last}")
        return PriceTable()
    with suppress(OSError):  # rule 3
        _keep(file, data)
    return table


def encoded(table: PriceTable) -> bytes:
    """A table as the bytes of its file."""
    return msgspec.msgpack.encode(table)


def _decoded(data: bytes) -> PriceTable:
    return msgspec.msgpack.decode(data, type=PriceTable)


def _installed() -> str | None:
    """The package's version, by the folder that installers put beside it; None where it is not installed."""
    name = PACKAGE.replace("-", "_")
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return None
    found = [folder.name for folder in Path(spec.origin).parent.parent.glob(f"{name}-*.dist-info")]
    if len(found) == 1:
        return found[0].removeprefix(f"{name}-").removesuffix(".dist-info")
    from importlib.metadata import version  # noqa: PLC0415 - takes longer than all the rest, and is hardly ever needed

    return version(PACKAGE)


def _kept(file: Path) -> bytes:
    """What the file says, if nobody else could have written it: without a home, the folder is one that all may use."""
    with file.open("rb") as source:
        if os.fstat(source.fileno()).st_uid not in (0, os.getuid()):
            raise PermissionError(f"{file} belongs to somebody else")
        return source.read()


def _compile(environment: Mapping[str, str]) -> bytes:
    variables = {name: environment[name] for name in _KEPT if name in environment}
    command = [sys.executable, "-P", "-m", _COMPILER]
    return subprocess.run(
        command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMPILE_S, check=True
    ).stdout


def _keep(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    written = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        written.write_bytes(data)
        written.replace(file)
    finally:
        written.unlink(missing_ok=True)

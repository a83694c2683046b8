"""How Penstock was installed: its version, and the command that adds the packages of an optional feature.

The distribution is called `penstock-gateway`, because `penstock` on the public index is another project. An installed
wheel already satisfies the command below, so pip gets only the packages of the extra.

| installed | the command |
|---|---|
| in a checkout (`scripts/serve`, or `pip install -e`) | `.venv/bin/python -m pip install -e '.[postgres]'` |
| from a wheel | `/opt/penstock/bin/python -m pip install 'penstock-gateway[postgres]'` |
| in the container image | the image has no pip: it is built again |
"""

import json
import os
import shlex
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from importlib.metadata import Distribution

DISTRIBUTION = "penstock-gateway"
# Set in the image.
_IMAGE = "PENSTOCK_IMAGE"
_REBUILD = "add `--extra {extra}` to scripts/lock for requirements-image.txt, and build the image again"


def version() -> str | None:
    """The version; None if Penstock runs from source and is not installed."""
    installed = _distribution()
    return installed.version if installed is not None else None


def install_command(
    extra: str, environ: Mapping[str, str] = os.environ, installed: "Distribution | None" = None, python: str = ""
) -> str:
    """What adds the packages of an extra to this installation: `installed` and `python` are by default its own."""
    if environ.get(_IMAGE):
        return _REBUILD.format(extra=extra)
    what = f"{DISTRIBUTION}[{extra}]"
    root = _checkout(installed)
    if root is not None:
        here = Path.cwd() == root
        what = f".[{extra}]" if here else f"{root}[{extra}]"
    program = shortest_path(Path(python or sys.executable))
    by_pip = [program, "-m", "pip", "install"]
    command = by_pip if find_spec("pip") is not None else ["uv", "pip", "install", "--python", program]
    return shlex.join([*command, *(["-e"] if root is not None else []), what])


def shortest_path(program: Path) -> str:
    """The path of a program relative to the working directory if it is below it, otherwise absolute."""
    directory = Path.cwd()
    path = Path(os.path.abspath(program))  # not resolved: a link of a virtual environment must stay
    return (
        f"{path.relative_to(directory)}" if path.is_relative_to(directory) and path.parent != directory else str(path)
    )


def _distribution() -> "Distribution | None":
    """The installed package; None if Penstock runs from source and is not installed."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - imports 30 modules

    try:
        return distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return None


def _checkout(installed: "Distribution | None") -> Path | None:
    """The folder of an editable install (PEP 610)."""
    found = installed or _distribution()
    try:
        origin = json.loads((found.read_text("direct_url.json") if found is not None else "") or "{}")
    except ValueError:
        return None
    is_editable = origin.get("dir_info", {}).get("editable")
    return Path(unquote(urlsplit(origin.get("url", "")).path)) if is_editable else None

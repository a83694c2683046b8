"""Shims: a Python that lacks modules and functions, as on another system, or where an extra is not installed."""

from pathlib import Path

_SHIM = """\
import sys

class Without:
    # Finds what another finder does, but for modules that are to be absent.
    def __init__(self, finder):
        self._finder = finder
    def __getattr__(self, name):
        return getattr(self._finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {modules!r} else self._finder.find_spec(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
for name in {modules!r}:
    sys.modules.pop(name, None)
for name in {functions!r}:
    module, _, function = name.rpartition(".")
    vars(__import__(module)).pop(function, None)
"""


def without(folder: Path, *modules: str, functions: tuple[str, ...] = ()) -> None:
    """Write a `sitecustomize.py` that makes modules, and functions such as `os.fork`, absent.

    A Python with the folder in its PYTHONPATH starts with it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(_SHIM.format(modules=modules, functions=functions), encoding="utf-8")

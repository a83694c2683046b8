"""Files: the page itself, as it is in the package: read once, known by its tag, and nothing else of any disk.

The page holds no data. What it shows it asks for, as every other program does, and with a session.
"""

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable

from msgspec import Struct

INDEX = "/index.html"
# Shown to whoever has no session: how to get a link.
LOCKED = "/link.html"
_PACKAGE = "penstock.serve"
_FOLDER = "web"
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "woff2": "font/woff2",
    "txt": "text/plain; charset=utf-8",
}
_DEEPEST = 4

# What a page of ours may do, and what may be done with it: nothing but what it needs.
HARDENING = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class PageFile(Struct, frozen=True):
    """One file of the page."""

    kind: str
    body: bytes
    tag: str


def read_files() -> dict[str, PageFile]:
    """All files of the page, by their paths. What is not among them cannot be asked for, whatever its path."""
    found: dict[str, PageFile] = {}
    _read(files(_PACKAGE) / _FOLDER, "", found)
    return found


def _read(folder: Traversable, path: str, found: dict[str, PageFile]) -> None:
    if not folder.is_dir() or path.count("/") > _DEEPEST:
        return
    for item in folder.iterdir():
        kind = _TYPES.get(item.name.rpartition(".")[2])
        if item.is_dir():
            _read(item, f"{path}/{item.name}", found)
        elif kind is not None:
            body = item.read_bytes()
            found[f"{path}/{item.name}"] = PageFile(kind, body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')

"""The files of the page, read from the package once, with their ETags. No other file of the disk can be requested.

The files contain no data. The page requests its data from the admin API with a session, as any other program does.
"""

import hashlib
from pathlib import Path

from msgspec import Struct

INDEX = "/index.html"
# Shown without a session: explains how to get a link.
LOCKED = "/link.html"
_FOLDER = Path(__file__).parents[1] / "web"
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
_MAX_DEPTH = 4

# Security headers: the page may load only its own files, and cannot be framed.
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

    media_type: str
    body: bytes
    etag: str


def read_files() -> dict[str, PageFile]:
    """All files of the page, by path. Requests are looked up here, so a path such as `/../x` reaches no file."""
    page: dict[str, PageFile] = {}
    _read(_FOLDER, "", page)
    return page


def _read(folder: Path, path: str, page: dict[str, PageFile]) -> None:
    if not folder.is_dir() or path.count("/") > _MAX_DEPTH:
        return
    for item in folder.iterdir():
        media_type = _TYPES.get(item.name.rpartition(".")[2])
        if item.is_dir():
            _read(item, f"{path}/{item.name}", page)
        elif media_type is not None:
            body = item.read_bytes()
            page[f"{path}/{item.name}"] = PageFile(media_type, body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')

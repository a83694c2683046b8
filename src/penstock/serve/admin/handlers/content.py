"""The handlers for end users and the kept content of calls: records of the content store, and captures."""

import asyncio
from pathlib import Path

from penstock.amounts import moment
from penstock.core.hub.failure import Failure
from penstock.gateway.billing.tags import clean_text
from penstock.gateway.config import Config
from penstock.http.exchange import Exchange
from penstock.serve.admin.backend import Backend
from penstock.serve.admin.replies import own_headers, refusal, result_of
from penstock.serve.admin.request import AdminRequest
from penstock.serve.recording.capture_directory import directories, find_capture
from penstock.stores.content.call_record import call_record

NO_CONTENT = refusal("content_not_allowed", "content is shown only with content = true in [admin]")
_NO_USER = refusal("user_not_found", "no user has this name or pseudonym here")
_NO_STORE = refusal("user_not_found", "this gateway has no ledger, and so no users")
_NOT_KEPT = refusal("content_not_kept", "no content of this call is kept")
_BUSY = Failure(code="admin_busy", message="too many requests wait for the content store; try again", retry_after="1")
_MAX_ATTEMPT = 1_000
_TEXT = "text/plain; charset=utf-8"


async def find_user(backend: Backend, request: AdminRequest, _exchange: Exchange) -> object:
    """Return the `name` of a user, its `pseudonyms` (the one in use first), and when it was first and last used
    (`since`, `last_used`)."""
    content, name = backend.app.content, _cleaned(backend, request)
    if content is None:
        return _NO_STORE
    found = await result_of(content.read, lambda store: list(store.users.find(name)), _BUSY)
    if not found:
        return _NO_USER
    since, last_used = min(each.at_ms for each in found), max(each.used_ms for each in found)
    named = {"name": found[0].name, "pseudonyms": [each.id for each in found]}
    return {**named, "since": moment(since), "last_used": moment(last_used)}


async def erase_user(backend: Backend, request: AdminRequest, _exchange: Exchange) -> object:
    """Erase a user: delete its name and what is kept about it. Returns its `pseudonyms` and the number of deleted
    `records`."""
    content, name = backend.app.content, _cleaned(backend, request)
    if content is None:
        return _NO_STORE
    erased = await result_of(content.change, lambda store: store.users.erase(name))
    if not erased.pseudonyms and not erased.records:
        return _NO_USER
    backend.app.on_user_erased(erased)
    return {"erased": True, "pseudonyms": list(erased.pseudonyms), "records": erased.records}


async def show_content(backend: Backend, request: AdminRequest, _exchange: Exchange) -> object:
    """Return what is [kept of a call](privacy.md#content-of-calls)."""
    content, id = backend.app.content, request.name
    if not backend.app.config.admin.content:
        return NO_CONTENT
    if content is None:
        return _NOT_KEPT
    found = await result_of(content.read, lambda store: call_record(store, id), _BUSY)
    if found is None:
        return _NOT_KEPT
    backend.app.on_content_read(id)
    return found


async def send_capture(backend: Backend, request: AdminRequest, exchange: Exchange) -> object:
    """Return the [capture](captures.md) of a call, as a file, where the gateway [records](captures.md#record) them."""
    config, id = backend.app.config, request.name
    attempt = request.query.number("attempt", 1, minimum=1, maximum=_MAX_ATTEMPT)
    if not config.admin.content:
        return NO_CONTENT
    found = await asyncio.to_thread(_read, directories(config), id, attempt)
    if exchange.over:
        return None  # the client has gone meanwhile
    if found is None:
        return _missing(config)
    path, content = found
    backend.app.on_content_read(id)
    named = {"content-type": _TEXT, "content-disposition": f'attachment; filename="{path.name}"'}
    exchange.respond(200, own_headers() | named, content)
    return None


def _cleaned(backend: Backend, request: AdminRequest) -> str:
    """The name of a user as it is stored: shortened, and without secrets."""
    return clean_text(request.name, backend.app.config.secrets())


def _read(folders: list[str], id: str, attempt: int) -> tuple[Path, bytes] | None:
    """The file of a capture and its content. Called in a thread."""
    path = find_capture(folders, id, attempt)
    try:
        return (path, path.read_bytes()) if path is not None else None
    except FileNotFoundError:
        return None  # it was deleted meanwhile


def _missing(config: Config) -> Failure:
    if not directories(config):
        return refusal("capture_not_kept", "this gateway records no captures; start it with --record DIRECTORY")
    limits = config.captures
    return refusal(
        "capture_not_kept",
        "there is no capture of this attempt: it was not recorded, or it was deleted since; captures are kept for "
        f"{limits.max_age_days:g} days and up to {limits.max_total / 1e6:g} MB in all",
    )

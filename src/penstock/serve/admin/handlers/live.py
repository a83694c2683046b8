"""The handlers for running calls and rejected requests, of all workers and gateways."""

from urllib.parse import quote

import msgspec
from msgspec import structs

from penstock.amounts import moment
from penstock.http.exchange import Exchange
from penstock.serve.admin.backend import Backend
from penstock.serve.admin.handlers.content import NO_CONTENT
from penstock.serve.admin.live_stream import TOO_MANY, read_view
from penstock.serve.admin.queries import MAX_LIMIT
from penstock.serve.admin.replies import HEADERS, refusal
from penstock.serve.admin.request import AdminRequest
from penstock.serve.rejections import RejectionRow, merged
from penstock.serve.responses import new_request_id
from penstock.serve.workers.gateways import Replies

_REJECTIONS = msgspec.json.Decoder(list[RejectionRow])
_NOT_RUNNING = refusal("call_not_found", "no call with this id is in progress")


async def watch(backend: Backend, request: AdminRequest, exchange: Exchange) -> object:
    """Stream the running calls of all workers and of all gateways that use the ledger, as server-sent events."""
    if backend.streams.full:
        return TOO_MANY
    backend.streams.watch(exchange, _stream_headers(), read_view(request.query))
    return None


async def follow_text(backend: Backend, request: AdminRequest, exchange: Exchange) -> object:
    """Stream the text of a running call, as server-sent events."""
    if not backend.app.config.admin.content:
        return NO_CONTENT
    if backend.streams.full:
        return TOO_MANY
    found = await backend.streams.follow_text(request.name, exchange, _stream_headers())
    return None if found else _NOT_RUNNING


async def stop_call(backend: Backend, request: AdminRequest, _exchange: Exchange) -> object:
    """Stop a call, on whichever gateway it runs. 404 if it is not running; the message says if not all gateways
    answered."""
    if not backend.app.live.stop(request.name):
        replies = await backend.app.request_all("POST", f"/stop?id={quote(request.name, safe='')}")
        if not replies.bodies:
            return refusal("call_not_found", f"no call with this id is in progress{_unseen(replies)}")
    return {"stopped": True}


async def list_rejections(backend: Backend, _request: AdminRequest, _exchange: Exchange) -> object:
    """List [rejected requests](#rejected-requests) of all workers and gateways since they were started."""
    replies = await backend.app.request_all("GET", "/rejections")
    elsewhere = [row for body in replies.bodies for row in _REJECTIONS.decode(body)]
    rows = [_rejection_json(row) for row in merged([*backend.app.rejections.rows, *elsewhere])[:MAX_LIMIT]]
    return {"rejections": rows, "gateways": replies.gateways, "answered": replies.answered}


def _rejection_json(row: RejectionRow) -> dict[str, object]:
    fields = structs.asdict(row)
    return fields | {"first": moment(fields.pop("first_ms")), "last": moment(fields.pop("last_ms"))}


def _unseen(replies: Replies) -> str:
    """Which gateways did not answer, for the end of a message; empty if all did."""
    if replies.gateways is None:
        return " on this gateway; others cannot be asked, because the ledger's database does not answer"
    if replies.answered < replies.gateways:
        return f" on the {replies.answered} of {replies.gateways} gateways that answered"
    return ""


def _stream_headers() -> dict[str, str]:
    return {"x-request-id": new_request_id(), "x-content-type-options": HEADERS["x-content-type-options"]}

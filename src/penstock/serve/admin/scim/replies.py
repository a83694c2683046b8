"""Responses over SCIM: resources, lists and errors, as `application/scim+json`."""

from collections.abc import Callable
from functools import wraps
from typing import TypeAlias

import msgspec

from penstock.gateway.people.audit import GATEWAY
from penstock.http.exchange import Exchange
from penstock.serve.admin.backend import Backend
from penstock.serve.admin.replies import SCIM_JSON, SCIM_ROOT, own_headers, result_of
from penstock.serve.admin.request import AdminRequest
from penstock.serve.admin.route import LoopHandler
from penstock.serve.admin.scim.attributes import Document
from penstock.stores.book.sql_book import Book

_LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse"


# Runs in a thread that queries the book. The last parameter is the URL of the SCIM service.
ScimHandler: TypeAlias = Callable[[Book, AdminRequest, str], Document | None]


def over_scim(work: ScimHandler, status: int = 200) -> LoopHandler:
    """A handler that queries the book, as `work` does, and sends what it returns."""

    @wraps(work)
    async def handle(backend: Backend, request: AdminRequest, exchange: Exchange) -> None:
        root = backend.access.origin(exchange.request.headers) + SCIM_ROOT
        actor = backend.audit.actor(request.user, exchange)

        def run(book: Book) -> tuple[str, bytes]:
            book.actor = actor
            try:
                body = work(book, request, root)
                location = body.get("meta", {}).get("location", "") if body is not None else ""
                return location, msgspec.json.encode(body) if body is not None else b""
            finally:
                book.actor = GATEWAY

        thread = backend.read_thread if exchange.request.method in ("GET", "HEAD") else backend.act_thread
        location, body = await result_of(thread.submit, run)
        headers = own_headers() | {"content-type": SCIM_JSON} | ({"location": location} if status == 201 else {})
        exchange.respond(status if body else 204, headers, body)

    return handle


def listed(resources: list[Document], total: int, start: int) -> Document:
    """A page of a list. `start` is the number of its first resource, from 1."""
    return {
        "schemas": [_LIST],
        "totalResults": total,
        "startIndex": start,
        "itemsPerPage": len(resources),
        "Resources": resources,
    }

"""Backend: what the handlers of the admin API use that run in the event loop."""

from typing import NamedTuple

from penstock.serve.admin.access import Access
from penstock.serve.admin.audit_log import AuditLog
from penstock.serve.admin.endpoint import AdminEndpoint
from penstock.serve.admin.inspection import Inspector
from penstock.serve.admin.live_stream import LiveStreams
from penstock.serve.composition import App
from penstock.stores.book.sql_book import Book
from penstock.stores.query_thread import QueryThread


class Backend(NamedTuple):
    """The gateway, the ledger and the live streams of one worker."""

    app: App
    endpoint: AdminEndpoint
    access: Access
    audit: AuditLog
    streams: LiveStreams
    inspector: Inspector
    read_thread: QueryThread[Book]
    """Lists and reports."""
    act_thread: QueryThread[Book]
    """Authentication and changes."""

"""CallRoutes: `GET /v1/calls/{id}`, what the ledger has of a call, for the client that made it."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from penstock.core.hub.failure import Failure
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.record.entry import Entry
from penstock.http.exchange import Exchange
from penstock.serve.bookkeeping import Bookkeeping
from penstock.serve.caller_report import report_of
from penstock.serve.loop import Tasks
from penstock.serve.responses import refused, respond_failure, respond_json
from penstock.serve.surfaces.call_session import BROKEN, report
from penstock.stores.book.sql_book import Book
from penstock.stores.query_thread import QueryThread

T = TypeVar("T")
# What other processes have settled is in the book after so long (`BATCH_S`, and the time of a commit).
_BOOKED_ELSEWHERE_S = 0.3
# How long a client waits for the ledger.
_MOST_S = 10.0
UNAVAILABLE = Failure(
    code="ledger_unavailable", message="the ledger cannot be read now; try again soon", retry_after="2"
)


class CallRoutes:
    """Answers requests for calls from the ledger."""

    def __init__(self, books: Bookkeeping) -> None:
        self._books = books
        self._thread: QueryThread[Book] | None = None
        self._tasks = Tasks()

    def handle(self, exchange: Exchange, id: str, request_id: str, key: ClientKey | None) -> None:
        """Answer a request for the call with that id."""
        if exchange.request.method not in ("GET", "HEAD"):
            failure = refused(f"{exchange.request.method} is not allowed here; use GET", "method_not_allowed")
            respond_failure(exchange, failure, request_id, {"allow": "GET"})
        else:
            self._tasks.start(self._answer(exchange, id, request_id, key))

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.close()

    async def _answer(self, exchange: Exchange, id: str, request_id: str, key: ClientKey | None) -> None:
        own = False
        try:
            async with asyncio.timeout(_MOST_S):
                found = await self._find(id)
                own = isinstance(found, Entry) and await self._is_of(found, key)
        except TimeoutError:
            found = UNAVAILABLE
        except Exception as error:  # noqa: BLE001 - the client must get a response
            report(error)
            found = BROKEN
        if exchange.over:
            return
        if isinstance(found, Failure):
            respond_failure(exchange, found, request_id, {})
        elif found is None or not own:
            message = f"no call {id[:100]!r} of this key has ended; its id is the header x-request-id of its response"
            respond_failure(exchange, refused(message, "not_found"), request_id, {})
        else:
            respond_json(exchange, 200, report_of(found), {"x-request-id": request_id})

    async def query(self, work: Callable[[Book], T]) -> T | Exception:
        """The result of a query of the book in the thread, or why there is none."""
        self._thread = self._thread or QueryThread(self._books.open_book, "penstock-calls")
        return await self._thread.run(work)

    async def _find(self, id: str) -> Entry | Failure | None:
        """The call with that id. One that is not in the book may have just been settled, perhaps elsewhere."""
        for wait in (None, self._books.written, partial(asyncio.sleep, _BOOKED_ELSEWHERE_S)):
            if wait is not None:
                await wait()
            found = await self.query(lambda book: book.entry(id))
            if isinstance(found, Exception):
                return UNAVAILABLE
            if found is not None:
                return found
        return UNAVAILABLE if self._books.trouble else None

    async def _is_of(self, entry: Entry, key: ClientKey | None) -> bool:
        """Whether a call is of this key, and of this user if users of the key have a JWT each."""
        if entry.key != (key.id if key is not None else ""):
            return False
        if key is None or not key.subject:
            return True
        named: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        user = self._books.ledger.name_user(key.subject, named.set_result)
        return entry.user == (await named if user is None else user)

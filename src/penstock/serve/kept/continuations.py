"""Continuations: resolves requests that continue a kept answer, before they are read; refuses other references.

The database has the conversation. The request that is read has all of it as its input, so that it is a request like any
other: any provider can answer it, and its tokens are counted as the provider counts them.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, TypeAlias, TypeVar

from penstock.core.dialects.dialect import RequestError, StoredAnswers
from penstock.core.hub.failure import Failure
from penstock.core.hub.request import ClientRequest, Continuation
from penstock.error_codes import ErrorCode
from penstock.gateway.content.kept_record import History
from penstock.gateway.keys.client_key import ClientKey
from penstock.http.exchange import Exchange
from penstock.serve.kept.connection_answers import ConnectionAnswers
from penstock.serve.kept.keeper import AnswerKeeper, kept_answer
from penstock.serve.kept.memory import MemoryShare
from penstock.serve.kept.summaries import Summaries
from penstock.serve.loop import Tasks
from penstock.serve.responses import refused
from penstock.serve.surfaces.call_session import BROKEN, report
from penstock.serve.surfaces.surface import LARGE_BODY

OFF = "it keeps no responses; its operator can set `memory` or `store` in [responses]"
_NOT_FOUND: ErrorCode = "previous_response_not_found"
_MAX_QUOTED = 100

T = TypeVar("T")
Parsed: TypeAlias = Callable[[], ClientRequest]
"""Returns the request, or raises `RequestError`."""


class Continuations:
    """Resolves the requests of one API. `keeper` is None if the gateway keeps nothing."""

    def __init__(
        self,
        stored: StoredAnswers,
        keeper: AnswerKeeper | None,
        summaries: Summaries | None,
        connection: ConnectionAnswers | None = None,
    ) -> None:
        """`connection` has the answers that only requests on the same connection can continue."""
        self.stored = stored
        self._keeper = keeper
        self._summaries = summaries
        self._connection = connection
        self._tasks = Tasks()
        self.shared_state = False
        """Whether clients may use what providers keep for the account that all clients share."""

    def check(self, request: ClientRequest) -> ClientRequest:
        """The request. Raises `RequestError` if it refers to an answer or to items that the gateway does not have."""
        state = request.provider_state
        if state == self.stored.id_member:  # `may_apply` has not recognised it, and a provider must never get it
            raise RequestError(refused(f"the name `{state}` must have no escapes", "invalid_request", param=state))
        if state and not self.shared_state and (unknown := self.stored.references(request.members.body)):
            why = f" ({self._missing})" if self._missing else ""
            message = (
                f"the gateway has no item {unknown[0][:_MAX_QUOTED]!r} for this key{why}; send the item itself, as "
                'the AI SDK does with `store: false` and `include: ["reasoning.encrypted_content"]`. For an item '
                "that a provider keeps, its operator can set shared_state = true in [server]"
            )
            raise RequestError(refused(message, "shared_state_not_allowed", param=state))
        return request

    def may_apply(self, body: bytes) -> bool:
        """Whether a request may continue an answer, refer to items of one, or have a summary. Few do."""
        return self.stored.id_member.encode() in body or self._may_refer(body) or self._has_summary(body)

    def _has_summary(self, body: bytes) -> bool:
        return self._summaries is not None and self._summaries.may_be_in(body)

    def _may_refer(self, body: bytes) -> bool:
        return self._keeper is not None and self.stored.reference_type.encode() in body

    def resolve(
        self,
        exchange: Exchange,
        key: ClientKey | None,
        read: Callable[[bytes], ClientRequest],
        then: Callable[[Parsed], None],
        plain: Callable[[], None],
    ) -> None:
        """Call `then`, later, with the request: expanded if it continues an answer of this key, with the items of such
        answers that it refers to, and with its summaries as messages. Call `plain` if it has none of these."""
        if len(exchange.body) <= LARGE_BODY and not self.may_apply(exchange.body):
            plain()
            return
        self._tasks.start(self._run(exchange, key, read, then, plain))

    async def _run(
        self,
        exchange: Exchange,
        key: ClientKey | None,
        read: Callable[[bytes], ClientRequest],
        then: Callable[[Parsed], None],
        plain: Callable[[], None],
    ) -> None:
        parsed: Parsed
        try:
            if not await _work(exchange, self.may_apply, exchange.body):
                plain()
                return
            parsed = partial(_same, await self._resolved(exchange, key, read))
        except RequestError as refused:
            parsed = partial(_raise, refused.failure)
        except Exception as error:  # noqa: BLE001 - `then` reports it, and responds
            report(error)
            parsed = partial(_raise, BROKEN)
        if not exchange.over:
            then(parsed)

    async def _resolved(
        self, exchange: Exchange, key: ClientKey | None, read: Callable[[bytes], ClientRequest]
    ) -> ClientRequest:
        """The request, with its share of the memory as long as it exists."""
        body, keeper = exchange.body, self._keeper
        share = keeper.share() if keeper is not None else None
        if self._summaries is not None and self._summaries.are_in(body):
            body = await _in_thread(exchange, self._summaries.opened, body, await self._summaries.seals(), key)
        items = await _in_thread(exchange, self.stored.references, body) if self._may_refer(body) else ()
        if items and keeper is not None and share is not None:
            found = await keeper.named(keeper.ids(self.stored).owner(key), items, share)
            body = await _in_thread(exchange, self.stored.resolve, body, list(map(kept_answer, found)))
        continuation = await _work(exchange, self.stored.continuation, body)
        if continuation is None:
            request = await _in_thread(exchange, read, body)
        else:
            history = await self._history(continuation.previous, key, share)
            request = await _in_thread(exchange, self._expanded, continuation, history, read)
        request.memory = share
        return request

    async def _history(self, previous: str, key: ClientKey | None, share: MemoryShare | None) -> History:
        """The conversation before a request. Raises `RequestError` if there is none that can be continued."""
        keeper = self._keeper
        if self._connection is not None and (found := self._connection.find(previous)) is not None:
            return History((found,))
        if keeper is None or share is None:
            raise RequestError(self._not_found(previous))
        ids = keeper.ids(self.stored)
        owner = ids.owner(key)
        if not ids.is_valid(previous, owner):
            raise RequestError(self._not_found(previous))
        history = await keeper.history(owner, previous, share)
        if not history.records:
            raise RequestError(self._unusable(previous, history))
        return history

    def _expanded(
        self, continuation: Continuation, history: History, read: Callable[[bytes], ClientRequest]
    ) -> ClientRequest:
        request = read(self.stored.expand(continuation, list(map(kept_answer, history.records))))
        request.continuation = continuation
        return request

    def _unusable(self, previous: str, history: History) -> Failure:
        """Why a conversation cannot be continued."""
        if not history.fits:
            message = (
                "the conversation before this request is too long to be continued here; start a new one, and send the "
                "part of the conversation that matters as its input"
            )
            return refused(message, "body_too_large", param=self.stored.id_member)
        if not history.complete:
            return self._not_found(previous, "a response before it in the conversation was deleted")
        return self._not_found(previous)

    @property
    def _missing(self) -> str:
        """Why an earlier answer may not be known."""
        return self._keeper.missing if self._keeper is not None else OFF

    def _not_found(self, previous: str, why: str = "") -> Failure:
        why = why or self._missing
        message = f"Previous response with id {previous[:_MAX_QUOTED]!r} not found{f': {why}' if why else ''}."
        return refused(message, _NOT_FOUND, param=self.stored.id_member)


async def _in_thread(exchange: Exchange, work: Callable[..., T], *arguments: Any) -> T:
    """The result of work in a thread. Ends the task if the client has disconnected."""
    if exchange.over:
        raise asyncio.CancelledError
    return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)


async def _work(exchange: Exchange, work: Callable[[bytes], T], body: bytes) -> T:
    """The result of work on a body, in a thread if it is large."""
    return work(body) if len(body) <= LARGE_BODY else await _in_thread(exchange, work, body)


def _same(request: ClientRequest) -> ClientRequest:
    return request


def _raise(failure: Failure) -> NoReturn:
    raise RequestError(failure)

"""Continuations: resolves requests that continue a kept answer, before they are read; refuses other references.

The database has the conversation. The request that is read has all of it as its input, so that it is a request like any
other: any provider can answer it, and its tokens are counted as the provider counts them.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, NoReturn, TypeAlias

from penstock.core.dialects.dialect import RequestError, StoredAnswers
from penstock.core.hub.failure import Failure
from penstock.core.hub.request import ClientRequest, Continuation
from penstock.error_codes import ErrorCode
from penstock.gateway.content.store import History, KeptRecord
from penstock.gateway.keys.keys import Key
from penstock.http.exchange import Exchange
from penstock.serve.kept.keeper import AnswerKeeper, kept_answer
from penstock.serve.kept.memory import ConversationMemoryError, MemoryShare
from penstock.serve.responses import refused
from penstock.serve.surfaces.surface import LARGE_BODY, in_thread

OFF = "it keeps no responses; its operator can set `memory` or `store` in [responses]"
UNAVAILABLE = Failure(
    code="content_unavailable",
    message="the gateway cannot read the responses that it keeps now; try again soon",
    retry_after="2",
)
_BUSY = Failure(
    code="content_unavailable",
    message="too many long conversations are being continued at the moment; try again soon",
    retry_after="2",
)
_NOT_FOUND: ErrorCode = "previous_response_not_found"
_MAX_QUOTED = 100

Parsed: TypeAlias = Callable[[], ClientRequest]
"""Returns the request, or raises `RequestError`."""


class _Pending(NamedTuple):
    """A request that is being resolved: its body, how that is read, and what is called with the result.

    `share` is the memory of what was read from the database for it; None if nothing can be.
    """

    exchange: Exchange
    body: bytes
    key: Key | None
    read: Callable[[bytes], ClientRequest]
    then: Callable[[Parsed], None]
    share: MemoryShare | None


class Continuations:
    """Resolves the requests of one API. `keeper` is None if the gateway keeps nothing."""

    def __init__(self, stored: StoredAnswers, keeper: AnswerKeeper | None) -> None:
        self.stored = stored
        self._keeper = keeper
        self.shared_state = False
        """Whether clients may use what providers keep for the account that all clients share."""

    def check(self, request: ClientRequest) -> ClientRequest:
        """The request. Raises `RequestError` if it refers to an answer or to items that the gateway does not have."""
        state = request.provider_state
        if state == self.stored.id_member:  # `_may_apply` has not recognised it, and a provider must never get it
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

    def _may_apply(self, body: bytes) -> bool:
        """Whether a request may continue an answer, or refer to items of one. Few do."""
        return self.stored.id_member.encode() in body or self._may_refer(body)

    def _may_refer(self, body: bytes) -> bool:
        return self._keeper is not None and self.stored.reference_type.encode() in body

    def resolve(
        self,
        exchange: Exchange,
        key: Key | None,
        read: Callable[[bytes], ClientRequest],
        then: Callable[[Parsed], None],
        plain: Callable[[], None],
    ) -> None:
        """Call `then`, now or later, with the request: expanded if it continues an answer of this key, and with the
        items of such answers that it refers to. Call `plain` if it does neither."""
        resolve = partial(self._resolve, exchange, key, read, then)
        if len(exchange.body) <= LARGE_BODY:
            (resolve if self._may_apply(exchange.body) else plain)()
        else:
            applies = partial(self._may_apply, exchange.body)
            in_thread(exchange, applies, lambda applies: (resolve if applies() else plain)())

    def _resolve(
        self,
        exchange: Exchange,
        key: Key | None,
        read: Callable[[bytes], ClientRequest],
        then: Callable[[Parsed], None],
    ) -> None:
        share = self._keeper.share() if self._keeper is not None else None
        pending = _Pending(exchange, exchange.body, key, read, then, share)
        if self._may_refer(exchange.body):
            in_thread(exchange, partial(self.stored.references, exchange.body), partial(self._find_items, pending))
        else:
            self._continue(pending)

    def _continue(self, pending: _Pending) -> None:
        """Expand the request if it continues an answer."""
        continuation = partial(self.stored.continuation, pending.body)
        if len(pending.body) <= LARGE_BODY:
            self._look_up(pending, continuation)
        else:
            in_thread(pending.exchange, continuation, partial(self._look_up, pending))

    def _find_items(self, pending: _Pending, read: Callable[[], tuple[str, ...]]) -> None:
        """Look for the answers with the items that a request refers to."""
        try:
            ids = read()
        except RequestError as error:
            pending.then(partial(_raise, error.failure))
            return
        keeper, share = self._keeper, pending.share
        if not ids or keeper is None or share is None:
            self._continue(pending)
            return
        owner = keeper.ids(self.stored).owner(pending.key)
        if not keeper.named(owner, ids, share, partial(self._insert_items, pending)):
            pending.then(partial(_raise, UNAVAILABLE))

    def _insert_items(self, pending: _Pending, found: tuple[KeptRecord, ...] | Exception) -> None:
        if pending.exchange.over:
            return  # the client has disconnected
        if isinstance(found, Exception):
            pending.then(partial(_raise, unreadable(found)))
        else:
            resolved = partial(self.stored.resolve, pending.body, [kept_answer(record) for record in found])
            in_thread(pending.exchange, resolved, partial(self._on_inserted, pending))

    def _on_inserted(self, pending: _Pending, resolved: Callable[[], bytes]) -> None:
        self._continue(pending._replace(body=resolved()))

    def _look_up(self, pending: _Pending, read: Callable[[], Continuation | None]) -> None:
        try:
            continuation = read()
        except RequestError as error:
            pending.then(partial(_raise, error.failure))
            return
        if continuation is None:
            in_thread(pending.exchange, partial(_read, pending, pending.body), pending.then)
            return
        keeper, share, previous = self._keeper, pending.share, continuation.previous
        if keeper is None or share is None:
            pending.then(partial(_raise, self._not_found(previous)))
            return
        ids = keeper.ids(self.stored)
        owner = ids.owner(pending.key)
        if not ids.is_valid(previous, owner):
            pending.then(partial(_raise, self._not_found(previous)))
        elif not keeper.history(owner, previous, share, partial(self._expand, pending, continuation)):
            pending.then(partial(_raise, UNAVAILABLE))

    def _expand(self, pending: _Pending, continuation: Continuation, found: History | Exception) -> None:
        if pending.exchange.over:
            return  # the client has disconnected
        if isinstance(found, Exception):
            pending.then(partial(_raise, unreadable(found)))
        elif not found.records:
            pending.then(partial(_raise, self._unusable(continuation.previous, found)))
        else:
            expanded = partial(self._expanded, pending, continuation, found)
            in_thread(pending.exchange, expanded, pending.then)

    def _expanded(self, pending: _Pending, continuation: Continuation, history: History) -> ClientRequest:
        request = _read(pending, self.stored.expand(continuation, list(map(kept_answer, history.records))))
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


def unreadable(error: Exception) -> Failure:
    """What a client gets if kept answers could not be read."""
    return _BUSY if isinstance(error, ConversationMemoryError) else UNAVAILABLE


def _read(pending: _Pending, body: bytes) -> ClientRequest:
    """The request, which has its share of the memory as long as it exists."""
    request = pending.read(body)
    request.memory = pending.share
    return request


def _raise(failure: Failure) -> NoReturn:
    raise RequestError(failure)

"""KeptRoutes: the endpoints of kept answers, below the path of their API.

    GET     {id}               the answer as the client got it, or as it is now if it is generated in the background
    GET     {id}?stream=true   the events of one in the background; `starting_after` is the number of the last one known
    DELETE  {id}               deletes it; its content is gone, and no later request can continue it
    GET     {id}/input_items   the whole input that it was generated from, in pages
    POST    {id}/cancel        cancels one in the background

To another key than that of its client, an answer does not exist.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from penstock.core.dialects.dialect import KeptAnswer, RequestError, StoredAnswers
from penstock.core.hub.failure import Failure
from penstock.gateway.content.kept_record import History
from penstock.gateway.keys.client_key import ClientKey
from penstock.http.exchange import Exchange
from penstock.serve.kept.background import BackgroundCalls
from penstock.serve.kept.continuations import OFF
from penstock.serve.kept.keeper import AnswerKeeper, kept_answer
from penstock.serve.loop import Tasks
from penstock.serve.responses import JSON, id_headers, refused, respond_failure
from penstock.serve.streams.durable_stream import DurableStream
from penstock.serve.streams.durable_streams import owner_of
from penstock.serve.streams.routes import StreamRoutes
from penstock.serve.surfaces.call_session import BROKEN, report

_MAX_QUOTED = 100
_IN_BACKGROUND = b'"background":true'


class _Wanted(NamedTuple):
    """A request for a kept answer."""

    exchange: Exchange
    request_id: str
    owner: str
    id: str

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.exchange.request.query))


Handler: TypeAlias = Callable[["KeptRoutes", AnswerKeeper, _Wanted], Coroutine[Any, Any, bytes]]
"""Returns the body of the response, or raises `RequestError`."""


class KeptRoutes:
    """Answers requests for the kept answers of one API. `keeper` is None if the gateway keeps nothing."""

    def __init__(
        self,
        dialect: str,
        stored: StoredAnswers,
        keeper: AnswerKeeper | None,
        background: BackgroundCalls | None,
        streams: StreamRoutes,
    ) -> None:
        self.dialect = dialect
        self._background = background
        self._streams = streams
        self._stored = stored
        self._keeper = keeper
        self._tasks = Tasks()

    def handle(self, exchange: Exchange, path: str, request_id: str, key: ClientKey | None) -> None:
        """Answer one request. `path` is the part of the path after that of the API."""
        id, _, action = path.partition("/")
        routes = _ROUTES.get(action)
        method = "GET" if exchange.request.method == "HEAD" else exchange.request.method
        if routes is None or not id:
            message = f"there is nothing at {exchange.request.path[:200]}"
            respond_failure(exchange, refused(message, "not_found"), request_id, {}, self.dialect)
        elif method not in routes:
            allowed = ", ".join(routes)
            failure = refused(f"{method} is not allowed here; use {allowed}", "method_not_allowed")
            respond_failure(exchange, failure, request_id, {"allow": allowed}, self.dialect)
        else:
            keeper, wanted = self._keeper, _Wanted(exchange, request_id, "", id)
            if keeper is None:
                self._refuse(wanted, _not_found(id, OFF))
                return
            ids = keeper.ids(self._stored)
            owner = ids.owner(key)
            background = self._background
            if background is not None and (stream := background.find(key, id)) is not None:
                self._answer_from(background, stream, wanted._replace(owner=owner), keeper, action)
            elif not ids.is_valid(id, owner):
                self._refuse(wanted, _not_found(id, keeper.missing))
            elif background is None:
                self._tasks.start(self._answer(routes[method], keeper, wanted._replace(owner=owner)))
            else:
                work = partial(self._answer, routes[method], keeper, wanted._replace(owner=owner))
                self._streams.peers.ask(exchange, owner_of(key), id, lambda _: self._tasks.start(work()))

    def _answer_from(
        self, background: BackgroundCalls, stream: DurableStream, wanted: _Wanted, keeper: AnswerKeeper, action: str
    ) -> None:
        """Answer a request for an answer in the background from its stream."""
        method = wanted.exchange.request.method
        try:
            if action == "input_items":
                self._tasks.start(self._answer(KeptRoutes._list_input, keeper, wanted))
            elif method == "DELETE":
                self._streams.cancel(stream)
                self._streams.streams.forget(stream)
                self._tasks.start(self._answer(KeptRoutes._forget, keeper, wanted))
            elif wanted.query.get("stream", "false").lower() == "true":
                self._streams.read(wanted.exchange, stream, background.position(stream, wanted.query))
            else:
                if action == "cancel":
                    self._streams.cancel(stream)
                self._send(wanted, background.read(stream))
        except RequestError as error:
            self._refuse(wanted, error.failure)
        except Exception as error:  # noqa: BLE001 - the client must get a response
            self._refuse(wanted, BROKEN)
            report(error)

    def _send(self, wanted: _Wanted, body: bytes) -> None:
        if not wanted.exchange.over:
            headers = {"content-type": JSON} | id_headers(wanted.request_id, self.dialect)
            wanted.exchange.respond(200, headers, body)

    async def _answer(self, handler: Handler, keeper: AnswerKeeper, wanted: _Wanted) -> None:
        try:
            body = await handler(self, keeper, wanted)
        except RequestError as error:
            self._refuse(wanted, error.failure)
        except Exception as error:  # noqa: BLE001 - the client must get a response
            self._refuse(wanted, BROKEN)
            report(error)
        else:
            self._send(wanted, body)

    async def _get(self, keeper: AnswerKeeper, wanted: _Wanted) -> bytes:
        if wanted.query.get("stream", "false").lower() == "true":
            message = "only a response in the background can be streamed again, for some time; leave out `stream`"
            raise RequestError(refused(message, "invalid_request", param="stream"))
        return await asyncio.to_thread(self._stored.write_answer, await self._read(keeper, wanted))

    async def _cancel(self, keeper: AnswerKeeper, wanted: _Wanted) -> bytes:
        found = await self._read(keeper, wanted)
        if _IN_BACKGROUND in found.answer:  # it has ended: nothing changes
            return await asyncio.to_thread(self._stored.write_answer, found)
        message = "Cannot cancel a synchronous response: only one in the background can be cancelled."
        raise RequestError(refused(message, "invalid_request"))

    async def _read(self, keeper: AnswerKeeper, wanted: _Wanted) -> KeptAnswer:
        found = await keeper.read(wanted.owner, wanted.id)
        if found is None:
            raise RequestError(_not_found(wanted.id))
        return found

    async def _delete(self, keeper: AnswerKeeper, wanted: _Wanted) -> bytes:
        if not await keeper.delete(wanted.owner, wanted.id):
            raise RequestError(_not_found(wanted.id))
        return self._stored.write_deleted(wanted.id)

    async def _forget(self, keeper: AnswerKeeper, wanted: _Wanted) -> bytes:
        await keeper.delete(wanted.owner, wanted.id)
        return self._stored.write_deleted(wanted.id)

    async def _list_input(self, keeper: AnswerKeeper, wanted: _Wanted) -> bytes:
        share = keeper.share()  # as long as the conversation is in memory
        history = await keeper.history(wanted.owner, wanted.id, share)
        if not history.records:
            raise RequestError(_unlisted(wanted.id, history))
        answers = list(map(kept_answer, history.records))
        return await asyncio.to_thread(self._stored.write_input, answers, wanted.query)

    def _refuse(self, wanted: _Wanted, failure: Failure) -> None:
        if not wanted.exchange.over:
            respond_failure(wanted.exchange, failure, wanted.request_id, {}, self.dialect)


# By the part of the path after the id, and by method.
_ROUTES: dict[str, dict[str, Handler]] = {
    "": {"GET": KeptRoutes._get, "DELETE": KeptRoutes._delete},
    "input_items": {"GET": KeptRoutes._list_input},
    "cancel": {"POST": KeptRoutes._cancel},
}


def _unlisted(id: str, history: History) -> Failure:
    """Why the input of an answer cannot be listed."""
    if not history.fits:
        return refused("the input of this response is too long to be listed", "body_too_large")
    return _not_found(id, "" if history.complete else "a response before it in the conversation was deleted")


def _not_found(id: str, why: str = "") -> Failure:
    message = f"Response with id {id[:_MAX_QUOTED]!r} not found{f': {why}' if why else ''}."
    return refused(message, "response_not_found")

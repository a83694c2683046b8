"""KeptRoutes: the endpoints of kept answers, below the path of their API.

    GET     {id}               the answer as the client got it
    DELETE  {id}               deletes it; its content is gone, and no later request can continue it
    GET     {id}/input_items   the whole input that it was generated from, in pages
    POST    {id}/cancel        refused: only answers in the background can be cancelled, and there are none

To another key than that of its client, an answer does not exist.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from penstock.core.dialects.dialect import KeptAnswer, RequestError, StoredAnswers
from penstock.core.hub.failure import Failure
from penstock.gateway.content.store import History
from penstock.gateway.keys.keys import Key
from penstock.http.exchange import Exchange
from penstock.serve.kept.continuations import OFF, UNAVAILABLE, unreadable
from penstock.serve.kept.keeper import AnswerKeeper, kept_answer
from penstock.serve.kept.memory import MemoryShare
from penstock.serve.responses import JSON, id_headers, refused, respond_failure
from penstock.serve.surfaces.call_session import BROKEN, report
from penstock.serve.surfaces.surface import in_thread

_MAX_QUOTED = 100
# What OpenAI has beside the ids of responses, and the gateway has not.
_OTHER_ENDPOINTS = frozenset(("compact",))


class _Wanted(NamedTuple):
    """A request for a kept answer, with the memory of what was read for it."""

    exchange: Exchange
    request_id: str
    owner: str
    id: str
    share: MemoryShare | None = None

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.exchange.request.query))


Handler: TypeAlias = Callable[["KeptRoutes", AnswerKeeper, _Wanted], None]


class KeptRoutes:
    """Answers requests for the kept answers of one API. `keeper` is None if the gateway keeps nothing."""

    def __init__(self, dialect: str, stored: StoredAnswers, keeper: AnswerKeeper | None) -> None:
        self.dialect = dialect
        self._stored = stored
        self._keeper = keeper

    def handle(self, exchange: Exchange, path: str, request_id: str, key: Key | None) -> None:
        """Answer one request. `path` is the part of the path after that of the API."""
        id, _, action = path.partition("/")
        routes = _ROUTES.get(action)
        method = "GET" if exchange.request.method == "HEAD" else exchange.request.method
        misplaced = id in _OTHER_ENDPOINTS and not action
        if routes is None or not id or misplaced:
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
            if ids.is_valid(id, owner):
                routes[method](self, keeper, wanted._replace(owner=owner))
            else:
                self._refuse(wanted, _not_found(id, keeper.missing))

    def _get(self, keeper: AnswerKeeper, wanted: _Wanted) -> None:
        if wanted.query.get("stream", "false").lower() == "true":
            message = "only a response in the background can be streamed again, and this one is not; leave out `stream`"
            self._refuse(wanted, refused(message, "invalid_request", param="stream"))
            return

        def send(found: KeptAnswer) -> None:
            in_thread(wanted.exchange, partial(self._stored.write_answer, found), partial(self._send, wanted))

        self._read(keeper, wanted, send)

    def _cancel(self, keeper: AnswerKeeper, wanted: _Wanted) -> None:
        message = "Cannot cancel a synchronous response: only one in the background can be cancelled."
        self._read(keeper, wanted, lambda _: self._refuse(wanted, refused(message, "invalid_request")))

    def _read(self, keeper: AnswerKeeper, wanted: _Wanted, use: Callable[[KeptAnswer], None]) -> None:
        def then(found: KeptAnswer | Exception | None) -> None:
            if isinstance(found, KeptAnswer):
                use(found)
            else:
                self._refuse_missing(wanted, found)

        if not keeper.read(wanted.owner, wanted.id, then):
            self._refuse(wanted, UNAVAILABLE)

    def _delete(self, keeper: AnswerKeeper, wanted: _Wanted) -> None:
        def then(deleted: bool | Exception) -> None:
            if deleted is True:
                self._send(wanted, partial(self._stored.write_deleted, wanted.id))
            else:
                self._refuse_missing(wanted, deleted)

        keeper.delete(wanted.owner, wanted.id, then)

    def _list_input(self, keeper: AnswerKeeper, wanted: _Wanted) -> None:
        share = keeper.share()
        wanted = wanted._replace(share=share)

        def then(found: History | Exception) -> None:
            if isinstance(found, Exception):
                self._refuse_missing(wanted, found)
            elif not found.records:
                self._refuse(wanted, _unlisted(wanted.id, found))
            else:
                write = partial(self._stored.write_input, list(map(kept_answer, found.records)), wanted.query)
                in_thread(wanted.exchange, write, partial(self._send, wanted))

        if not keeper.history(wanted.owner, wanted.id, share, then):
            self._refuse(wanted, UNAVAILABLE)

    def _refuse_missing(self, wanted: _Wanted, found: object) -> None:
        """Refuse a request whose answer was not found, or could not be looked up because of an error."""
        self._refuse(wanted, unreadable(found) if isinstance(found, Exception) else _not_found(wanted.id))

    def _send(self, wanted: _Wanted, write: Callable[[], bytes]) -> None:
        """Send the body that `write` returns, or the error that it raises."""
        try:
            body = write()
        except RequestError as error:
            self._refuse(wanted, error.failure)
        except Exception as error:  # noqa: BLE001 - the client must get a response
            self._refuse(wanted, BROKEN)
            report(error)
        else:
            headers = {"content-type": JSON} | id_headers(wanted.request_id, self.dialect)
            wanted.exchange.respond(200, headers, body)

    def _refuse(self, wanted: _Wanted, failure: Failure) -> None:
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

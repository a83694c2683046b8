"""SocketSession: one client on a WebSocket. Its requests are handled one after the other.

A message that arrives while another one is answered waits; a client that sends too many is disconnected. When the
connection has reached its age, or the gateway shuts down, it closes after the current response.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from websockets.frames import CloseCode

from penstock.core.dialects.dialect import Dialect, RequestError, SocketMessages, SocketRequest
from penstock.core.hub.failure import Failure
from penstock.http.exchange import Exchange, HttpRequest
from penstock.http.websocket import WebSocket, WebSocketLimits
from penstock.serve.kept.connection_answers import ConnectionAnswers
from penstock.serve.responses import new_request_id, respond_failure
from penstock.serve.sockets.answers import SocketAnswers
from penstock.serve.sockets.turn import SocketTurn
from penstock.serve.surfaces.surface import LARGE_BODY, in_thread

_TOO_OLD = Failure(
    code="websocket_connection_limit_reached",
    message="this connection has reached its maximum age; open a new one",
)
_MAX_WAITING = 16
# The headers of the upgrade that do not concern the requests on the connection.
_HOP_BY_HOP = ("connection", "upgrade", "sec-websocket-", "accept")


class SocketSession:
    """One connection. `handle` handles a request as the router does; `on_closed` is called when it has closed."""

    def __init__(
        self,
        exchange: Exchange,
        dialect: Dialect,
        messages: SocketMessages,
        surface: SocketAnswers,
        answers: ConnectionAnswers,
        handle: Callable[[Exchange, SocketAnswers], None],
    ) -> None:
        self._exchange = exchange
        self._dialect = dialect.name
        self._messages = messages
        self._surface = surface
        self._answers = answers
        self._handle = handle
        self._request = _as_post(exchange.request)
        self._turn: SocketTurn | None = None
        self._previous = ""  # the answer that the current request continues
        self._waiting: deque[bytes] = deque()
        self._last_words: Callable[[], None] | None = None  # what closes the connection after the current response

    def open(self, head: bytes, limits: WebSocketLimits, on_closed: Callable[[], None]) -> None:
        """Accept the offer with this head of a response."""
        exchange = self._exchange
        self._on_closed = on_closed
        self._max_waiting = limits.max_message
        self._socket = WebSocket(exchange, limits, self._on_message, self._closed, self._on_old)
        exchange.on_pause, exchange.on_resume, exchange.on_closing = self._pause, self._resume, self._on_closing
        self._socket.open(head)

    # Requests.

    def _on_message(self, message: bytes) -> None:
        if self._turn is None and not self._waiting:
            self._begin(message)
            return
        self._waiting.append(message)
        if len(self._waiting) > _MAX_WAITING or sum(map(len, self._waiting)) > self._max_waiting:
            self._socket.close(CloseCode.POLICY_VIOLATION, "too many requests wait for the current response")

    def _begin(self, message: bytes) -> None:
        turn = self._new_turn()
        self._turn, self._previous, self._socket.busy = turn, "", True
        read = partial(self._messages.read, message)
        if len(message) > LARGE_BODY:
            in_thread(turn, read, self._start)
        else:
            self._start(read)

    def _new_turn(self) -> SocketTurn:
        connection = self._exchange._connection
        return SocketTurn(
            connection, self._request, b"", socket=self._socket, messages=self._messages, on_over=self._on_over
        )

    def _start(self, read: Callable[[], SocketRequest]) -> None:
        turn = self._turn
        assert turn is not None  # `in_thread` calls nothing for a client that has disconnected
        try:
            request = read()
        except RequestError as error:
            respond_failure(turn, error.failure, new_request_id(), {}, self._dialect)
            return
        turn.body, self._previous, self._surface.prewarm = request.body, request.previous, request.prewarm
        self._handle(turn, self._surface)
        if self._exchange.paused and turn.on_pause is not None and not turn.over:
            turn.on_pause()  # the previous response is still in the write buffer

    def _on_over(self, failed: bool) -> None:
        """The response is complete."""
        self._turn, self._socket.busy = None, False
        if failed and self._previous:
            self._answers.forget(self._previous)  # Open Responses: a later request must not continue it, either
        if self._last_words is not None:
            self._last_words()
        elif self._waiting:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        if self._turn is None and self._waiting:
            self._begin(self._waiting.popleft())

    # The connection.

    def _pause(self) -> None:
        if self._turn is not None and self._turn.on_pause is not None:
            self._turn.on_pause()

    def _resume(self) -> None:
        self._socket.resumed()
        if self._turn is not None and self._turn.on_resume is not None:
            self._turn.on_resume()

    def _closed(self) -> None:
        turn, self._turn = self._turn, None
        self._waiting.clear()
        self._answers.close()
        self._surface.close()
        self._on_closed()
        if turn is not None:
            turn.gone()

    def _on_old(self) -> None:
        self._end_with(self._refuse_old)

    def _on_closing(self) -> None:
        self._end_with(partial(self._socket.close, CloseCode.GOING_AWAY, "the gateway is restarting"))

    def _end_with(self, last_words: Callable[[], None]) -> None:
        """Close the connection after the current response."""
        self._waiting.clear()
        self._last_words = last_words
        if self._turn is None:
            last_words()

    def _refuse_old(self) -> None:
        self._last_words = None
        respond_failure(self._new_turn(), _TOO_OLD, new_request_id(), {}, self._dialect)
        self._socket.close(CloseCode.NORMAL_CLOSURE, "the connection has reached its maximum age")


def _as_post(request: HttpRequest) -> HttpRequest:
    """The request that stands for each message: a POST, by a client that reads nothing but streams."""
    headers = {name: value for name, value in request.headers.items() if not name.startswith(_HOP_BY_HOP)}
    post = HttpRequest("POST", request.path, request.query, headers | {"accept": "text/event-stream"})
    post.parsed_head = request.parsed_head  # which has the client's own credentials for a provider
    return post

"""Sockets: opens the WebSockets of one process, and bounds their number and their memory."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count

from penstock.core.dialects.dialect import Dialect
from penstock.gateway.config import Config
from penstock.gateway.content.recent import RecentRecords
from penstock.http.exchange import Exchange
from penstock.http.websocket import WebSocketLimits, handshake
from penstock.serve.apis import Apis
from penstock.serve.kept.connection_answers import ConnectionAnswers
from penstock.serve.sockets.answers import SocketAnswers
from penstock.serve.sockets.session import SocketSession


class Sockets:
    """The WebSockets of one process. `handle` handles each request on them, with the surface of its connection."""

    def __init__(self, apis: Apis, config: Config, handle: Callable[[Exchange, SocketAnswers], None]) -> None:
        self._apis = apis
        self._handle = handle
        self._names = count()
        self._open: set[SocketSession] = set()
        self._records = RecentRecords(config.limits.websocket_memory, asyncio.get_running_loop().time)

    def open(self, exchange: Exchange, dialect: Dialect, path: str, config: Config) -> str:
        """Accept the offer of a client. Returns why that is not possible; empty if it is accepted."""
        limits = config.limits
        if dialect.socket is None or dialect.surface is None or path != dialect.surface.path:
            return "WebSocket is not supported here; use POST"
        if len(self._open) >= limits.max_websockets:
            return "the gateway has as many WebSockets as it accepts (max_websockets in [limits]); use POST"
        head = handshake(exchange)
        if isinstance(head, str):
            return f"the offer of a WebSocket is not valid: {head}"
        answers = ConnectionAnswers(self._records, f"websocket-{next(self._names)}", limits.max_body)
        surface = self._apis.on_connection(dialect, answers, partial(SocketAnswers, answers))
        session = SocketSession(exchange, dialect, dialect.socket, surface, answers, self._handle)
        self._open.add(session)
        timing = WebSocketLimits(
            max_message=limits.max_body,
            message_timeout_s=limits.body_timeout_s,
            idle_s=limits.websocket_idle_s,
            max_age_s=limits.websocket_max_age_s,
        )
        session.open(head, timing, lambda: self._open.discard(session))
        return ""

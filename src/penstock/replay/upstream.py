"""Replay: an upstream that plays captures at their recorded speed, and calls no provider.

A `Player` plays to a `Receiver`, as a connection to a real upstream would. The receiver is the gateway's relay, or the
response of the replay server. Captures may be large: a thread reads and prepares them, and the player sends a few
kilobytes per iteration of the event loop, so that other calls are not delayed.
"""

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from penstock.capture import parse
from penstock.core.dialects.registry import DEFAULT_DIALECT, answer_dialect
from penstock.core.hub.failure import Failure
from penstock.error_codes import ErrorCode
from penstock.errors import CaptureError
from penstock.http.upstream_connection import (
    LONGEST_TURN,
    Receiver,
    ReceiverError,
    RequestBytes,
    UpstreamError,
    turn_size,
)
from penstock.replay.library import Library, asks_for_stream, fields_of, model_of_request
from penstock.replay.playback import AS_RECORDED, Playback, PlaybackOptions, playback_of

# The error code if no capture answers a request.
NO_CAPTURE: ErrorCode = "capture_not_found"
# A TCP reset discards what the peer has not read yet. The player waits this long before it resets.
_BEFORE_RESET_S = 0.03
_TOO_EARLY = "before the answer was complete"


class Player:
    """Plays one answer to a receiver, on time. Each step runs in its own iteration of the event loop."""

    def __init__(self, playback: Playback, receiver: Receiver) -> None:
        self._loop = asyncio.get_running_loop()
        self._playback = playback
        self.receiver = receiver
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to play: the recorded times count from now."""
        self._task = self._loop.create_task(self._play(self._loop.time()))

    def pause(self) -> None:
        """Stop until `resume` (backpressure: the receiver is slow)."""
        self._flowing.clear()

    def resume(self) -> None:
        """Continue; pieces that have become due in the meantime are played at once."""
        self._flowing.set()

    def stop(self) -> None:
        """Stop for good; the receiver is not called again."""
        if self._task is not None:
            self._task.cancel()

    async def _play(self, started: float) -> None:
        try:
            await self._play_all(started)
        except Exception as error:  # noqa: BLE001 - the call ends, as in `http/upstream_connection.py`, rule 7
            self.receiver.on_error(ReceiverError(error))

    async def _play_all(self, started: float) -> None:
        playback = self._playback
        if playback.status is not None:
            first_s = playback.pieces[0].after_s if playback.pieces else playback.head_s
            await self._until(started + min(playback.head_s, first_s))  # no body comes before its head
            self.receiver.on_head(playback.status, playback.headers)
        due = last = started
        for piece in playback.pieces:
            due += piece.after_s
            await self._until(max(due, last + playback.apart_s))
            offset = 0
            while offset < len(piece.data):
                if offset:
                    await self._until(0.0)
                data = piece.data[offset : offset + LONGEST_TURN]
                data = data[: turn_size(data)]
                offset += len(data)
                last = self._loop.time()
                self.receiver.on_data(data)
        before_end_s = _BEFORE_RESET_S if playback.ending == "reset" else 0.0
        await self._until(max(due + playback.ending_after_s, last + before_end_s))
        self._end()

    async def _until(self, at: float) -> None:
        """Wait for a time of the event loop, then for the receiver."""
        await asyncio.sleep(max(0.0, at - self._loop.time()))
        await self._flowing.wait()

    def _end(self) -> None:
        ending = self._playback.ending
        if self._playback.refusal:
            self.receiver.on_error(UpstreamError(NO_CAPTURE, self._playback.refusal))
        elif ending == "end":
            self.receiver.on_end()
        elif ending == "reset":
            self.receiver.on_error(UpstreamError("upstream_reset", f"the connection was reset {_TOO_EARLY}"))
        elif ending == "closed":
            self.receiver.on_error(UpstreamError("upstream_truncated", f"the connection was closed {_TOO_EARLY}"))
        # In a stall, nothing is sent until a timeout ends the call.


class PlayedCapture(Struct, frozen=True):
    """What is played for a request, the name of the capture, and how it was chosen."""

    playback: Playback
    name: str = ""
    why: str = ""


ChooseCapture: TypeAlias = Callable[[bytes, Callable[[PlayedCapture], None]], None]
"""Chooses what is played for the body of a request, and calls back with it."""


class Replay:
    """An upstream that answers from a library of captures. As a provider, it has one dialect."""

    def __init__(
        self, library: Library, options: PlaybackOptions = AS_RECORDED, dialect: str = DEFAULT_DIALECT
    ) -> None:
        self._library = library
        self._options = options
        self._dialect = dialect
        self._chance = random.Random(0)  # a fixed seed: the same pieces in every run
        # One thread, so that the round robin follows the order of the requests.
        self._thread = ThreadPoolExecutor(1, "penstock-replay")

    def endpoint(self, url: str, _headers: dict[str, str]) -> "ReplayEndpoint":
        """An endpoint of this replay. Of the URL only the path matters, in which a dialect may name the model."""
        return ReplayEndpoint(partial(self.choose, self._dialect, urlsplit(url).path))

    @property
    def models(self) -> tuple[str, ...]:
        """The models of the captures."""
        return self._library.models

    def has(self, model: str) -> bool:
        """Whether the library has a capture of a model."""
        return any(model in entry.models for entry in self._library.entries)

    def choose(self, dialect: str, path: str, body: bytes, then: Callable[[PlayedCapture], None]) -> None:
        """Choose what is played for a request, in a thread; `then` is called with it in the event loop."""
        played = asyncio.get_running_loop().run_in_executor(self._thread, self._answer, dialect, path, body)
        played.add_done_callback(lambda done: then(done.result()))

    def _answer(self, dialect: str, path: str, body: bytes) -> PlayedCapture:
        translated = self._options.translates_to(dialect)
        choice = self._library.choose(body, path, dialect, translated=translated)
        if choice is None:
            model = model_of_request(body, path, dialect)
            return PlayedCapture(_no_capture(model, None if translated else dialect, self._library))
        name = choice.entry.name
        try:
            capture = parse(choice.entry.path.read_bytes())
        except (OSError, CaptureError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            return PlayedCapture(_unreadable(f"the capture {name} cannot be read any more: {reason}", dialect))
        try:
            playback = playback_of(
                capture,
                self._options.of(dialect),
                self._chance,
                recorded_as=choice.entry.dialect,
                include_usage=_asks_for_usage(body),
                stream=asks_for_stream(body, path, dialect),
            )
        except Exception as error:  # noqa: BLE001 - a client waits for an answer, whatever the error is
            return PlayedCapture(_unreadable(f"the capture {name} cannot be played: {type(error).__name__}", dialect))
        return PlayedCapture(playback, name, f"by {choice.why}")


class ReplayEndpoint:
    """The endpoint of a replay: makes connections that play captures."""

    secrets: tuple[str, ...] = ()
    """A replay has none."""

    def __init__(self, choose: ChooseCapture) -> None:
        self._choose = choose

    def request(self, body: bytes, headers: bytes = b"") -> bytes:  # noqa: ARG002
        """The bytes of a request: just its body."""
        return body

    async def large_request(self, body: bytes, headers: bytes = b"") -> bytes:  # noqa: ARG002
        """The bytes of a request with a large body: just its body."""
        return body

    def idle_connection(self) -> "ReplayConnection":
        """A connection; it needs no socket."""
        return ReplayConnection(self._choose)

    async def open(self, _timeout_s: float) -> "ReplayConnection":
        """A connection, without waiting."""
        return self.idle_connection()


class ReplayConnection:
    """Implements the interface of a connection to an upstream."""

    def __init__(self, choose: ChooseCapture) -> None:
        self.aligned_chunks: tuple[bytes, ...] = ()  # always empty: there is no HTTP framing
        self.on_chunk: Callable[[bytes, bytes], bool] | None = None
        self.on_chosen: Callable[[PlayedCapture], None] | None = None
        """Called with what will be played, before it starts."""
        self._choose = choose
        self._request = b""  # while it has no receiver
        self._receiver: Receiver | None = None
        self._player: Player | None = None
        self._paused = False

    def send(self, request: RequestBytes, receiver: Receiver | None = None) -> None:
        """Choose a capture and start to play it. Without a receiver, that waits for `redirect`."""
        assert isinstance(request, bytes)  # as its endpoint makes it
        if receiver is None:
            self._request = request
        else:
            self._receiver = receiver
            self._choose(request, self._play)

    def _play(self, played: PlayedCapture) -> None:
        if self._receiver is None:
            return  # the call was abandoned
        if self.on_chosen is not None:
            self.on_chosen(played)
        self._player = Player(played.playback, self._receiver)
        if self._paused:
            self._player.pause()
        self._player.start()

    def pause(self) -> None:
        """Stop playing until `resume` (backpressure)."""
        self._paused = True
        if self._player is not None:
            self._player.pause()

    def resume(self) -> None:
        """Continue to play."""
        self._paused = False
        if self._player is not None:
            self._player.resume()

    def redirect(self, receiver: Receiver) -> None:
        """Play the response to this receiver, or the rest of it."""
        request, self._request = self._request, b""
        if request:
            self.send(request, receiver)
            return
        self._receiver = receiver
        if self._player is not None:
            self._player.receiver = receiver

    def abandon(self, receiver: Receiver) -> None:
        """Stop playing to this receiver."""
        if self._receiver is receiver:
            self._receiver = None
            if self._player is not None:
                self._player.stop()


def _asks_for_usage(body: bytes) -> bool:
    """Whether a chat request asks for the usage. Only provider styles depend on it."""
    options = fields_of(body).get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _no_capture(model: object, dialect: str | None, library: Library) -> Playback:
    """The playback of a request that no capture of the dialect, or of any, matches: an error."""
    wanted = f"for the model {str(model)[:200]!r}" if "model" in library.picks else "of this request"
    known = ", ".join(library.models_of(dialect)[:10]) or "none"
    of = "" if dialect in (None, DEFAULT_DIALECT) else f" in the dialect {dialect}"
    message = f"there is no capture {wanted}{of}, and no provider is called; there are captures of: {known}"
    return Playback(status=None, refusal=message)


def _unreadable(message: str, dialect: str) -> Playback:
    failure = Failure(code=NO_CAPTURE, message=message, status=502, param="model")
    return Playback(status=failure.status).with_json(failure.status, answer_dialect(dialect).write_error(failure, ""))

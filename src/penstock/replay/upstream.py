"""Replay: captures as an upstream. What was recorded comes again, at its speed, and nobody is called.

A `Player` plays to a `Receiver`, as a connection to a real upstream would: the gateway's relay, or a server's answer.
Captures may be large: they are read and prepared in a thread, and played a few kilobytes at a time, so that no other
call waits for them.
"""

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from penstock.capture import How, parse
from penstock.core.dialects.registry import DEFAULT_DIALECT, find_dialect, surface_dialect
from penstock.core.failure import Failure
from penstock.error_codes import ErrorCode
from penstock.errors import CaptureError
from penstock.http.client import LONGEST_TURN, Receiver, UpstreamError, turn_size
from penstock.replay.faults import Piece
from penstock.replay.library import Library, fields_of, model_of_request
from penstock.replay.playback import AS_RECORDED, Playback, PlaybackOptions, playback_of

# No capture answers a request.
NO_CAPTURE: ErrorCode = "capture_not_found"
# A reset overtakes what the peer has not read yet; so much time it has for that.
_BEFORE_RESET_S = 0.03
_TOO_EARLY = "before the answer was complete"
# What came after that nobody knows; but the fault is in the bytes, and the body may well have ended as it should.
_CLEAN: frozenset[How] = frozenset(("complete", "abandoned"))


class Player:
    """Plays one answer to a receiver, on time. Each thing that happens is one turn of the loop, or more, of its own."""

    def __init__(self, playback: Playback, receiver: Receiver) -> None:
        self._loop = asyncio.get_running_loop()
        self._playback = playback
        self._receiver = receiver
        self._headed = playback.status is None
        self._next = 0
        self._sent = 0
        """Bytes of the next piece that were played already."""
        self._paused = False
        self._over = False
        self._timer: asyncio.Handle | None = None
        self._due = self._last = self._begun = self._loop.time()

    def start(self) -> None:
        """Begin: this is the moment of the request."""
        self._due = self._last = self._begun = self._loop.time()
        self._go_on()

    def pause(self) -> None:
        """Hold on: whoever takes the answer is slow."""
        self._paused = True
        self._cancel()

    def resume(self) -> None:
        """Go on; what has become due meanwhile comes at once."""
        self._paused = False
        if self._timer is None and not self._over:
            self._schedule()

    def stop(self) -> None:
        """Play no more; the receiver hears nothing more."""
        self._over = True
        self._cancel()

    def _schedule(self) -> None:
        """Arm the timer for whatever is next."""
        playback = self._playback
        apart_s = playback.apart_s
        if not self._headed:
            at = self._begun + playback.head_s
            if playback.pieces:
                at = min(at, self._begun + playback.pieces[0].after_s)  # no body comes before its head
            step, apart_s = self._send_head, 0.0
        elif self._sent:
            at, step, apart_s = self._due, self._send_piece, 0.0
        elif self._next < len(playback.pieces):
            at = self._due + playback.pieces[self._next].after_s
            step = self._send_piece
        else:
            at = self._due + playback.ending_after_s
            step = self._end
            apart_s = _BEFORE_RESET_S if playback.ending == "reset" else 0.0
        at = max(at, self._last + apart_s)
        now = self._loop.time()
        self._timer = self._loop.call_at(at, step) if at > now else self._loop.call_soon(step)

    def _send_head(self) -> None:
        self._timer = None
        self._headed = True
        assert self._playback.status is not None
        self._receiver.on_head(self._playback.status, self._playback.headers)
        self._go_on()

    def _send_piece(self) -> None:
        self._timer = None
        piece = self._playback.pieces[self._next]
        if not self._sent:
            self._due += piece.after_s
        data = piece.data[self._sent : self._sent + LONGEST_TURN]
        data = data[: turn_size(data, recorded=True)]
        self._sent += len(data)
        if self._sent >= len(piece.data):
            self._next += 1
            self._sent = 0
        self._last = self._loop.time()
        self._receiver.on_data(data)
        self._go_on()

    def _go_on(self) -> None:
        if not self._over and not self._paused:
            self._schedule()

    def _end(self) -> None:
        self._timer = None
        ending = self._playback.ending
        if ending == "timed-out":
            return  # silence, until somebody loses patience
        self._over = True
        if self._playback.refusal:
            self._receiver.on_error(UpstreamError(NO_CAPTURE, self._playback.refusal))
        elif ending in _CLEAN:
            self._receiver.on_end()
        elif ending == "reset":
            self._receiver.on_error(UpstreamError("upstream_reset", f"the connection was reset {_TOO_EARLY}"))
        else:
            self._receiver.on_error(UpstreamError("upstream_truncated", f"the connection was closed {_TOO_EARLY}"))

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class PlayedCapture(Struct, frozen=True):
    """What is played for a request: the name of the capture, and by what it was chosen."""

    playback: Playback
    name: str = ""
    why: str = ""


Ask: TypeAlias = Callable[[bytes, Callable[[PlayedCapture], None]], None]
"""Finds what is played for the body of a request, and tells it."""


class Replay:
    """An upstream that answers from a library of captures. As a provider, it speaks one dialect."""

    def __init__(
        self, library: Library, rendition: PlaybackOptions = AS_RECORDED, dialect: str = DEFAULT_DIALECT
    ) -> None:
        self._library = library
        self._rendition = rendition
        self._dialect = dialect
        self._chance = random.Random(0)  # the same pieces in every run
        # One, so that captures take turns in the order in which they are asked for.
        self._thread = ThreadPoolExecutor(1, "penstock-replay")

    def endpoint(self, url: str, _headers: dict[str, str]) -> "ReplayEndpoint":
        """Where to ask: here, whatever the URL. (A dialect may name the model in it.)"""
        return ReplayEndpoint(partial(self.ask, self._dialect, urlsplit(url).path))

    @property
    def models(self) -> tuple[str, ...]:
        """The models that there are captures of."""
        return self._library.models

    def has(self, model: str) -> bool:
        """Whether there is a capture of a model."""
        return any(model in entry.models for entry in self._library.entries)

    def ask(self, dialect: str, path: str, body: bytes, then: Callable[[PlayedCapture], None]) -> None:
        """Find what is played for a request, in a thread; `then` is told in the event loop."""
        found = asyncio.get_running_loop().run_in_executor(self._thread, self._answer, dialect, path, body)
        found.add_done_callback(lambda done: then(done.result()))

    def _answer(self, dialect: str, path: str, body: bytes) -> PlayedCapture:
        choice = self._library.choose(body, path, dialect)
        if choice is None:
            return PlayedCapture(_no_capture(model_of_request(body, path, dialect), dialect, self._library))
        name = choice.entry.name
        try:
            capture = parse(choice.entry.path.read_bytes())
        except (OSError, CaptureError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            return PlayedCapture(_unreadable(f"the capture {name} cannot be read any more: {reason}", dialect))
        try:
            rendition = self._rendition.of(dialect)
            playback = playback_of(capture, rendition, self._chance, include_usage=_asks_for_usage(body))
        except Exception as error:  # noqa: BLE001 - whatever it is, a client waits
            return PlayedCapture(_unreadable(f"the capture {name} cannot be played: {type(error).__name__}", dialect))
        return PlayedCapture(playback, name, f"by {choice.why}")


class ReplayEndpoint:
    """Where a replay is asked."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def request(self, body: bytes) -> bytes:
        """The request that carries the body: the body."""
        return body

    def kept(self) -> "ReplayConnection":
        """A connection, which is nothing but a player to be."""
        return ReplayConnection(self._ask)

    async def open(self, _timeout_s: float) -> "ReplayConnection":
        """The same: there is nothing to wait for."""
        return self.kept()


class ReplayConnection:
    """What the gateway takes for a connection to an upstream."""

    def __init__(self, ask: Ask) -> None:
        self.aligned_chunks: tuple[bytes, ...] = ()  # it has none
        self.on_chunk: Callable[[bytes, bytes], bool] | None = None
        self.on_found: Callable[[PlayedCapture], None] | None = None
        """Told what will be played, before it begins."""
        self._ask = ask
        self._receiver: Receiver | None = None
        self._player: Player | None = None
        self._paused = False

    def send(self, request: bytes, receiver: Receiver, *, recorded: bool = False) -> None:  # noqa: ARG002
        """Have a capture chosen, and begin to play it."""
        self._receiver = receiver
        self._ask(request, self._play)

    def _play(self, played: PlayedCapture) -> None:
        if self._receiver is None:
            return  # which wants no more
        if self.on_found is not None:
            self.on_found(played)
        self._player = Player(played.playback, self._receiver)
        if self._paused:
            self._player.pause()
        self._player.start()

    def pause(self) -> None:
        """Play on only after `resume`."""
        self._paused = True
        if self._player is not None:
            self._player.pause()

    def resume(self) -> None:
        """Play on."""
        self._paused = False
        if self._player is not None:
            self._player.resume()

    def abandon(self, receiver: Receiver) -> None:
        """The receiver wants no more."""
        if self._receiver is receiver:
            self._receiver = None
            if self._player is not None:
                self._player.stop()


def _asks_for_usage(body: bytes) -> bool:
    """Whether a request wants to be told the usage at the end of its stream. (Only manners ask, which are of chat.)"""
    options = fields_of(body).get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _no_capture(model: object, dialect: str, library: Library) -> Playback:
    """The answer to a request that no capture answers."""
    asked = f"for the model {str(model)[:200]!r}" if "model" in library.picks else "of this request"
    known = ", ".join(library.models_of(dialect)[:10]) or "none"
    of = "" if dialect == DEFAULT_DIALECT else f" in the dialect {dialect}"
    message = f"there is no capture {asked}{of}, and nobody else is asked; there are captures of: {known}"
    return Playback(
        status=None, headers={}, head_s=0.0, pieces=[], ending="complete", ending_after_s=0.0, refusal=message
    )


def _unreadable(message: str, dialect: str) -> Playback:
    surface = find_dialect(dialect).surface or surface_dialect(DEFAULT_DIALECT)
    failure = Failure(code=NO_CAPTURE, message=message, status=502, param="model")
    return Playback(
        status=failure.status,
        headers={"content-type": "application/json"},
        head_s=0.0,
        pieces=[Piece(0.0, surface.write_error(failure, ""))],
        ending="complete",
        ending_after_s=0.0,
    )

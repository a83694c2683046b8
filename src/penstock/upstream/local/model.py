"""LocalModel: a model on this machine, in a child process; to the rest of Penstock it is one more upstream.

1. Who needs the model starts it: at once where nothing else answers, else at the first call for it. Of several workers
   only one does, under a lock; the others find its sockets. A child that dies is started again by whoever needs it
   next; the more often it dies young, the later.
2. A call takes its turn first (`child.py`, rule 3), and may wait for it as long as for a first event. It holds
   the turn until its connection is over, however that ends. Those who wait when the child dies lose nothing but time.
3. Connections to the child serve one call each: its server closes some that it has promised to keep.
4. The child ends with the last process of the gateway: all of them hold one end of a pipe (`ModelFolder`), and the
   child waits at the other.
5. What keeps the model from answering is an `Obstacle`, in words that say what to do about it.
"""

import asyncio
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from penstock.http.client import Receiver, UpstreamConnection, UpstreamError
from penstock.http.limits import UpstreamLimits
from penstock.providers.provider import Provider
from penstock.upstream.local import runtime
from penstock.upstream.local.runtime import Obstacle
from penstock.upstream.local.stream import OneCreated
from penstock.upstream.local.weights import BUILT_IN, Weights, is_genuine, path_of

_CHILD = Path(__file__).with_name("child.py")
# The path of a unix socket has room for about a hundred characters.
_MAX_FOLDER = 60
# A large file from a slow disk; no call waits so long, but the next one finds it loaded.
_LOAD_S = 300.0
_LOOK_S = 0.02
# A child that dies younger than this is broken, not unlucky. The first death is mended at once.
_YOUNG_S = 10.0
_PAUSES_S = (0.0, 0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_READY = b"ready\n"
_FULL = b"full\n"
# Of what the child has said before it died.
_MAX_SAID = 8_192
_HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: local\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n"
)
# What the child needs of the environment. The keys of providers are not among it.
_KEPT = re.compile(r"PATH|HOME|LANG|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|DYLD_\w+|PYTHON\w+|VIRTUAL_ENV|(OMP|GGML)_\w+")
# How long OpenMP's threads spin before they sleep. On two processors that others use too, two threads with the default
# give a twentieth of their speed, with 2000 a fifth, with 100 most of it; with 0 they are slower when all is quiet.
_SPIN = {"GOMP_SPINCOUNT": "100"}


class ModelFolder:
    """Where a gateway's children live: a private folder, made when it is needed, and the pipe that they live by.

    It is made before workers are forked, so that all of them share it.
    """

    def __init__(self) -> None:
        parent = tempfile.gettempdir()
        self.folder = Path(parent if len(parent) < _MAX_FOLDER else "/tmp") / f"penstock-{secrets.token_hex(6)}"
        self.alive, self._lifeline = os.pipe()

    def room(self, name: str) -> Path:
        """A folder of its own for one child."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        room = self.folder / name
        room.mkdir(mode=0o700, exist_ok=True)
        return room

    def close(self) -> None:
        """The gateway is over: let the children go, and remove what they leave."""
        os.close(self.alive)
        os.close(self._lifeline)
        shutil.rmtree(self.folder, ignore_errors=True)


class Settings(Struct, frozen=True, kw_only=True):
    """What a model on this machine is to be: `weights` where Penstock knows where to get them, else a `file`."""

    name: str
    context: int
    slots: int
    queue: int
    weights: Weights | None = None
    file: str = ""

    @classmethod
    def of(cls, provider: Provider) -> "Settings":
        """What a provider's table says of a model on this machine."""
        weights = BUILT_IN.get(provider.model)
        return cls(
            name=f"{provider.name}/{provider.models[0]}",
            context=provider.context,
            slots=provider.slots,
            queue=provider.queue,
            weights=weights,
            file="" if weights else provider.model,
        )

    def path(self, environment: Mapping[str, str]) -> Path:
        """Where its file is, or should be."""
        return path_of(self.weights, environment) if self.weights else Path(self.file)

    def obstacle(self, environment: Mapping[str, str]) -> Obstacle | None:
        """What keeps the model from answering, as far as can be told without trying."""
        return runtime.obstacle() or (None if self.path(environment).is_file() else self.missing())

    def missing(self) -> Obstacle:
        """That its file is not there."""
        if self.weights is None:
            return Obstacle(f"there is no file {Path(self.file).name}", "mend its path in the configuration")
        return Obstacle("its weights are not there", "fetch them: penstock model pull")


class ModelTraits(Struct, frozen=True):
    """What the model can do, as its child says."""

    tools: bool = False


class ModelTurn:
    """A turn with the model, and the connection to use it on. It is given back when the connection is over."""

    def __init__(self, connection: UpstreamConnection, traits: ModelTraits) -> None:
        self.connection = connection
        self.traits = traits

    def ask(self, body: bytes, receiver: Receiver) -> None:
        """Send the request; its answer goes to the receiver."""
        self.connection.send(_HEAD % len(body) + body, receiver)

    def close(self) -> None:
        """Give the turn back unused."""
        self.connection.close()


class LocalModel:
    """One model on this machine."""

    def __init__(
        self, settings: Settings, home: ModelFolder, environment: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        self.settings = settings
        self._home = home
        self._environment = environment
        self._say = say
        # Two gateways by one configuration have two homes; two models in one home have two of these.
        self._room = hashlib.sha256(msgspec.json.encode(settings)).hexdigest()[:12]
        self._starting: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._retiring: asyncio.Task[None] | None = None
        self._retired = False
        self._deaths = 0
        self._failed: tuple[Obstacle, float] | None = None
        """Why it did not come up when it was tried last, and until when it is not tried again."""

    def obstacle(self) -> Obstacle | None:
        """What keeps it from answering, as far as can be told without trying."""
        return self._failed[0] if self._failed is not None else self.settings.obstacle(self._environment)

    def start(self) -> None:
        """Start the child now, so that the first call finds it loaded."""
        self._start_once().add_done_callback(self._tell_failure)

    async def turn(self, wait_s: float) -> ModelTurn:
        """Wait for a turn; raises `UpstreamError` where there will be none."""
        try:
            async with asyncio.timeout(wait_s):
                while True:
                    turn = await self._take_turn()
                    if turn is not None:
                        return turn
                    await asyncio.sleep(_LOOK_S)  # nothing tells when it is there
        except TimeoutError:
            raise self._busy(f"there was no turn within {wait_s:g} s") from None

    def retire(self) -> None:
        """The configuration has no place for it any more: calls under way go on, and the child ends with the last."""
        self._retired = True
        self._retiring = asyncio.get_running_loop().create_task(self._tell_to_retire())

    # Turns.

    async def _take_turn(self) -> ModelTurn | None:
        """A turn; or None where the child is not there, or has just gone, and all begins anew."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket("turn"))
        except OSError:
            await asyncio.shield(self._start_once())
            return None
        turn: ModelTurn | None = None
        try:
            said = await reader.readline()
            if said == _FULL:
                raise self._busy(f"{self.settings.queue} calls wait for it already")
            if said.endswith(b"\n"):
                connection = await self._connect(writer)
                turn = ModelTurn(connection, msgspec.json.decode(said, type=ModelTraits))
        except OSError:
            return None  # it has died
        finally:
            if turn is None:
                writer.close()
        return turn

    async def _connect(self, turn: asyncio.StreamWriter) -> UpstreamConnection:
        def over(connection: UpstreamConnection) -> None:
            connection.close()  # rule 3
            turn.close()

        loop = asyncio.get_running_loop()
        connection = UpstreamConnection(UpstreamLimits(), over)
        await loop.create_unix_connection(lambda: OneCreated(connection), self._socket("model"))
        return connection

    def _socket(self, name: str) -> str:
        return str(self._home.folder / self._room / f"{name}.sock")

    def _busy(self, reason: str) -> UpstreamError:
        message = f"{self.settings.name}, the model on the gateway's machine, is busy: {reason}; ask again later"
        return UpstreamError("local_busy", message, retry_after="5")

    async def _tell_to_retire(self) -> None:
        with suppress(OSError):
            _, writer = await asyncio.open_unix_connection(self._socket("turn"))
            writer.write(b"retire\n")
            with suppress(OSError):
                await writer.drain()
            writer.close()

    # The child.

    def _start_once(self) -> asyncio.Task[None]:
        """Start the child; all who need it wait for the same start."""
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())
            self._starting.add_done_callback(self._started)
        return self._starting

    def _started(self, start: asyncio.Task[None]) -> None:
        self._starting = None
        if not start.cancelled():
            start.exception()  # whoever waits for it hears of it; perhaps nobody does

    def _tell_failure(self, start: asyncio.Task[None]) -> None:
        if not start.cancelled() and isinstance(error := start.exception(), UpstreamError):
            self._say(error.message)

    async def _start(self) -> None:
        if self._failed is not None and self._now() < self._failed[1]:
            raise self._unavailable(self._failed[0], self._failed[1] - self._now())
        if self._retired:
            raise self._unavailable(Obstacle("the configuration has changed", "ask again"), 1.0)
        obstacle = runtime.obstacle() or await asyncio.to_thread(self._examine)
        if obstacle is not None:
            raise self._unavailable(obstacle)
        if self._failed is None:  # else it has been left alone long enough
            await asyncio.sleep(self._pause_s())
        try:
            room = self._home.room(self._room)
            async with _alone(room / "lock"):
                if not await self._answers():
                    await self._run(room)
        except OSError as error:
            reason = f"its process cannot be started: {error.strerror or error}"
            raise self._failure(Obstacle(reason, "see that the folder in TMPDIR can be written")) from error
        self._failed = None

    def _examine(self) -> Obstacle | None:
        """What is wrong with the file. One that Penstock knows is compared with its hash every time."""
        path, weights = self.settings.path(self._environment), self.settings.weights
        if not path.is_file():
            return self.settings.missing()
        if weights and not is_genuine(path, weights):
            return Obstacle("its weights are damaged", "fetch them again: penstock model pull")
        return None

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_unix_connection(self._socket("turn"))
        except OSError:
            return False
        writer.close()
        return True

    async def _run(self, room: Path) -> None:
        """Run the child, and wait until it is ready."""
        weights = self.settings.weights
        settings = {
            "folder": str(room),
            "model": str(self.settings.path(self._environment)),
            "context": self.settings.context,
            "slots": self.settings.slots,
            "queue": self.settings.queue,
            "threads": runtime.threads(),
            "name": self.settings.name.partition("/")[2],
            "sampling": dict(weights.sampling) if weights else {},
            "max_answer": weights.max_answer if weights else -1,
        }
        variables = {name: value for name, value in self._environment.items() if _KEPT.fullmatch(name)}
        (room / "said").unlink(missing_ok=True)
        with (room / "said").open("ab") as said:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", str(_CHILD), msgspec.json.encode(settings).decode()),
                stdin=self._home.alive,
                stdout=PIPE,
                stderr=said,
                env=variables | _SPIN,
                start_new_session=True,  # Ctrl-C is for the gateway, which may still have answers to finish
            )
        try:
            async with asyncio.timeout(_LOAD_S):
                first, status = await _first_line(process)
        except TimeoutError:
            process.kill()
            obstacle = Obstacle(f"it was not loaded within {_LOAD_S:g} s", "use a smaller one, or a faster disk")
            raise self._failure(obstacle) from None
        if first != _READY:
            words = (room / "said").read_bytes()[-_MAX_SAID:] + first
            raise self._failure(runtime.explained(words.decode(errors="replace"), status))
        self._watching = asyncio.get_running_loop().create_task(self._watch(process))

    def _failure(self, obstacle: Obstacle) -> UpstreamError:
        self._deaths += 1
        pause = max(1.0, self._pause_s())
        self._failed = (obstacle, self._now() + pause)
        return self._unavailable(obstacle, pause)

    def _unavailable(self, obstacle: Obstacle, pause_s: float = 0.0) -> UpstreamError:
        message = f"{self.settings.name}, the model on the gateway's machine, cannot answer: {obstacle}"
        return UpstreamError("local_unavailable", message, retry_after=str(int(pause_s) + 1) if pause_s else "")

    async def _watch(self, process: Process) -> None:
        """Notice how the child ends."""
        born = self._now()
        status = await process.wait()
        self._deaths = self._deaths + 1 if self._now() - born < _YOUNG_S else 1
        if not self._retired:
            how = f"signal {-status}" if status < 0 else f"status {status}"
            self._say(f"the process of {self.settings.name} has ended ({how}); it is started again when it is needed")

    def _pause_s(self) -> float:
        return _PAUSES_S[min(self._deaths, len(_PAUSES_S) - 1)]

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


async def _first_line(process: Process) -> tuple[bytes, int]:
    """What the child says first, and its exit status if it is not that it is ready."""
    assert process.stdout is not None
    first = await process.stdout.readline()
    return first, 0 if first == _READY else await process.wait()


@asynccontextmanager
async def _alone(path: Path) -> AsyncIterator[None]:
    """Hold a lock that the system gives back when its holder dies, without holding up the loop."""
    with path.open("ab") as held:
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.sleep(_LOOK_S)
            else:
                break
        yield

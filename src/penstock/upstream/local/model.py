"""LocalModel: a model on this machine, in a child process; to the rest of Penstock it is one more upstream.

1. The gateway starts the child at once if it has no other provider, otherwise at the first call to the model. Only one
   of several workers starts it, under a lock; the others find its sockets. If the child dies, the next call starts it
   again, after a delay that grows with each early death.
2. A call takes a turn first (`child.py`, rule 3), and may wait for it as long as for a first event. It keeps the turn
   until its connection is closed, for whatever reason. Calls that wait when the child dies wait for the next child.
3. Every call has its own connection to the child: llama.cpp's server closes some connections that it has promised to
   keep alive.
4. The child exits with the last process of the gateway: all of them have one end of a pipe open (`RuntimeFolder`), and
   the child waits at the other end.
5. An `Obstacle` is the reason why the model cannot answer, and what to do about it.
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

from penstock.http.limits import UpstreamLimits
from penstock.http.upstream_connection import Receiver, UpstreamConnection, UpstreamError
from penstock.providers.provider import Provider
from penstock.upstream.local import runtime
from penstock.upstream.local.runtime import Obstacle
from penstock.upstream.local.stream import CreatedTimeFilter
from penstock.upstream.local.weights import BUILT_IN, Weights, is_genuine, path_of

_CHILD = Path(__file__).with_name("child.py")
# The path of a unix socket is limited to about a hundred characters.
_MAX_FOLDER = 60
# Enough for a large file on a slow disk. No call waits this long, but the next call finds the model loaded.
_LOAD_S = 300.0
_POLL_S = 0.02
# A child that exits within this time counts as broken, and the next start is delayed. The first restart is immediate.
_EARLY_EXIT_S = 10.0
_RESTART_DELAYS_S = (0.0, 0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_READY = b"ready\n"
_FULL = b"full\n"
# How much of the child's log is read to explain why it exited.
_MAX_LOG = 8_192
_HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: local\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n"
)
# The environment variables that the child gets. The API keys of providers are not among them.
_PASSED_VARIABLES = re.compile(
    r"PATH|HOME|LANG|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|DYLD_\w+|PYTHON\w+|VIRTUAL_ENV|(OMP|GGML)_\w+"
)
# How long OpenMP's threads spin before they sleep. On two busy processors, two threads reach a twentieth of their speed
# with the default, a fifth with 2000, and most of it with 100. With 0 they are slower on an idle machine.
_SPIN = {"GOMP_SPINCOUNT": "100"}


class RuntimeFolder:
    """The private folder of a gateway's workers and child processes, made when it is needed; and the lifeline of the
    child processes, a pipe.

    It is constructed before workers are forked, so that all of them share it.
    """

    def __init__(self) -> None:
        parent = tempfile.gettempdir()
        self.folder = Path(parent if len(parent) < _MAX_FOLDER else "/tmp") / f"penstock-{secrets.token_hex(6)}"
        self.secret = secrets.token_bytes(32)
        """A secret that only the workers have. It ends with them."""
        self.alive, self._lifeline = os.pipe()

    def subfolder(self, name: str) -> Path:
        """Make a private folder with that name, such as one child's."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        subfolder = self.folder / name
        subfolder.mkdir(mode=0o700, exist_ok=True)
        return subfolder

    def close(self) -> None:
        """Close the lifeline, which ends the children, and remove their files."""
        os.close(self.alive)
        os.close(self._lifeline)
        shutil.rmtree(self.folder, ignore_errors=True)


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of a local model: `weights` if Penstock can fetch them, otherwise a `file`."""

    name: str
    context: int
    slots: int
    queue: int
    weights: Weights | None = None
    file: str = ""

    @classmethod
    def of(cls, provider: Provider) -> "Settings":
        """The settings in a provider's table."""
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
        """The path of its file, which may not exist."""
        return path_of(self.weights, environment) if self.weights else Path(self.file)

    def obstacle(self, environment: Mapping[str, str]) -> Obstacle | None:
        """Why the model cannot answer, as far as it is known without starting it."""
        return runtime.obstacle() or (None if self.path(environment).is_file() else self.missing())

    def missing(self) -> Obstacle:
        """The obstacle that its file does not exist."""
        if self.weights is None:
            return Obstacle(f"there is no file {Path(self.file).name}", "correct its path in the configuration")
        return Obstacle("its weights are not there", "fetch them: penstock model pull")


class ModelTraits(Struct, frozen=True):
    """What the model supports, as its child reports."""

    tools: bool = False


class ModelTurn:
    """A turn with the model, and its connection. The turn is returned when the connection closes."""

    def __init__(self, connection: UpstreamConnection, traits: ModelTraits) -> None:
        self.connection = connection
        self.traits = traits

    def ask(self, body: bytes, receiver: Receiver) -> None:
        """Send the request; the receiver gets the response."""
        self.connection.send(_HEAD % len(body) + body, receiver)

    def close(self) -> None:
        """Return the turn unused."""
        self.connection.close()


class LocalModel:
    """One model on this machine."""

    def __init__(
        self, settings: Settings, folder: RuntimeFolder, environment: Mapping[str, str], log: Callable[[str], None]
    ) -> None:
        self.settings = settings
        self._folder = folder
        self._environment = environment
        self._log = log
        # Two gateways with the same configuration have two folders; two models of one gateway have two subfolders.
        self._folder_name = hashlib.sha256(msgspec.json.encode(settings)).hexdigest()[:12]
        self._starting: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._retiring: asyncio.Task[None] | None = None
        self._retired = False
        self._deaths = 0
        self._failed: tuple[Obstacle, float] | None = None
        """Why the last start failed, and the time before which it is not tried again."""

    def obstacle(self) -> Obstacle | None:
        """Why the model cannot answer, as far as it is known without starting it."""
        return self._failed[0] if self._failed is not None else self.settings.obstacle(self._environment)

    def start(self) -> None:
        """Start the child now, so that the first call finds the model loaded."""
        self._start_once().add_done_callback(self._log_failure)

    async def turn(self, wait_s: float) -> ModelTurn:
        """Wait for a turn; raises `UpstreamError` if there is none in time."""
        try:
            async with asyncio.timeout(wait_s):
                while True:
                    turn = await self._take_turn()
                    if turn is not None:
                        return turn
                    await asyncio.sleep(_POLL_S)  # there is no notification of a new child
        except TimeoutError:
            raise self._busy(f"there was no turn within {wait_s:g} s") from None

    def retire(self) -> None:
        """Retire a model that the configuration no longer has: its child exits after the last running call."""
        self._retired = True
        self._retiring = asyncio.get_running_loop().create_task(self._send_retire())

    # Turns.

    async def _take_turn(self) -> ModelTurn | None:
        """Take a turn; None if the child is not running or has just died, and the caller must try again."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket("turn"))
        except OSError:
            await asyncio.shield(self._start_once())
            return None
        turn: ModelTurn | None = None
        try:
            line = await reader.readline()
            if line == _FULL:
                raise self._busy(f"{self.settings.queue} calls wait for it already")
            if line.endswith(b"\n"):
                connection = await self._connect(writer)
                turn = ModelTurn(connection, msgspec.json.decode(line, type=ModelTraits))
        except OSError:
            return None  # the child has died
        finally:
            if turn is None:
                writer.close()
        return turn

    async def _connect(self, turn: asyncio.StreamWriter) -> UpstreamConnection:
        def on_done(connection: UpstreamConnection) -> None:
            connection.close()  # rule 3
            turn.close()

        loop = asyncio.get_running_loop()
        connection = UpstreamConnection(UpstreamLimits(), on_done)
        await loop.create_unix_connection(lambda: CreatedTimeFilter(connection), self._socket("model"))
        return connection

    def _socket(self, name: str) -> str:
        return str(self._folder.folder / self._folder_name / f"{name}.sock")

    def _busy(self, reason: str) -> UpstreamError:
        message = f"{self.settings.name}, the model on the gateway's machine, is busy: {reason}; ask again later"
        return UpstreamError("local_busy", message, retry_after="5")

    async def _send_retire(self) -> None:
        with suppress(OSError):
            _, writer = await asyncio.open_unix_connection(self._socket("turn"))
            writer.write(b"retire\n")
            with suppress(OSError):
                await writer.drain()
            writer.close()

    # The child.

    def _start_once(self) -> asyncio.Task[None]:
        """Start the child; concurrent callers share the same task."""
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())
            self._starting.add_done_callback(self._started)
        return self._starting

    def _started(self, start: asyncio.Task[None]) -> None:
        self._starting = None
        if not start.cancelled():
            start.exception()  # marks it as retrieved: asyncio would log an exception that no caller awaits

    def _log_failure(self, start: asyncio.Task[None]) -> None:
        if not start.cancelled() and isinstance(error := start.exception(), UpstreamError):
            self._log(error.message)

    async def _start(self) -> None:
        if self._failed is not None and self._now() < self._failed[1]:
            raise self._unavailable(self._failed[0], self._failed[1] - self._now())
        if self._retired:
            raise self._unavailable(Obstacle("the configuration has changed", "try again"), 1.0)
        obstacle = runtime.obstacle() or await asyncio.to_thread(self._check_file)
        if obstacle is not None:
            raise self._unavailable(obstacle)
        if self._failed is None:  # otherwise the delay after the failure has already passed
            await asyncio.sleep(self._restart_delay_s())
        try:
            child_folder = self._folder.subfolder(self._folder_name)
            async with _exclusive_lock(child_folder / "lock"):
                if not await self._is_running():
                    await self._run(child_folder)
        except OSError as error:
            reason = f"its process cannot be started: {error.strerror or error}"
            raise self._failure(Obstacle(reason, "see that the folder in TMPDIR can be written")) from error
        self._failed = None

    def _check_file(self) -> Obstacle | None:
        """Check the file. The hash of a built-in model's file is compared every time."""
        path, weights = self.settings.path(self._environment), self.settings.weights
        if not path.is_file():
            return self.settings.missing()
        if weights and not is_genuine(path, weights):
            return Obstacle("its weights are damaged", "fetch them again: penstock model pull")
        return None

    async def _is_running(self) -> bool:
        try:
            _, writer = await asyncio.open_unix_connection(self._socket("turn"))
        except OSError:
            return False
        writer.close()
        return True

    async def _run(self, child_folder: Path) -> None:
        """Run the child and wait until it is ready."""
        weights = self.settings.weights
        settings = {
            "folder": str(child_folder),
            "model": str(self.settings.path(self._environment)),
            "context": self.settings.context,
            "slots": self.settings.slots,
            "queue": self.settings.queue,
            "threads": runtime.threads(),
            "name": self.settings.name.partition("/")[2],
            "sampling": dict(weights.sampling) if weights else {},
            "max_answer": weights.max_answer if weights else -1,
        }
        variables = {name: value for name, value in self._environment.items() if _PASSED_VARIABLES.fullmatch(name)}
        (child_folder / "log").unlink(missing_ok=True)
        with (child_folder / "log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", str(_CHILD), msgspec.json.encode(settings).decode()),
                stdin=self._folder.alive,
                stdout=PIPE,
                stderr=log,
                env=variables | _SPIN,
                start_new_session=True,  # Ctrl-C must not reach it: the gateway may still have answers to finish
            )
        try:
            async with asyncio.timeout(_LOAD_S):
                first, status = await _first_line(process)
        except TimeoutError:
            process.kill()
            obstacle = Obstacle(f"it was not loaded within {_LOAD_S:g} s", "use a smaller one, or a faster disk")
            raise self._failure(obstacle) from None
        if first != _READY:
            words = (child_folder / "log").read_bytes()[-_MAX_LOG:] + first
            raise self._failure(runtime.explain_exit(words.decode(errors="replace"), status))
        self._watching = asyncio.get_running_loop().create_task(self._watch(process))

    def _failure(self, obstacle: Obstacle) -> UpstreamError:
        self._deaths += 1
        pause = max(1.0, self._restart_delay_s())
        self._failed = (obstacle, self._now() + pause)
        return self._unavailable(obstacle, pause)

    def _unavailable(self, obstacle: Obstacle, pause_s: float = 0.0) -> UpstreamError:
        message = f"{self.settings.name}, the model on the gateway's machine, cannot answer: {obstacle}"
        return UpstreamError("local_unavailable", message, retry_after=str(int(pause_s) + 1) if pause_s else "")

    async def _watch(self, process: Process) -> None:
        """Wait for the child's exit; count early exits and log it."""
        started = self._now()
        status = await process.wait()
        self._deaths = self._deaths + 1 if self._now() - started < _EARLY_EXIT_S else 1
        if not self._retired:
            how = f"signal {-status}" if status < 0 else f"status {status}"
            self._log(f"the process of {self.settings.name} has ended ({how}); it is started again when it is needed")

    def _restart_delay_s(self) -> float:
        return _RESTART_DELAYS_S[min(self._deaths, len(_RESTART_DELAYS_S) - 1)]

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


async def _first_line(process: Process) -> tuple[bytes, int]:
    """The first line of the child's output; and its exit status, unless the line is `ready`."""
    assert process.stdout is not None
    first = await process.stdout.readline()
    return first, 0 if first == _READY else await process.wait()


@asynccontextmanager
async def _exclusive_lock(path: Path) -> AsyncIterator[None]:
    """Take a file lock, which the kernel releases when its holder dies; polls, so as not to block the event loop."""
    with path.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.sleep(_POLL_S)
            else:
                break
        yield

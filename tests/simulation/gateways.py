"""Gateways: the production code of `penstock serve` as processes of a world, which die and are started again."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from penstock.gateway.config import Config, load
from penstock.gateway.keys.key_secret import digest_of
from penstock.gateway.keys.keys import Key
from penstock.serve import run
from penstock.serve.composition import App
from penstock.stores.accounts.sqlite import remove_old
from penstock.stores.book.open import open_book
from penstock.upstream.local.model import RuntimeFolder
from tests.serve.in_process import write_prices
from tests.simulation.answers import DIALECTS
from tests.simulation.clients import KEYS
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import Machine
from tests.simulation.plan import Layout, Plan
from tests.simulation.world import EPOCH_S, Process, World

PROVIDERS_ADDRESS = ("10.1.0.1", 80)
# The budgets of the keys that have one, in nanodollars; a call costs some 300,000.
BUDGETS = (3_000_000, 30_000_000, 1_000_000_000)
INPUT_COST, OUTPUT_COST = 1_000, 2_000
_RESPAWN_S = 1.0
_DRAIN_S = 5.0


def settings(layout: Layout, *, log: bool, pseudonyms: bool) -> str:
    """The configuration of all gateways of a world."""
    lines = ["[server]", f'keys = ["{KEYS[0]}"]', f"drain_s = {_DRAIN_S}", f'log = "{"json" if log else "off"}"']
    lines += ["workers = 2"] if layout == "workers" else []
    lines += ["[retries]", "budget = 1.0"]
    lines += ["[users]", "pseudonyms = false"] if not pseudonyms else []
    if layout == "pair":
        lines += ["[ledger]", 'postgres = "postgres://penstock@database/penstock"', 'redis = "redis://store"']
    for dialect in DIALECTS:
        lines += [f"[providers.{dialect}]", f'base_url = "http://providers.example/{dialect}/v1"', 'api_key = "secret"']
        lines += ["insecure = true"]
        lines += [f'dialect = "{dialect}"'] if dialect != "openai_chat" else []
        lines += ["timeouts = { first_event_s = 20.0, answer_s = 60.0, gap_s = 10.0, total_s = 90.0 }"]
        lines += [f'[prices."{dialect}/*"]', "input = 1.0", "output = 2.0"]
    lines += ["[routes.any]", 'targets = ["openai_chat/a", "anthropic_messages/b"]']
    targets = ", ".join(f'"{each}/z"' for each in DIALECTS)
    lines += ["[routes.all]", f"targets = [{targets}]"]
    return "\n".join([*lines, ""])


class Gateway:
    """A gateway: its folder, and its process or its workers."""

    def __init__(self, world: World, machine: Machine, number: int, layout: Layout, file: Path) -> None:
        self._world = world
        self._machine = machine
        self._layout = layout
        self._file = file
        self.name = f"gateway-{number}"
        self.address = (f"10.0.0.{number + 1}", 80)
        self.folder = file.parent / self.name
        cache = file.parent / "cache"
        self.environment = {"PENSTOCK_STATE": str(self.folder), "PENSTOCK_CACHE": str(cache)}
        self.processes: list[Process] = []
        self.loops: dict[Process, SimulatedLoop] = {}
        self.apps: dict[Process, App] = {}
        self.stopping = False
        self.starts = 0
        self.problems: list[str] = []
        self.on_death: Callable[[Gateway], None] = lambda _: None
        """Called when it has died and nothing starts it again."""
        self.on_process: Callable[[SimulatedLoop], None] = lambda _: None
        self._known_journals: set[str] = set()
        self._home: RuntimeFolder | None = None
        self._supervisor: Process | None = None

    @property
    def running(self) -> list[Process]:
        return [process for process in self.processes if process.alive and process.status is None]

    def load(self) -> Config:
        return load(self._file, self.environment)

    def start(self, then: Callable[[Process], None] = lambda _: None) -> None:
        """Start it, as `penstock serve` does."""
        self.stopping = False
        if self._layout != "workers":
            then(self._start_process(None))
            return
        supervisor = self._supervisor = Process(self._world, f"{self.name} supervisor", len(self._world.processes))

        def prepare() -> None:
            config = self.load()
            run._claim(config, self.environment)
            remove_old(str(self.folder))
            self._home = RuntimeFolder()
            for _ in range(config.server.workers):
                then(self._start_process(self._home))

        supervisor.start_thread(prepare)

    def _start_process(self, home: RuntimeFolder | None) -> Process:
        self.starts += 1
        process = Process(self._world, f"{self.name}.{self.starts}", len(self._world.processes))
        loop = SimulatedLoop(  # type: ignore[abstract]
            self._world, self._machine.network, process, self._machine.make_socket
        )
        self.processes.append(process)
        self._known_journals |= self._journals()
        self.loops[process] = loop
        self.on_process(loop)
        worker = home is not None

        async def serve() -> int:
            config = self.load()
            own = home
            claimed = None
            if own is None:
                claimed = run._claim(config, self.environment)
                own = RuntimeFolder()
            listeners = run._Listeners(self.address, None, self._pipe if worker else None)
            try:
                return await run._serve(
                    config, lambda *_: self.load(), self.environment, own, listeners, 0 if worker else lambda _: []
                )
            finally:
                if not worker:
                    own.close()
                if claimed is not None:
                    self._machine.close(claimed)

        def begin() -> None:
            task = loop.create_task(serve())
            task.add_done_callback(lambda done: self._ended(process, loop, done))

        loop.call_soon(begin)
        return process

    def _journals(self) -> set[str]:
        return {path.name for path in (self.folder / "journal").glob("*.journal")}

    @property
    def _pipe(self) -> int:
        return -3  # where workers say that they listen; the machine ignores it

    def _ended(self, process: Process, loop: SimulatedLoop, task: asyncio.Task[int]) -> None:
        error = task.exception()
        process.status = 1 if error is not None else task.result()
        if error is not None:
            self.problems.append(f"{process.name} has failed: {error!r}")
            self._world.note(f"{process.name} has failed: {error!r}")

        def exit(_: object) -> None:
            if process.alive:
                if error is None and (left := loop.check_idle()):
                    self.problems.append(f"{process.name} has ended and left {left}")
                if error is None and process.threads[1:]:
                    self.problems.append(f"{process.name} has ended and left {len(process.threads) - 1} threads")
                self._world.kill(process, f"exits with {process.status}")

        self._world.after(0.5, exit)

    def died(self, process: Process) -> None:
        """A process of it has died: the supervisor starts another worker."""
        if process.ended_by_signal and self._layout != "workers" and not self._journals() <= self._known_journals:
            self.problems.append(f"{process.name} was ended by a signal and has left a journal")
        if process is self._supervisor or self.stopping or process.status is not None:
            return
        if self._layout == "workers" and self._home is not None:
            home = self._home

            def respawn(_: object) -> None:
                if not self.stopping:
                    self._start_process(home)

            self._world.after(_RESPAWN_S, respawn)
        self.on_death(self)

    def signal(self, number: int) -> None:
        """Send a signal to all its processes, as the supervisor does."""
        if number != signal.SIGHUP:
            self.stopping = True
        for process in self.running:
            process.send_signal(number)

    def power_off(self, why: str = "is killed") -> None:
        """Kill all its processes."""
        self.stopping = True
        for process in [*self.running, *([self._supervisor] if self._supervisor is not None else [])]:
            self._world.kill(process, why)

    def end_supervisor(self) -> None:
        """The supervisor ends after its workers."""
        if self._supervisor is not None:
            self._world.kill(self._supervisor, "ends")
            self._supervisor = None

    def make_keys(self) -> None:
        """Put the keys with a budget into the book."""
        keys = [
            Key(
                id=f"key_{number}",
                name=f"budget-{number}",
                digest=digest_of(secret),
                hint=secret[-4:],
                created_ms=int(EPOCH_S * 1000) - 1000,
                budget=budget,
                period="total",
            )
            for number, (secret, budget) in enumerate(zip(KEYS[1:], BUDGETS, strict=True), 1)
        ]
        with closing(open_book(self.load().ledger, self.environment)) as book:
            book.change_keys(lambda known, *_: [] if known else keys)


def write_files(folder: Path, plan: Plan) -> Path:
    """The configuration of a world's gateways, and an empty table of prices."""
    file = folder / "penstock.toml"
    file.write_text(settings(plan.layout, log=plan.log, pseudonyms=plan.pseudonyms))
    write_prices(folder / "cache")
    return file

"""Simulation: runs the world of a plan from its first start to its last audit."""

import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sized
from contextlib import closing
from hashlib import sha256
from pathlib import Path

from msgspec import Struct, field

from penstock.gateway.billing.queries import Filter
from penstock.gateway.record.entry import Entry
from penstock.serve import run as serve_run
from penstock.serve.composition import App
from penstock.stores.book.sqlite import SqliteBook
from tests.faults.book import BookReader
from tests.simulation.auditor import audit
from tests.simulation.clients import Client, Result
from tests.simulation.databases import SCHEMA
from tests.simulation.gateways import PROVIDERS_ADDRESS, Gateway, write_files
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import Machine
from tests.simulation.network import Listener
from tests.simulation.plan import Fault, Plan
from tests.simulation.providers import ProviderConnection, Providers
from tests.simulation.steps import StepCounter
from tests.simulation.world import Process, StuckError, World

# After the last client has left: longer than any timeout of a call.
_QUIET_S = 130.0
# How long a gateway may take to end: to drain, and to close the ledger.
_END_S = 40.0
_SETTLE_S = 12.0


class Outcome(Struct):
    """What came of a world."""

    plan: Plan
    violations: list[str]
    calls: int
    simulated_s: float
    cpu_s: float
    steps: int
    faults: Counter[str]
    behaviours: Counter[str]
    endings: Counter[str]
    trace: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """A hash of everything that happened."""
        return sha256("\n".join(self.trace).encode()).hexdigest()


def simulate(plan: Plan, *, readable: bool = False, steps: int = 0) -> Outcome:
    """Run a world. With `steps`, no callback may call so many functions."""
    folder = Path(tempfile.mkdtemp(prefix="ps", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        return _Simulation(plan, folder, readable=readable, steps=steps).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Simulation:
    def __init__(self, plan: Plan, folder: Path, *, readable: bool, steps: int) -> None:
        self.plan = plan
        self.folder = folder
        self.world = World(plan.seed, readable=readable)
        self.machine = Machine(self.world, folder)
        file = write_files(folder, plan)
        count = 2 if plan.layout in ("two", "pair") else 1
        self.gateways = [Gateway(self.world, self.machine, number, plan.layout, file) for number in range(count)]
        self.providers = Providers({call.id: call for call in plan.calls}, lambda: self.world.now)
        self.clients: list[Client] = []
        self.violations: list[str] = []
        self.injected: Counter[str] = Counter()
        self.quiet = False
        self._trouble: list[tuple[float, float]] = []
        self._max_steps = steps

    def run(self) -> Outcome:
        began = time.process_time()
        world = self.world
        world.on_kill = self._on_kill
        outside = Process(world, "outside", 0)
        loop = SimulatedLoop(  # type: ignore[abstract]
            world, self.machine.network, outside, self.machine.make_socket
        )
        seen = self._seen_app()
        with self.machine.installed():
            names = vars(serve_run)
            original, names["App"] = names["App"], seen
            try:
                self._play(outside, loop)
            except StuckError as error:
                self.violations.append(str(error))
            finally:
                names["App"] = original
                world.end()
        results = [result for client in self.clients for result in client.results]
        entries = self._entries()
        self.violations += [problem for gateway in self.gateways for problem in gateway.problems]
        self.violations += audit(self.plan, results, self.providers.served, entries, self._disturbed)
        return Outcome(
            self.plan,
            self.violations,
            len(results),
            world.now,
            time.process_time() - began,
            world.steps,
            self.injected,
            Counter(served.kind for all in self.providers.served.values() for served in all),
            Counter(entry.outcome for entry in entries),
            world.trace or [],
            [f"{process.name}: {line}" for process in world.processes for line in process.log],
        )

    def _seen_app(self) -> type[App]:
        world, gateways = self.world, self.gateways

        class SeenApp(App):
            """The production code's, which the auditor can look at."""

            def __init__(self, *arguments: object) -> None:
                super().__init__(*arguments)  # type: ignore[arg-type]
                for gateway in gateways:
                    if world.current in gateway.loops:
                        gateway.apps[world.current] = self

        return SeenApp

    # The course of a world.

    def _play(self, outside: Process, loop: SimulatedLoop) -> None:
        world = self.world
        loop.call_soon(self._listen, loop)
        for gateway in self.gateways:
            gateway.on_process = self._watch
            gateway.on_death = self._on_death
        self._in_thread(outside, self._make_keys)
        for gateway in self.gateways:
            gateway.start()
        for plan in self.plan.clients:
            client = Client(world, plan, self._addresses)
            self.clients.append(client)
            loop.call_soon(lambda client=client: loop.create_task(client.run()))
        for fault in self.plan.faults:
            world.at(fault.at_s, self._inject, fault)
        world.run(until=self.plan.length_s)
        world.run(until=world.now + 2_000.0, done=lambda: not loop.tasks_of_clients())
        self.quiet = True
        self._heal()
        world.run(until=world.now + _QUIET_S)
        for gateway in self.gateways:
            self._check_quiet(gateway)
        self._end_gateways()
        if any(kind.startswith(("kill", "terminate", "disk")) for kind in self.injected):
            for gateway in self.gateways:  # take over what is left in journals
                gateway.start()
            world.run(until=world.now + _SETTLE_S)
            self._end_gateways()
        if self.providers.open and not self.injected["stalls"]:  # the end of a stalled connection stays unknown
            self.violations.append(f"{self.providers.open} connections to providers were left open")
        if logged := [f"{p.name}: {line}" for p in world.processes for line in p.log if _is_failure(line)]:
            self.violations.append(f"failures of the gateway's own: {logged[0]}")

    def _make_keys(self) -> None:
        for gateway in self.gateways:
            gateway.make_keys()

    def _listen(self, loop: SimulatedLoop) -> None:
        Listener(self.machine.network, loop, self._provider, PROVIDERS_ADDRESS)

    def _provider(self) -> ProviderConnection:
        return ProviderConnection(self.providers)  # type: ignore[arg-type]

    def _in_thread(self, process: Process, work: Callable[[], object]) -> None:
        done: list[bool] = []
        process.start_thread(work, lambda: done.append(True))
        self.world.run(until=self.world.now + 60.0, done=lambda: bool(done))

    def _addresses(self) -> list[tuple[str, int]]:
        return [gateway.address for gateway in self.gateways]

    def _watch(self, loop: SimulatedLoop) -> None:
        if self._max_steps:
            loop.check_callback = StepCounter(self._max_steps, self.violations.append, loop.process.name)

    def _on_kill(self, process: Process) -> None:
        for gateway in self.gateways:
            if process in gateway.processes:
                gateway.died(process)

    def _end_gateways(self) -> None:
        world = self.world
        for gateway in self.gateways:
            gateway.signal(signal.SIGTERM)
        world.run(until=world.now + _END_S, done=lambda: not any(gateway.running for gateway in self.gateways))
        world.run(until=world.now + 1.0)
        for gateway in self.gateways:
            if gateway.running:
                self.violations.append(f"{gateway.name} does not end after SIGTERM")
                gateway.power_off()
            gateway.end_supervisor()

    def _check_quiet(self, gateway: Gateway) -> None:
        """Nothing happens any more: nothing is held or open."""
        for process in gateway.running:
            app = gateway.apps.get(process)
            if app is None:
                continue
            if app.open_calls:
                self.violations.append(f"{process.name} still has {app.open_calls} open calls")
            books = app._books
            assert books is not None
            if (holds := books.holds()) and not self.injected["store fails over"]:  # which forgets what was settled
                self.violations.append(f"{process.name} still holds {holds}")
            if self.plan.layout != "pair" and books._journal._live:
                self.violations.append(f"{process.name} has {len(books._journal._live)} calls in its journal")
            ledger = books.ledger
            tables: dict[str, Sized] = {
                "open calls": ledger._open,
                "holds": ledger._unbooked_holds,
                "budgets": ledger._reservations.budgets,
                "settled calls": ledger._settled,
                "holds of provider keys": ledger.provider_keys.holds,
            }
            for name, table in tables.items():
                if table:
                    self.violations.append(f"{process.name} still has {len(table)} {name} in memory")
            if len(app._connections) > 60:
                self.violations.append(f"{process.name} has {len(app._connections)} connections")

    def _entries(self) -> list[Entry]:
        if self.plan.layout == "pair":
            with closing(SqliteBook.open(self.machine.database.path_of(SCHEMA), readonly=True)) as book:
                return [entry for _, entry in book.following(Filter(), 0, limit=1_000_000)]
        return [entry for gateway in self.gateways for entry in BookReader(gateway.folder).entries()]

    def _disturbed(self, result: Result) -> bool:
        """Whether a fault of the system may have hit a call."""
        end_s = result.ended_s or self.world.now
        return any(begin_s <= end_s and result.began_s <= until_s for begin_s, until_s in self._trouble)

    # Faults.

    def _note_trouble(self, fault: Fault, for_s: float) -> None:
        self.injected[fault.kind] += 1
        self._trouble.append((self.world.now - 0.5, self.world.now + for_s))
        self.world.note(
            f"FAULT {fault.number}: {fault.kind} of gateway {fault.gateway} for {fault.for_s} s ({fault.count})"
        )

    def _inject(self, fault: object) -> None:
        assert isinstance(fault, Fault)
        if self.quiet:
            return
        world = self.world
        gateway = self.gateways[fault.gateway % len(self.gateways)]

        def later(act: Callable[[], object]) -> None:
            def due(_: object) -> None:
                act()

            world.after(fault.for_s, due)

        running = gateway.running
        process = running[fault.count % len(running)] if running else None
        self._note_trouble(fault, fault.for_s + 100.0)
        match fault.kind:
            case "kill":
                gateway.power_off()
                later(lambda: self._restart(gateway))
            case "kill at a callback" if process is not None:
                process.dies_at_callback = process.callbacks + fault.count
            case "kill at a write" if process is not None:
                process.dies_at_write = process.writes + fault.count % 50
            case "terminate":
                gateway.signal(signal.SIGTERM)
                world.after(_END_S + fault.for_s, lambda _: self._restart(gateway))
            case "terminate in the start":
                gateway.power_off()
                later(lambda: self._start_and_end(gateway, fault.count))
            case "reload":
                gateway.signal(signal.SIGHUP)
            case "disk full":
                self._set_disk(gateway, full=True)
                later(lambda: self._set_disk(gateway, full=False))
            case "stop" if process is not None:
                process.stopped_until = world.now + fault.for_s
            case "clock" if process is not None:
                process.skew_s += fault.for_s - 5.0
            case "resets":
                for endpoint in self.machine.network.connections[-fault.count :]:
                    if not endpoint.closed and world.random.random() < 0.5:
                        endpoint.reset()
            case "stalls":
                for endpoint in self.machine.network.connections[-3:]:
                    endpoint.stall()
            case "providers away":
                self.machine.network.unreachable.add(PROVIDERS_ADDRESS)
                later(lambda: self.machine.network.unreachable.discard(PROVIDERS_ADDRESS))
            case "no name":
                self._set(fault, self.machine.network, "no_names", during=True, after=False)
            case "database away":
                self._set(fault, self.machine.database, "away", during=True, after=False)
            case "database troubled":
                self._set(fault, self.machine.database, "trouble", during=0.2, after=0.0)
            case "store away":
                self._set(fault, self.machine.store, "away", during=True, after=False)
            case "store troubled":
                self._set(fault, self.machine.store, "trouble", during=0.2, after=0.0)
            case "store stale":
                self._set(fault, self.machine.store, "stale", during=0.2, after=0.0)
            case "store fails over":
                self.machine.store.fail_over()
            case _:
                pass  # its process does not run

    def _set(self, fault: Fault, holder: object, name: str, during: object, after: object) -> None:
        """Change something for as long as the fault lasts."""
        setattr(holder, name, during)
        self.world.after(fault.for_s, lambda _: setattr(holder, name, after))

    def _on_death(self, gateway: Gateway) -> None:
        """A process has died as planned: the system starts it again."""
        for_s = self.world.random.choice((0.5, 5.0, 60.0))
        self._trouble.append((self.world.now - 0.5, self.world.now + for_s + 100.0))
        self.world.after(for_s, lambda _: self._restart(gateway))

    def _restart(self, gateway: Gateway) -> None:
        if self.quiet or gateway.running:
            return
        gateway.end_supervisor()
        gateway.start()

    def _start_and_end(self, gateway: Gateway, callbacks: int) -> None:
        """Start it, and send SIGTERM at once, after so many callbacks; then start it again."""
        if gateway.running or self.quiet:
            return
        gateway.end_supervisor()

        def started(process: Process) -> None:
            if callbacks % 2:
                process.on_callback = (callbacks % 60, lambda: gateway.signal(signal.SIGTERM))
            else:  # also while the main thread waits for another one
                self.world.after(callbacks % 60 / 20_000, lambda _: gateway.signal(signal.SIGTERM))

        gateway.start(started)
        self.world.after(_END_S, lambda _: self._restart(gateway))

    def _set_disk(self, gateway: Gateway, *, full: bool) -> None:
        for process in gateway.running:
            process.disk_full = full

    def _heal(self) -> None:
        """All faults end, and all gateways run."""
        network = self.machine.network
        network.unreachable.clear()
        network.no_names = False
        for gateway in self.gateways:
            self._set_disk(gateway, full=False)
            for process in gateway.running:
                process.dies_at_callback = process.dies_at_write = -1
            if gateway.stopping:
                gateway.power_off()
            if not gateway.running:
                gateway.end_supervisor()
                gateway.start()


def _is_failure(line: str) -> bool:
    """Whether a line of a log or of the loop says that Penstock itself has failed."""
    return line.startswith(("LOOP", "THREAD")) or "Traceback" in line or '"internal_error"' in line

"""InProcessGateway: a gateway in a thread of this process, with its admin API, for fast tests over real sockets.

It composes what `penstock serve` composes for one worker, without signals, reloads and the command line.
"""

import asyncio
import os
import threading
from importlib.metadata import version
from pathlib import Path

from penstock.gateway.billing.price_table import FORMAT, PACKAGE, PriceTable, encoded
from penstock.gateway.config import load
from penstock.serve.admin.endpoint import open_endpoint
from penstock.serve.admin.port import AdminPort
from penstock.serve.composition import App
from penstock.serve.telemetry.log import Log
from penstock.upstream.local.model import RuntimeFolder
from tests.faults.gateway import Gateway

_WAIT_S = 30.0


class InProcessGateway(Gateway):
    """A gateway that is used as one in a process is."""

    def start(self, *, read_output: bool = True) -> None:
        assert read_output
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._failure: BaseException | None = None
        reading, self._writing = os.pipe()
        self._reader = threading.Thread(target=self._read_from, args=(reading,), daemon=True)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._reader.start()
        self._thread.start()
        self.until(lambda: self.port or self._failure, _WAIT_S)
        assert self._failure is None, self._failure

    def stop(self, number: int = 0) -> int:  # noqa: ARG002 - it gets no signals
        if self._failure is None:
            self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_WAIT_S)
        os.close(self._writing)
        assert self._reader is not None
        self._reader.join(_WAIT_S)
        assert not self._thread.is_alive()
        assert self._failure is None, self._failure
        return 0

    def files(self, pid: int | None = None) -> int:  # noqa: ARG002
        """Not counted: they are those of all tests."""
        return 0

    @property
    def pid(self) -> int:
        return os.getpid()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - the test that waits for it reports it
            self._failure = error

    async def _serve(self) -> None:
        cache = self.file.parent / "cache"
        write_prices(cache)
        environment = {"PENSTOCK_STATE": str(self.file.parent / "state"), "PENSTOCK_CACHE": str(cache)}
        environment |= self._environment
        config = load(self.file, environment)
        log, home = Log(self._writing, pretty=False, batch_s=0.005), RuntimeFolder()
        self.home = home
        app = App(config, environment, log, home)
        port = await app.listen("127.0.0.1", 0)
        endpoint = open_endpoint(config, environment, log.write)
        assert endpoint is not None
        self.endpoint = endpoint
        admin = AdminPort(endpoint, app, config, environment, Path(home.subfolder("links")))
        admin.listen()
        log.write(endpoint.banner_line)
        self.port = port
        await self._ended.wait()
        await app.shut_down(1.0)
        await admin.close()
        log.close()
        home.close()

    def _read_from(self, descriptor: int) -> None:
        with os.fdopen(descriptor, encoding="utf-8") as lines:
            for line in lines:
                with self._condition:
                    self.output.append(line)
                    self._condition.notify_all()


def write_prices(cache: Path) -> None:
    """Write an empty table of prices, so that no process compiles that of the package. Tests state their own prices."""
    (cache / "prices").mkdir(parents=True, exist_ok=True)
    file = cache / "prices" / f"{PACKAGE}-{version(PACKAGE)}-{FORMAT}.msgpack"
    file.write_bytes(encoded(PriceTable()))

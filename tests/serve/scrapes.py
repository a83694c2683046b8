"""Scrapes: the metrics of a gateway, requested and read as Prometheus does."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import uvloop
from prometheus_client.parser import text_string_to_metric_families

from penstock.gateway.config import load
from penstock.http.exchange import Exchange
from penstock.http.limits import FrontLimits
from penstock.http.server import ServerConnection
from penstock.serve.composition import App
from penstock.serve.responses import error_page
from penstock.serve.telemetry.log import Log
from penstock.upstream.local.model import RuntimeFolder
from tests.faults.client import RawClient, Response, body, post
from tests.serve.in_process import write_prices

PRICES = {'prices."main/*"': {"input": 1000, "output": 2000}}
REQUESTS = "penstock_requests_total"
# By the name of a sample, its labels and their values.
Samples: TypeAlias = dict[str, dict[frozenset[tuple[str, str]], float]]


def parse(text: str) -> Samples:
    """The samples of a scrape; it must be flawless, and name no series twice."""
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            series = samples.setdefault(sample.name, {})
            labels = frozenset(sample.labels.items())
            assert labels not in series, (sample.name, labels)
            series[labels] = sample.value
    return samples


def value(samples: Samples, name: str, /, **labels: str) -> float:
    """The sum over all series that have these labels."""
    wanted = set(labels.items())
    return sum(number for found, number in samples.get(name, {}).items() if wanted <= found)


def scrape(connect: Callable[[], socket.socket]) -> str:
    """The text of a scrape over a connection."""
    with connect() as connection:
        connection.settimeout(5)
        connection.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        received = b""
        while data := connection.recv(65_536):
            received += data
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    assert b"content-type: text/plain; version=0.0.4" in head
    return body.decode()


def of_worker(path: Path) -> Callable[[], socket.socket]:
    """Connects to a worker's own socket."""

    def connect() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
        except OSError:
            connection.close()
            raise
        return connection

    return connect


class Served:
    """A gateway of one process, in a thread of this one, with a listener for scrapes beside it."""

    def __init__(self, file: Path, state: Path) -> None:
        self._file = file
        self._state = state
        self.port = self.metrics_port = 0
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self.app: App | None = None
        self._thread = threading.Thread(target=self._run)

    def scrape(self) -> Samples:
        """What Prometheus would see now."""
        return parse(self.text())

    def text(self) -> str:
        """The same, as it is sent."""
        return scrape(lambda: socket.create_connection(("127.0.0.1", self.metrics_port)))

    def start(self) -> None:
        self._thread.start()
        self._ready.wait(10)
        assert self.port, self._failure

    def stop(self) -> None:
        assert self._loop is not None
        assert self._end is not None
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            uvloop.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told by whoever waits
            self._failure = error
            self._ready.set()

    async def _serve(self) -> None:
        cache = self._state.parent / "cache"
        write_prices(cache)
        environment = {"PENSTOCK_STATE": str(self._state), "PENSTOCK_CACHE": str(cache)}
        with (self._state.parent / "log").open("wb") as file:
            log, home = Log(file.fileno(), pretty=False), RuntimeFolder()
            self.app = app = App(load(self._file, environment), environment, log, home)
            self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
            self.port = await app.listen("127.0.0.1", 0)
            connections: set[ServerConnection] = set()

            def handle(exchange: Exchange) -> None:
                app.metrics.handle(exchange)

            server = await self._loop.create_server(
                lambda: ServerConnection(handle, error_page, FrontLimits(), connections), "127.0.0.1", 0
            )
            self.metrics_port = server.sockets[0].getsockname()[1]
            self._ready.set()
            await self._end.wait()
            server.close()
            await app.shut_down(1.0)
            log.close()
            home.close()


@contextmanager
def served(folder: Path, configuration: str) -> Iterator[Served]:
    """A gateway by this configuration."""
    file = folder / "penstock.toml"
    file.write_text(configuration)
    made = Served(file, folder / "state")
    made.start()
    try:
        yield made
    finally:
        made.stop()


def ask(port: int, model: str, *, stream: bool = True, **fields: object) -> Response:
    with RawClient(port) as client:
        client.send(post(body(model, stream=stream, **fields)))
        return client.response()


def settled(gateway: Served, calls: int) -> Samples:
    """The metrics once this many calls have ended."""
    deadline = time.monotonic() + 30
    while value(samples := gateway.scrape(), REQUESTS) < calls:
        assert time.monotonic() < deadline, samples.get(REQUESTS)
        time.sleep(0.01)
    assert value(samples, REQUESTS) == calls
    return samples


def sockets(home: Path, count: int = 2) -> list[Path]:
    """The workers' own sockets, when so many answer."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = sorted(home.glob("penstock-*/workers/*.sock"))
        living = [path for path in found if Path(f"/proc/{path.stem}").exists()]
        if len(living) == count:
            return living
        time.sleep(0.02)
    raise AssertionError("there are not enough workers")

"""The real gateway on a book, its upstream, and its admin API, as `bench-page` and `bench-retention` use them."""

import array
import http.client
import json
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from bench.page.gateway import LoopDelays

KEY = "sk-bench"
_LISTENS = re.compile(r"penstock listens on http://127\.0\.0\.1:(\d+)/v1")
_ADMIN = re.compile(r"penstock listens on http://127\.0\.0\.1:(\d+)/admin")
_START_S = 60.0
_CONFIGURATION = """
[server]
log = "off"
keys = ["{key}"]
[limits]
max_connections = 4096
[admin]
content = true
[ledger]
folder = "{folder}"
{ledger}
[providers.mock]
base_url = "http://127.0.0.1:{port}/v1"
api_key = "unused"
"""


class Delays(NamedTuple):
    """The delays of events in a period, in milliseconds, and the number of events."""

    events: int
    p50: float
    p99: float
    most: float


class Crowd:
    """Streams through the gateway, which another process reads."""

    def __init__(self, port: int, streams: int, gap_ms: int, folder: Path) -> None:
        self._file = folder / "events"
        command = [sys.executable, "-m", "bench.page.crowd", str(port), KEY, str(streams), str(gap_ms), str(self._file)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "begun":
            self.end()
            raise SystemExit("bench-page: the streams did not begin")

    def end(self) -> "array.array[float]":
        """End the streams; return the time and the delay of each event."""
        seen = array.array("d")
        _end(self._process)
        with suppress(FileNotFoundError):
            seen.frombytes(self._file.read_bytes())
        return seen


def _end(process: subprocess.Popen[str]) -> None:
    """Close what it reads and writes, and wait until it has ended."""
    try:
        process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def delays(seen: "array.array[float]", since: float, until: float) -> Delays:
    """The delays of the events that arrived in a period."""
    took = sorted(1e3 * seen[index + 1] for index in range(0, len(seen), 2) if since <= seen[index] < until)
    if not took:
        return Delays(0, 0, 0, 0)
    return Delays(len(took), took[len(took) // 2], took[int(0.99 * len(took))], took[-1])


class Site:
    """A gateway with the book of a folder."""

    def __init__(self, folder: Path, scratch: Path, ledger: str = "", database: int | None = None) -> None:
        """`ledger` are further lines of [ledger]; `database` is the process that has the database's as its children."""
        self._scratch = scratch
        self._database = database
        self._mock = subprocess.Popen(
            [sys.executable, "-m", "bench.page.upstream"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._mock.stdout is not None
        file = scratch / "penstock.toml"
        port = int(self._mock.stdout.readline())
        file.write_text(_CONFIGURATION.format(key=KEY, folder=folder, port=port, ledger=ledger))
        self._log = (scratch / "log").open("w+")
        self._gateway = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bench.page.gateway",
                str(scratch / "blocked"),
                "serve",
                "--config",
                str(file),
                "--port",
                "0",
            ],
            stderr=self._log,
            text=True,
        )
        self.delays = LoopDelays(scratch / "blocked")
        """How long the event loop was blocked."""
        self.port, self.admin = self._listening()
        link = self._link(file)
        self._token = (folder / "admin-token").read_text().strip()
        self._connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=60)
        self._connection.request("GET", link)
        response = self._connection.getresponse()
        response.read()
        self.session = response.headers["set-cookie"].partition(";")[0].partition("=")[2]
        """The session cookie of a browser that is signed in."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        for process in (self._gateway, self._mock):
            process.terminate()
            _end(process)
        self._log.close()

    @property
    def url(self) -> str:
        """The URL of the page."""
        return f"http://127.0.0.1:{self.admin}"

    def ask(self, path: str) -> tuple[float, Any]:
        """Make a request to the admin API; return the milliseconds that it took, and the answer: JSON or bytes."""
        began = time.perf_counter()
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
        response = self._connection.getresponse()
        data = response.read()
        took = 1e3 * (time.perf_counter() - began)
        if response.status != 200:
            raise SystemExit(f"bench-page: {path}: {response.status} {data[:200].decode()}")
        is_json = response.headers["content-type"].startswith("application/json")
        return took, json.loads(data) if is_json else data

    def crowd(self, streams: int, gap_ms: int) -> Crowd:
        """Start streams with an event every `gap_ms` milliseconds."""
        return Crowd(self.port, streams, gap_ms, self._scratch)

    def cpu_s(self) -> float:
        """The CPU seconds of all threads of the gateway."""
        threads = Path(f"/proc/{self._gateway.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def database_s(self) -> float:
        """The CPU seconds of all processes of the database; 0 if there are none."""
        if self._database is None:
            return 0.0
        children = Path(f"/proc/{self._database}/task/{self._database}/children").read_text().split()
        return sum(int(Path(f"/proc/{child}/schedstat").read_text().split()[0]) for child in children) / 1e9

    def loop_s(self) -> float:
        """The CPU seconds of the thread of the event loop."""
        thread = Path(f"/proc/{self._gateway.pid}/task/{self._gateway.pid}/schedstat")
        return int(thread.read_text().split()[0]) / 1e9

    def megabytes(self) -> float:
        """The resident memory of the gateway."""
        found = re.search(r"Rss:\s+(\d+)", Path(f"/proc/{self._gateway.pid}/smaps_rollup").read_text())
        return int(found[1]) / 1024 if found else 0.0

    def _link(self, file: Path) -> str:
        """The sign-in link, which works once."""
        command = [sys.executable, "-m", "penstock", "open", "--print", "--config", str(file)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_START_S)
        return f"/{printed.stdout.strip().split('/', 3)[3]}"

    def _listening(self) -> tuple[int, int]:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and self._gateway.poll() is None:
            log = Path(self._log.name).read_text()
            listens, admin = _LISTENS.search(log), _ADMIN.search(log)
            if listens and admin:
                return int(listens[1]), int(admin[1])
            time.sleep(0.02)
        raise SystemExit(f"bench-page: the gateway did not start:\n{Path(self._log.name).read_text()}")

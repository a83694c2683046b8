"""Gateway: the real process under test, its log, and the check that a case leaves nothing open in it."""

import itertools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from penstock.gateway.record.entry import Entry
from penstock.serve.telemetry.log_lines import CallLine, MessageLine
from tests.faults.book import ROLES, BookReader
from tests.faults.client import CLIENT_KEY, RawClient, Response
from tests.faults.dialects import CHAT, CHAT_CLIENT, Client, Provider
from tests.faults.upstream import Upstream

# Our own keys, which must not appear in anything that the gateway writes, except its requests to the provider.
PROVIDER_KEY = "canary-of-the-provider-93ab"
SPARE_KEY = "canary-of-the-spare-77c2"
CANARIES = (PROVIDER_KEY, SPARE_KEY, CLIENT_KEY)

_LISTENS = re.compile(r"penstock listens on https?://(?:127\.0\.0\.1|0\.0\.0\.0):(\d+)/v1")
# A busy machine may take a hundred times as long as an idle one.
_START_S = 60.0
# Longer than a busy machine needs, and shorter than the ten seconds after which a gateway disconnects slow clients.
_SETTLE_S = 8.0
_STOP_S = 30.0
_POLL_S = 0.02

Table = Mapping[str, object]


def settings(url: str, pairs: int = 4, dialects: Iterable[Provider] = (CHAT,), /, **tables: Table) -> str:
    """A configuration with two providers that have long timeouts, three that have a short one, and routes `pair-N`,
    `hasty-pair-N` and `hasty-gap-pair-N` over them.

    Each of the hasty ones has one short timeout, so that a busy machine cannot make another one pass before it.

    Two more providers have `abort = "drain"`: `heard` for longer than any answer of a test takes, on however busy a
    machine, and `briefly` for a short time. All have a price. Each of the `dialects` has as many providers and routes,
    with its suffix; the second target of a route is always `spare`.
    """
    server: Table = {"log": "json", "keys": [CLIENT_KEY], "drain_s": 1.0} | dict(tables.pop("server", {}))
    retries: Table = {"budget": 1.0, "same_target": 0} | dict(tables.pop("retries", {}))
    lines = [*_table("server", server), *_table("retries", retries)]
    for name, table in tables.items():
        lines += _table(name, table)
    for provider in dialects:
        for role, more in ROLES.items():
            name, key = f"{role}{provider.suffix}", SPARE_KEY if role == "spare" else PROVIDER_KEY
            lines += [f"[providers.{name}]", f'base_url = "{url}"', f'api_key = "{key}"', *more]
            if provider.suffix:
                lines.append(f'dialect = "{provider.dialect}"')
            if f'prices."{name}/*"' not in tables:
                lines += [f'[prices."{name}/*"]', "input = 1.0", "output = 2.0"]
        for number in [*map(str, range(pairs))] if not provider.suffix else ["*"]:
            route = f"pair{provider.suffix}-{number}"
            first, second = f"{provider.suffix}/{route}-a", f"spare/{route}-b"
            for prefix, role in {"": "main", "hasty-": "hasty", "hasty-gap-": "hasty-gap"}.items():
                lines += [f'[routes."{prefix}{route}"]', f'targets = ["{role}{first}", "{second}"]']
    return "\n".join([*lines, ""])


def claude(url: str) -> Table:
    """A provider that speaks Anthropic Messages."""
    return {
        "base_url": url,
        "dialect": "anthropic_messages",
        "key_header": "x-api-key",
        "api_key": PROVIDER_KEY,
    }


def _table(name: str, table: Table) -> list[str]:
    return [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]


class Gateway:
    """One gateway and the upstream that it calls."""

    def __init__(
        self,
        folder: Path,
        upstream: Upstream,
        configuration: str,
        *,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        max_files: int | None = None,
        max_file_size: int | None = None,
        named: bool = True,
    ) -> None:
        """Unless its file is `named` on the command line, the gateway is started in the file's folder."""
        self.upstream = upstream
        self.file = folder / "penstock.toml"
        self.file.write_text(configuration)
        self._arguments = (*(("--config", str(self.file)) if named else ()), "--port", "0", *arguments)
        self._environment = dict(environment or {})
        self._limits = {resource.RLIMIT_NOFILE: max_files, resource.RLIMIT_FSIZE: max_file_size}
        self._folder = None if named else folder
        self._process: subprocess.Popen[str] | None = None
        self._condition = threading.Condition()
        self._pairs: dict[str, Iterator[int]] = defaultdict(itertools.count)
        self._reader: threading.Thread | None = None
        self.files_at_start = 0
        self._settled = 0
        self.expected = 0
        """The calls since the last `quiet`. Each must have exactly one line in the log."""
        self.responses: list[Response] = []
        """Answers that were read since the last `quiet`."""
        self.output: list[str] = []
        self._lines: list[Any] = []
        self._calls: list[Any] = []
        self._last_line = ""
        self._searched = 0
        self.port = 0
        self.book = BookReader(folder / "state")

    # Starting and stopping.

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()  # no process is left running, even if it never listened
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *, read_output: bool = True) -> None:
        """Start it, and wait until it listens."""
        kept = ("PATH", "HOME", "LANG", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "VIRTUAL_ENV")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        if "PYTHONPATH" in environment:  # which may be relative
            paths = environment["PYTHONPATH"].split(os.pathsep)
            environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, paths))
        environment |= {"PENSTOCK_STATE": str(self.file.parent / "state"), "PENSTOCK_BATCH_MS": "5"} | self._environment

        limited = {number: limit for number, limit in self._limits.items() if limit is not None}

        def limit() -> None:
            for number, most in limited.items():
                resource.setrlimit(number, (most, most))

        self._process = subprocess.Popen(
            [*self.command, "serve", *self._arguments],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            preexec_fn=limit if limited else None,  # noqa: PLW1509 - nothing else is started meanwhile
            process_group=0,
        )
        assert self._process.stderr is not None
        if read_output:
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()
            self.until(lambda: any(_LISTENS.search(line) for line in self.output) or self._process_ended(), _START_S)
        else:
            self.output.append(self._process.stderr.readline())
        found = _LISTENS.search("".join(self.output))
        assert found, "".join(self.output)
        self.port = int(found[1])
        self.files_at_start = self.files()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end, and wait for that; returns its exit status."""
        process = self._process
        assert process is not None
        if process.poll() is None:
            process.send_signal(number)
        try:
            return self.wait()
        finally:
            for pid in self._processes():  # its workers too, which may outlive it
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
            if self._reader is not None:
                self._reader.join(_SETTLE_S)
            if process.stderr is not None:
                process.stderr.close()

    def wait(self, timeout_s: float = _STOP_S) -> int:
        """Wait until it has ended; returns its exit status."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send it a signal; or its whole process group, as a terminal does."""
        os.kill(-self.pid if group else self.pid, number)

    @property
    def command(self) -> tuple[str, ...]:
        """What runs Penstock."""
        return sys.executable, "-m", "penstock"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _process_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    # What it writes.

    def _read(self) -> None:
        process = self._process
        assert process is not None
        assert process.stderr is not None
        with suppress(ValueError):
            for line in process.stderr:
                with self._condition:
                    self.output.append(line)
                    self._condition.notify_all()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        with self._condition:
            self._condition.notify_all()  # for those who wait for it to listen

    def until(self, true: Callable[[], object], timeout_s: float = _START_S) -> None:
        """Wait until something is true. It is checked after each line of the output, and every so often without one."""
        deadline = time.monotonic() + timeout_s
        with self._condition:
            while not true():
                assert time.monotonic() < deadline, "".join(self.output[-5:])
                self._condition.wait(_POLL_S)

    @property
    def lines(self) -> list[Any]:
        """The lines of the log, decoded: it has no others, and each has the fields that docs/log.md lists."""
        self._decode()
        return list(self._lines)

    @property
    def calls(self) -> list[Any]:
        """The lines about calls."""
        self._decode()
        return list(self._calls)

    def _decode(self) -> None:
        """Decode what is new: a gateway may have served thousands of calls."""
        output, known = list(self.output), len(self._lines)
        if known > len(output) or (known and output[known - 1] is not self._last_line):  # a test has cleared it
            known, self._searched, self._lines, self._calls = 0, 0, [], []
        for text in output[known:]:
            line = json.loads(text)
            is_call = "request_id" in line
            msgspec.convert(line, CallLine if is_call else MessageLine, strict=True)
            self._lines.append(line)
            self._last_line = text
            if is_call:
                self._calls.append(line)

    def call(self, response: Response) -> Any:
        """The one line about the call of a response."""
        self.until(lambda: any(line["request_id"] == response.request_id for line in self.calls))
        (line,) = [line for line in self.calls if line["request_id"] == response.request_id]
        return line

    def last_call(self) -> Any:
        """The line about the last call, once all calls since the last `quiet` have their lines."""
        self.until(lambda: len(self.calls) >= self._settled + max(self.expected, 1))
        return self.calls[-1]

    def says(self, words: str) -> None:
        """Wait until the log says something."""
        self.until(lambda: any(words in line for line in self.output))

    # Asking.

    def pair(self, first: Any, second: Any, *, prefix: str = "", provider: Provider = CHAT) -> str:
        """A route of two targets that play these scripts, the first in a provider's dialect; returns its name.

        The prefix `hasty-` or `hasty-gap-` chooses the first target's provider.
        """
        number = next(self._pairs[provider.suffix])  # one for each case, so that no case affects another
        route = f"pair{provider.suffix}-{number}"
        self.upstream.play(first, f"{route}-a")
        self.upstream.play(second, f"{route}-b")
        return prefix + route

    def client(self, *, receive_buffer: int | None = None) -> RawClient:
        """A connection to it."""
        return RawClient(self.port, receive_buffer=receive_buffer)

    def begin(
        self,
        model: str,
        client: Client = CHAT_CLIENT,
        /,
        *,
        stream: bool,
        receive_buffer: int | None = None,
        **fields: object,
    ) -> RawClient:
        """Send a request as a client of some dialect; the caller reads the answer."""
        connection = self.client(receive_buffer=receive_buffer)
        self.expected += 1
        connection.send(client.request(model, stream=stream, **fields))
        return connection

    def ask(self, model: str, client: Client = CHAT_CLIENT, /, *, stream: bool, **fields: object) -> Response:
        """Send a request as a client of some dialect, and read the answer."""
        with self.client() as connection:
            self.expected += 1
            connection.send(client.request(model, stream=stream, **fields))
            return self.keep(client.read(connection.response()))

    def send(self, request: bytes, *, calls: int = 0) -> Response:
        """Send bytes and read one answer. `calls` is the number of calls that this makes."""
        with self.client() as client:
            self.expected += calls
            client.send(request)
            return self.keep(client.response())

    def keep(self, response: Response) -> Response:
        """Remember an answer for `quiet`."""
        self.responses.append(response)
        return response

    # What it holds.

    def files(self, pid: int | None = None) -> int:
        """How many file descriptors it has open. Those of the content store do not count: the first user opens it."""
        return sum("/content.db" not in path for path in self.open_files(pid))

    def end_of(self, client: RawClient) -> str:
        """Its own end of a client's connection, as the system names it."""
        ours, theirs = f":{self.port:04X}", f":{client.port:04X}"
        for line in Path("/proc/net/tcp").read_text().splitlines():
            fields = line.split()
            if fields[1].endswith(ours) and fields[2].endswith(theirs):
                return f"socket:[{fields[9]}]"
        raise AssertionError("nobody has taken the connection")

    def closes(self, end: str) -> None:
        """Wait until the gateway has closed its end of a connection: it has noticed that the client disconnected."""
        deadline = time.monotonic() + _SETTLE_S
        while end in self.open_files():
            assert time.monotonic() < deadline, "it has not noticed that its client has left"
            time.sleep(0.002)  # there is no notification that a process has closed a descriptor

    def open_files(self, pid: int | None = None) -> list[str]:
        """What its descriptors, or those of one of its workers, are open for."""
        found = []
        for path in Path(f"/proc/{pid or self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.append(os.readlink(path))
        return found

    def memory(self) -> int:
        """Its resident memory, in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def workers(self) -> list[int]:
        """The processes that it has started."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def _processes(self) -> list[int]:
        """All processes that run with its configuration file, which no other gateway has."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if str(self.file).encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def quiet(self) -> list[Entry]:
        """The gateway is idle: every call has its line, nothing is open, and no secret was disclosed.

        Returns the entries of the calls.
        """
        deadline = time.monotonic() + _SETTLE_S
        self.until(lambda: len(self.calls) >= self._settled + self.expected, _SETTLE_S)
        assert len(self.calls) == self._settled + self.expected, self.calls[self._settled :]
        for response in self.responses:
            assert response.headers.get("x-request-id"), "an answer has no x-request-id"
            assert not response.repeated, response.repeated
        calls = self.calls[self._settled :]
        assert all(line["ending"] is not None for line in calls), calls
        entries = self.book.check(calls)
        self._settled += self.expected
        self.expected = 0
        new = self.output[self._searched :]
        self._searched += len(new)
        sent_text = "".join(new) + "".join(f"{each.headers}{each.body!r}" for each in self.responses)
        self.responses = []
        assert not [key for key in CANARIES if key in sent_text], "a secret was given away"
        while (found := self._left()) and time.monotonic() < deadline:
            time.sleep(0.005)  # there is no notification that a process has closed a descriptor
        assert not found, found
        return entries

    def keeps_secrets(self) -> None:
        """None of its keys is in anything that it stores."""
        for path in self.book.folder.rglob("*"):
            kept = path.read_bytes() if path.is_file() else b""
            assert not [key for key in CANARIES if key.encode() in kept], f"a secret is in {path.name}"

    def forget(self) -> None:
        """Reset the checks after a failed case, so that the next cases do not fail because of it."""
        self.upstream.drop()
        time.sleep(0.1)  # until the gateway has noticed it
        self.expected = 0
        self.responses = []
        self._settled = len(self.calls)
        self.book.skip()
        self.files_at_start = max(self.files_at_start, self.files())

    def _left(self) -> str:
        busy = [connection.models[-1] for connection in self.upstream.open if connection.busy and connection.models]
        if busy:
            return f"the upstream is still busy with {busy}"
        files, idle = self.files(), len(self.upstream.open)
        if files > self.files_at_start + idle:
            return f"{files} descriptors are open: {self.files_at_start} at the start, and {idle} idle upstreams"
        return ""

"""Count the functions that one call runs, from the client's request to its entry in the ledger: `scripts/walk`.

The real gateway runs in this process, with its default log and ledger and a configured key. A scripted provider and a
client run in threads of their own, which are not counted. Counted is a call on warm connections, in the thread of the
event loop, for each Python function of Penstock: comprehensions and generator expressions belong to the function that
has them. A text event is counted from the provider's write to the moment when the gateway is idle again.
"""

import argparse
import json
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from bench.load.apis import APIS, Api
from bench.load.processes import free_port, wait_for
from penstock.cli.main import commands

ROOT = Path(__file__).parent.parent
SOURCE = str(ROOT / "src" / "penstock") + os.sep
WALKS = (("chat", "chat"), ("messages", "chat"), ("responses", "messages"))
"""The client's API and the provider's."""
WARM_UP = 3
EVENTS = 8
COUNTED = 4  # the text event that is counted: by then every template is learned
PAUSE_S = 0.04  # after each write of the provider; the gateway is idle long before
SETTLE_S = 0.4  # after the answer: the ledger and the log write in batches
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_CONFIGURATION = """\
[server]
keys = ["sk-walk-0123456789"]

[ledger]
folder = "{folder}/state"
"""
_PROVIDER = """
[providers.{api.name}]
base_url = "http://127.0.0.1:{port}/v1"
dialect = "{api.dialect}"
api_key = "any"

[prices."{api.name}/*"]
input = 0.15
output = 0.6
"""


class Walk(NamedTuple):
    """The functions that were called, in their order."""

    codes: list[CodeType]

    @property
    def functions(self) -> int:
        """The number of different functions."""
        return len(set(self.codes))

    @property
    def files(self) -> int:
        """The number of files that they are in."""
        return len({code.co_filename for code in self.codes})

    def print(self) -> None:
        """Print each call of a function, with its place."""
        for code in self.codes:
            print(f"  {code.co_filename.removeprefix(SOURCE)}:{code.co_firstlineno} {code.co_qualname}")


class Recorder:
    """Notes calls of functions of Penstock in the thread that installs it, between `start` and `stop`."""

    def __init__(self) -> None:
        self._codes: list[CodeType] | None = None

    def install(self) -> None:
        """Note the calls of the current thread from now on."""
        sys.setprofile(self._on_profile)

    def start(self) -> None:
        """Begin a walk."""
        self._codes = []

    def stop(self) -> Walk:
        """End the walk."""
        codes, self._codes = self._codes or [], None
        return Walk(codes)

    def so_far(self) -> int:
        """The number of calls in this walk."""
        return len(self._codes or ())

    def _on_profile(self, frame: FrameType, kind: str, _: object) -> None:
        codes, code = self._codes, frame.f_code
        if (
            codes is not None
            and kind == "call"
            and code.co_filename.startswith(SOURCE)
            and code.co_name[1:5] not in _PARTS
        ):
            codes.append(code)


_PARTS = ("list", "dict", "setc", "gene")  # of <listcomp>, <dictcomp>, <setcomp>, <genexpr>


class Provider:
    """A provider of every API that sends its events one by one, and notes how far the walk was at each."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.marks: list[int] = []
        """The number of calls before each delta of the last answer, and before its end."""

    def serve(self) -> None:
        """Serve connections, each in a thread, until the process ends."""
        while True:
            connection = self._socket.accept()[0]
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(ConnectionError), connection:
            while head := receive(connection, b"\r\n\r\n"):
                head, _, body = head.partition(b"\r\n\r\n")
                length = _LENGTH.search(head)
                while length is not None and len(body) < int(length[1]):
                    body += connection.recv(65_536)
                self._answer(connection, next(api for api in APIS if api.path.encode() in head))

    def _answer(self, connection: socket.socket, api: Api) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        self.marks = []
        connection.sendall(head + _chunk(api.opening))
        for number in range(EVENTS):
            time.sleep(PAUSE_S)
            self.marks.append(self._recorder.so_far())
            connection.sendall(_chunk(api.delta(number)))
        time.sleep(PAUSE_S)
        self.marks.append(self._recorder.so_far())
        connection.sendall(b"".join(map(_chunk, _closing(api))) + b"0\r\n\r\n")


def _closing(api: Api) -> list[bytes]:
    """The last events; for chat as OpenAI sends them: finish, usage and end marker in an event each."""
    if api.name != "chat":
        return [api.closing(EVENTS)]
    event, end = (part + b"\n\n" for part in api.closing(EVENTS).removesuffix(b"\n\n").split(b"\n\n"))
    chunk = json.loads(event.removeprefix(b"data: "))
    usage = chunk.pop("usage")
    events = [chunk, {**chunk, "choices": [], "usage": usage}]
    return [*(b"data: %b\n\n" % json.dumps(event, separators=(",", ":")).encode() for event in events), end]


def receive(connection: socket.socket, end: bytes) -> bytes:
    """The bytes of a connection until they contain these; empty if it is closed before."""
    data = b""
    while end not in data:
        received = connection.recv(65_536)
        if not received:
            return b""
        data += received
    return data


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def drive(port: int, provider: Provider, recorder: Recorder, walks: dict[str, Walk]) -> None:
    """Make the calls, then end the gateway, which the main thread runs."""
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz")
        apis = {api.name: api for api in APIS}
        for client, answering in WALKS:
            request = apis[client].request(f"{answering}/bench")
            request = request.replace(b"\r\n", b"\r\nauthorization: Bearer sk-walk-0123456789\r\n", 1)
            with socket.create_connection(("127.0.0.1", port)) as connection:
                for _ in range(WARM_UP):
                    connection.sendall(request)
                    receive(connection, b"\r\n0\r\n\r\n")
                    time.sleep(SETTLE_S)
                recorder.start()
                connection.sendall(request)
                receive(connection, b"\r\n0\r\n\r\n")
                time.sleep(SETTLE_S)
                walk = recorder.stop()
            marks = provider.marks
            walks[f"{client} → {answering}"] = walk
            walks[f"{client} → {answering}, one text event"] = Walk(walk.codes[marks[COUNTED] : marks[COUNTED + 1]])
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Count, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", metavar="WALK", help="print each call of a function in a walk, such as 'chat → chat'")
    options = parser.parse_args()
    recorder = Recorder()
    provider = Provider(recorder)
    walks: dict[str, Walk] = {}
    threading.Thread(target=provider.serve, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        file, port = Path(folder, "penstock.toml"), free_port()
        tables = [_PROVIDER.format(api=api, port=provider.port) for api in APIS]
        file.write_text("".join([_CONFIGURATION.format(folder=folder), *tables]))
        threading.Thread(target=drive, args=(port, provider, recorder, walks), daemon=True).start()
        recorder.install()
        output = os.dup(1), os.dup(2)
        with open(Path(folder, "log"), "wb") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            try:
                with suppress(SystemExit):
                    commands.main(["serve", "--config", str(file), "--port", str(port)], standalone_mode=False)
            finally:
                sys.setprofile(None)
                sys.stdout.flush()
                os.dup2(output[0], 1)
                os.dup2(output[1], 2)
        if not walks:
            sys.exit(Path(folder, "log").read_text())
    if options.list is not None:
        walks[options.list].print()
        return
    print(f"{'client → provider':40}{'functions':>10}{'files':>8}{'calls':>8}")
    for name, walk in walks.items():
        print(f"{name:40}{walk.functions:10}{walk.files:8}{len(walk.codes):8}")


if __name__ == "__main__":
    main()

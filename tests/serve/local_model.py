"""ScriptedModel: what the process of a model on this machine is to a gateway, its two sockets, without a process."""

import asyncio
import hashlib
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from penstock.upstream.local.model import RuntimeFolder, Settings
from tests.streams import DONE, begins, bill, counts, finishes, says, sse

TURN = b'{"tools": true}\n'
ANSWER = sse(begins(), says("Hello"), finishes(), bill(**counts(5, 3)), DONE)


class ScriptedModel:
    """Gives turns and answers in a thread. Its fields may be set at any time."""

    def __init__(self, folder: RuntimeFolder, settings: Settings) -> None:
        self._name = hashlib.sha256(msgspec.json.encode(settings)).hexdigest()[:12]
        self._folder: Path = folder.subfolder(self._name)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.line = TURN
        """The line that a caller gets who asks for a turn. If it is empty, the caller waits."""
        self.status, self.body = 200, ANSWER
        self.requests: list[dict[str, object]] = []
        self.turns = 0
        """How many callers have a turn or wait for one."""
        self.sent_lines: list[bytes] = []
        """What callers have sent instead of closing."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._servers = [
            asyncio.run_coroutine_threadsafe(
                asyncio.start_unix_server(on_connection, str(self._folder / f"{name}.sock")), self._loop
            ).result(10)
            for name, on_connection in (("turn", self._on_turn), ("model", self._on_request))
        ]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _on_turn(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.turns += 1
        try:
            while not (line := self.line):
                with suppress(TimeoutError):
                    if not (line_sent := await asyncio.wait_for(reader.read(64), 0.005)):
                        return
                    self.sent_lines.append(line_sent)
            writer.write(line)
            while line_sent := await reader.read(64):
                self.sent_lines.append(line_sent)
        except OSError:
            pass
        finally:
            self.turns -= 1
            writer.close()

    async def _on_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()  # its caller has closed the turn
            return
        assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length:" in line)
        self.requests.append(msgspec.json.decode(await reader.readexactly(length)))
        kind = b"text/event-stream" if self.status == 200 else b"application/json"
        writer.write(
            b"HTTP/1.1 %d X\r\ncontent-type: %b\r\nconnection: close\r\n\r\n%b" % (self.status, kind, self.body)
        )
        writer.close()

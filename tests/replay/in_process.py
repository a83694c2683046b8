"""InProcessPlayer: `penstock replay` in a thread of this process, for fast tests over real sockets."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self
from unittest.mock import patch

from penstock.cli.main import commands
from penstock.replay.upstream import Replay
from penstock.serve import replay_server
from penstock.serve.replay_server import ReplayApp
from penstock.serve.telemetry.log import Log
from tests.replay.support import Player, until

_WAIT_S = 30.0


class InProcessPlayer(Player):
    """A player that is used as one in a process is. It serves until it exits, and gets no signals."""

    def __init__(self, *arguments: str | Path) -> None:
        super().__init__(*arguments)
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._status: object = None

    def __enter__(self) -> Self:
        reading, self._writing = os.pipe()
        self._reader = threading.Thread(target=self._read_from, args=(reading,), daemon=True)
        self._reader.start()
        self._thread = threading.Thread(target=self._run, daemon=True)
        with ExitStack() as stack:
            stderr = stack.enter_context(os.fdopen(self._writing, "w", closefd=False))
            stack.enter_context(patch.object(sys, "stderr", stderr))
            stack.enter_context(patch.object(replay_server, "run", self._run_here))
            self._thread.start()
            until(lambda: (self.port and self.output) or not self._thread.is_alive())
        assert self.port, (self._status, self.output)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_WAIT_S)
        os.close(self._writing)
        assert self._reader is not None
        self._reader.join(_WAIT_S)
        assert not self._thread.is_alive()
        assert self._status == 0

    def _run(self) -> None:
        try:
            commands(["replay", "--port", "0", *self._arguments])
        except SystemExit as end:
            self._status = end.code

    def _run_here(self, replay: Replay, log: Log, address: tuple[str, int], ready: Callable[[int], None]) -> int:
        async def serve() -> int:
            app = ReplayApp(replay, log)
            port = await app.listen(*address)
            ready(port)
            sys.stderr.flush()
            self.port = port
            await self._ended.wait()
            await app.close()
            log.close()
            return 0

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            return runner.run(serve())

    def _read_from(self, descriptor: int) -> None:
        with os.fdopen(descriptor, encoding="utf-8") as lines:
            self.output.extend(iter(lines.readline, ""))

"""Served: a gateway with a model on this machine, its child process, and the official SDK to ask it with."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from openai import DefaultHttpxClient, OpenAI
from openai.types.chat import ChatCompletionUserMessageParam

from tests.faults.gateway import Gateway
from tests.faults.upstream import Upstream

MODEL = "local/smollm2"
_TICKS = os.sysconf("SC_CLK_TCK")


def user(text: str) -> list[ChatCompletionUserMessageParam]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


LONG = user("Write a long story about a river, with many chapters.")


class Served(Gateway):
    """A gateway that serves by a configuration, in which UPSTREAM stands for the address of a scripted provider.

    In the folder are its file and, under a name short enough for sockets, what it makes.
    """

    def __init__(
        self,
        folder: Path,
        upstream: Upstream,
        configuration: str,
        environment: Mapping[str, str],
        arguments: tuple[str, ...] = (),
        log: str = "json",
    ) -> None:
        self._short = folder / "t"
        self._short.mkdir()
        text = f'[server]\nlog = "{log}"\ndrain_s = 1.0\n{configuration}'.replace("UPSTREAM", upstream.url)
        variables = {"TMPDIR": str(self._short), **environment}
        super().__init__(folder, upstream, text, arguments=arguments, environment=variables)

    @cached_property
    def sdk(self) -> OpenAI:
        """The official SDK, which asks once and not again."""
        return self.new_sdk()

    def new_sdk(self) -> OpenAI:
        """The same, with connections of its own."""
        http = DefaultHttpxClient(trust_env=False)
        return OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="none", max_retries=0, http_client=http)

    def __exit__(self, *exception: object) -> None:
        self.sdk.close()
        super().__exit__(*exception)

    def children(self) -> list[int]:
        """The processes that run its models, whichever worker started them."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (process / "cmdline").read_bytes()
                if b"local/child.py" in words and str(self._short).encode() in words:
                    found.append(int(process.name))
        return found

    def child(self) -> int:
        """The one process that runs its model."""
        (pid,) = self.children()
        return pid

    def left(self) -> list[str]:
        """What lies in its folder for temporary files."""
        return os.listdir(self._short)

    def rooms(self) -> list[str]:
        """What lies there for its models."""
        return [room.name for room in self._short.glob("penstock-*/*") if room.name not in ("links", "workers")]

    def wait_until_loaded(self, within_s: float = 20.0) -> None:
        """Wait until its model can be asked."""
        deadline = time.monotonic() + within_s
        while not list(self._short.glob("penstock-*/*/turn.sock")):
            assert time.monotonic() < deadline, "it is not loaded"
            time.sleep(0.01)  # there is no notification that a file exists

    def wait_for_turns(self, count: int, within_s: float = 60.0) -> None:
        """Wait until this many calls have or await a turn: until its queue of turns has this many connections."""
        deadline = time.monotonic() + within_s
        while (found := self._turns()) != count:
            assert time.monotonic() < deadline, f"{found} turns"
            time.sleep(0.01)  # there is no notification of a connection

    def _turns(self) -> int:
        """The number of connections to its queue of turns: the kernel lists them with the path and the state 03."""
        lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
        ours = [line for line in lines if line[-1].startswith(str(self._short)) and "/turn.sock" in line[-1]]
        return len([line for line in ours if line[5] == "03"])

    def wait_for(self, count: int, within_s: float) -> float:
        """Wait until there are so many children; returns how long it took."""
        began = time.monotonic()
        while len(self.children()) != count:
            assert time.monotonic() - began < within_s, f"{self.children()} after {within_s} s"
            time.sleep(0.01)  # there is no notification of a process that starts or ends
        return time.monotonic() - began


def processor_s(pid: int) -> float:
    """The processor time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS

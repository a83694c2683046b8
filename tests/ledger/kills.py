"""Kills: a gateway under load is killed at random moments, and restarted on the same folder. Is any call lost?

Every call has its own model name, by which client, provider and book are compared:

1. A call whose client saw the end is booked, once, with the tokens that the provider reported.
2. A call that reached the provider is booked, once: with the provider's usage, or estimated and orphaned, or cancelled.
3. No call is booked twice, however often its gateway was killed while it recovered.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from penstock.gateway.record.entry import Entry
from tests.faults.book import BookReader
from tests.ledger.mock import INPUT, Mock, body, mock, tokens_of

_AT_A_TIME = 6
_START_S = 30.0
_CALL_S = 15.0
_STOP_S = 30.0
# A call may be killed in its first tokens, or never.
_TOKENS = (1, 40)
_GAPS_MS = (0, 1, 4)
_LONGEST_ROUND_S = 3.0
_MOST_CALLS = 20
_MOMENT_S = 0.05
# Of all rounds, those in which it is killed while it starts, and perhaps recovers.
_EARLY = 0.25


@dataclass
class KillCounts:
    """The result of a run."""

    rounds: int = 0
    calls: int = 0
    seen: int = 0
    """Calls whose end a client saw."""
    booked: int = 0
    orphans: int = 0
    lost: list[str] = field(default_factory=list)
    """What is wrong, as text."""

    def add(self, other: "KillCounts") -> None:
        self.rounds += other.rounds
        self.calls += other.calls
        self.seen += other.seen
        self.booked += other.booked
        self.orphans += other.orphans
        self.lost += other.lost


class Process:
    """A real gateway that can be killed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid
        self.port = 0

    @classmethod
    async def start(cls, file: Path, *arguments: str) -> "Process":
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "penstock", "serve", "--config", str(file), "--port", "0", *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=os.environ | {"PENSTOCK_STATE": str(file.parent / "state")},
            )
        )

    async def listens(self) -> None:
        """Wait until it does."""
        assert self._process.stderr is not None
        sent_text = b""
        while b"penstock listens on http://127.0.0.1:" not in sent_text:
            sent_text = await asyncio.wait_for(self._process.stderr.readline(), _START_S)
            assert sent_text, "the gateway has ended"
        self.port = int(sent_text.split(b"127.0.0.1:")[1].split(b"/")[0])
        self._reading = asyncio.get_running_loop().create_task(self._process.stderr.read())

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def stop(self) -> int:
        self._process.terminate()
        return await asyncio.wait_for(self._process.wait(), _STOP_S)

    def workers(self) -> list[int]:
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]


class Load:
    """Clients that make one call after another. Each call has its own model name."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._number = 0
        self.stopped = False
        self.begun: set[str] = set()
        self.seen: set[str] = set()
        """Calls whose end a client saw."""
        self.left: set[str] = set()
        """Calls whose client disconnected."""
        self.cut: dict[str, tuple[int, float]] = {}
        """Calls whose connection broke: the client's port, and when it was connected."""

    async def run(self, port: int, *, again: bool = False) -> None:
        """Make calls, several at a time, until no process listens; or until stopped, if refused ones are retried."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_A_TIME):
                group.create_task(self._ask_on(port, again=again))

    async def _ask_on(self, port: int, *, again: bool) -> None:
        while not self.stopped and (await self.ask(port) or again):  # noqa: ASYNC110 - between two calls
            await asyncio.sleep(0.005)

    async def ask(self, port: int) -> bool:
        """One call; whether the gateway still listens."""
        random = self._random
        self._number += 1
        model = f"m-{self._number}-{random.randint(*_TOKENS)}-{random.choice(_GAPS_MS)}"
        stream, leaves = random.random() < 0.7, random.random() < 0.1
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        try:
            connected = writer.get_extra_info("sockname")[1], time.monotonic()
            content = body(model, stream=stream)
            self.begun.add(model)
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n")
            writer.write(b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content))
            if leaves:
                self.left.add(model)
                with suppress(TimeoutError, ConnectionError):
                    await asyncio.wait_for(reader.read(1), random.random() * 0.03)
                return True
            with suppress(ConnectionError):
                if _is_whole(answer := await asyncio.wait_for(reader.read(-1), _CALL_S)):
                    assert b" 200 " in answer[:20], answer
                    self.seen.add(model)
                    return True
            self.cut[model] = connected
            return True
        finally:
            writer.close()


def _is_whole(answer: bytes) -> bool:
    head, _, content = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head:
        return b"data: [DONE]\n\n" in content and content.endswith(b"0\r\n\r\n")
    return b"content-length: %d\r\n" % len(content) in head + b"\r\n" and bool(content)


async def kill_again_and_again(folder: Path, rounds: int, seed: int) -> KillCounts:
    """Kill the gateway this many times; then let it recover, stop it, and check the book."""
    random = Random(seed)
    load = Load(random)
    async with _place(folder) as (provider, file):
        for _ in range(rounds):
            gateway = await Process.start(file)
            if random.random() < _EARLY:
                await asyncio.sleep(random.random() * 0.6)
                await gateway.kill()
                continue
            await gateway.listens()
            await _for_a_while(load, gateway, random)
        return await _reckon(file, provider, load, rounds)


async def _for_a_while(load: Load, gateway: Process, random: Random) -> None:
    """Until so many calls have begun, and a moment longer."""
    asking = asyncio.get_running_loop().create_task(load.run(gateway.port))
    wanted, deadline = len(load.begun) + random.randint(0, _MOST_CALLS), time.monotonic() + _LONGEST_ROUND_S
    while len(load.begun) < wanted and time.monotonic() < deadline:  # noqa: ASYNC110 - a moment more or less
        await asyncio.sleep(0.002)
    await asyncio.sleep(random.random() * _MOMENT_S)
    await gateway.kill()
    await asking


async def kill_workers(folder: Path, rounds: int, seed: int) -> KillCounts:
    """The same with two workers, of which one is killed at a time. The calls of the other continue."""
    random = Random(seed)
    load = Load(random)
    async with _place(folder) as (provider, file):
        gateway = await Process.start(file, "--workers", "2")
        await gateway.listens()
        asking = asyncio.get_running_loop().create_task(load.run(gateway.port, again=True))
        reported: list[str] = []
        for _ in range(rounds):
            await _until(lambda: len(gateway.workers()) == 2)
            await asyncio.sleep(0.2 + random.random())
            victim = random.choice(gateway.workers())
            before = set(load.cut)
            os.kill(victim, signal.SIGSTOP)  # so that its connections stay as they are while they are listed
            ports, listed_at = _clients_of(victim, gateway.port), time.monotonic()
            os.kill(victim, signal.SIGKILL)
            await _until(partial(_is_gone, gateway, victim))
            await asyncio.sleep(0.3)
            reported += [
                f"{model} was cut, on another worker"
                for model, (client, since) in load.cut.items()
                if model not in before and client not in ports and since < listed_at - 0.02
            ]
        await _until(lambda: len(gateway.workers()) == 2)
        load.stopped = True
        await asking
        assert await gateway.stop() == 0
        counts = await _reckon(file, provider, load, rounds)
        counts.lost += reported
        return counts


def _is_gone(gateway: Process, worker: int) -> bool:
    return worker not in gateway.workers()


async def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not true():
        assert time.monotonic() < deadline, "it does not happen"
        await asyncio.sleep(0.01)


def _clients_of(pid: int, port: int) -> set[int]:
    """The ports of the clients that are connected to a process."""
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            sockets.add(os.readlink(link).removeprefix("socket:[").removesuffix("]"))
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = [line for line in lines if line[1].endswith(f":{port:04X}")]
    # One that waits to be accepted belongs to no process yet, but to its listener: its inode is 0.
    return {int(line[2].split(":")[1], 16) for line in ours if line[9] in sockets or line[9] == "0"}


@asynccontextmanager
async def _place(folder: Path) -> AsyncIterator[tuple[Mock, Path]]:
    async with mock() as provider:
        file = folder / "penstock.toml"
        file.write_text(
            '[server]\nlog = "off"\n[ledger]\njournal = 1000000\n'
            f'[providers.mock]\nbase_url = "{provider.url}"\napi_key = "of-no-use-to-anybody"\n'
            '[prices."mock/*"]\ninput = 1.0\noutput = 2.0\n'
        )
        yield provider, file


async def _reckon(file: Path, provider: Mock, load: Load, rounds: int) -> KillCounts:
    """Start once more, so that everything is recovered; stop; and compare the book with what was observed."""
    gateway = await Process.start(file)
    await gateway.listens()
    assert await gateway.stop() == 0
    book = BookReader(file.parent / "state")
    book.check_sums()
    counts = KillCounts(rounds=rounds, calls=len(load.begun), seen=len(load.seen))
    if book.journals():
        counts.lost.append("a journal is left")
    booked: dict[str, list[Entry]] = {}
    for entry in book.entries():
        booked.setdefault(entry.model.removeprefix("mock/"), []).append(entry)
    counts.booked = len(booked)
    for model in load.begun | provider.asked.keys() | booked.keys():
        counts.lost += _what_is_wrong(model, booked.get(model, []), provider, load)
    counts.orphans = sum(entries[0].outcome == "orphaned" for entries in booked.values())
    return counts


def _what_is_wrong(model: str, entries: list[Entry], provider: Mock, load: Load) -> list[str]:
    if len(entries) > 1:
        return [f"{model} is booked {len(entries)} times"]
    if not entries:
        return [f"{model} is not booked"] if model in load.seen or model in provider.asked else []
    (entry,) = entries
    if provider.asked.get(model, 0) > 1:
        return [f"{model} was asked twice"]
    tokens, (attempt,) = entry.tokens, entry.attempts
    exact = (attempt.measure, tokens.input, tokens.output) == ("reported", INPUT, tokens_of(model))
    if entry.outcome == "completed":
        return [] if exact else [f"{model} is booked with {tokens}"]
    if model in load.seen:
        return [f"{model} was seen to its end, and is booked as {entry.outcome}"]
    expected = "cancelled" if model in load.left else "orphaned"
    if entry.outcome not in (expected, "orphaned"):
        return [f"{model} is booked as {entry.outcome}"]
    if attempt.measure == "void" and entry.outcome == "cancelled" and model not in provider.asked:
        return []  # its client left before anybody was asked
    if attempt.measure == "void" or attempt.cost is None or tokens.output > 2 * tokens_of(model) + 2:
        return [f"{model} is estimated as {attempt}"]
    return []

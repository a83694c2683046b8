"""Codex over WebSocket: it announces its requests, continues its responses on the connection, and runs tools."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from tests.faults.dialects import CHAT
from tests.faults.upstream import JSON, ByRequest, Script, Turns, chunk, fin, hang, head, status
from tests.judges.answers import streamed
from tests.judges.codex.program import Codex
from tests.judges.packages import codex
from tests.judges.responses.answers import ANSWERS, PROVIDERS, calls, says
from tests.judges.responses.bench import Bench, opened

TEXT = "Hello, wörld 🌞"
SECRET = "The harbour opens at BLUE-HERON o'clock."
OVER_WEBSOCKET = {"via": "websocket"}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    codex()  # nothing is started where it is not installed
    with opened(tmp_path_factory.mktemp("gateway")) as bench:
        yield bench
        bench.is_at_rest()


@pytest.fixture(scope="module")
def program(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Codex:
    program = Codex(codex(), tmp_path_factory.mktemp("codex"), bench.base_url)
    (program.folder / "note.txt").write_text(SECRET)
    return program


def seen(bench: Bench, model: str, count: int) -> list[tuple[int, str]]:
    """The number of attempts, and the ending, of the calls for a model, all of them over WebSocket."""
    bench.gateway.until(lambda: sum(line["model"] == model for line in bench.gateway.calls) >= count)
    lines = [line for line in bench.gateway.calls if line["model"] == model]
    for line in lines:
        assert bench.gateway.book.entry(line["request_id"]).tags.items() >= OVER_WEBSOCKET.items()
    return [(len(line["attempts"]), line["ending"]) for line in lines]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_text(bench: Bench, program: Codex, provider: str) -> None:
    model = bench.play(provider, streamed(ANSWERS["text"].wires[provider]))
    outcome = program.ask("Say hello.", model, supports_websockets=True)
    assert (outcome.answers, outcome.errors, outcome.tokens) == ([TEXT], [], (20, 8, 5))
    assert seen(bench, model, 2) == [(0, "completed"), (1, "completed")]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_two_commands_are_run_and_answered_from(bench: Bench, program: Codex, provider: str) -> None:
    made = [("call_note", "cat note.txt"), ("call_ls", "ls note.txt")]
    wire = calls(provider, *((id, "exec_command", json.dumps({"cmd": command})) for id, command in made))

    def choose(body: Any) -> Script:
        conversation = json.dumps(body)
        results = [result in conversation for result in ("BLUE-HERON", "call_ls")]
        return streamed(says(provider, "I have seen it.") if all(results) else wire)

    model = f"{provider}/{bench.upstream.play([ByRequest(choose)])}"
    outcome = program.ask("When does the harbour open?", model, supports_websockets=True)
    assert (outcome.answers, outcome.errors) == (["I have seen it."], [])
    assert sorted(item["exit_code"] for item in outcome.items if item["type"] == "command_execution") == [0, 0]
    assert seen(bench, model, 3) == [(0, "completed"), (1, "completed"), (1, "completed")]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_response_that_is_cut_is_asked_for_again(bench: Bench, program: Codex, provider: str) -> None:
    whole = ANSWERS["text"].wires[provider]
    cut: list[Any] = [head(), chunk(whole[: len(whole) // 2]), fin()]
    model = f"{provider}/{bench.upstream.play([Turns(cut, streamed(whole))])}"
    outcome = program.ask("Say hello.", model, supports_websockets=True)
    assert outcome.answers[-1] == TEXT
    endings = seen(bench, model, 3)
    assert (1, "completed") in endings
    assert any(ending in ("truncated", "failed") for _, ending in endings)


@pytest.mark.parametrize("name", ["Penstock", "OpenAI"])
def test_a_long_conversation_is_compacted_and_goes_on(bench: Bench, program: Codex, name: str) -> None:
    """By a request for a summary; or, as Codex asks a provider that it takes for OpenAI, by a `compaction_trigger`."""
    call = calls("main", ("call_note", "exec_command", json.dumps({"cmd": "cat note.txt"})))

    def choose(body: Any) -> Script:
        conversation = json.dumps(body)
        if "Write a summary" in conversation or "CONTEXT CHECKPOINT COMPACTION" in conversation:
            summary = "It is BLUE-HERON." if "opens at BLUE-HERON" in conversation else "No note."
            if "Write a summary" in conversation:
                return [status(200, JSON, CHAT.body(summary))]
            return streamed(says("main", summary))
        return streamed(says("main", "I know.") if "It is BLUE-HERON." in conversation else call)

    model = f"main/{bench.upstream.play([ByRequest(choose)])}"
    limit = ("--config", "model_auto_compact_token_limit=10")
    outcome = program.ask("When does it open?", model, *limit, name=name, supports_websockets=True)
    assert (outcome.answers, outcome.errors) == (["I know."], [])
    asked = [ending for attempts, ending in seen(bench, model, 3) if attempts]
    assert asked == ["completed"] * 3


def test_a_connection_that_is_cut_is_opened_again(bench: Bench, program: Codex) -> None:
    """The connection breaks in the middle of the first response: Codex connects again, and asks again."""
    whole = ANSWERS["text"].wires["main"]
    model = f"main/{bench.upstream.play([Turns([head(), chunk(whole[: len(whole) // 2]), hang()], streamed(whole))])}"
    with CutOnce(bench.gateway.port, after=b"response.output_text.delta") as cut:
        outcome = program.ask("Say hello.", model, base_url=f"http://127.0.0.1:{cut.port}/v1", supports_websockets=True)
    assert outcome.answers[-1] == TEXT
    endings = seen(bench, model, 3)
    assert (1, "cancelled") in endings
    assert (1, "completed") in endings


class CutOnce:
    """Forwards connections to a port of this machine, and cuts the first one that gets these bytes."""

    def __init__(self, port: int, after: bytes) -> None:
        self._target, self._after, self._cut = port, after, False
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for each in (self._listener, *self._open):
            each.close()

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += (client, server)
                self._start(partial(self._forward, client, server))
                self._start(partial(self._forward, server, client))

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
                if self._after in data and not self._cut:
                    self._cut = True
                    break
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def test_it_uses_http_at_once_where_the_operator_turns_websockets_off(tmp_path: Path) -> None:
    codex()
    (folder := tmp_path / "gateway").mkdir()
    with opened(folder, server={"websocket": False}) as bench:
        program = Codex(codex(), tmp_path / "codex", bench.base_url)
        model = bench.play("main", streamed(ANSWERS["text"].wires["main"]))
        outcome = program.ask("Say hello.", model, supports_websockets=True)
        assert (outcome.answers, outcome.errors) == ([TEXT], [])
        assert len(bench.requests(model)) == 1

"""Codex over WebSocket: it announces its requests, continues its responses on the connection, and runs tools."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.upstream import ByRequest, Script, Turns, chunk, fin, head
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


def test_it_uses_http_at_once_where_the_operator_turns_websockets_off(tmp_path: Path) -> None:
    codex()
    (folder := tmp_path / "gateway").mkdir()
    with opened(folder, server={"websocket": False}) as bench:
        program = Codex(codex(), tmp_path / "codex", bench.base_url)
        model = bench.play("main", streamed(ANSWERS["text"].wires["main"]))
        outcome = program.ask("Say hello.", model, supports_websockets=True)
        assert (outcome.answers, outcome.errors) == ([TEXT], [])
        assert len(bench.requests(model)) == 1

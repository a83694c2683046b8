"""gemini-cli asks a chat provider, Claude and a Gemini provider through the gateway, and works with all of them.

A provider calls `read_file` until it has the results, and then says whether it has seen them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import gemini as gem
from tests.faults.gateway import Gateway
from tests.faults.upstream import JSON, ByRequest, Upstream, status
from tests.judges.answers import chat, claude, streamed
from tests.judges.cases import ROOT
from tests.judges.gemini.asks import ANSWERS, PROVIDERS
from tests.judges.gemini.bench import Bench, opened
from tests.judges.gemini_cli.program import GeminiCli
from tests.judges.packages import gemini_cli
from tests.messages import calls_all, says_all
from tests.replay.support import keep
from tests.streams import by_event, calls, piece
from tests.streams import says as chat_says

PAGE = (ROOT / "docs/gemini.md").read_text(encoding="utf-8")
TEXT = ANSWERS["text"].text
SECRETS = {"note.txt": "The harbour opens at BLUE-HERON o'clock.", "tide.txt": "High tide is at GREY-SEAL."}
RECORDED = {"text": gem.HEALTHY["text"], "thoughts": gem.HEALTHY["thoughts"]}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    gemini_cli()  # nothing is started where it is not installed
    folder = tmp_path_factory.mktemp("captures")
    for name, data in RECORDED.items():
        keep(folder / f"{name}.capture", *by_event(data), model=name)
    recorded = {"replay": str(folder), "dialect": "gemini"}
    with opened(tmp_path_factory.mktemp("gateway"), **{"providers.recorded": recorded}) as bench:
        yield bench
        bench.is_at_rest()


@pytest.fixture(scope="module")
def program(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> GeminiCli:
    program = GeminiCli(gemini_cli(), tmp_path_factory.mktemp("gemini-cli"), bench.base_url)
    for name, text in SECRETS.items():
        (program.folder / name).write_text(text)
    return program


@pytest.mark.parametrize("provider", PROVIDERS)
def test_text(bench: Bench, program: GeminiCli, provider: str) -> None:
    model = bench.play(provider, streamed(ANSWERS["text"].wires[provider]))
    outcome = program.ask("Say hello.", model)
    assert (outcome.response, outcome.error) == (TEXT, "")
    ((_, tokens),) = outcome.tokens.items()
    assert (tokens["prompt"], tokens["cached"], tokens["candidates"]) == (20, 8, 5)
    assert len(bench.requests(model)) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_two_files_are_read_by_its_tool_and_answered_from(bench: Bench, program: GeminiCli, provider: str) -> None:
    def choose(body: Any) -> Any:
        conversation = json.dumps(body)
        if not any(mark in conversation for mark in ('"tool_call_id"', '"tool_result"', '"functionResponse"')):
            return streamed(READS[provider])
        seen = all(word in conversation for word in ("BLUE-HERON", "GREY-SEAL"))
        return streamed(SAYS[provider]("I have seen both." if seen else f"I have not: {conversation[-2_000:]}"))

    outcome = program.ask("When does the harbour open?", bench.play(provider, [ByRequest(choose)]))
    assert (outcome.response, outcome.error) == ("I have seen both.", "")
    assert outcome.tools == {"read_file": 2}


FILES = [json.dumps({"file_path": name}) for name in SECRETS]
READS = {
    "main": chat(
        *(calls(piece(n, f"call_{n}", "read_file", text)) for n, text in enumerate(FILES)), finish="tool_calls"
    ),
    "claude": claude(
        *(event for n, text in enumerate(FILES) for event in calls_all(text, n, id=f"call_{n}", name="read_file")),
        reason="tool_use",
    ),
    "gem": gem.answer(
        gem.message(*(gem.calls("read_file", json.loads(text), thoughtSignature="c2VhbA==") for text in FILES))
    ),
}
SAYS = {
    "main": lambda text: chat(chat_says(text)),
    "claude": lambda text: claude(*says_all(text)),
    "gem": lambda text: gem.answer(gem.says(text)),
}


@pytest.mark.parametrize("name", RECORDED)
def test_captures_are_answers(program: GeminiCli, name: str) -> None:
    outcome = program.ask("Say something.", f"recorded/{name}")
    assert (outcome.response, outcome.error) == (gem.completion(RECORDED[name]).text, "")


@pytest.mark.parametrize("provider", ["main", "gem"])
def test_a_refusal_of_the_provider_is_shown(bench: Bench, program: GeminiCli, provider: str) -> None:
    body = {"error": {"code": 400, "message": "no such effort", "status": "INVALID_ARGUMENT"}}
    model = bench.play(provider, [status(400, JSON, json.dumps(body).encode())])
    outcome = program.ask("Say hello.", model)
    assert "no such effort" in outcome.error
    assert len(bench.requests(model)) == 1


def test_the_configuration_of_the_page(bench: Bench, tmp_path: Path) -> None:  # noqa: ARG001 - skips as others do
    """With its routes every model that the program selects is answered by one model, without a key."""
    (configuration, *_) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (commands,) = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert re.findall(r"(\w+)=\S+ penstock serve", commands) == ["GROQ_API_KEY"]
    ((address, key),) = re.findall(r"GOOGLE_GEMINI_BASE_URL=(\S+) GEMINI_API_KEY=(\S+) gemini$", commands, re.MULTILINE)
    assert address == "http://127.0.0.1:8080"

    def choose(body: Any) -> Any:
        """First it asks a small model, which should answer in JSON, which model should answer."""
        chosen = chat(chat_says('{"reasoning": "A greeting.", "model_choice": "flash"}'))
        return streamed(chosen if "response_format" in body else ANSWERS["text"].wires["main"])

    with Upstream() as upstream:
        upstream.play([ByRequest(choose)], "openai/gpt-oss-120b")
        provider = f'[server]\nlog = "json"\n[providers.groq]\nbase_url = "{upstream.url}"\n'
        environment = {"GROQ_API_KEY": "gsk-of-the-page-0123456789"}
        with Gateway(tmp_path, upstream, provider + configuration, environment=environment) as gateway:
            program = GeminiCli(gemini_cli(), tmp_path / "cli", f"http://127.0.0.1:{gateway.port}", key)
            outcome = program.ask("Say hello.")
        assert (outcome.response, outcome.error) == (TEXT, "")
        assert len(upstream.requests("openai/gpt-oss-120b")) == 2

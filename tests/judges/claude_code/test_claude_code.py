"""Claude Code uses a chat provider and Claude through the gateway, and works with both.

The provider's answer depends on the request: it calls `Read` twice until it has the results, and then quotes them. How
Claude Code handles a failure is not tested. Tested is that it gets an answer, and that the ledger has an entry for each
request that a provider got, with the tokens of that request.
"""

import base64
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.gateway.record.entry import Entry
from tests.corpus import CORPUS, captures
from tests.faults.gateway import Gateway
from tests.faults.upstream import (
    EVENT_STREAM,
    JSON,
    ByRequest,
    Op,
    Script,
    Turns,
    Upstream,
    chunk,
    fin,
    head,
    last_chunk,
    sleep,
    status,
)
from tests.judges.answers import ANSWERS, CLAUDE_BEGINS, PIXEL, chat, claude, streamed
from tests.judges.cases import ROOT
from tests.judges.claude_code.program import ClaudeCode
from tests.judges.messages.bench import PROVIDERS, Bench, opened
from tests.judges.packages import claude_code
from tests.messages import HEALTHY, Json, calls_all, completion, error, opens, says, says_all, wire
from tests.promptness import Late, prompt
from tests.replay.support import keep
from tests.streams import begins as chat_begins
from tests.streams import by_event, calls, piece, sse
from tests.streams import says as chat_says

TEXT = "Hello, wörld 🌞"
SECRET = "The harbour opens at BLUE-HERON o'clock."
TOKENS = (12, 5, 8)
RECORDED = {name.replace(" ", "-"): HEALTHY[name] for name in ("padded text", "thinking")}
HELLO = {"main": sse(chat_begins(), chat_says("Hello")), "claude": wire(CLAUDE_BEGINS, opens(), says("Hello"))}
FAILURES = {"main": sse({"error": {"message": "Overloaded", "code": "overloaded"}}), "claude": wire(error())}
HEARTBEAT_S = 0.1
SILENCE_S = 0.8
# How long a provider is silent before it answers: longer than Claude Code waits for a response with this setting.
LONG_SILENCE_S = 3.0
WAITS = {"API_TIMEOUT_MS": "1500"}
# How many answers of the corpus are played; the first of those that have no tool calls.
SAMPLE = 3


def recordings() -> dict[str, bytes]:
    """Answers of Anthropic, as they were recorded: text and thinking only, because it would run any tool."""
    paths = [CORPUS / capture.file for capture in captures("anthropic") if capture.status == 200]
    data = {path.name: path.read_bytes() for path in paths[:: max(1, len(paths) // 60)]}
    plain = [
        name for name, sent in data.items() if b'"end_turn"' in sent and b"text_delta" in sent and b"tool" not in sent
    ]
    return {name: data[name] for name in plain[:SAMPLE]}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    # One pattern covers every model name that Claude Code sends.
    tables: dict[str, dict[str, object]] = {
        "server": {"heartbeat_s": HEARTBEAT_S},
        'routes."claude-*"': {"targets": ["main/*"]},
    }
    claude_code()  # nothing is started where it is not installed
    folder = tmp_path_factory.mktemp("captures")
    for name, data in (RECORDED | recordings()).items():
        keep(folder / f"{name}.capture", *by_event(data), model=name, gap_s=0.001)
    tables["providers.recorded"] = {"replay": str(folder), "dialect": "anthropic_messages"}
    with opened(tmp_path_factory.mktemp("gateway"), **tables) as bench:
        yield bench
        bench.is_at_rest()


@pytest.fixture(scope="module")
def program(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> ClaudeCode:
    program = ClaudeCode(claude_code(), tmp_path_factory.mktemp("claude-code"), bench.base_url)
    (program.folder / "note.txt").write_text(SECRET)
    (program.folder / "pixel.png").write_bytes(base64.b64decode(PIXEL))
    return program


@pytest.mark.parametrize("provider", PROVIDERS)
def test_text(bench: Bench, program: ClaudeCode, provider: str) -> None:
    model = bench.play(provider, streamed(ANSWERS["text"].wire(provider)))
    outcome = program.ask("Say hello.", model)
    assert (outcome.result, outcome.failed, outcome.tokens) == (TEXT, False, TOKENS)
    (request,) = bench.requests(model)
    assert request["stream"] is True
    (entry,) = booked(bench, model, 1)
    assert (entry.outcome, entry.tokens.input, entry.tokens.output) == ("completed", 20, 5)


def test_thinking(bench: Bench, program: ClaudeCode) -> None:
    model = bench.play("main", streamed(ANSWERS["thinking"].chat))
    outcome = program.ask("What is six times seven?", model)
    assert (outcome.result, outcome.failed) == ("42", False)
    thoughts = [block for step in outcome.steps for block in content_of(step) if block["type"] == "thinking"]
    assert [block["thinking"] for block in thoughts] == ["Let me see."]


def test_captures_are_answers(program: ClaudeCode) -> None:
    """Those of the tests, and some of the corpus, where that is at hand."""
    for name, data in (RECORDED | recordings()).items():
        outcome = program.ask("Say something.", f"recorded/{name}")
        meant = completion(data)
        assert (outcome.failed, outcome.result.strip()) == (False, meant.text.strip()), name
        thoughts = [block["thinking"] for step in outcome.steps for block in content_of(step) if "thinking" in block]
        assert "".join(thoughts) == meant.choices[0].reasoning, name
        assert meant.usage is not None
        assert outcome.tokens[1] == meant.usage.output, name


def test_every_model_name_reaches_a_chat_provider_by_one_pattern(bench: Bench, program: ClaudeCode) -> None:
    for alias in ("opus", "sonnet", "haiku"):
        model = bench.upstream.play(streamed(ANSWERS["text"].chat), f"claude-{alias}-judged")
        environment = {f"ANTHROPIC_DEFAULT_{alias.upper()}_MODEL": model}
        assert program.ask("Say hello.", alias, environment).result == TEXT
        assert len(bench.upstream.requests(model)) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_file_and_an_image_are_read_by_two_parallel_tools_and_answered_from(
    bench: Bench, program: ClaudeCode, provider: str
) -> None:
    model = bench.play(provider, [ByRequest(lambda body: reads_two_files(provider, program, body))])
    outcome = program.ask("When does the harbour open, and what is in pixel.png?", model)
    assert (outcome.result, outcome.failed) == (f"It says: {SECRET}", False)
    first, second = bench.requests(model)
    if provider == "claude":
        blocks = [block for message in second["messages"] for block in message["content"] if "tool_use_id" in block]
        results = {block["tool_use_id"]: block["content"] for block in blocks}
        assert [block["type"] for block in results["call_image"]] == ["image"]
    else:
        results = {message["tool_call_id"]: message for message in second["messages"] if message["role"] == "tool"}
        assert "data:image/png;base64," in json.dumps(second["messages"])
    assert results.keys() == {"call_note", "call_image"}
    assert "BLUE-HERON" not in json.dumps(first)
    entries = booked(bench, model, 2)
    assert [entry.outcome for entry in entries] == ["completed", "completed"]


def reads_two_files(provider: str, program: ClaudeCode, body: Any) -> Script:
    """Call `Read` for both files; with their results, quote the note."""
    conversation = json.dumps(body["messages"])
    if '"call_note"' in conversation:
        text = f"It says: {SECRET}" if "BLUE-HERON" in conversation else "I have not seen it."
        return streamed(chat(chat_says(text)) if provider == "main" else claude(*says_all(text)))
    note, image = (json.dumps({"file_path": str(program.folder / name)}) for name in ("note.txt", "pixel.png"))
    if provider == "main":
        parts = [piece(0, "call_note", "Read", note), piece(1, "call_image", "Read", image)]
        return streamed(chat(*(calls(part) for part in parts), finish="tool_calls"))
    blocks = calls_all(note, 0, id="call_note", name="Read") + calls_all(image, 1, id="call_image", name="Read")
    return streamed(claude(*blocks, reason="tool_use"))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_tokens_are_counted_and_not_billed(bench: Bench, program: ClaudeCode, provider: str) -> None:
    model = bench.play(provider, [status(200, JSON, b'{"input_tokens": 4321}')])
    outcome = program.ask("/context", model)
    assert not outcome.failed
    assert ("4.3k" in outcome.result) == (provider == "claude")
    counted = bench.upstream.requests(model.partition("/")[2])
    assert len(counted) >= 5 if provider == "claude" else not counted
    assert all(b"/messages/count_tokens" in request.partition(b"\r\n")[0] for request in counted)
    assert booked(bench, model, 0) == []


@pytest.mark.parametrize(
    ("provider", "refused", "words"),
    [
        ("claude", "context_management", "context_management: Extra inputs are not permitted"),
        ("main", "system", "role 'system' is not supported in the middle of a conversation"),
    ],
)
def test_a_400_that_it_recovers_from(
    bench: Bench, program: ClaudeCode, provider: str, refused: str, words: str
) -> None:
    """The provider's message reaches it unchanged, because Claude Code decides by it what to leave out."""
    details: Json = {"type": "invalid_request_error", "message": words}
    refusal = {"type": "error", "error": details} if provider == "claude" else {"error": details}

    def choose(body: Any) -> Script:
        roles = [message["role"] for message in body["messages"]]
        if refused in body or refused in roles[1:]:
            return [status(400, JSON, json.dumps(refusal).encode())]
        return streamed(ANSWERS["text"].wire(provider))

    model = bench.play(provider, [ByRequest(choose)])
    outcome = program.ask("Say hello.", model)
    assert (outcome.result, outcome.failed) == (TEXT, False)
    entries = booked(bench, model, len(bench.requests(model)))
    assert [entry.status for entry in entries] == [400] * (len(entries) - 1) + [200]
    assert [entry.tokens.output for entry in entries] == [0] * (len(entries) - 1) + [5]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_tool_that_it_loads_later_can_be_called(bench: Bench, program: ClaudeCode, provider: str) -> None:
    """It finds a tool by a tool of its own, whose result is a reference that only Anthropic's API has."""
    query = '{"query":"select:WebFetch"}'

    def choose(body: Any) -> Script:
        if '"call_search"' in json.dumps(body["messages"]):
            return streamed(ANSWERS["text"].wire(provider))
        if provider == "main":
            return streamed(chat(calls(piece(0, "call_search", "ToolSearch", query)), finish="tool_calls"))
        return streamed(claude(*calls_all(query, 0, id="call_search", name="ToolSearch"), reason="tool_use"))

    model = bench.play(provider, [ByRequest(choose)])
    assert program.ask("Say hello.", model).result == TEXT
    first, second = ([tool_name(tool) for tool in request["tools"]] for request in bench.requests(model))
    assert "WebFetch" not in first
    assert "WebFetch" in second
    assert "WebFetch" in json.dumps(bench.requests(model)[1]["messages"][-1])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_prompt_that_is_too_long_is_known_as_such(bench: Bench, program: ClaudeCode, provider: str) -> None:
    words = {
        "main": "This model's maximum context length is 128000 tokens. However, you requested 130000 tokens.",
        "claude": "prompt is too long: 210000 tokens > 200000 maximum",
    }[provider]
    refusal = error(words, "invalid_request_error") if provider == "claude" else {"error": {"message": words}}
    model = bench.play(provider, [status(400, JSON, json.dumps(refusal).encode())])
    outcome = program.ask("Say hello.", model)
    assert outcome.failed
    assert outcome.result.startswith("Prompt is too long")
    assert len(bench.requests(model)) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_busy_provider_is_asked_again_after_its_retry_after(bench: Bench, program: ClaudeCode, provider: str) -> None:
    busy = status(429, JSON | {"retry-after": "1"}, b'{"error": {"message": "slow down", "type": "rate_limit_error"}}')
    model = bench.play(provider, [Turns([busy], streamed(ANSWERS["text"].wire(provider)))])
    begun = time.monotonic()
    outcome = program.ask("Say hello.", model)
    assert (outcome.result, outcome.failed) == (TEXT, False)
    assert time.monotonic() - begun >= 1.0
    limited, completed = booked(bench, model, 2)
    assert (limited.status, limited.tokens.output, completed.tokens.output) == (429, 0, 5)


@pytest.mark.parametrize("fault", ["an error event", "a closed connection"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_after_a_fault_in_the_stream_it_asks_once_more_and_both_are_booked(
    bench: Bench, program: ClaudeCode, provider: str, fault: str
) -> None:
    ends: list[Op] = [fin()] if fault == "a closed connection" else [chunk(FAILURES[provider]), last_chunk()]
    broken = [head(), chunk(HELLO[provider]), *ends]
    model = bench.play(provider, [Turns(broken, streamed(ANSWERS["text"].wire(provider)))])
    outcome = program.ask("Say hello.", model)
    assert (outcome.result, outcome.failed) == (TEXT, False)
    first, second = bench.requests(model)
    assert (first["stream"], second.get("stream", False)) == (True, False)
    failed, completed = booked(bench, model, 2)
    assert failed.outcome == ("truncated" if fault == "a closed connection" else "failed")
    assert 1 <= failed.tokens.output <= 5  # what it had got: one word
    assert (completed.outcome, completed.tokens.input, completed.tokens.output) == ("completed", 20, 5)


@prompt
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_provider_that_is_silent_for_longer_than_it_waits_is_covered_by_heartbeats(
    bench: Bench, program: ClaudeCode, provider: str
) -> None:
    events = [event for event in by_event(ANSWERS["text"].wire(provider)) if event]
    slow: list[Op] = [head(200, EVENT_STREAM), chunk(b"".join(events[:3])), sleep(SILENCE_S)]
    model = bench.play(provider, [sleep(LONG_SILENCE_S), *slow, *map(chunk, events[3:]), last_chunk()])
    outcome = program.ask("Say hello.", model, WAITS)
    if len(bench.requests(model)) > 1:
        raise Late("it waited for a heartbeat for longer than it does, and asked again")
    assert (outcome.result, outcome.failed, outcome.tokens) == (TEXT, False, TOKENS)


def test_without_heartbeats_it_gives_up(tmp_path: Path, program: ClaudeCode) -> None:
    """Which shows that the test above has it wait for longer than it does."""
    with opened(tmp_path, server={"heartbeat_s": 60.0}) as bench:
        patient = program.at(bench.base_url)
        model = bench.play("main", [sleep(LONG_SILENCE_S), *streamed(ANSWERS["text"].chat)])
        outcome = patient.ask("Say hello.", model, {**WAITS, "CLAUDE_CODE_MAX_RETRIES": "0"})
        assert outcome.failed
        assert "timed out" in outcome.result
        bench.gateway.until(lambda: bench.gateway.calls)
        assert [line["ending"] for line in bench.gateway.calls] == ["cancelled"]


def test_the_page_works_as_it_is_written(tmp_path: Path, program: ClaudeCode) -> None:
    """With its configuration, its token, and whichever model it selects itself."""
    page = (ROOT / "docs/anthropic.md").read_text()
    configuration, *_ = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (token,) = re.findall(r"ANTHROPIC_AUTH_TOKEN=(\w+) claude$", page, re.MULTILINE)
    (model,) = re.findall(r'^targets = \["groq/(.*?)"\]$', configuration, re.MULTILINE)
    with Upstream() as upstream:
        text = f'[server]\nlog = "json"\n[providers.groq]\nbase_url = "{upstream.url}"\n{configuration}'
        with Gateway(tmp_path, upstream, text, environment={"GROQ_API_KEY": "a-key-of-the-page"}) as gateway:
            upstream.play(streamed(ANSWERS["text"].chat), model)
            outcome = program.at(f"http://127.0.0.1:{gateway.port}").ask("Hi", "", {"ANTHROPIC_AUTH_TOKEN": token})
    assert (outcome.result, outcome.failed) == (TEXT, False)


def content_of(step: Any) -> list[Any]:
    """The content blocks of an answer that the program printed."""
    return step["message"]["content"] if step["type"] == "assistant" else []


def tool_name(tool: Json) -> str:
    """The name of a tool, in either API."""
    return str(tool["function"]["name"] if "function" in tool else tool["name"])


def booked(bench: Bench, model: str, count: int) -> list[Entry]:
    """What the ledger has of the calls for a model, in order, once there are so many."""
    lines: list[Any] = []

    def logged() -> bool:
        lines[:] = [line for line in bench.gateway.calls if any(each["target"] == model for each in line["attempts"])]
        return len(lines) >= count

    bench.gateway.until(logged)
    assert len(lines) == count
    return [bench.gateway.book.entry(line["request_id"]) for line in lines]

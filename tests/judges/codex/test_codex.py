"""Codex asks a chat provider, Claude and a Responses provider through the gateway, and does not notice which answers.

Each provider calls tools until it has their results, and then quotes them. Codex has other tools for models that it
knows: it knows them by the beginning of the name, so a script's name selects the tools.
"""

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.gateway.record.entry import Entry
from tests import responses
from tests.faults.dialects import CHAT, MESSAGES, RESPONSES
from tests.faults.upstream import (
    EVENT_STREAM,
    JSON,
    ByRequest,
    Op,
    Script,
    Turns,
    chunk,
    fin,
    head,
    last_chunk,
    sleep,
    status,
)
from tests.judges.answers import PIXEL, streamed
from tests.judges.codex.program import Codex
from tests.judges.packages import codex
from tests.judges.responses.answers import ANSWERS, HELLO, PROVIDERS, calls, says, wire
from tests.judges.responses.bench import Bench, opened
from tests.messages import Json
from tests.messages import error as claude_error
from tests.messages import wire as claude_wire
from tests.promptness import Late, prompt
from tests.streams import by_event, sse

TEXT = "Hello, wörld 🌞"
SECRET = "The harbour opens at BLUE-HERON o'clock."
TOKENS = (20, 8, 5)
PATCH = "*** Begin Patch\n*** Add File: {name}\n+made by a patch\n*** End Patch\n"
SCHEMA: Json = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
WRITERS = {"main": CHAT, "claude": MESSAGES, "responses": RESPONSES}
HEARTBEAT_S = 0.2
IDLE_MS = 1_000
SILENCE_S = 2.5
OVERLOADED = {
    "main": sse({"error": {"message": "Overloaded", "code": "overloaded"}}),
    "claude": claude_wire(claude_error()),
    "responses": responses.named(responses.fails("Overloaded", "server_is_overloaded")),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    codex()  # nothing is started where it is not installed
    with opened(tmp_path_factory.mktemp("gateway"), server={"heartbeat_s": HEARTBEAT_S}) as bench:
        yield bench
        bench.is_at_rest()


@pytest.fixture(scope="module")
def program(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Codex:
    program = Codex(codex(), tmp_path_factory.mktemp("codex"), bench.base_url)
    (program.folder / "note.txt").write_text(SECRET)
    (program.folder / "pixel.png").write_bytes(base64.b64decode(PIXEL))
    (program.folder / "schema.json").write_text(json.dumps(SCHEMA))
    return program


@pytest.mark.parametrize("provider", PROVIDERS)
def test_text(bench: Bench, program: Codex, provider: str) -> None:
    model = bench.play(provider, streamed(ANSWERS["text"].wires[provider]))
    outcome = program.ask("Say hello.", model)
    assert (outcome.answers, outcome.errors, outcome.tokens) == ([TEXT], [], TOKENS)
    (entry,) = booked(bench, model, 1)
    assert (entry.outcome, entry.tokens.input, entry.tokens.output) == ("completed", 20, 5)
    assert entry.tags.keys() == {"session"}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_reasoning_is_shown(bench: Bench, program: Codex, provider: str) -> None:
    outcome = program.ask("Think.", bench.play(provider, streamed(ANSWERS["thinking"].wires[provider])))
    assert (outcome.answers, outcome.errors) == (["42"], [])
    assert [item["text"] for item in outcome.items if item["type"] == "reasoning"] == ["Let me see."]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_two_commands_are_run_and_answered_from(bench: Bench, program: Codex, provider: str) -> None:
    made = [("call_note", "cat note.txt"), ("call_ls", "ls pixel.png")]
    wire = calls(provider, *((id, "exec_command", json.dumps({"cmd": command})) for id, command in made))
    model = tool_model(bench, provider, wire, "BLUE-HERON", "pixel.png")
    outcome = program.ask("When does the harbour open?", model)
    assert (outcome.answers, outcome.errors) == (["I have seen it."], [])
    assert sorted(item["exit_code"] for item in outcome.items if item["type"] == "command_execution") == [0, 0]
    assert [entry.outcome for entry in booked(bench, model, 2)] == ["completed", "completed"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_custom_tool_is_called_with_plain_text(bench: Bench, program: Codex, provider: str) -> None:
    """A patch, which is no JSON: other APIs than Responses have it as the one argument of a function."""
    patch = PATCH.format(name=f"{provider}.txt")
    wire = custom_call(provider, "apply_patch", patch)
    model = tool_model(bench, provider, wire, "Success. Updated the following files", name=f"gpt-5.5-{provider}")
    outcome = program.ask("Make a file.", model)
    assert (outcome.answers, outcome.errors) == (["I have seen it."], [])
    assert (program.folder / f"{provider}.txt").read_text() == "made by a patch\n"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_tool_of_a_namespace_is_called(bench: Bench, program: Codex, provider: str) -> None:
    made = ("call_close", "multi_agent_v1__close_agent", '{"target":"nobody"}')
    wire = calls(provider, made)
    if provider == "responses":
        event: Json = {"call_id": made[0], "name": "close_agent", "namespace": "multi_agent_v1"}
        wire = of_responses(responses.calls_all(made[2], **event))
    model = tool_model(bench, provider, wire, "invalid agent id nobody")  # which only the tool itself says
    outcome = program.ask("Close the agent.", model)
    assert (outcome.answers, outcome.errors) == (["I have seen it."], [])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_custom_tool_of_a_namespace_that_an_item_adds(bench: Bench, program: Codex, provider: str) -> None:
    """The newest models get no `tools`: the first item of the input has them, in namespaces."""
    script = 'text(await tools.exec_command({cmd: "cat note.txt"}))'
    name = "exec" if provider == "responses" else "functions__exec"
    wire = custom_call(provider, name, script, namespace="functions")
    model = tool_model(bench, provider, wire, "BLUE-HERON", name=f"gpt-6.1-sol-{provider}")
    outcome = program.ask("When does the harbour open?", model)
    assert (outcome.answers, outcome.errors) == (["I have seen it."], [])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_answer_has_the_fields_of_a_schema(bench: Bench, program: Codex, provider: str) -> None:
    model = bench.play(provider, streamed(says(provider, '{"answer":"noon"}')))
    outcome = program.ask("When does it open?", model, "--output-schema", "schema.json")
    assert (outcome.answers, outcome.errors) == (['{"answer":"noon"}'], [])
    (request,) = bench.requests(model)
    asked = {
        "main": lambda: request["response_format"]["json_schema"]["schema"],
        "claude": lambda: request["output_config"]["format"]["schema"],
        "responses": lambda: request["text"]["format"]["schema"],
    }[provider]()
    assert asked == SCHEMA


@pytest.mark.parametrize("provider", PROVIDERS)
def test_images_are_seen_in_the_prompt_and_in_a_result(bench: Bench, program: Codex, provider: str) -> None:
    image = json.dumps({"path": str(program.folder / "pixel.png")})
    model = tool_model(bench, provider, calls(provider, ("call_view", "view_image", image)), PIXEL)
    outcome = program.ask("What is this?", model, "--image", "pixel.png")
    assert (outcome.answers, outcome.errors) == (["I have seen it."], [])
    first, second = (json.dumps(request).count(PIXEL) for request in bench.requests(model))
    assert (first, second) == (1, 2)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_overloaded_provider_is_asked_again(bench: Bench, program: Codex, provider: str) -> None:
    """Before the first word by a status, which Codex repeats by itself; after it by an event."""
    busy = status(503, JSON, b'{"error": {"message": "Overloaded", "type": "overloaded_error"}}')
    early = bench.play(provider, [Turns([busy], answers_text(provider))])
    outcome = program.ask("Say hello.", early)
    assert (outcome.answers, outcome.errors) == ([TEXT], [])
    broken = [head(), chunk(HELLO[provider]), chunk(OVERLOADED[provider]), last_chunk()]
    late = bench.play(provider, [Turns(broken, answers_text(provider))])
    outcome = program.ask("Say hello.", late)
    assert outcome.answers[-1] == TEXT
    assert "verloaded" in "".join(outcome.errors)
    assert [entry.outcome for entry in booked(bench, late, 2)] == ["failed", "completed"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_provider_that_stays_overloaded_is_reported(bench: Bench, program: Codex, provider: str) -> None:
    model = bench.play(provider, [status(503, JSON, b'{"error": {"message": "Overloaded"}}')])
    outcome = program.ask("Say hello.", model, request_max_retries=1)
    assert outcome.tokens is None
    assert outcome.errors == ["Selected model is at capacity. Please try a different model."]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_context_that_is_too_long_is_known_as_such(bench: Bench, program: Codex, provider: str) -> None:
    words = "This model's maximum context length is 128000 tokens. However, you requested 130000 tokens."
    details = {"message": words, "type": "invalid_request_error", "code": "context_length_exceeded"}
    refusal: Json = {"error": details}
    if provider == "claude":
        refusal = claude_error("prompt is too long: 210000 tokens > 200000 maximum", "invalid_request_error")
    model = bench.play(provider, [status(400, JSON, json.dumps(refusal).encode())])
    outcome = program.ask("Say hello.", model)
    assert [error.partition(".")[0] for error in outcome.errors] == [
        "Codex ran out of room in the model's context window"
    ]
    assert len(bench.requests(model)) == 1
    (entry,) = booked(bench, model, 1)
    assert (entry.outcome, entry.tokens.output) == ("failed", 0)


@pytest.mark.parametrize("fault", ["the end of the body", "a closed connection"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_after_a_stream_that_breaks_it_asks_once_more_and_both_are_booked(
    bench: Bench, program: Codex, provider: str, fault: str
) -> None:
    ends = fin() if fault == "a closed connection" else last_chunk()
    model = bench.play(provider, [Turns([head(), chunk(HELLO[provider]), ends], answers_text(provider))])
    outcome = program.ask("Say hello.", model)
    assert outcome.answers[-1] == TEXT
    assert len(outcome.errors) == 1
    assert "Reconnecting... 1/2" in outcome.errors[0]
    truncated, completed = booked(bench, model, 2)
    assert (truncated.outcome, completed.outcome) == ("truncated", "completed")
    assert 1 <= truncated.tokens.output <= 5  # what it had got: one word
    assert (completed.tokens.input, completed.tokens.output) == (20, 5)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_busy_provider_is_asked_again_after_its_retry_after(bench: Bench, program: Codex, provider: str) -> None:
    busy = status(429, JSON | {"retry-after": "1"}, b'{"error": {"message": "slow down", "type": "rate_limit_error"}}')
    model = bench.play(provider, [Turns([busy], answers_text(provider))])
    begun = time.monotonic()
    outcome = program.ask("Say hello.", model)
    assert outcome.answers == [TEXT]
    assert time.monotonic() - begun >= 1.0
    assert len(bench.requests(model)) == 2


def test_a_provider_s_refusal_is_shown_and_final(bench: Bench, program: Codex) -> None:
    model = bench.play("main", [status(400, JSON, b'{"error": {"message": "no such effort"}}')])
    outcome = program.ask("Say hello.", model)
    assert "no such effort" in outcome.errors[0]
    assert len(bench.requests(model)) == 1


REFUSED: dict[str, tuple[int, str]] = {
    "a wrong key": (401, "Incorrect API key provided"),
    "no access": (403, "Access denied"),
    "no credit": (402, "Insufficient credits"),
    "no such model": (404, "The model does not exist"),
}


@pytest.mark.parametrize(("code", "words"), REFUSED.values(), ids=REFUSED)
def test_a_failure_that_a_retry_cannot_help_is_shown_at_once(
    bench: Bench, program: Codex, code: int, words: str
) -> None:
    details = {"message": words} | ({"code": "model_not_found"} if code == 404 else {})
    model = bench.play("main", [status(code, JSON, json.dumps({"error": details}).encode())])
    outcome = program.ask("Say hello.", model)
    shown = f"the provider refused the gateway's credentials ({code})" if code in (401, 403) else words
    assert [shown in error for error in outcome.errors] == [True]
    assert len(bench.requests(model)) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_long_conversation_is_compacted_and_goes_on(bench: Bench, program: Codex, provider: str) -> None:
    """Between a call of a tool and the rest of the turn. Codex asks any provider but OpenAI for a summary itself."""
    call = calls(provider, ("call_note", "exec_command", json.dumps({"cmd": "cat note.txt"})))

    def choose(body: Any) -> Script:
        conversation = json.dumps(body)
        if "CONTEXT CHECKPOINT COMPACTION" in conversation:
            found = "opens at BLUE-HERON" in conversation
            return streamed(says(provider, "It is BLUE-HERON." if found else f"No note: {conversation[-2_000:]}"))
        if "It is BLUE-HERON." in conversation:
            return streamed(says(provider, "I know."))
        return streamed(call)

    model = f"{provider}/{bench.upstream.play([ByRequest(choose)])}"
    outcome = program.ask("When does it open?", model, "--config", "model_auto_compact_token_limit=10")
    assert (outcome.answers, outcome.errors) == (["I know."], [])
    assert [entry.outcome for entry in booked(bench, model, 3)] == ["completed"] * 3


@pytest.mark.parametrize("provider", PROVIDERS)
def test_it_asks_a_provider_that_it_takes_for_openai_to_compact(bench: Bench, program: Codex, provider: str) -> None:
    """By a `compaction_trigger`. It wants one compaction item, and sends that with the rest of the turn."""
    call = calls(provider, ("call_note", "exec_command", json.dumps({"cmd": "cat note.txt"})))

    def choose(body: Any) -> Script:
        conversation = json.dumps(body)
        if "Write a summary" in conversation:
            found = "opens at BLUE-HERON" in conversation
            summary = "It is BLUE-HERON." if found else f"No note: {conversation[-2_000:]}"
            return [status(200, JSON, WRITERS[provider].body(summary))]
        if "It is BLUE-HERON." in conversation:
            return streamed(says(provider, "I know."))
        return streamed(call)

    model = f"{provider}/{bench.upstream.play([ByRequest(choose)])}"
    limit = ("--config", "model_auto_compact_token_limit=10")
    outcome = program.ask("When does it open?", model, *limit, name="OpenAI")
    assert (outcome.answers, outcome.errors) == (["I know."], [])
    assert [entry.surface for entry in booked(bench, model, 3)] == ["responses", "compact", "responses"]


@prompt
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_silent_provider_is_covered_by_heartbeats(bench: Bench, program: Codex, provider: str) -> None:
    """It gives up where no event comes for a second; the provider is silent for longer, before its text and within."""
    events = [event for event in by_event(ANSWERS["text"].wires[provider]) if event]
    at = next(number for number, event in enumerate(events) if b"Hello" in event) + 1
    slow: list[Op] = [head(200, EVENT_STREAM), chunk(b"".join(events[:at])), sleep(SILENCE_S)]
    model = bench.play(provider, [sleep(SILENCE_S), *slow, *map(chunk, events[at:]), last_chunk()])
    outcome = program.ask("Say hello.", model, stream_idle_timeout_ms=IDLE_MS)
    if len(bench.requests(model)) > 1:
        raise Late("it waited for a heartbeat for longer than it does, and asked again")
    assert (outcome.answers, outcome.errors, outcome.tokens) == ([TEXT], [], TOKENS)


def answers_text(provider: str) -> list[Op]:
    """A provider that says the text."""
    return streamed(ANSWERS["text"].wires[provider])


def custom_call(provider: str, name: str, text: str, **fields: Any) -> bytes:
    """A call of a custom tool."""
    if provider == "responses":
        return of_responses(responses.asks_all(text, call_id="call_custom", name=name, **fields))
    return calls(provider, ("call_custom", name, json.dumps({"input": text})))


def of_responses(events: list[Json]) -> bytes:
    """A stream of Responses with these events."""
    return wire(*events)


def tool_model(bench: Bench, provider: str, wire: bytes, *results: str, name: str | None = None) -> str:
    """A model that calls tools, and says that it has seen the results where all of these are in the conversation."""

    def choose(body: Any) -> Script:
        conversation = json.dumps(body)
        if not any(mark in conversation for mark in RESULT_MARKS[provider]):
            return streamed(wire)
        found = all(result in conversation for result in results)
        return streamed(says(provider, "I have seen it." if found else f"I have not: {conversation[-2_000:]}"))

    return f"{provider}/{bench.upstream.play([ByRequest(choose)], name)}"


RESULT_MARKS = {
    "main": ['"tool_call_id"'],
    "claude": ['"tool_result"'],
    "responses": ['"function_call_output"', '"custom_tool_call_output"'],
}


def booked(bench: Bench, model: str, count: int) -> list[Entry]:
    """What the ledger has of the calls for a model, in order, once there are so many."""
    lines: list[Any] = []

    def logged() -> bool:
        lines[:] = [line for line in bench.gateway.calls if any(each["target"] == model for each in line["attempts"])]
        return len(lines) >= count

    bench.gateway.until(logged)
    assert len(lines) == count
    return [bench.gateway.book.entry(line["request_id"]) for line in lines]

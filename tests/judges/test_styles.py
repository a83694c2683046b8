"""The official `openai` package for Python reads every answer in every style, as an application would read it.

It adds up what the chunks say, takes the last finish reason and the last usage, and does not mind what comes twice. Two
styles it cannot read, and that is what they are there to show: a reseller's stream without blank lines is nothing to
it, and Mistral's thinking is a list where it promises text.
"""

from collections.abc import Iterator

import pytest
from msgspec import Struct
from openai import APIError, DefaultHttpxClient, OpenAI
from openai.types.chat import ChatCompletionChunk

from penstock import Choice, Completion, Event, ToolCall
from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.replay.styles import write_in_style
from penstock.replay.styles.catalog import load_style, style_names
from tests.judges.cases import BROKEN_EVENTS, COMPLETED_EVENTS
from tests.judges.openai_seen import QUESTION, reasoning_in
from tests.judges.server import StreamServer, serving
from tests.streams import fold, read

UNREADABLE = "reseller"
THINKS_IN_PARTS = "mistral"
# The package has no field for custom tools.
ANSWERS = {name: events for name, events in COMPLETED_EVENTS.items() if name != "a custom tool"}
FAILURES = {name: events for name, events in BROKEN_EVENTS.items() if fold(events).fault is not None}


class ReadChoice(Struct):
    """One choice, as an application adds it up."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    finish: str | None = None
    calls: dict[int, list[str]] = {}


@pytest.fixture(scope="module")
def server() -> Iterator[StreamServer]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def client(server: StreamServer) -> Iterator[OpenAI]:
    http_client = DefaultHttpxClient(trust_env=False)
    with OpenAI(api_key="none", base_url=server.base_url, max_retries=0, http_client=http_client) as client:
        yield client


@pytest.mark.parametrize("name", [name for name in style_names(DEFAULT_DIALECT) if name != UNREADABLE])
@pytest.mark.parametrize("events", ANSWERS.values(), ids=ANSWERS)
def test_reads_what_was_sent(server: StreamServer, client: OpenAI, events: list[Event], name: str) -> None:
    answer = fold(events)
    if name == THINKS_IN_PARTS and answer.choices[0].reasoning:
        pytest.skip("thinking as parts of the content is beyond the package")
    wire = b"".join(write_in_style(events, load_style(name)))
    chunks = ask(client, server.play(wire, 100))
    assert received(chunks) == {choice.index: of_choice(choice) for choice in answer.choices}
    assert tokens(chunks) == figures(fold(read(wire)))


@pytest.mark.parametrize("name", [name for name in style_names(DEFAULT_DIALECT) if name != UNREADABLE])
@pytest.mark.parametrize("events", FAILURES.values(), ids=FAILURES)
def test_reads_of_an_error(server: StreamServer, client: OpenAI, events: list[Event], name: str) -> None:
    wire = b"".join(write_in_style(events, load_style(name)))
    if '"error":' not in wire.decode():
        pytest.skip("the provider writes its errors flat, and the package takes them for a chunk")
    with pytest.raises(APIError):
        ask(client, server.play(wire))


def test_reads_nothing_of_a_reseller(server: StreamServer, client: OpenAI) -> None:
    wire = b"".join(write_in_style(COMPLETED_EVENTS["text"], load_style(UNREADABLE)))
    assert ask(client, server.play(wire)) == []


def test_promises_text_and_gives_a_list(server: StreamServer, client: OpenAI) -> None:
    wire = b"".join(write_in_style(COMPLETED_EVENTS["reasoning"], load_style(THINKS_IN_PARTS)))
    contents = [chunk.choices[0].delta.content for chunk in ask(client, server.play(wire))]
    assert any(isinstance(content, list) for content in contents)


def ask(client: OpenAI, model: str) -> list[ChatCompletionChunk]:
    with client.chat.completions.create(model=model, messages=QUESTION, stream=True) as stream:
        return list(stream)


def received(chunks: list[ChatCompletionChunk]) -> dict[int, ReadChoice]:
    found: dict[int, ReadChoice] = {}
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        sent_text, delta = found.setdefault(choice.index, ReadChoice()), choice.delta
        sent_text.text += delta.content or ""
        sent_text.reasoning += reasoning_in(delta.model_extra)
        sent_text.refusal += delta.refusal or ""
        sent_text.finish = choice.finish_reason or sent_text.finish
        for piece in delta.tool_calls or []:
            call = sent_text.calls.setdefault(piece.index, ["", ""])
            call[0] += (piece.function and piece.function.name) or ""
            call[1] += (piece.function and piece.function.arguments) or ""
        if delta.function_call:
            call = sent_text.calls.setdefault(0, ["", ""])
            call[0] += delta.function_call.name or ""
            call[1] += delta.function_call.arguments or ""
    return found


def of_choice(choice: Choice) -> ReadChoice:
    calls = {number: of_call(call) for number, call in enumerate(choice.tool_calls)}
    return ReadChoice(choice.text, choice.reasoning, choice.refusal, choice.finish_reason, calls)


def of_call(call: ToolCall) -> list[str]:
    return [call.name, call.arguments]


def tokens(chunks: list[ChatCompletionChunk]) -> tuple[int, int, int] | None:
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    last = usages[-1] if usages else None
    return (last.prompt_tokens, last.completion_tokens, last.total_tokens) if last else None


def figures(answer: Completion) -> tuple[int | None, int | None, int | None] | None:
    return (answer.usage.input, answer.usage.output, answer.usage.total) if answer.usage else None

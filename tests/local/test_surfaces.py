"""The local model, asked through each API that the gateway offers, with the official SDK of that API.

The answers are real ones. Each call is booked with the tokens that its client saw.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

import pytest
from anthropic import Anthropic
from anthropic import DefaultHttpxClient as AnthropicHttp
from anthropic.types import MessageParam, Usage

from tests.judges.bench import Judge
from tests.judges.gemini.bench import GEMINI
from tests.judges.messages.asks import Ask, Report
from tests.local.served import MODEL, Served, user

QUESTION = "Tell me about rivers."
QUESTIONS: list[MessageParam] = [{"role": "user", "content": QUESTION}]
MAX_TOKENS = 12


class Answer(NamedTuple):
    """What an SDK shows of a call: the id of its response, its text, and its tokens."""

    request_id: str
    text: str
    input: int
    output: int


def joined(texts: list[str]) -> str:
    """The text of a stream, which comes token by token."""
    assert len(texts) > 1
    return "".join(texts)


def chat(served: Served) -> Answer:
    raw = served.sdk.chat.completions.with_raw_response.create(
        model=MODEL, messages=user(QUESTION), max_completion_tokens=MAX_TOKENS
    )
    answer = raw.parse()
    assert answer.usage is not None
    text = answer.choices[0].message.content or ""
    return Answer(raw.headers["x-request-id"], text, answer.usage.prompt_tokens, answer.usage.completion_tokens)


def chat_streamed(served: Served) -> Answer:
    with served.sdk.chat.completions.create(
        model=MODEL,
        messages=user(QUESTION),
        max_completion_tokens=MAX_TOKENS,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        chunks = list(stream)
    usage = chunks[-1].usage
    assert usage is not None
    texts = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
    return Answer(stream.response.headers["x-request-id"], joined(texts), usage.prompt_tokens, usage.completion_tokens)


def responses(served: Served) -> Answer:
    raw = served.sdk.responses.with_raw_response.create(model=MODEL, input=QUESTION, max_output_tokens=MAX_TOKENS)
    answer = raw.parse()
    assert answer.usage is not None
    return Answer(
        raw.headers["x-request-id"], answer.output_text, answer.usage.input_tokens, answer.usage.output_tokens
    )


def responses_streamed(served: Served) -> Answer:
    with served.sdk.responses.create(model=MODEL, input=QUESTION, max_output_tokens=MAX_TOKENS, stream=True) as stream:
        events = list(stream)
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete")
    usage = last.response.usage
    assert usage is not None
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert joined(texts) == last.response.output_text
    return Answer(stream.response.headers["x-request-id"], joined(texts), usage.input_tokens, usage.output_tokens)


def anthropic(served: Served) -> Anthropic:
    url = f"http://127.0.0.1:{served.port}"
    return Anthropic(base_url=url, api_key="none", max_retries=0, http_client=AnthropicHttp(trust_env=False))


def messages(served: Served) -> Answer:
    with anthropic(served) as sdk:
        raw = sdk.messages.with_raw_response.create(model=MODEL, messages=QUESTIONS, max_tokens=MAX_TOKENS)
        answer = raw.parse()
    (text,) = [block.text for block in answer.content if block.type == "text"]
    return Answer(raw.headers["x-request-id"], text, input_of(answer.usage), answer.usage.output_tokens)


def messages_streamed(served: Served) -> Answer:
    with (
        anthropic(served) as sdk,
        sdk.messages.stream(model=MODEL, messages=QUESTIONS, max_tokens=MAX_TOKENS) as stream,
    ):
        texts = list(stream.text_stream)
        usage = stream.get_final_message().usage
    return Answer(stream.response.headers["x-request-id"], joined(texts), input_of(usage), usage.output_tokens)


def input_of(usage: Usage) -> int:
    """All tokens of the prompt: this API counts those that the model has in its cache apart."""
    return usage.input_tokens + (usage.cache_read_input_tokens or 0)


def check(served: Served, answer: Answer, *, stream: bool) -> None:
    """The client got text, and the call is booked as the client saw it."""
    assert answer.text
    assert answer.input > 10
    assert 0 < answer.output <= MAX_TOKENS
    entry = served.book.entry(answer.request_id)
    assert (entry.outcome, entry.status, entry.stream) == ("completed", 200, stream)
    assert (entry.tokens.input, entry.tokens.output) == (answer.input, answer.output)
    (attempt,) = entry.attempts
    assert (f"{attempt.provider}/{attempt.model}", attempt.measure) == (MODEL, "reported")


@pytest.mark.parametrize("ask", [chat, responses, messages])
def test_an_answer_is_booked_as_its_client_sees_it(shared: Served, ask: Callable[[Served], Answer]) -> None:
    check(shared, ask(shared), stream=False)


@pytest.mark.parametrize("ask", [chat_streamed, responses_streamed, messages_streamed])
def test_a_stream_is_booked_as_its_client_sees_it(shared: Served, ask: Callable[[Served], Answer]) -> None:
    check(shared, ask(shared), stream=True)


@pytest.fixture(scope="module")
def google() -> Iterator[Judge[Ask, Report]]:
    """Google's SDK, which has an environment of its own."""
    with closing(GEMINI.clients["genai-python"]()) as judge:
        yield judge


@pytest.mark.parametrize("way", ["plain", "stream"])
def test_googles_client_is_answered_too(shared: Served, google: Judge[Ask, Report], way: str) -> None:
    ask = Ask(way=way, base_url=f"http://127.0.0.1:{shared.port}", key="none", model=MODEL, max_tokens=MAX_TOKENS)
    report = google.ask(ask)
    assert report.error is None
    (seen,) = report.turns
    assert seen.usage is not None
    assert report.sent_text == (seen.text if way == "stream" else "")
    prompt = seen.usage["input"] + seen.usage["cache_read"]
    answer = Answer(report.headers["x-request-id"], seen.text, prompt, seen.usage["output"])
    check(shared, answer, stream=way == "stream")

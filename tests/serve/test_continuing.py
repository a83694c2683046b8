"""Answers that break off, and other targets that go on with them, over HTTP and in every API that can say so."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from penstock.core.hub.completion import Completion
from penstock.core.stream import StreamReader
from tests.faults.client import AUTHORIZED, CLIENT_KEY, Response, post
from tests.faults.gateway import settings
from tests.faults.upstream import JSON, Connection, Op, Script, Upstream, abort, chunk, head, last_chunk, status
from tests.serve.in_process import InProcessGateway
from tests.streams import DONE, Json, begins, calls, delta, finishes, fold, piece, says, sse
from tests.streams import chunk as chunk_of

TEXT = "The tide at Dover turns at noon,\n\n    and the ferry waits: 25 °C, 🌊🌊 and fog. The tide turns again at six."
PIECES = [TEXT[at : at + 5] for at in range(0, len(TEXT), 5)]
USED = chunk_of(usage={"prompt_tokens": 40, "completion_tokens": 7, "total_tokens": 47})
# By the dialect: where it is asked, and what the body has besides the model.
QUESTION = [{"role": "user", "content": "When does the tide turn?"}]
CLIENTS: dict[str, tuple[str, Json]] = {
    "openai_chat": ("/v1/chat/completions", {"messages": QUESTION, "stream_options": {"include_usage": True}}),
    "anthropic_messages": ("/v1/messages", {"messages": QUESTION, "max_tokens": 1000}),
    "openai_responses": ("/v1/responses", {"input": QUESTION}),
    "gemini": ("/v1beta/models/{model}:streamGenerateContent?alt=sse", {"contents": [{"parts": [{"text": "When?"}]}]}),
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessGateway]:
    with Upstream() as upstream:
        text = settings(upstream.url, 0)
        for name in ("able", "other"):
            text += f'[providers.{name}]\nbase_url = "{upstream.url}"\napi_key = "canary-able-41"\n'
            text += f'settings.prefill = "last"\n[prices."{name}/*"]\ninput = 1.0\noutput = 2.0\n'
        targets = 'targets = ["main/first-*", "able/second-*", "other/third-*"]\n'
        text += f'[routes."any-*"]\ncontinue = "any"\n{targets}[routes."no-*"]\n{targets}'
        text += f'[routes."same-*"]\ncontinue = "same-model"\n{targets}'
        text += '[routes."unable-*"]\ncontinue = "any"\ntargets = ["main/first-*", "spare/second-*"]\n'
        with InProcessGateway(tmp_path_factory.mktemp("gateway"), upstream, text) as gateway:
            yield gateway


def broken(*texts: str, end: Op | None = None, first: Json | None = None) -> Script:
    """An answer that breaks off after these texts."""
    data = sse(begins() if first is None else first)
    return [head(), chunk(data), *[chunk(sse(says(text))) for text in texts], end or abort()]


def going_on(text: str = TEXT, *, before: str = "", broken_after: int = 0, size: int = 5) -> Script:
    """A target that goes on with this text where the last message of its request ends, and says `before` first."""

    async def op(connection: Connection) -> None:
        body = json.loads(connection.requests[-1].partition(b"\r\n\r\n")[2])
        last = body["messages"][-1]
        sent = last["content"] if last["role"] == "assistant" else ""
        assert text.startswith(sent), (sent, text)
        rest = before + text[len(sent) :]
        pieces = [rest[at : at + size] for at in range(0, len(rest), size)]
        events = [sse(begins()), *[sse(says(each)) for each in pieces], sse(finishes("stop"), USED, DONE)]
        if broken_after:
            events = events[: broken_after + 1]
        for each in [head(), *map(chunk, events), abort() if broken_after else last_chunk()]:
            await each(connection)

    return [op]


def play(
    running: InProcessGateway, name: str, first: Script, second: Script, third: Script | None = None, route: str = "any"
) -> str:
    fails = [status(500, JSON, b"{}")]
    for place, script in {"first": first, "second": second, "third": third or fails}.items():
        running.upstream.play(script, f"{place}-{name}")
    return f"{route}-{name}"


def ask(running: InProcessGateway, model: str, dialect: str = "openai_chat", /, **more: Any) -> Response:
    path, body = CLIENTS[dialect]
    headers = AUTHORIZED | more.pop("headers", {})
    if dialect == "gemini":
        path = path.format(model=model)
    else:
        body = body | {"model": model, "stream": True}
    return running.send(post(json.dumps(body | more).encode(), headers, path))


def answer(response: Response, dialect: str = "openai_chat") -> Completion:
    reader = StreamReader(dialect)
    return fold([*reader.feed(response.body), *reader.close()])


def requests(running: InProcessGateway, model: str) -> list[dict[str, Any]]:
    found = [sent for name, sent in running.upstream.asked_for if name == model]
    return [json.loads(each.partition(b"\r\n\r\n")[2]) for each in found]


@pytest.mark.parametrize("dialect", CLIENTS)
@pytest.mark.parametrize("cut", [1, 3, 7, 12, len(PIECES) - 1, len(PIECES)])
def test_a_broken_answer_is_continued_as_one_answer(running: InProcessGateway, dialect: str, cut: int) -> None:
    name = f"{dialect}-{cut}"
    response = ask(running, play(running, name, broken(*PIECES[:cut]), going_on()), dialect)
    read = answer(response, dialect)
    assert (read.text, read.ending, read.choices[0].finish_reason) == (TEXT, "completed", "stop")
    if cut < len(PIECES):  # else the second target has nothing more to say
        assert b'"continued":{"from":"main/first-%b","to":"able/second-%b"' % ((name.encode(),) * 2) in response.body
        assert response.body.count(b'"penstock"') == 1


def test_one_stream_has_one_id_one_role_and_the_usage_of_all_that_was_sent(running: InProcessGateway) -> None:
    response = ask(running, play(running, "one", broken(*PIECES[:6], first=begins()), going_on()))
    chunks = response.chunks
    assert len({(each["id"], each["model"], each["created"]) for each in chunks}) == 1
    assert sum("role" in choice["delta"] for each in chunks for choice in each["choices"]) == 1
    usage = chunks[-1]["usage"]
    sent, answered = running.book.entry(response.request_id).attempts
    assert (sent.outcome, answered.outcome) == ("truncated", "completed")
    assert usage["completion_tokens"] == sent.tokens.output + 7
    assert usage["prompt_tokens"] == 40 - sent.tokens.output
    entry = running.book.entry(response.request_id)
    assert entry.outcome == "completed"
    assert entry.cost == (sent.cost or 0) + (answered.cost or 0)
    assert (sent.cost, answered.cost) > (0, 0)
    chosen = [attempt["chosen"] for attempt in running.call(response)["attempts"]]
    assert chosen[1] == "goes on after main/first-one: upstream_truncated"


@pytest.mark.parametrize(
    ("before", "repair"),
    [(TEXT[:30], "continuation-echo"), (TEXT[8:30], "continuation-overlap"), ("", ""), (TEXT[22:30], "")],
    ids=["echo", "overlap", "nothing", "too short to tell"],
)
def test_what_the_second_target_repeats_is_removed(running: InProcessGateway, before: str, repair: str) -> None:
    name = f"repeats-{len(before)}"
    response = ask(running, play(running, name, broken(*PIECES[:6]), going_on(before=before)))
    kept = "" if repair else before
    assert answer(response).text == TEXT[:30] + kept + TEXT[30:]
    assert list(running.call(response)["repairs"]) == ([repair] if repair else [])


@pytest.mark.parametrize("size", [1, 2, 50])
def test_white_space_at_the_seam_is_kept_once(running: InProcessGateway, size: int) -> None:
    cut = TEXT.index("    and") + 3
    for at in range(cut - 6, cut + 3):
        script = broken(TEXT[:at])
        response = ask(running, play(running, f"blank-{size}-{at}", script, going_on(size=size)))
        assert answer(response).text == TEXT
        (asked,) = requests(running, f"second-blank-{size}-{at}")
        assert asked["messages"][-1] == {"role": "assistant", "content": TEXT[:at].rstrip()}


def test_an_answer_breaks_twice_and_a_target_that_fails_is_passed_over(running: InProcessGateway) -> None:
    model = play(running, "twice", broken(*PIECES[:4]), going_on(broken_after=5), going_on())
    response = ask(running, model)
    assert (answer(response).text, response.body.count(b'"penstock"')) == (TEXT, 2)
    model = play(running, "passed", broken(*PIECES[:4]), [status(500, JSON, b"{}")], going_on())
    response = ask(running, model)
    assert (answer(response).text, response.body.count(b'"penstock"')) == (TEXT, 1)


def test_a_third_break_ends_with_its_error(running: InProcessGateway) -> None:
    model = play(running, "third", broken(*PIECES[:4]), going_on(broken_after=3), going_on(broken_after=3))
    response = ask(running, model)
    assert answer(response).text == TEXT[: 20 + 15 + 15 - len(TEXT[:35]) + len(TEXT[:35].rstrip())]
    assert response.chunks[-1]["error"]["code"] == "upstream_truncated"
    entry = running.book.entry(response.request_id)
    assert (entry.outcome, [attempt.outcome for attempt in entry.attempts]) == ("truncated", ["truncated"] * 3)


def test_if_no_target_goes_on_the_client_gets_the_first_error(running: InProcessGateway) -> None:
    response = ask(running, play(running, "none", broken(*PIECES[:4]), [status(500, JSON, b"{}")]))
    assert response.chunks[-1]["error"]["code"] == "upstream_truncated"
    entry = running.book.entry(response.request_id)
    assert (entry.outcome, entry.code, len(entry.attempts)) == ("truncated", "upstream_truncated", 3)


def error_frame(response: Response) -> str:
    return response.data[-1].replace(response.request_id, "ID")


TOO_LONG: Json = {"error": {"message": "maximum context length is 9", "code": "context_length_exceeded"}}
PLAIN = broken(*PIECES[:4])
REFUSED: dict[str, tuple[Script, Json]] = {
    "structured output": (PLAIN, {"response_format": {"type": "json_object"}}),
    "several choices": (PLAIN, {"n": 2}),
    "log probabilities": (PLAIN, {"logprobs": True}),
    "audio": (PLAIN, {"modalities": ["text", "audio"]}),
    "a forced call": (
        PLAIN,
        {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"},
    ),
    "too little output left": (PLAIN, {"max_tokens": 20}),
    "another choice": (broken("a", first=says("b", index=1)), {}),
    "inside a call": (
        [head(), chunk(sse(begins(), says("Let me see."), calls(piece(0, "c1", "f", '{"a":')))), abort()],
        {},
    ),
    "a refusal": ([head(), chunk(sse(begins(), delta({"refusal": "I cannot"}))), abort()], {}),
    "an error that no other target can mend": (
        [head(), chunk(sse(begins(), says("a"))), chunk(sse(TOO_LONG)), last_chunk()],
        {},
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_continued_ends_as_without(running: InProcessGateway, case: str) -> None:
    script, more = REFUSED[case]
    name = case.replace(" ", "-")
    asked = [ask(running, play(running, name, script, going_on(), route=route), **more) for route in ("any", "no")]
    assert error_frame(asked[0]) == error_frame(asked[1])
    assert not requests(running, f"second-{name}")


def test_a_target_that_is_not_known_to_go_on_is_not_asked(running: InProcessGateway) -> None:
    response = ask(running, play(running, "unknown", broken(*PIECES[:4]), going_on(), route="unable"))
    assert (response.chunks[-1]["error"]["code"], requests(running, "second-unknown")) == ("upstream_truncated", [])


@pytest.mark.parametrize(("word", "text"), [("any", TEXT), ("same-model", ""), ("never", ""), ("more", "")])
def test_a_request_may_allow_less_than_its_route(running: InProcessGateway, word: str, text: str) -> None:
    model = play(running, f"less-{word}", broken(*PIECES[:4]), going_on())
    response = ask(running, model, headers={"X-Penstock-Continue": word})
    assert response.status == (400 if word == "more" else 200)
    if response.status == 200:
        assert answer(response).text == (text or "".join(PIECES[:4]))
    model = play(running, f"more-{word}", broken(*PIECES[:4]), going_on(), route="no")
    assert b"upstream_truncated" in ask(running, model, headers={"X-Penstock-Continue": "any"}).body


def test_only_reasoning_is_started_anew(running: InProcessGateway) -> None:
    thinks = chunk(sse(begins(), delta({"reasoning_content": "Dover is"})))
    response = ask(running, play(running, "anew", [head(), thinks, abort()], going_on(), route="any"))
    assert answer(response).text == TEXT
    assert requests(running, "second-anew")[0]["messages"] == QUESTION


def test_a_whole_call_ends_the_turn_without_another_target(running: InProcessGateway) -> None:
    called = sse(begins(), calls(piece(0, "c1", "f", '{"a":1}')))
    response = ask(running, play(running, "called", [head(), chunk(called), abort()], going_on()))
    read = answer(response)
    assert (read.ending, read.choices[0].finish_reason, requests(running, "second-called")) == (
        "completed",
        "tool_calls",
        [],
    )
    entry = running.book.entry(response.request_id)
    assert (entry.outcome, entry.attempts[0].outcome) == ("completed", "truncated")


def test_the_limit_on_the_output_is_less_what_was_sent(running: InProcessGateway) -> None:
    response = ask(running, play(running, "cap", broken(*PIECES[:7]), going_on()), max_tokens=100)
    sent = running.book.entry(response.request_id).attempts[0].tokens.output
    assert requests(running, "second-cap")[0]["max_tokens"] == 100 - sent


def test_clients_that_know_the_fallback_block_get_one(running: InProcessGateway) -> None:
    beta = {"anthropic-beta": "server-side-fallback-2026-07-01"}
    model = play(running, "block", broken(*PIECES[:7]), going_on())
    events = [json.loads(line[6:]) for line in _lines(ask(running, model, "anthropic_messages", headers=beta))]
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [block["type"] for block in blocks] == ["text", "fallback", "text"]
    assert blocks[1]["from"] == {"model": "first-block"}
    assert blocks[1]["trigger"] == {"type": "upstream_truncated"}
    texts = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(texts) == TEXT


def _lines(response: Response) -> list[str]:
    return [line for line in response.body.decode().split("\n") if line.startswith("data: ")]


def test_the_sdks_read_a_seam(running: InProcessGateway) -> None:
    base = f"http://127.0.0.1:{running.port}"
    client = openai.OpenAI(base_url=f"{base}/v1", api_key=CLIENT_KEY, max_retries=0)
    model = play(running, "sdk-chat", broken(*PIECES[:7]), going_on())
    chunks = list(client.chat.completions.create(model=model, messages=[{"role": "user", "content": "?"}], stream=True))
    assert "".join(each.choices[0].delta.content or "" for each in chunks) == TEXT
    model = play(running, "sdk-responses", broken(*PIECES[:7]), going_on())
    with client.responses.stream(model=model, input="?") as answered:
        assert answered.get_final_response().output_text == TEXT
    claude = anthropic.Anthropic(base_url=base, api_key=CLIENT_KEY, max_retries=0)
    for beta in ("", "server-side-fallback-2026-07-01"):
        model = play(running, f"sdk-messages-{beta}", broken(*PIECES[:7]), going_on())
        with claude.messages.stream(
            model=model,
            messages=[{"role": "user", "content": "?"}],
            max_tokens=1000,
            extra_headers={"anthropic-beta": beta} if beta else {},
        ) as message:
            blocks = message.get_final_message().content
        assert "".join(block.text for block in blocks if block.type == "text") == TEXT

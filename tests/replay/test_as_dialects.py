"""`penstock replay --as` across dialects, and a provider's `replay_as`: each SDK reads what the other API recorded.

The judges are the official `anthropic` and `openai` packages.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest

from penstock.replay.styles.catalog import load_style
from tests.cli.support import GROQ, OPENAI_2026, RESELLER, invoke
from tests.faults.client import RawClient, Response, post
from tests.faults.gateway import Gateway
from tests.faults.upstream import Upstream
from tests.messages import HEALTHY
from tests.replay.support import Player, keep
from tests.streams import DONE, begins, bill, calls, counts, finishes, piece, says, sse

pytestmark = pytest.mark.slow

CALL = sse(
    *(begins(), says("Let me look."), calls(piece(0, "call_1", "look", '{"at": "the sea"}'))),
    *(calls(piece(1, "call_2", "listen", "{}")), finishes("tool_calls"), bill(**counts(5, 3)), DONE),
)
ASKED = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}], "stream": True}


def messages(port: int, **fields: object) -> Response:
    with RawClient(port) as client:
        client.send(post(json.dumps(ASKED | fields).encode(), path="/v1/messages"))
        return client.response()


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers of both dialects, by model."""
    folder = tmp_path_factory.mktemp("both")
    keep(folder / "call.capture", CALL, model="calls")
    keep(folder / "cut.capture", CALL[: len(CALL) // 2], model="cut")
    keep(folder / "thought.capture", HEALTHY["thinking"], model="thinks")
    keep(folder / "tools.capture", HEALTHY["two calls"], model="uses tools")
    keep(folder / "limit.capture", b'{"error": {"message": "slow down"}}', model="refuses", status=429)
    return folder


@pytest.fixture(scope="module")
def as_anthropic(recordings: Path) -> Iterator[Player]:
    with Player(recordings, GROQ, RESELLER, OPENAI_2026, "--as", "anthropic", "--speed", "max") as player:
        assert player.output[0].endswith("; as anthropic at /messages)\n")
        yield player


@pytest.fixture(scope="module")
def as_groq(recordings: Path) -> Iterator[Player]:
    with Player(recordings, "--as", "groq", "--speed", "max") as player:
        assert player.output[0].endswith("; as groq)\n")
        yield player


@pytest.fixture(scope="module")
def as_responses(recordings: Path) -> Iterator[Player]:
    with Player(recordings, "--as", "openai-responses", "--speed", "max") as player:
        assert player.output[0].endswith("; as openai-responses at /responses)\n")
        yield player


@pytest.fixture
def claude(as_anthropic: Player) -> Iterator[anthropic.Anthropic]:
    url = as_anthropic.url.removesuffix("/v1")
    http_client = anthropic.DefaultHttpxClient(trust_env=False)
    with anthropic.Anthropic(base_url=url, api_key="x", max_retries=0, http_client=http_client) as client:
        yield client


@pytest.fixture
def gpt(as_groq: Player) -> Iterator[openai.OpenAI]:
    http_client = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(base_url=as_groq.url, api_key="x", max_retries=0, http_client=http_client) as client:
        yield client


def answer(client: anthropic.Anthropic, model: str) -> anthropic.types.Message:
    with client.messages.stream(model=model, max_tokens=100, messages=[{"role": "user", "content": "Hi"}]) as stream:
        return stream.get_final_message()


SEEDS = {
    "llama-3.3-70b-versatile": ("Hello, World!", 45, 5),
    "grok-3": ("Yo, what's gbom? Ready to dive into o quequer que você're pondering abfora today?", 8, 18),
}


@pytest.mark.parametrize(("model", "expected"), SEEDS.items())
def test_the_anthropic_sdk_reads_chat_captures(
    claude: anthropic.Anthropic, model: str, expected: tuple[str, int, int]
) -> None:
    message = answer(claude, model)
    assert [block.type for block in message.content] == ["text"]
    read = (getattr(message.content[0], "text", ""), message.usage.input_tokens, message.usage.output_tokens)
    assert read == expected
    assert (message.stop_reason, message.model) == ("end_turn", model)


def test_the_anthropic_sdk_reads_tool_calls(claude: anthropic.Anthropic) -> None:
    message = answer(claude, "calls")
    assert message.stop_reason == "tool_use"
    assert [block.to_dict() for block in message.content] == [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": "the sea"}},
        {"type": "tool_use", "id": "call_2", "name": "listen", "input": {}},
    ]
    assert (message.usage.input_tokens, message.usage.output_tokens) == (5, 3)


def test_the_anthropic_sdk_reads_an_error_of_chat(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.RateLimitError, match="slow down"):
        answer(claude, "refuses")


def test_requests_without_streaming_get_a_whole_answer(claude: anthropic.Anthropic, gpt: openai.OpenAI) -> None:
    message = claude.messages.create(model="calls", max_tokens=100, messages=[{"role": "user", "content": "Hi"}])
    assert [block.type for block in message.content] == ["text", "tool_use", "tool_use"]
    assert (message.stop_reason, message.usage.input_tokens) == ("tool_use", 5)
    completion = gpt.chat.completions.create(model="uses tools", messages=[])
    assert completion.choices[0].message.content == "Let me see."
    assert (completion.choices[0].finish_reason, completion.usage and completion.usage.prompt_tokens) == (
        "tool_calls",
        7,
    )
    with pytest.raises(anthropic.APIStatusError, match="ended before it was complete") as raised:
        claude.messages.create(model="cut", max_tokens=100, messages=[{"role": "user", "content": "Hi"}])
    assert raised.value.status_code == 502


def test_captures_of_the_same_dialect_are_written_by_its_writer(claude: anthropic.Anthropic) -> None:
    message = answer(claude, "thinks")
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert getattr(message.content[0], "signature", "") == "c2VhbA=="


def test_clients_of_the_recorded_dialect_get_the_recorded_bytes(as_anthropic: Player, as_groq: Player) -> None:
    assert as_anthropic.ask("calls").body == CALL
    assert messages(as_groq.port, model="thinks").body == HEALTHY["thinking"]


def test_responses_have_the_headers_of_the_dialect(as_anthropic: Player) -> None:
    response = messages(as_anthropic.port, model="calls")
    assert response.headers["content-type"] == load_style("anthropic").content_type
    assert response.headers["request-id"] == response.headers["x-request-id"]
    assert response.headers["x-penstock-capture"] == "call.capture"


def test_the_openai_sdk_reads_messages_captures(gpt: openai.OpenAI) -> None:
    chunks = list(gpt.chat.completions.create(model="uses tools", messages=[], stream=True))
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == "Let me see."
    called = [call for choice in choices for call in choice.delta.tool_calls or ()]
    functions = [(call.index, call.id, call.function and call.function.name) for call in called]
    assert functions == [(0, "toolu_1", "get_tide"), (1, "toolu_2", "get_wind")]
    assert choices[-1].finish_reason == "tool_calls"
    assert chunks[0].id.startswith("chatcmpl-")


@pytest.mark.parametrize("model", ["calls", "uses tools"])
def test_the_openai_sdk_reads_responses_of_captures_of_any_dialect(as_responses: Player, model: str) -> None:
    http_client = openai.DefaultHttpxClient(trust_env=False)
    with (
        openai.OpenAI(base_url=as_responses.url, api_key="x", max_retries=0, http_client=http_client) as client,
        client.responses.stream(model=model, input="Hi") as stream,
    ):
        response = stream.get_final_response()
    assert response.status == "completed"
    assert [item.type for item in response.output] == ["message", "function_call", "function_call"]
    assert response.output_text in ("Let me look.", "Let me see.")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) in ((5, 3), (7, 4))


def test_without_a_capture_of_the_model_the_error_lists_all(recordings: Path) -> None:
    with Player(recordings, "--as", "anthropic", "--pick", "model") as player:
        missing = messages(player.port, model="unknown")
    assert (missing.status, missing.json["error"]["type"]) == (404, "not_found_error")
    for model in ("calls", "thinks", "uses tools"):
        assert model in missing.json["error"]["message"]


def test_a_provider_replays_captures_of_any_dialect_in_its_style(recordings: Path, tmp_path: Path) -> None:
    table = f'replay = "{recordings}"\nreplay_speed = "max"\nbase_url = "http://127.0.0.1:9"'
    configuration = "\n".join(
        [
            '[server]\nlog = "json"\nreplay_only = true',
            f'[providers.claude]\n{table}\ndialect = "anthropic_messages"\nreplay_as = "anthropic"',
            f'[providers.gpt]\n{table}\nreplay_as = "openai"',
            "",
        ]
    )
    with Upstream() as upstream, Gateway(tmp_path, upstream, configuration) as gateway:
        for provider in ("claude", "gpt"):
            chat = gateway.ask(f"{provider}/calls", stream=True)
            assert (chat.status, chat.text, chat.finish, chat.done) == (200, "Let me look.", "tool_calls", True)
            message = messages(gateway.port, model=f"{provider}/thinks", thinking={"type": "adaptive"})
            assert message.status == 200
            assert b"word3" in message.body
            assert message.body.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')


def test_a_style_must_be_of_the_provider_s_dialect(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(
        f'[providers.claude]\nbase_url = "http://127.0.0.1:9"\nreplay = "{tmp_path}"\nreplay_as = "anthropic"'
    )
    result = invoke("check", "--config", str(file))
    assert result.exit_code != 0
    words = "replay_as: is a style of anthropic_messages, and this provider's dialect is openai_chat"
    assert words in " ".join(result.output.split())

"""The official clients of Cohere and Amazon Bedrock use the gateway as their API, with a provider of every API.

Each reads the answers of the pairs matrix over sockets, streamed and not, and sees what the matrix says that its API
can express. It runs a tool over two turns, gets errors as exceptions of its own package, and lists the models.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.gateway.keys.access_keys import access_key
from penstock.gateway.keys.key_secret import digest_of
from tests.faults.client import CLIENT_KEY
from tests.faults.gateway import Gateway, settings
from tests.faults.upstream import JSON, ByRequest, Upstream, status
from tests.judges import bench
from tests.judges.answers import streamed
from tests.judges.gateway.by_lines import ByLines
from tests.judges.packages import PROVIDERS as JUDGE
from tests.judges.packages import providers_python
from tests.judges.providers.asks import Ask, Report
from tests.tables import table
from tests.translation.scenarios import PROVIDERS, SCENARIOS
from tests.translation.support import BEDROCK, COHERE

# The client of each API, and its word for a finish.
CLIENTS = {COHERE: "cohere", BEDROCK: "boto3"}
STOPS = {
    COHERE: {"stop": "COMPLETE", "length": "MAX_TOKENS", "tool_calls": "TOOL_CALL"},
    BEDROCK: {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"},
}
# The providers of the bench, by their dialects.
NAMES = {
    "openai_chat": "main",
    "anthropic_messages": "claude",
    "openai_responses": "responses",
    "gemini": "gem",
    "ollama": "ollama",
    "cohere": "command",
    "bedrock_converse": "converse",
}
ANSWERS = ("text", "reasoning", "reasoning with a seal", "two parallel calls", "the limit on the output")
CASES = [(provider, name) for provider in PROVIDERS for name in ANSWERS if provider in SCENARIOS[name].wires]
RAISED = {
    401: {COHERE: "UnauthorizedError", BEDROCK: "UnrecognizedClientException"},
    404: {COHERE: "NotFoundError", BEDROCK: "ResourceNotFoundException"},
    400: {COHERE: "BadRequestError", BEDROCK: "ValidationException"},
}
RESULT_MARKS = ("tool_call_id", "tool_result", "function_call_output", "functionResponse", '"tool"', "toolResult")
Bench = bench.Bench[Any, Any]
both = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
every_client = pytest.mark.parametrize("client", CLIENTS)


@pytest.fixture(scope="module")
def judge() -> Iterator[ByLines[Ask, Report]]:
    judge: ByLines[Ask, Report] = ByLines([providers_python(), JUDGE / "judge.py"], JUDGE, Report)
    yield judge
    judge.close()


@pytest.fixture(scope="module")
def asked(judge: ByLines[Ask, Report], messages_bench: Bench) -> Any:
    url = f"http://127.0.0.1:{messages_bench.gateway.port}"

    def ask(client: str, model: str, **fields: Any) -> Report:
        return judge.ask(Ask(CLIENTS[client], url, model, **{"key": CLIENT_KEY, **fields}))

    return ask


@both
@pytest.mark.parametrize(("client", "case"), table(CLIENTS, CASES, whole=CLIENTS), ids=str)
def test_an_answer_of_every_provider_is_read(
    asked: Any, messages_bench: Bench, client: str, case: tuple[str, str], stream: bool
) -> None:
    provider, name = case
    scenario = SCENARIOS[name]
    report = asked(client, messages_bench.play(NAMES[provider], streamed(scenario.wires[provider])), stream=stream)
    seen, _ = scenario.expected(client)
    assert report.error is None
    assert (report.text, report.thinking, report.complete) == (seen.text, seen.reasoning, True)
    assert [(call.name, call.arguments) for call in report.calls] == [
        (name, json.loads(arguments)) for _, name, arguments in seen.calls
    ]
    assert report.stop == STOPS[client][seen.finish or ""]
    assert seen.tokens is not None
    assert report.usage == (seen.tokens.input, seen.tokens.output)


@both
@pytest.mark.parametrize(("client", "provider"), table(CLIENTS, PROVIDERS, whole=CLIENTS), ids=str)
def test_a_tool_over_two_turns(asked: Any, messages_bench: Bench, client: str, provider: str, stream: bool) -> None:
    calls, text = (SCENARIOS[name].wires[provider] for name in ("two parallel calls", "text"))

    def choose(body: Any) -> Any:
        return streamed(text if any(mark in json.dumps(body) for mark in RESULT_MARKS) else calls)

    model = messages_bench.play(NAMES[provider], [ByRequest(choose)])
    report = asked(client, model, stream=stream, tools=True)
    assert report.error is None
    assert (report.text, report.complete) == (SCENARIOS["text"].seen.text, True)
    assert [call.arguments for call in report.calls] == [{"port": "Brest"}, {"port": "Cork"}]
    _, second = messages_bench.requests(model)
    written = json.dumps(second)
    assert written.count("low") == 2
    for call in report.calls if provider not in ("gemini", "ollama") else ():
        assert written.count(call.id) == 2


@both
@every_client
def test_errors_are_raised_as_those_of_the_api(asked: Any, messages_bench: Bench, client: str, stream: bool) -> None:
    body = json.dumps({"error": {"message": "no such effort", "type": "invalid_request_error"}}).encode()
    refusing = messages_bench.play("main", [status(400, JSON, body)])
    errors = {
        401: asked(client, "main/any", stream=stream, key="wrong").error,
        404: asked(client, "nobody/none", stream=stream).error,
        400: asked(client, refusing, stream=stream).error,
    }
    assert {code: error.name for code, error in errors.items()} == {
        code: names[client] for code, names in RAISED.items()
    }
    assert [error.status for error in errors.values()] == [403 if client == BEDROCK else 401, 404, 400]
    assert "no such effort" in errors[400].message
    assert "not known" in errors[401].message


@every_client
def test_a_fault_in_mid_stream_is_seen(asked: Any, messages_bench: Bench, client: str) -> None:
    for provider, wire in SCENARIOS["a fault in mid-stream"].wires.items():
        report = asked(client, messages_bench.play(NAMES[provider], streamed(wire)))
        assert (report.text, report.complete) == ("Half", False), provider
        assert report.error is not None, provider


@every_client
def test_the_models_are_listed(asked: Any, client: str) -> None:
    assert "offered" in asked(client, "", lists=True).models


def test_boto3_signs_its_requests(judge: ByLines[Ask, Report], tmp_path: Path) -> None:
    master, wire = "of-the-configuration-0123456789abcdef", SCENARIOS["text"].wires["openai_chat"]
    pair = access_key(master, digest_of(CLIENT_KEY))
    with Upstream() as upstream:
        with Gateway(tmp_path, upstream, settings(upstream.url, server={"access_key_secret": master})) as gateway:

            def ask(model: str, secret: str, **fields: Any) -> Report:
                return judge.ask(
                    Ask("boto3", f"http://127.0.0.1:{gateway.port}", model, key=pair.id, secret=secret, **fields)
                )

            for stream in (True, False):
                model = f"main/{upstream.play(streamed(wire), 'eu.weir-3:0')}"
                report = ask(model, pair.secret, stream=stream)
                assert (report.error, report.text) == (None, SCENARIOS["text"].seen.text)
                error = ask(model, "another", stream=stream).error
                assert error is not None
                assert (error.status, error.name) == (403, "UnrecognizedClientException")
                assert "does not match" in error.message
            assert ask("", pair.secret, lists=True).models
        gateway.keeps_secrets()

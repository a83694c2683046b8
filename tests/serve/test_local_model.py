"""Calls to a model on this machine, whose process is played: turns, waiting, tools and errors."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.gateway.config import load
from penstock.http.upstream_connection import UpstreamError
from penstock.upstream.local import runtime
from penstock.upstream.local.model import LocalModel, RuntimeFolder, Settings
from tests.faults.client import Response, body, post
from tests.faults.gateway import settings
from tests.faults.scripts import unstreamed
from tests.faults.upstream import Upstream
from tests.local.malformed import MALFORMED
from tests.serve.in_process import InProcessGateway
from tests.serve.local_model import ANSWER, TURN, ScriptedModel

FUNCTION = {"type": "function", "function": {"name": "look"}}
ROUTES = """
[routes.pair]
targets = ["local/own", "main/other"]
[routes.slow]
targets = ["local/own"]
timeouts = { first_event_s = 0.2 }
"""


def local(folder: Path, **more: object) -> str:
    (folder / "own.gguf").write_bytes(b"")
    values = {"model": str(folder / "own.gguf"), "slots": 1, "queue": 2, **more}
    return "[providers.local]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessGateway]:
    folder = tmp_path_factory.mktemp("local")
    with Upstream() as upstream:
        upstream.play(unstreamed(), "other")
        text = settings(upstream.url, 0, server={"heartbeat_s": 0.05}) + ROUTES + local(folder)
        with InProcessGateway(folder, upstream, text) as gateway:
            yield gateway


@pytest.fixture
def model(serving: InProcessGateway) -> Iterator[ScriptedModel]:
    config = load(serving.file, {})
    (provider,) = [each for each in config.providers.values() if each.name == "local"]
    with ScriptedModel(serving.home, Settings.of(provider)) as model:
        yield model


def ask(serving: InProcessGateway, model: str = "local/own", **fields: Any) -> Response:
    with serving.client() as client:
        client.send(post(body(model, **{"stream": False, **fields})))
        return client.response()


def error_of(answer: Response) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.body)["error"]
    return found


def test_an_answer_with_its_turn_given_back(serving: InProcessGateway, model: ScriptedModel) -> None:
    answer = ask(serving)
    assert (answer.status, answer.headers["x-penstock-provider"]) == (200, "local")
    reported = json.loads(answer.body)
    assert (reported["choices"][0]["message"]["content"], reported["usage"]["total_tokens"]) == ("Hello", 8)
    (sent,) = model.requests
    assert (sent["messages"], sent["stream"]) == ([{"role": "user", "content": "Say hello."}], True)
    serving.until(lambda: model.turns == 0)
    streamed = ask(serving, stream=True)
    assert b'"content":"Hello"' in streamed.body
    serving.until(lambda: model.turns == 0)


def test_the_first_creation_time_stands_for_the_whole_stream(serving: InProcessGateway, model: ScriptedModel) -> None:
    first, second = (
        b'data: {"id":"a","created":%d,"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n' % at for at in (7, 8)
    )
    model.body = first + second + ANSWER
    streamed = ask(serving, stream=True)
    assert b'"created":8' not in streamed.body


# The turn lines of the child that are refusals, and what the client gets.
def test_a_full_queue_is_left_to_the_next_target(serving: InProcessGateway, model: ScriptedModel) -> None:
    model.line = b"full\n"
    answer = ask(serving)
    error = error_of(answer)
    assert (answer.status, error["code"], answer.headers["retry-after"]) == (503, "local_busy", "5")
    assert error["message"] == (
        "local/own, the model on the gateway's machine, is busy: 2 calls wait for it already; ask again later"
    )
    assert ask(serving, "pair").headers["x-penstock-provider"] == "main"
    serving.until(lambda: model.turns == 0)
    assert model.requests == []


def test_a_client_that_waits_for_a_turn_gets_heartbeats_and_may_leave(
    serving: InProcessGateway, model: ScriptedModel
) -> None:
    model.line = b""
    waited = ask(serving, "slow", stream=True)
    assert waited.status == 200  # its head came with the first heartbeat
    assert waited.body.count(b": ") >= 2
    assert b"is busy: there was no turn within 0.2 s; ask again later" in waited.body
    client = serving.begin("local/own", stream=True)
    serving.until(lambda: model.turns == 1)
    client.close()
    serving.until(lambda: model.turns == 0)
    assert model.requests == []
    serving.until(lambda: bool(serving.calls) and serving.calls[-1]["ending"] == "cancelled")


# What a model without tools makes of a request.
UNSEEN: dict[str, tuple[dict[str, Any], int, str]] = {
    "tools": ({"tools": [FUNCTION]}, 200, "tools-unseen"),
    "tools that may not be called": ({"tools": [FUNCTION], "tool_choice": "none"}, 200, ""),
    "tools that may be called": ({"tools": [FUNCTION], "tool_choice": "auto"}, 200, "tools-unseen"),
    "a demand": ({"tools": [FUNCTION], "tool_choice": "required"}, 400, ""),
    "a named demand": ({"tools": [FUNCTION], "tool_choice": FUNCTION}, 400, ""),
    "some demanded": (
        {
            "tools": [FUNCTION],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}},
        },
        400,
        "",
    ),
    "some allowed": (
        {
            "tools": [FUNCTION],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
        },
        200,
        "tools-unseen",
    ),
    "earlier calls": (
        {
            "messages": [
                {"role": "user", "content": "Hi"},
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": "c", "content": "x"},
            ]
        },
        200,
        "tools-unseen",
    ),
    "none": ({}, 200, ""),
}


@pytest.mark.parametrize("case", UNSEEN)
def test_what_a_model_without_tools_does_not_see_is_reported(
    serving: InProcessGateway, model: ScriptedModel, case: str
) -> None:
    fields, status, lost = UNSEEN[case]
    model.line = b'{"tools": false}\n'
    answer = ask(serving, **fields)
    assert (answer.status, answer.headers.get("x-penstock-losses", "").partition("=")[0]) == (status, lost)
    if status == 400:
        error = error_of(answer)
        assert (error["param"], error["code"]) == ("tool_choice", "invalid_request")
        assert "the chat template of local/own has no tools; leave `tool_choice` out" in error["message"]
    assert len(model.requests) == (status == 200)
    serving.until(lambda: model.turns == 0)
    model.line = TURN
    assert "x-penstock-losses" not in ask(serving, **fields).headers


def test_a_strict_call_is_not_asked_with_a_loss(serving: InProcessGateway, model: ScriptedModel) -> None:
    model.line = b'{"tools": false}\n'
    with serving.client() as client:
        client.send(post(body("local/own", stream=False, tools=[FUNCTION]), {"x-penstock-strict": "true"}))
        answer = client.response()
    assert answer.status == 400
    assert model.requests == []
    serving.until(lambda: model.turns == 0)


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_request_is_refused_without_the_model(
    serving: InProcessGateway, model: ScriptedModel, case: str
) -> None:
    fields, param, words = MALFORMED[case]
    answer = ask(serving, **fields)
    error = error_of(answer)
    assert (answer.status, error["code"], error["param"]) == (400, "invalid_request", param)
    assert words in error["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert (model.requests, model.turns) == ([], 0)


# Values at the edges of what is right, which the model is sent as they are.
RIGHT: dict[str, Any] = {
    "temperature": 0,
    "top_p": 0.5,
    "stop": ["a", "b"],
    "logit_bias": {"1": 2},
    "logprobs": True,
    "top_logprobs": 20,
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
    "tools": [FUNCTION],
    "tool_choice": FUNCTION,
}


@pytest.mark.parametrize("fields", [RIGHT, RIGHT | {"top_logprobs": 0, "stop": "a", "tool_choice": "auto"}])
def test_a_right_request_reaches_the_model_as_it_is(
    serving: InProcessGateway, model: ScriptedModel, fields: dict[str, Any]
) -> None:
    assert ask(serving, **fields).status == 200
    assert {name: model.requests[0][name] for name in fields} == fields


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        ({"type": "image_url"}, '"image_url"'),
        ({"type": 5}, "5"),
        ({"type": 5 * 10**16}, "a number"),
        ({"type": None}, "null"),
        ({"type": "two words"}, "a string"),
        ({"type": "a" * 17}, "a string"),
        ({"type": "a" * 16}, f'"{"a" * 16}"'),
    ],
)
def test_other_content_than_text_is_left_to_the_next_target(
    serving: InProcessGateway, model: ScriptedModel, part: dict[str, Any], shown: str
) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}, part]}]
    alone = ask(serving, messages=messages)
    error = error_of(alone)
    assert (alone.status, error["code"], error["param"]) == (400, "local_text_only", "messages")
    assert error["message"] == f"local/own takes text only, and the type of `messages[0].content[1]` is {shown}"
    assert alone.headers["x-should-retry"] == "false"
    assert ask(serving, "pair", messages=messages).headers["x-penstock-provider"] == "main"
    assert model.requests == []


# Errors of llama.cpp: its status and error, then the client's status, code, param and message.
NO_FIELD = "local/own cannot take this request: "
ERRORS: dict[str, tuple[int, dict[str, Any], int, str, str | None, str]] = {
    "too long": (
        400,
        {"message": "x", "n_prompt_tokens": 9000, "n_ctx": 8192},
        400,
        "context_length_exceeded",
        "messages",
        (
            "the request (9000 tokens) exceeds the available context size of local/own (8192 tokens); shorten it, or "
            "raise `context` of its provider"
        ),
    ),
    "a type": (
        400,
        {"message": "Field 'mirostat': [json.exception.type_error.302] type must be number, but is string"},
        400,
        "invalid_request",
        "mirostat",
        f"{NO_FIELD}`mirostat`: must be a number, not a string",
    ),
    "another type": (
        500,
        {"message": "[json.exception.type_error.302] type must be odd, but is array"},
        400,
        "invalid_request",
        None,
        f"{NO_FIELD}must be odd, not a list",
    ),
    "its own fault": (
        500,
        {"message": "Compute error."},
        503,
        "local_failed",
        None,
        "local/own, the model on the gateway's machine, failed: Compute error.",
    ),
    "a mistake that is our own": (
        501,
        {"message": "this is Unsupported"},
        400,
        "invalid_request",
        None,
        f"{NO_FIELD}this is Unsupported",
    ),
    "a schema": (
        500,
        {"message": "failed to parse: JSON schema error: no type"},
        400,
        "invalid_request",
        "response_format",
        f"{NO_FIELD}JSON schema error: no type",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_of_llama_are_rewritten(serving: InProcessGateway, model: ScriptedModel, case: str) -> None:
    sent_status, sent, status, code, param, message = ERRORS[case]
    model.status, model.body = sent_status, json.dumps({"error": {"code": sent_status, **sent}}).encode()
    answer = ask(serving, response_format={"type": "json_object"})
    error = error_of(answer)
    assert (answer.status, error["code"], error.get("param"), error["message"]) == (status, code, param, message)
    serving.until(lambda: bool(serving.calls) and serving.calls[-1]["request_id"] == answer.headers["x-request-id"])
    assert serving.calls[-1]["attempts"][-1]["code"] == code
    serving.until(lambda: model.turns == 0)


# The model itself.


class Own:
    """A model whose process is played, in a folder of its own."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.folder = RuntimeFolder()
        (folder / "own.gguf").write_bytes(b"")
        values = {"name": "local/own", "context": 10, "slots": 1, "queue": 2, "file": str(folder / "own.gguf")}
        self.settings = Settings(**{**values, **more})
        self.logged: list[str] = []
        self.model = LocalModel(self.settings, self.folder, {}, self.logged.append)


def test_a_retired_model_is_asked_to_end_and_is_not_started_again(tmp_path: Path) -> None:
    own = Own(tmp_path)

    async def retire() -> None:
        own.model.retire()
        assert own.model._retiring is not None
        await own.model._retiring

    async def ask() -> UpstreamError:
        with pytest.raises(UpstreamError) as raised:
            await own.model.turn(1.0)
        return raised.value

    with ScriptedModel(own.folder, own.settings) as played:
        played.line = b""
        asyncio.run(retire())
        deadline = time.monotonic() + 10
        while played.sent_lines != [b"retire\n"] and time.monotonic() < deadline:
            time.sleep(0.005)
        assert played.sent_lines == [b"retire\n"]
    refused = asyncio.run(ask())
    assert (refused.code, refused.retry_after) == ("local_unavailable", "2")
    assert refused.message.endswith("cannot answer: the configuration has changed; try again")
    own.folder.close()


@pytest.mark.skipif(runtime.obstacle() is not None, reason="the runtime of the model on this machine is not installed")
def test_a_model_without_its_file_says_so(tmp_path: Path) -> None:
    own = Own(tmp_path, file=str(tmp_path / "missing.gguf"))

    async def start() -> None:
        own.model.start()
        with pytest.raises(
            UpstreamError, match=r"cannot answer: there is no file missing\.gguf; correct its path in the"
        ):
            await own.model.turn(1.0)
        await asyncio.sleep(0)

    asyncio.run(start())
    obstacle = own.model.obstacle()
    assert obstacle is not None
    assert str(obstacle) == "there is no file missing.gguf; correct its path in the configuration"
    assert [line.partition(", the model")[0] for line in own.logged] == ["local/own"]
    own.folder.close()
    assert not own.folder.folder.exists()


def test_folders_are_private_and_gone_afterwards(tmp_path: Path) -> None:
    own = Own(tmp_path)
    made = own.folder.subfolder("x")
    assert [folder.stat().st_mode & 0o777 for folder in (made, made.parent)] == [0o700, 0o700]
    assert made.parent.name.startswith("penstock-")
    assert own.folder.subfolder("x") == made
    own.folder.close()
    assert not made.parent.exists()

"""Requests that the local model cannot process: a 400 in the gateway's envelope, whose message names the field."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.gateway.calls.failure import from_status
from penstock.gateway.calls.local_errors import rewrite_error
from tests.cli.chat_ui.support import chat
from tests.faults.scripts import unstreamed
from tests.local.conftest import Serve
from tests.local.served import MODEL, Served, user


def message(**fields: object) -> dict[str, object]:
    """A request of one message, after one that is right."""
    return {"messages": [*user("Hi"), {"role": "user", "content": "Hi", **fields}]}


def part(**fields: object) -> dict[str, object]:
    """A request of one message with one part."""
    return {"messages": [{"role": "user", "content": [fields]}]}


def schema(schema: object) -> dict[str, object]:
    """A request for an answer by a schema."""
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def tool(**function: object) -> dict[str, object]:
    """A request with one tool, which must be called."""
    return {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}


# By name: the fields, which of them is named as `param`, and words of the message.
MALFORMED: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "temperature": ({"temperature": "hot"}, "temperature", '`temperature` must be a number, not "hot"'),
    "temperature true": ({"temperature": True}, "temperature", "`temperature` must be a number, not true or false"),
    "top_p": ({"top_p": {}}, "top_p", "`top_p` must be a number, not an object"),
    "seed": ({"seed": [1]}, "seed", "`seed` must be a number, not a list"),
    "frequency_penalty": ({"frequency_penalty": "x y"}, "frequency_penalty", "must be a number, not a string"),
    "presence_penalty": ({"presence_penalty": "x"}, "presence_penalty", "must be a number"),
    "stop": ({"stop": 5}, "stop", "`stop` must be a string or a list of strings, not 5"),
    "stop of numbers": ({"stop": [1]}, "stop", "`stop` must be a string or a list of strings"),
    "logit_bias": ({"logit_bias": "x"}, "logit_bias", "`logit_bias` must be an object"),
    "logprobs": ({"logprobs": "yes"}, "logprobs", "`logprobs` must be true or false"),
    "top_logprobs": ({"logprobs": True, "top_logprobs": "x"}, "top_logprobs", "must be an integer from 0 to 20"),
    "many top_logprobs": ({"logprobs": True, "top_logprobs": 10**6}, "top_logprobs", "from 0 to 20, not 1000000"),
    "top_logprobs alone": ({"top_logprobs": 3}, None, "requires logprobs"),
    "response_format": ({"response_format": "json"}, "response_format", "`response_format` must be an object"),
    "response_format type": ({"response_format": {"type": "odd"}}, "response_format", '`type` is "text"'),
    "a schema that is no object": (schema("x"), "response_format", "an object as its schema"),
    "a schema of an odd type": (schema({"type": "odd"}), "response_format", "JSON schema error"),
    "a schema that refers to nothing": (schema({"$ref": "#/nowhere"}), "response_format", "$ref #/nowhere"),
    "a message that is none": ({"messages": ["hi"]}, "messages", "`messages[0]` must be an object"),
    "a role that is a number": (message(role=5), "messages", "`messages[1].role` must be a string, not 5"),
    "no role": ({"messages": [{"content": "x"}]}, "messages", "`messages[0]` has no role"),
    "no content": ({"messages": [{"role": "user"}]}, "messages", "`messages[0]` has no content"),
    "content that is a number": (message(content=5), "messages", "`messages[1].content` must be a string or a list"),
    "content of strings": (message(content=["x"]), "messages", "`messages[1].content[0]` must be an object"),
    "a text that is a number": (
        part(type="text", text=5),
        "messages",
        "`messages[0].content[0].text` must be a string",
    ),
    "tool_calls": (
        {"messages": [{"role": "assistant", "tool_calls": "x"}, *user("Hi")]},
        "messages",
        "`messages[0].tool_calls` must be a list of calls",
    ),
    "tools": ({"tools": "x"}, "tools", "`tools` must be a list of objects"),
    "a tool without a name": (tool(), "tools", "each with a name"),
    "parameters of an odd type": (tool(name="f", parameters={"type": "odd"}), "tools", "JSON schema error"),
    "tool_choice": ({"tool_choice": "odd"}, "tools", "`tool_choice` must be"),
    "two answers of the assistant at the end": (
        {"messages": [*user("Hi"), *[{"role": "assistant", "content": "x"}] * 2]},
        None,
        "assistant messages at the end",
    ),
    "more choices than slots": ({"n": 100}, "n", "`n`: Value must be between"),
    "a field of llama.cpp": ({"mirostat": "x"}, "mirostat", "`mirostat`: must be a number, not a string"),
    "another field of llama.cpp": ({"reasoning_format": "odd"}, None, "Unknown reasoning format"),
    "a grammar": ({"grammar": "root ::= ("}, None, "failed to parse grammar"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "param", "words"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_request_is_refused_in_our_words(
    shared: Served, fields: dict[str, Any], param: str | None, words: str, stream: bool
) -> None:
    answer = shared.ask(MODEL, stream=stream, **{"max_tokens": 3, **fields})
    assert answer.status == 400, answer.body
    error = json.loads(answer.body)["error"]
    assert words in error["message"]
    assert "exception" not in error["message"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, "invalid_request")
    assert error["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["x-should-retry"] == "false"


def test_other_content_than_text_is_left_to_the_next_target(serve: Serve, weights: Path) -> None:
    served = serve(BEFORE_ANOTHER, PENSTOCK_CACHE=str(weights.parents[1]))
    served.upstream.play(unstreamed(), "other")
    for kind in ("image_url", "input_audio", "file", "refusal", 5, None):
        content = [{"type": "text", "text": "Hi"}, {"type": kind, "url": "data:,"}]
        messages = [{"role": "user", "content": content}]
        alone = served.ask(MODEL, stream=False, messages=messages)
        error = json.loads(alone.body)["error"]
        assert (alone.status, error["code"], error["param"]) == (400, "local_text_only", "messages")
        assert error["message"].startswith(f"{MODEL} takes text only, and the type of `messages[0].content[1]` is ")
        assert alone.headers["x-should-retry"] == "false"
        assert served.ask("pair", stream=False, messages=messages).headers["x-penstock-provider"] == "main"
    assert served.ask(MODEL, stream=False, max_tokens=2).status == 200  # it was not left alone for that


def test_a_request_that_is_too_long_says_by_how_much(shared: Served) -> None:
    answer = shared.ask(MODEL, stream=False, messages=user("word " * 9000))
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
    assert error["request_id"] == answer.headers["x-request-id"]
    assert "(90" in error["message"]
    assert f"exceeds the available context size of {MODEL} (8192 tokens)" in error["message"]


def test_malformed_requests_do_not_keep_the_model_from_others(shared: Served) -> None:
    for _ in range(8):
        refused = shared.ask(MODEL, stream=False, reasoning_format="odd")
        assert refused.status == 400
    assert shared.ask(MODEL, stream=False, max_tokens=2).status == 200


def test_what_llama_says_of_a_mistake_that_is_not_the_requests() -> None:
    sent_text = {"error": {"code": 500, "message": "Compute error.", "type": "server_error"}}
    failure = rewrite_error(from_status(500, {}, json.dumps(sent_text).encode()), MODEL, {})
    assert (failure.code, failure.status, failure.retryable) == ("local_failed", 503, True)
    assert failure.message == f"{MODEL}, the model on the gateway's machine, failed: Compute error."


BEFORE_ANOTHER = """
[providers.local]
[providers.main]
base_url = "UPSTREAM"
api_key = "a-key-of-some-length"
[routes.pair]
targets = ["local/smollm2", "main/other"]
"""
ROUTES = """
[routes.hot]
targets = ["local/smollm2"]
set = { temperature = "hot" }
[routes.odd]
targets = ["local/smollm2"]
set = { reasoning_format = "odd" }
[routes.long]
targets = ["local/smollm2"]
"""
CHATS: dict[str, tuple[str, str, str]] = {
    "hot": ("Hi", "invalid_request", '`temperature` must be a number, not "hot"'),
    "odd": ("Hi", "invalid_request", "Unknown reasoning format: odd"),
    "long": ("word " * 9000, "context_length_exceeded", "exceeds the available context size"),
}


@pytest.mark.parametrize(("route", "question", "code", "words"), [(name, *case) for name, case in CHATS.items()])
def test_the_chat_says_the_same(
    tmp_path: Path, weights: Path, route: str, question: str, code: str, words: str
) -> None:
    (tmp_path / "penstock.toml").write_text(ROUTES)
    cache = str(weights.parents[1])
    reported = chat(tmp_path, "-m", route, "--json", stdin=question, PENSTOCK_CACHE=cache)
    error = json.loads(reported.stdout)["error"]
    assert error["code"] == code
    assert words in error["message"]
    piped = chat(tmp_path, "-m", route, stdin=question, PENSTOCK_CACHE=cache)
    assert (piped.returncode, piped.stdout) == (1, "")
    assert words in piped.stderr
    assert "exception" not in piped.stderr

"""Requests that the local model cannot process: a 400 in the gateway's envelope, whose message names the field."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.gateway.calls.local_errors import rewrite_error
from penstock.gateway.record.failure import from_status
from tests.cli.chat_ui.support import chat_process
from tests.faults.scripts import unstreamed
from tests.local.conftest import Serve
from tests.local.malformed import MALFORMED, schema
from tests.local.served import MODEL, Served, user

# The same of what llama.cpp refuses.
REFUSED: dict[str, tuple[dict[str, Any], str | None, str]] = MALFORMED | {
    "top_logprobs alone": ({"top_logprobs": 3}, None, "requires logprobs"),
    "two answers of the assistant at the end": (
        {"messages": [*user("Hi"), *[{"role": "assistant", "content": "x"}] * 2]},
        None,
        "assistant messages at the end",
    ),
    "more choices than slots": ({"n": 100}, "n", "`n`: Value must be between"),
    "a field of llama.cpp": ({"mirostat": "x"}, "mirostat", "`mirostat`: must be a number, not a string"),
    "another field of llama.cpp": ({"reasoning_format": "odd"}, None, "Unknown reasoning format"),
    "a grammar": ({"grammar": "root ::= ("}, None, "failed to parse grammar"),
    "a schema of an odd type": (schema({"type": "odd"}), "response_format", "JSON schema error"),
    "a schema that refers to nothing": (schema({"$ref": "#/nowhere"}), "response_format", "$ref #/nowhere"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "param", "words"), REFUSED.values(), ids=REFUSED)
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
    reported = chat_process(tmp_path, "-m", route, "--json", stdin=question, PENSTOCK_CACHE=cache)
    error = json.loads(reported.stdout)["error"]
    assert error["code"] == code
    assert words in error["message"]
    piped = chat_process(tmp_path, "-m", route, stdin=question, PENSTOCK_CACHE=cache)
    assert (piped.returncode, piped.stdout) == (1, "")
    assert words in piped.stderr
    assert "exception" not in piped.stderr

"""Errors that are about the operator's account at a provider, in the providers' words: another target may succeed."""

import json

import pytest

from penstock.core.hub.events import Fault
from penstock.gateway.record.failure import from_fault, from_status

CREDIT, MODEL = "upstream_no_credit", "upstream_model_not_found"
OPENAI, ANTHROPIC, GEMINI, BEDROCK = "openai_chat", "anthropic_messages", "gemini", "bedrock_converse"


def openai(message: str, code: object = None, kind: str = "invalid_request_error") -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def anthropic(message: str, kind: str = "invalid_request_error") -> dict[str, object]:
    return {"type": "error", "error": {"type": kind, "message": message}}


QUOTA = openai("You exceeded your current quota.", "insufficient_quota", "insufficient_quota")
TOO_LOW = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."
NO_DEPLOYMENT = {"error": {"code": "DeploymentNotFound", "message": "The API deployment does not exist."}}
# A provider's status and body, its dialect, and the error code and status that follow.
OF_ACCOUNT: dict[str, tuple[int, object, str, str, int]] = {
    "Anthropic, credit": (400, anthropic(TOO_LOW), ANTHROPIC, CREDIT, 400),
    "Anthropic, billing": (402, anthropic("Payment is due.", "billing_error"), ANTHROPIC, CREDIT, 402),
    "OpenAI, quota": (429, QUOTA, OPENAI, CREDIT, 429),
    "DeepSeek": (402, openai("Insufficient Balance", "invalid_request_error"), OPENAI, CREDIT, 402),
    "OpenRouter, credit": (402, {"error": {"message": "Insufficient credits", "code": 402}}, OPENAI, CREDIT, 402),
    "Moonshot": (429, openai("Your account is suspended", kind="exceeded_current_quota_error"), OPENAI, CREDIT, 429),
    "DashScope": (400, {"code": "Arrearage", "message": "Access denied."}, OPENAI, CREDIT, 400),
    "xAI": (403, {"error": "Your newly created team doesn't have any credits yet."}, OPENAI, CREDIT, 502),
    "a page with a 402": (402, "<html>pay</html>", OPENAI, CREDIT, 402),
    "Azure": (404, NO_DEPLOYMENT, OPENAI, MODEL, 404),
    "OpenAI, model": (404, openai("The model `gpt-9` does not exist", "model_not_found"), OPENAI, MODEL, 404),
    "OpenAI, access": (403, openai("No access to the model.", "model_not_found"), OPENAI, MODEL, 502),
    "Anthropic, model": (404, anthropic("model: claude-9", "not_found_error"), ANTHROPIC, MODEL, 404),
    "Gemini": (
        404,
        [{"error": {"code": 404, "message": "models/gemini-9 is not found for API version v1beta", "status": "N"}}],
        GEMINI, MODEL, 404,
    ),
    "Vertex AI": (
        404,
        openai("Publisher Model `projects/p/models/g` was not found or your project does not have access to it."),
        OPENAI, MODEL, 404,
    ),
    "Bedrock": (400, {"message": "The provided model identifier is invalid."}, BEDROCK, MODEL, 400),
    "OpenRouter, model": (400, openai("meta/llama-9 is not a valid model ID", 400), OPENAI, MODEL, 400),
    "vLLM": (404, {"object": "error", "message": "The model `m` does not exist.", "code": 404}, OPENAI, MODEL, 404),
    "Ollama": (404, {"error": 'model "llama9" not found, try pulling it first'}, "ollama", MODEL, 404),
}  # fmt: skip
OF_CLIENT: dict[str, tuple[int, object]] = {
    "a wrong field": (400, openai("Unknown parameter: 'foo'.", "unknown_parameter")),
    "the words are quoted": (400, openai(f"messages[0]: cannot read {TOO_LOW!r}")),
    "the code is quoted": (400, openai('tool "insufficient_quota" has no schema', "invalid_tool")),
    "the code is in what a server repeats": (422, {"detail": [{"input": {"code": "model_not_found"}}]}),
    "a file that is not there": (404, openai("No such File object: file-1", "file_not_found")),
    "an answer that is not there": (404, anthropic("Not found", "not_found_error")),
    "a path that is not there": (404, {"detail": "Not Found"}),
    "a member without a name": (400, {"error": {"message": "Unknown parameter: 'foo'.", "metadata": {"": 1}}}),
}

FLAGGED = 'openai/gpt-5 requires moderation on Azure. Your input was flagged for "violence".'
USAGE = "Content violates usage guidelines. Team: t, Model: grok-4, Failed check: SAFETY_CHECK_TYPE_BIO"
# What a provider's moderation refuses: its status and body.
OF_CONTENT: dict[str, tuple[int, object]] = {
    "OpenRouter": (403, {"error": {"code": 403, "message": FLAGGED, "metadata": {"reasons": ["violence"]}}}),
    "OpenRouter, in other words": (
        403,
        {"error": {"code": 403, "message": "Flagged", "metadata": {"reasons": ["violence"], "flagged_input": "…"}}},
    ),
    "xAI": (403, {"code": "The caller does not have permission", "error": USAGE}),
    "OpenAI": (400, openai("Invalid prompt: your prompt was flagged.", "invalid_prompt")),
}
OF_CREDENTIALS: dict[str, tuple[int, object]] = {
    "OpenRouter": (403, {"error": {"code": 403, "message": "Key limit exceeded (total limit)"}}),
    "xAI": (403, {"code": "permission-denied", "error": "Access to the chat endpoint is denied"}),
    "the words are quoted": (403, openai(f"Your key may not say {FLAGGED!r}")),
    "no words": (403, {}),
}


@pytest.mark.parametrize(("status", "body"), OF_CONTENT.values(), ids=OF_CONTENT)
def test_a_refusal_of_the_content_is_the_client_s_and_keeps_its_reason(status: int, body: object) -> None:
    wire = json.dumps(body).encode()
    failure = from_status(status, {}, wire)
    assert (failure.code, failure.status, failure.retryable) == ("invalid_request", status, False)
    assert failure.message in wire.decode().replace('\\"', '"')
    assert not failure.body or failure.body == wire


@pytest.mark.parametrize(("status", "body"), OF_CREDENTIALS.values(), ids=OF_CREDENTIALS)
def test_a_refusal_of_the_credentials_is_the_operator_s(status: int, body: object) -> None:
    failure = from_status(status, {}, json.dumps(body).encode())
    assert (failure.code, failure.status, failure.retryable, failure.body) == ("upstream_auth", 502, True, b"")
    assert "the gateway's credentials" in failure.message


@pytest.mark.parametrize(("status", "body", "dialect", "code", "sent"), OF_ACCOUNT.values(), ids=OF_ACCOUNT)
def test_another_target_is_tried_and_the_words_are_kept(
    status: int, body: object, dialect: str, code: str, sent: int
) -> None:
    wire = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    failure = from_status(status, {}, wire, dialect)
    assert (failure.code, failure.status, failure.upstream_status) == (code, sent, status)
    assert failure.retryable
    assert not failure.client_may_retry
    assert (failure.message in wire.decode().replace('\\"', '"')) != wire.startswith(b"<")
    assert bool(failure.body) == (sent != 502 and b'"error": {' in wire and b'{"code": "Arr' not in wire)


@pytest.mark.parametrize(("status", "body"), OF_CLIENT.values(), ids=OF_CLIENT)
def test_a_mistake_of_the_client_is_not_tried_elsewhere(status: int, body: object) -> None:
    failure = from_status(status, {}, json.dumps(body).encode())
    assert (failure.code, failure.status, failure.retryable) == ("invalid_request", status, False)


def test_an_error_inside_a_stream_is_read_by_the_same_table() -> None:
    quota = from_fault(Fault("provider-error", "no", 0, 0, {"code": "insufficient_quota"}))
    assert (quota.code, quota.status) == (CREDIT, 402)
    assert from_fault(Fault("provider-error", TOO_LOW, 0, 0, {"type": "invalid_request_error"})).code == CREDIT
    flagged = from_fault(Fault("provider-error", FLAGGED, 0, 0, {"code": 403}))
    assert (flagged.code, flagged.status, flagged.retryable) == ("invalid_request", 403, False)
    policy = from_fault(Fault("provider-error", "no", 0, 0, {"code": "image_content_policy_violation"}))
    assert (policy.code, policy.status, policy.retryable) == ("invalid_request", 400, False)


@pytest.mark.parametrize(
    ("member", "reason", "code"),
    [
        ("finishReason", "MALFORMED_FUNCTION_CALL", "upstream_bad_finish"),
        ("finishReason", "OTHER", "upstream_bad_finish"),
        ("stopReason", "malformed_tool_use", "upstream_bad_finish"),
        ("finish_reason", "ERROR_TOXIC", "upstream_bad_finish"),
        ("finish_reason", "ERROR", "upstream_error"),
        ("finish_reason", "timeout", "upstream_error"),
        ("type", "other", "upstream_error"),
    ],
)
def test_a_finish_that_the_model_made_has_its_own_code(member: str, reason: str, code: str) -> None:
    assert from_fault(Fault("provider-error", "no", 0, 0, {member: reason})).code == code

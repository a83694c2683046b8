"""The sentence of an error in the ledger: as the client got it, unless it may quote content."""

import pytest

from penstock.core.hub.events import Fault
from penstock.core.hub.failure import Failure
from penstock.gateway.calls.refusals import unknown_model
from penstock.gateway.record.failure import from_fault, from_status, sentence

_QUOTING = b'{"error": {"message": "bad prompt: my secret diary"}}'
CASES: dict[str, tuple[Failure, str]] = {
    "a refusal": (unknown_model("gpt", ["gpt-5"]), "there is no model 'gpt' here; did you mean 'gpt-5'?"),
    "a provider that is overloaded": (from_status(503, {}, b'{"error": {"message": "busy"}}'), "busy"),
    "a request that the gateway refuses": (
        Failure(code="invalid_request", message="the model must be a text"),
        "the model must be a text",
    ),
    "a provider that rejects the request": (
        from_status(400, {}, _QUOTING),
        "the provider rejected the request with status 400",
    ),
    "a provider that fails": (from_status(500, {}, _QUOTING), "the provider failed with status 500"),
    "a provider that fails in the usual words": (
        from_status(500, {}, b'{"error": {"message": "The engine is overloaded."}}'),
        "The engine is overloaded.",
    ),
    "a provider that fails in other words": (
        from_status(500, {}, b'{"error": {"message": "The engine is overloaded by your diary."}}'),
        "the provider failed with status 500",
    ),
    "a provider that is overloaded, at length": (
        from_status(529, {}, b'{"error": {"message": "busy with \\"my secret diary\\""}}'),
        "busy with",
    ),
    "too many requests": (from_status(429, {}, _QUOTING), "bad prompt"),
    "a request that is too long": (
        from_status(400, {}, b'{"error": {"message": "maximum context length is 9: my secret diary"}}'),
        "the request is longer than the context of the model",
    ),
    "a page": (
        from_fault(Fault("html-page", "my secret diary", 0, 1)),
        "the provider answered with an HTML page",
    ),
    "an error in a stream": (
        from_fault(Fault("provider-error", "failed on my secret diary", 0, 1)),
        "the provider failed",
    ),
    "a finish that the model made": (
        from_fault(Fault("provider-error", "Malformed call: diary()", 0, 1, {"finishReason": "MALFORMED_RESPONSE"})),
        "the model ended its answer in a way that leaves none",
    ),
    "content that a provider refuses": (
        from_fault(Fault("provider-error", "policy: my secret diary", 0, 1, {"code": "invalid_prompt"})),
        "the provider rejected the request with status 400",
    ),
    "an answer that cannot be read": (from_fault(Fault("bad-json", "my secret diary", 0, 1)), ""),
    "the gateway's credentials": (
        from_status(401, {}, _QUOTING),
        "the provider refused the gateway's credentials (401); the gateway's operator must correct the key",
    ),
}


@pytest.mark.parametrize(("failure", "expected"), CASES.values(), ids=CASES)
def test_the_ledger_has_the_sentence_but_no_content(failure: Failure, expected: str) -> None:
    assert sentence(failure) == expected
    assert "diary" not in sentence(failure)


def test_a_client_gets_our_sentence_and_not_the_bytes_that_are_no_json() -> None:
    failure = from_fault(Fault("bad-json", "{not json at all", 0, 1))
    assert failure.message == "the provider's stream is broken: the data of an event is not JSON"

"""The sentence of an error in the ledger: as the client got it, unless it may quote content."""

import pytest

from penstock.core.events import Fault
from penstock.core.failure import Failure
from penstock.gateway.calls.failure import from_fault, from_status, sentence
from penstock.gateway.calls.refusals import unknown_model

_QUOTING = b'{"error": {"message": "bad prompt: my secret diary"}}'
CASES: dict[str, tuple[Failure, str]] = {
    "a refusal": (unknown_model("gpt", ["gpt-5"]), "there is no model 'gpt' here; did you mean 'gpt-5'?"),
    "a provider that is overloaded": (from_status(503, {}, b'{"error": {"message": "busy"}}'), "busy"),
    "a provider that rejects the request": (
        from_status(400, {}, _QUOTING),
        "the provider rejected the request with status 400",
    ),
    "an answer that cannot be read": (from_fault(Fault("bad-json", "my secret diary", 0, 1)), ""),
}


@pytest.mark.parametrize(("failure", "expected"), CASES.values(), ids=CASES)
def test_the_ledger_has_the_sentence_but_no_content(failure: Failure, expected: str) -> None:
    assert sentence(failure) == expected


def test_a_client_gets_our_sentence_and_not_the_bytes_that_are_no_json() -> None:
    failure = from_fault(Fault("bad-json", "{not json at all", 0, 1))
    assert failure.message == "the provider's stream is broken: the data of an event is not JSON"

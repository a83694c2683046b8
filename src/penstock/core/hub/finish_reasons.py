"""Finish reasons, in all dialects: which ones say that an answer failed, and what is done with those that are unknown.

An answer with a reason of `FAILURES` has failed: for its client, in every dialect, and for the ledger. If the model has
made the failure (`_OF_MODEL`), the provider itself works. A reason that is not known is passed on as it is, and no
writer replaces it by one that means a complete answer.
"""

from collections.abc import Mapping

from penstock.core.hub.sink import Sink
from penstock.core.json.getters import shown

FAILURES = frozenset(
    (
        "error",
        "failed",
        "timeout",
        "abort",
        "cancelled",
        "canceled",
        "network_error",
        "insufficient_system_resource",
        "malformed_function_call",
    )
)
"""Reasons, in lower case, with which any provider reports that it failed."""
# Reasons, in lower case, of failures that follow from the request and the model: of Gemini, Bedrock and Cohere.
_OF_MODEL = frozenset(
    (
        "malformed_function_call",
        "malformed_response",
        "unexpected_tool_call",
        "too_many_tool_calls",
        "missing_thought_signature",
        "other",
        "image_other",
        "malformed_model_output",
        "malformed_tool_use",
        "error_limit",
        "error_toxic",
    )
)
_MEMBERS = ("finish_reason", "finishReason", "stopReason")


def made_by_model(error: Mapping[str, object]) -> bool:
    """Whether a fault with this object, as `read_reason` writes it, is a finish that the model made."""
    return any(str(error.get(member)).lower() in _OF_MODEL for member in _MEMBERS)


def read_reason(
    native: str, known: Mapping[str, str], failures: frozenset[str], sink: Sink, *, member: str, message: str = ""
) -> str | None:
    """The hub's reason for a dialect's own one; None, and a fault, if it says that the answer failed.

    `known` and `failures` are those of the dialect. `member` is the name of the field, and `message` the provider's
    explanation.
    """
    if native in failures or native.lower() in FAILURES:
        sink.fault("provider-error", message or f"the provider ended the answer with {native}", {member: native})
        return None
    reason = known.get(native)
    if reason is None:
        sink.repair("finish-unknown", shown(native))
    return reason or native

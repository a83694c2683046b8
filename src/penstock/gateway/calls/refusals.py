"""Refusals: why a call is not even tried, in words for whoever asked."""

import math
from collections.abc import Sequence

from penstock.core.failure import Failure
from penstock.error_codes import ErrorCode


def unknown_model(model: str, meant: Sequence[str]) -> Failure:
    """No provider answers to that name. `meant` are names that the client may have meant."""
    hint = f"did you mean {' or '.join(map(repr, meant))}?" if meant else "GET /v1/models lists those that there are"
    message = f"there is no model {model!r} here; {hint}"
    return _of_model("model_not_found", message)


def key_in_model() -> Failure:
    """The name of the model has an API key in it, which is not quoted."""
    message = (
        "`model` has an API key in it, so the request was neither sent on nor recorded; name a model there, and send "
        "your key to the gateway as `Authorization: Bearer …`"
    )
    return _of_model("key_in_model", message)


def not_allowed(model: str) -> Failure:
    """The key is for other models."""
    message = f"this key is not for the model {model!r}; GET /v1/models lists those that it is for"
    return _of_model("model_not_allowed", message)


def unpriced(model: str) -> Failure:
    """A budget cannot hold where nobody knows a price."""
    message = (
        f"this key has a budget, and nobody knows what {model!r} costs; whoever runs the gateway can say so "
        "under [prices] in its configuration"
    )
    return _of_model("model_unpriced", message)


def unable(model: str) -> Failure:
    """No target of it has embeddings."""
    message = f"no provider of {model!r} has embeddings; one that has says so with `embeddings` in the configuration"
    return _of_model("model_without_embeddings", message)


def all_cooling(seconds: float) -> Failure:
    """Every target has failed of late."""
    return Failure(
        code="no_healthy_target",
        message="every provider of this model that can take the request has failed and is left alone for a while",
        retry_after=whole_seconds(seconds),
    )


def whole_seconds(seconds: float) -> str:
    """At least so many, as a header says it; what a clock adds in its last digits does not count."""
    return str(math.ceil(round(seconds, 3)))


def _of_model(code: ErrorCode, message: str) -> Failure:
    return Failure(code=code, message=message, param="model", retryable=False)

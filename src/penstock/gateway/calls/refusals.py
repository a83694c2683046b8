"""Refusals: the failures of calls that are refused before the first attempt, with messages for the client."""

import math
from collections.abc import Sequence

from penstock.core.hub.failure import Failure
from penstock.error_codes import ErrorCode


def unknown_model(model: str, suggestions: Sequence[str]) -> Failure:
    """No route and no provider has that model. `suggestions` are names that the client may have meant."""
    names = " or ".join(map(repr, suggestions))
    hint = f"did you mean {names}?" if names else "GET /v1/models lists those that there are"
    message = f"there is no model {model!r} here; {hint}"
    return _of_model("model_not_found", message)


def key_in_model() -> Failure:
    """The model's name contains an API key. The message does not quote it."""
    message = (
        "`model` contains an API key, so the request was neither forwarded nor recorded; put a model's name there, and "
        "send your key to the gateway as `Authorization: Bearer …`"
    )
    return _of_model("key_in_model", message)


def not_allowed(model: str, who: str) -> Failure:
    """The key or a team of it does not allow this model: see `ClientKey.forbids`."""
    message = f"{who} does not allow the model {model!r}; GET /v1/models lists the models that the key can use"
    return _of_model("model_not_allowed", message)


def shared_state(member: str) -> Failure:
    """A request refers to something in the account of a provider, and the operator does not allow it."""
    message = (
        f"`{member}` refers to something that is stored in a provider's account, which all clients of this gateway "
        "share; send the content itself, or ask the gateway's operator to set shared_state = true in [server]"
    )
    return Failure(code="shared_state_not_allowed", message=message, param=member, retryable=False)


def provider_routing(member: str) -> Failure:
    """A request lets the provider choose another model or route, and the operator does not allow it."""
    message = (
        f"`{member}` lets the provider answer with another model or route than this gateway has chosen; name the model "
        "in `model` only, or ask the gateway's operator to set provider_routing = true in [server]"
    )
    return Failure(code="provider_routing_not_allowed", message=message, param=member, retryable=False)


def client_credentials(provider: str, *, by_key: bool) -> Failure:
    """The call has a credential of the client's own, which it may not use; `by_key`: because of its key."""
    if by_key:
        message = (
            f"this key may not be used with a credential of your own for {provider}; leave that out, or ask the "
            f"gateway's operator to add {provider} to client_credentials of the key"
        )
    else:
        message = (
            f"{provider} takes credentials of clients, but not the one in this request: it must be of the form, and in "
            "the header, that client_credentials of this provider and its API demand"
        )
    return Failure(code="client_credentials_not_allowed", message=message, retryable=False)


def unused_client_credentials(provider: str) -> Failure:
    """The call has a credential of the client's own, and its providers are called with those of the gateway only."""
    message = (
        f"{provider} is called with the gateway's credentials only, and this request has one of your own: leave that "
        "out and send the gateway's key in its place, without x-penstock-key, or ask the gateway's operator to set "
        f"client_credentials for {provider}"
    )
    return Failure(code="client_credentials_not_allowed", message=message, retryable=False)


def no_client_credentials(model: str) -> Failure:
    """The model's providers are called with credentials of clients only."""
    message = (
        f"{model!r} is called with your own credential: send it in the header of your SDK, and the gateway's key in "
        "x-penstock-key"
    )
    return Failure(code="client_credentials_missing", message=message, retryable=False)


def media_not_fetched(reason: str) -> Failure:
    """The target takes no media by URL, and the gateway could not fetch those of the request."""
    message = f"an image or a document could not be fetched from its URL: {reason}; send it as base64 data"
    return Failure(code="invalid_request", message=message, retryable=False)


def state_elsewhere(member: str, target: str) -> Failure:
    """A request refers to what a provider of the client's own API keeps, and this target has another API."""
    message = f"`{member}` refers to something that a provider of this API keeps, and {target} has another API"
    return Failure(code="invalid_request", message=message, param=member, retryable=False)


def unpriced(model: str) -> Failure:
    """A budget cannot be enforced for a model without a price."""
    message = (
        f"this key has a budget, and the price of {model!r} is unknown; the gateway's operator can set it under "
        "[prices] in the configuration"
    )
    return _of_model("model_unpriced", message)


def requirements_unmet(model: str, reasons: Sequence[str]) -> Failure:
    """No target meets what the request or its route requires."""
    message = f"no target of {model!r} meets what is required: {'; '.join(reasons)}"
    return _of_model("requirements_unmet", message)


def wrong_requirements(header: str, problem: str) -> Failure:
    """The header with the requirements cannot be read. None may be left out in silence, so the call is refused."""
    return Failure(code="invalid_request", message=f"{header}: {problem}", param=header, retryable=False)


def no_embeddings(model: str) -> Failure:
    """No target of the model offers embeddings."""
    message = f"no provider of {model!r} offers embeddings; `embeddings` in the configuration declares one that does"
    return _of_model("model_without_embeddings", message)


def all_cooling(seconds: float, *, limited: bool) -> Failure:
    """Every target of the model cools down; `limited`: because of rate limits of their providers."""
    if limited:
        message = "every provider of this model that can take the request has reached its rate limit, and cools down"
        return Failure(code="upstream_rate_limited", message=message, retry_after=whole_seconds(seconds))
    return Failure(
        code="no_healthy_target",
        message="every provider of this model that can take the request has failed and cools down",
        retry_after=whole_seconds(seconds),
    )


def keys_at_limit(seconds: float | None) -> Failure:
    """The keys of the model's providers are at the limits that the configuration sets. Without `seconds`, the request
    alone exceeds them."""
    what = "every key of this model's providers that can take the request is at the limit that the gateway sets for it"
    if seconds is None:
        message = f"{what}, and this request alone exceeds it: shorten the prompt or lower max_tokens"
        return Failure(code="provider_keys_at_limit", message=message, client_may_retry=False)
    wait = whole_seconds(seconds)
    return Failure(code="provider_keys_at_limit", message=f"{what}: try again in {wait} s", retry_after=wait)


def whole_seconds(seconds: float) -> str:
    """Seconds for a `Retry-After` header: rounded up, after the clock's rounding errors are removed."""
    return str(math.ceil(round(seconds, 3)))


def _of_model(code: ErrorCode, message: str) -> Failure:
    return Failure(code=code, message=message, param="model", retryable=False)


def not_continued(target: str) -> Failure:
    """A target cannot go on with an answer that broke off: its model, its API or the limit on the output."""
    return Failure(code="invalid_request", message=f"{target} cannot go on with this answer", client_may_retry=False)

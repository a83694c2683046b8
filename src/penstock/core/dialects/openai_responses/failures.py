"""Failures in the words of the Responses API: a body in OpenAI's envelope, and the last two events of a stream.

An `error` event has the same object as a body. `response.failed` has a code of its own, by which Codex decides whether
to repeat the request: only those of the table below are known to it, and it repeats a request that failed with any
other. The message then ends with Penstock's code. At `server_is_overloaded` Codex gives up in a stream, whereas it
repeats a request that gets this code with a status. An overload passes, so a stream has `slow_down` instead.

Of a status, Codex takes only 400 and 429 for final: it repeats a request that gets any other, up to 30 times in seven
minutes, whatever the body and `x-should-retry` say. So a client that reads nothing but streams gets the failures of
`IN_STREAM` as `response.failed`: there, `invalid_prompt` is final and shows the message.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from penstock.core.dialects.openai_errors import MAX_MESSAGE, error_object
from penstock.core.hub.failure import Failure

SERVER_ERROR = "server_error"
OVERLOADED = "server_is_overloaded"
OVERLOADED_IN_STREAM = "slow_down"
_RATE_LIMITED = "rate_limit_exceeded"
_FINAL = "invalid_prompt"
# The codes of failed responses by those of Penstock, and by those that providers send in their streams.
_CODES: Mapping[str, str] = {
    "context_length_exceeded": "context_length_exceeded",
    "content_not_allowed": _FINAL,
    "budget_exceeded": "insufficient_quota",
    "insufficient_quota": "insufficient_quota",
    "gateway_overloaded": OVERLOADED,
    "overloaded_error": OVERLOADED,
    "server_is_overloaded": OVERLOADED,
    "slow_down": OVERLOADED,
    "rate_limit_error": _RATE_LIMITED,
    "rate_limit_exceeded": _RATE_LIMITED,
    "too_many_concurrent_requests": _RATE_LIMITED,
    "upstream_no_credit": _FINAL,  # Codex shows no message with `insufficient_quota`, but "check your plan"
    "upstream_rate_limited": _RATE_LIMITED,
    "translation_loss": _FINAL,
    "cyber_policy": "cyber_policy",
    "invalid_prompt": _FINAL,
    "usage_not_included": "usage_not_included",
}
TYPED_CODES: Mapping[str, str] = {
    "context_length_exceeded": _FINAL,
    "cyber_policy": _FINAL,
    "insufficient_quota": _RATE_LIMITED,
    "usage_not_included": _RATE_LIMITED,
    OVERLOADED_IN_STREAM: SERVER_ERROR,
}
"""Codes that OpenAI's API sends at the end of a stream, and its SDKs have no type for; and those in their place, for a
client that reads the response again."""
# Failures before the first content that Codex would repeat in vain if they were a status; and a conversation that is
# too long, which it compacts only if `response.failed` says so.
IN_STREAM = frozenset(("context_length_exceeded", "upstream_auth", "upstream_no_credit", "upstream_model_not_found"))
_OVERLOADED_STATUSES = (503, 529)


class FailureWords(Struct, frozen=True):
    """How a failure is said at the end of a stream: the object of the `error` event, and of `response.failed`."""

    error: dict[str, object]
    code: str
    message: str

    @property
    def response_error(self) -> dict[str, object]:
        """The `error` of a failed response."""
        return {"code": OVERLOADED_IN_STREAM if self.code == OVERLOADED else self.code, "message": self.message}


def failure_words(failure: Failure, request_id: str) -> FailureWords:
    """A failure of the call."""
    error, message = error_object(failure, request_id), failure.message[:MAX_MESSAGE]
    code = response_code(failure)
    if code == _RATE_LIMITED and failure.retry_after.isdecimal():
        message = f"{message} Please try again in {failure.retry_after}s."  # Codex looks for these words
    if code != failure.code and failure.code not in message:
        message = f"{message} ({failure.code})"
    return FailureWords(error, code, message)


def error_words(message: str, code: str, provider: Mapping[str, object]) -> FailureWords:
    """A provider's error in its stream, or (without `provider`) the end of a stream that is not complete."""
    native = [text for name in ("code", "type") if isinstance(text := provider.get(name), str)]
    known = next((_CODES[text] for text in native if text in _CODES), SERVER_ERROR)
    words = message[:MAX_MESSAGE]
    error: dict[str, object] = {"message": words, "type": "upstream_error", "param": None}
    return FailureWords(error | {"code": native[0] if native else code}, known, words)


def response_code(failure: Failure) -> str:
    """The code of a failed response."""
    if failure.upstream_status in _OVERLOADED_STATUSES:
        return OVERLOADED
    return _CODES.get(failure.code) or (SERVER_ERROR if failure.client_may_retry else _FINAL)


def write_error(failure: Failure, request_id: str) -> bytes:
    """The body of an error. Where the API has a code that clients act on, that is used."""
    error = error_object(failure, request_id)
    code = response_code(failure)
    if code in (OVERLOADED, _RATE_LIMITED):
        error["code"] = code
    return msgspec.json.encode({"error": error})

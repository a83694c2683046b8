"""Failure: why a call, or one attempt at it, has no answer; and what the client is told about it.

| what happened | code | status | next target? |
|---|---|---|---|
| no connection, TLS, name, reset, cut | `upstream_connect_failed`, … | 502 | yes |
| a time-out | `upstream_connect_timeout`, `upstream_timeout_headers`, `upstream_timeout_idle`, … | 504 | yes |
| 429 | `upstream_rate_limited` | 429 | yes |
| 401, 403: our key, not the client's | `upstream_auth` | 502 | yes |
| 5xx, 408 | `upstream_error` | 502, 503 | yes |
| any other 4xx | the provider's own | the same | no |
| an error, a page, a broken stream inside a 200 | `upstream_error`, `upstream_bad_response`, … | 502 | yes |
| the gateway, or a model on its machine, cannot | `gateway_overloaded`, `local_busy`, `local_failed`, … | 503 | yes |
| a provider that replays has no capture | `capture_not_found` | 404 | no |
| a model on its machine takes text only | `local_text_only` | 400 | yes |
| strict mode: the request loses its meaning in translation | `translation_loss` | 400 | yes, without an attempt |
| strict mode: the answer does | `translation_loss` | 502 | yes |

"Next target" holds before the commit point only. After it every failure becomes the dialect's error frame.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import structs

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.events import Fault
from penstock.core.failure import Failure
from penstock.core.losses import Loss, described
from penstock.error_codes import ErrorCode
from penstock.gateway.calls.error_body import read_body
from penstock.gateway.mask import Secrets, masked, masked_json
from penstock.replay.upstream import NO_CAPTURE

# What the reader calls a fault, as clients are told it.
FAULT_CODES: dict[str, ErrorCode] = {
    "provider-error": "upstream_error",
    "html-page": "upstream_bad_content_type",
    "event-too-large": "upstream_event_too_large",
    "empty-stream": "upstream_empty",
}
# What strict mode refuses. No provider is at fault: it does not count against a target's health.
TRANSLATION_LOSS: ErrorCode = "translation_loss"
# What asking again does not mend.
_LASTING = "local_unavailable"
# The provider's words are not looked through at any length.
_MAX_READ = 5_000
# What makes the masking of a body slow, some 6 microseconds each: values, and what escapes begin with.
_SLOW = '",\\%&'
_MOST_SLOW = 2_000


def redacted(failure: Failure, secrets: tuple[str, ...]) -> Failure:
    """The same, with no secret in it: providers quote keys. Cut only afterwards, or half a key would stay."""
    return structs.replace(
        failure,
        message=masked(failure.message[:_MAX_READ], secrets),
        param=failure.param and masked(failure.param, secrets),
        retry_after=masked(failure.retry_after, secrets),
        body=_without(failure.body, secrets),
    )


def from_transport(code: ErrorCode, message: str, retry_after: str = "") -> Failure:
    """The failure that a broken or missing connection is, or a missing capture."""
    if code == NO_CAPTURE:
        return Failure(code=code, message=message, param="model", retryable=False)
    return Failure(
        code=code,
        message=message,
        retryable=code != "upstream_timeout_total",
        passing=code != _LASTING or bool(retry_after),
        retry_after=retry_after,
    )


def from_fault(fault: Fault) -> Failure:
    """The failure that a fault in a 200 is. An HTTP status in the provider's error object counts as one."""
    said = fault.provider.get("code") if fault.provider else None
    if said is None and fault.provider:
        said = fault.provider.get("status_code")
    status = said if isinstance(said, int) and 400 <= said < 600 else 0
    return Failure(
        code="upstream_rate_limited" if status == 429 else FAULT_CODES.get(fault.code, "upstream_bad_response"),
        message=fault.message,
        upstream_status=status,
    )


def from_status(status: int, headers: Mapping[str, str], body: bytes, dialect: str = DEFAULT_DIALECT) -> Failure:
    """The failure that an HTTP status of a provider of this dialect is."""
    error = read_body(body, headers.get("content-encoding", ""), dialect)
    words = error.words or f"the provider answered {status}{error.unreadable}"
    retry_after = headers.get("retry-after", "")
    if status in (401, 403):
        message = (
            f"the provider refused the gateway's credentials ({status}); whoever runs the gateway must mend its key"
        )
        return Failure(code="upstream_auth", message=message, upstream_status=status, passing=False)
    if status == 429:
        return Failure(code="upstream_rate_limited", message=words, retry_after=retry_after, upstream_status=status)
    if status >= 500 or status == 408:
        shed = status in (503, 529)
        return Failure(
            code="upstream_error",
            message=words,
            status=503 if shed else 504 if status == 504 else 502,
            retry_after=retry_after,
            upstream_status=status,
        )
    if 300 <= status < 400:
        return Failure(
            code="upstream_redirect", message="the provider redirects, which is not followed", upstream_status=status
        )
    return Failure(
        code="invalid_request",
        message=words,
        status=status,
        retryable=False,
        upstream_status=status,
        body=error.envelope,
        dialect=dialect,
    )


def from_request_losses(losses: Mapping[str, Iterable[Loss]]) -> Failure:
    """The failure that losses of a strict request are, by target, where they change its meaning for each."""
    by_target = "; ".join(f"{target}: {described(lost)}" for target, lost in losses.items())
    return Failure(
        code=TRANSLATION_LOSS,
        message="the call is strict, and for the providers of this model the request can only be written with losses "
        f"that change its meaning: {by_target}",
        passing=False,
    )


def from_answer_losses(losses: Iterable[Loss]) -> Failure:
    """The failure that losses of the answer to a strict request are, where they change its meaning."""
    return Failure(
        code=TRANSLATION_LOSS,
        message="the call is strict, and the provider's answer can only be written with losses that change its "
        f"meaning: {described(losses)}",
        status=502,
        passing=False,
    )


def _without(body: bytes, secrets: tuple[str, ...]) -> bytes:
    """A body without secrets: neither in its bytes nor in what they are decoded to. As it was, if it has none.

    Empty where masking it would hold up other calls: then the client gets the message alone.
    """
    text = body.decode(errors="replace")
    if not Secrets(secrets).may_be_in(text):
        return body
    if sum(map(text.count, _SLOW)) > _MOST_SLOW:
        return b""
    try:
        parsed = msgspec.json.decode(body)
        clean = masked_json(parsed, secrets)
    except (ValueError, RecursionError):
        return masked(text, secrets).encode()
    if clean == parsed and masked(text, secrets) == text:
        return body
    return msgspec.json.encode(clean)

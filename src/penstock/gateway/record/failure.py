"""Failure: why a call, or one attempt at it, has no answer, and the error that the client gets.

| what happened | code | status | next target? |
|---|---|---|---|
| no connection, TLS, name, reset, cut | `upstream_connect_failed`, … | 502 | yes |
| a timeout, or less than the least pace | `upstream_timeout_headers`, `upstream_too_slow`, … | 504 | yes |
| 429 | `upstream_rate_limited` | 429 | yes |
| 401, 403: our key, not the client's | `upstream_auth` | 502 | yes |
| 401, 403 for a credential of the client's own | `client_credentials_refused` | the same | no |
| 403, or an error inside a 200: moderation refuses the content | the provider's own | the same; 400 without one | no |
| 5xx, 408 | `upstream_error` | 502, 503 | yes |
| the provider's account has no credit | `upstream_no_credit` | the same | yes |
| the provider's account has no such model | `upstream_model_not_found` | the same | yes |
| any other 4xx that says that the request is too long | `context_length_exceeded` | the same | no |
| any other 4xx | the provider's own | the same | no |
| the model's finish leaves no usable answer, as a malformed call does | `upstream_bad_finish` | 502 | yes |
| an error, a page, a broken stream inside a 200 | `upstream_error`, `upstream_bad_response`, … | 502 | yes |
| the gateway or the local model cannot serve it | `gateway_overloaded`, `local_busy`, `local_failed`, … | 503 | yes |
| a replay provider has no capture | `capture_not_found` | 404 | no |
| the local model takes text only | `local_text_only` | 400 | yes |
| the model refuses, and the route names a target for that | `upstream_refusal` | 502 | that one |
| strict mode: the request loses its meaning in translation | `translation_loss` | 400 | yes, without an attempt |
| strict mode: the answer does | `translation_loss` | 502 | yes |

`core/provider_errors/account_errors.py` has the words of the two problems of accounts, and those of moderation. An
error inside a 200 that says its status, or has a code or type that stands for one, is treated as that status. "Next
target" holds before the commit point only. After it every failure becomes the dialect's error frame.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import structs

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.hub.events import Fault
from penstock.core.hub.failure import Failure
from penstock.core.hub.finish_reasons import made_by_model
from penstock.core.hub.losses import Loss, described
from penstock.core.provider_errors.account_errors import Problem, read_problem
from penstock.core.provider_errors.context_overflow import read_overflow
from penstock.core.provider_errors.error_shapes import codes_of
from penstock.error_codes import ErrorCode
from penstock.gateway.mask import Secrets, masked, masked_json
from penstock.gateway.record.attempt import Attempt
from penstock.gateway.record.error_body import read_body

# The error code of each fault that the reader reports.
FAULT_CODES: dict[str, ErrorCode] = {
    "provider-error": "upstream_error",
    "html-page": "upstream_bad_content_type",
    "event-too-large": "upstream_event_too_large",
    "empty-stream": "upstream_empty",
}
_BROKEN: ErrorCode = "upstream_bad_response"
# Sentences for faults whose message is only the provider's bytes.
_OWN_WORDS = {"bad-json": "the provider's stream is broken: the data of an event is not JSON"}
# The error code of each problem of the provider's account.
_ACCOUNT_CODES: dict[Problem, ErrorCode] = {
    "no-credit": "upstream_no_credit",
    "no-model": "upstream_model_not_found",
}
# A client must not mistake the provider's refusal for one of its own key.
_CREDENTIALS = (401, 403)
_RATE_LIMITED = 429
# What a client gets for a provider's status where that is not 502.
_OVERLOADED_OR_LATE = {503: 503, 529: 503, 504: 504}
# The statuses that codes and types of errors inside a stream stand for.
_STATUSES = {
    "overloaded_error": 529,
    "server_is_overloaded": 503,
    "slow_down": 503,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "timeout_error": 504,
    "throttlingException": 429,
    "serviceUnavailableException": 503,
    "modelTimeoutException": 504,
}
# Strict mode refuses a loss. No provider is at fault, so it does not count against a target's health.
TRANSLATION_LOSS: ErrorCode = "translation_loss"
TOO_LONG: ErrorCode = "context_length_exceeded"
# The model has generated something, but no answer.
BAD_FINISH: ErrorCode = "upstream_bad_finish"
# The model has refused, and the route has another target for that.
REFUSED: ErrorCode = "upstream_refusal"
# Statuses with which providers refuse a request that is too long.
_REFUSALS = (400, 413, 422)
_OPENAI_CODE = b'"context_length_exceeded"'
# In characters: of a message that the ledger has.
_MAX_SENTENCE = 500
# The codes of failures whose message may be the words of a provider that has read the request; and what the ledger has
# in their place.
_PROVIDERS_WORDS: dict[ErrorCode, str] = {
    "invalid_request": "the provider rejected the request with status {status}",
    "client_credentials_refused": "the provider refused the client's own credential with status {status}",
    "upstream_error": "the provider failed with status {status}",
    "upstream_bad_content_type": "the provider answered with an HTML page",
    "upstream_bad_response": "",
    BAD_FINISH: "the model ended its answer in a way that leaves none",
    TOO_LONG: "the request is longer than the context of the model",
}
# Statuses of a provider that has not read the request.
_UNREAD = frozenset({503, 529})
_OUR_WORDS = frozenset({"upstream_auth", "upstream_redirect"})
# Where a provider's words may begin to quote something; and how many characters of them are kept.
_QUOTED = re.compile("[\"'`:\n\u2018\u201c\u00ab]")
_MAX_WORDS = 200
# Words of errors that say nothing about a request. A message of these alone cannot quote one.
_WORD = re.compile(r"\w+")
_USUAL_TEXT = """
a again an and at available busy by capacity contact currently engine error exceeded failed failure fatal
for had has high in internal is it later load model moment not occurred of or our overloaded please
processing provider request retry server service sorry support temporarily that the this timed timeout to
too traffic try unable unavailable unexpected unknown us was we went while with wrong you your
"""
_USUAL = frozenset(_USUAL_TEXT.split())
_NO_CAPTURE: ErrorCode = "capture_not_found"
# A retry does not help.
_PERMANENT: ErrorCode = "local_unavailable"
# In characters: a provider's message is masked up to this length.
_MAX_READ = 5_000
# Characters that make masking slow, about 6 microseconds each: they separate values or start an escape.
_SLOW_CHARS = '",\\%&'
_MAX_SLOW = 2_000


def redacted(failure: Failure, secrets: tuple[str, ...]) -> Failure:
    """The failure without secrets: providers quote keys in errors. Truncate it only afterwards, or half a key would
    remain."""
    return structs.replace(
        failure,
        message=masked(failure.message[:_MAX_READ], secrets),
        param=failure.param and masked(failure.param, secrets),
        retry_after=masked(failure.retry_after, secrets),
        body=_without(failure.body, secrets),
    )


def sentence(failure: Failure) -> str:
    """The message of a failure as the ledger has it. The ledger has no content, so our own words replace those of a
    provider that has read the request: they may quote the prompt or the answer. A provider that has too many requests,
    or whose account is the problem, has not read it: the first words of its message are kept. So are words that are
    in every error, such as "The engine is overloaded"."""
    status = failure.upstream_status
    first = _QUOTED.split(failure.message, maxsplit=1)[0].strip()[:_MAX_WORDS]
    if failure.code in _PROVIDERS_WORDS and status not in _UNREAD and (status or failure.code != "invalid_request"):
        words = _PROVIDERS_WORDS[failure.code]
        if words and first and _USUAL.issuperset(_WORD.findall(first.lower())):
            return first
        return words.format(status=status) if status else words.removesuffix(" with status {status}")
    if status and failure.code not in _OUR_WORDS:
        return first
    return failure.message[:_MAX_SENTENCE]


def from_transport(code: ErrorCode, message: str, retry_after: str = "") -> Failure:
    """The failure for a broken or missing connection, or a missing capture."""
    if code == _NO_CAPTURE:
        return Failure(code=code, message=message, param="model", retryable=False)
    return Failure(
        code=code,
        message=message,
        retryable=code != "upstream_timeout_total",
        client_may_retry=code != _PERMANENT or bool(retry_after),
        retry_after=retry_after,
    )


def from_fault(fault: Fault) -> Failure:
    """The failure for a fault in a 200 response.

    An HTTP status in the provider's error object counts as the status, and so does a code or type that stands for one.
    """
    error = fault.provider or {}
    code = error.get("code")
    if code is None:
        code = error.get("status_code")
    if read_overflow(fault.message, code) is not None:
        return Failure(code=TOO_LONG, message=fault.message, retryable=False, client_may_retry=False)
    codes = codes_of(error)
    if not isinstance(code, int) or not 400 <= code < 600:
        code = next((_STATUSES[word] for word in codes if word in _STATUSES), 0)
    problem = read_problem(code, fault.message, codes)
    if problem == "content":
        status = code or 400
        return Failure(
            code="invalid_request",
            message=fault.message,
            status=status,
            retryable=False,
            client_may_retry=False,
            upstream_status=status,
            content_policy=True,
        )
    if problem is not None:
        return _of_account(problem, code, fault.message)
    known: ErrorCode = BAD_FINISH if made_by_model(error) else FAULT_CODES.get(fault.code, _BROKEN)
    return Failure(
        code="upstream_rate_limited" if code == 429 else known,
        message=_OWN_WORDS.get(fault.code, fault.message),
        status=_OVERLOADED_OR_LATE.get(code, 0),
        upstream_status=code,
    )


def from_answer(attempt: Attempt, headers: Mapping[str, str], body: bytes) -> Failure:
    """The failure for the HTTP status of an attempt. What a provider says of a credential of the client's own is for
    the client, as the provider says it, unlike what it says of the gateway's."""
    failure = from_status(attempt.status, headers, body, attempt.dialect)
    status = failure.upstream_status
    if not attempt.client_credentials or not (status in _CREDENTIALS or status == _RATE_LIMITED):
        return failure
    error = read_body(body, headers.get("content-encoding", ""), attempt.dialect)
    refused = failure.code == "upstream_auth"
    return structs.replace(
        failure,
        code="client_credentials_refused" if refused else failure.code,
        message=error.words or f"the provider refuses your own credential with status {status}",
        status=status,
        retryable=not refused and failure.retryable,
        body=error.envelope,
        dialect=attempt.dialect,
    )


def from_status(status: int, headers: Mapping[str, str], body: bytes, dialect: str = DEFAULT_DIALECT) -> Failure:
    """The failure for an HTTP status of a provider with this dialect."""
    error = read_body(body, headers.get("content-encoding", ""), dialect)
    status = error.status or status
    words = error.words or f"the provider answered {status}{error.unreadable}"
    retry_after = headers.get("retry-after") or error.retry_after
    problem = read_problem(status, words, error.codes)
    if problem in _ACCOUNT_CODES:
        failure = _of_account(problem, status, words, retry_after)
        return failure if status in _CREDENTIALS else structs.replace(failure, body=error.envelope, dialect=dialect)
    if status in _CREDENTIALS and problem != "content":
        message = (
            f"the provider refused the gateway's credentials ({status}); the gateway's operator must correct the key"
        )
        return Failure(code="upstream_auth", message=message, upstream_status=status, client_may_retry=False)
    if status == 429:
        return Failure(code="upstream_rate_limited", message=words, retry_after=retry_after, upstream_status=status)
    if status >= 500 or status == 408:
        return Failure(
            code="upstream_error",
            message=words,
            status=_OVERLOADED_OR_LATE.get(status, 502),
            retry_after=retry_after,
            upstream_status=status,
        )
    if 300 <= status < 400:
        return Failure(
            code="upstream_redirect", message="the provider redirects, which is not followed", upstream_status=status
        )
    too_long = status in _REFUSALS and read_overflow(words, TOO_LONG if _OPENAI_CODE in body else None) is not None
    return Failure(
        code=TOO_LONG if too_long else "invalid_request",
        message=words,
        status=status,
        retryable=False,
        upstream_status=status,
        body=error.envelope,
        dialect=dialect,
        content_policy=problem == "content",
    )


def _of_account(problem: Problem, status: int, words: str, retry_after: str = "") -> Failure:
    return Failure(
        code=_ACCOUNT_CODES[problem],
        message=words,
        status=502 if status in _CREDENTIALS else status,
        client_may_retry=False,
        retry_after=retry_after,
        upstream_status=status,
    )


def from_request_losses(losses: Mapping[str, Iterable[Loss]]) -> Failure:
    """The failure for a strict request whose losses change its meaning for every target. `losses` is by target."""
    by_target = "; ".join(f"{target}: {described(lost)}" for target, lost in losses.items())
    return Failure(
        code=TRANSLATION_LOSS,
        message="the call is strict, and for the providers of this model the request can only be written with losses "
        f"that change its meaning: {by_target}",
        client_may_retry=False,
    )


def from_answer_losses(losses: Iterable[Loss]) -> Failure:
    """The failure for a strict request whose answer has losses that change its meaning."""
    return Failure(
        code=TRANSLATION_LOSS,
        message="the call is strict, and the provider's answer can only be written with losses that change its "
        f"meaning: {described(losses)}",
        status=502,
        client_may_retry=False,
    )


def _without(body: bytes, secrets: tuple[str, ...]) -> bytes:
    """The body without secrets, neither in its bytes nor in the decoded JSON. Unchanged if it has none.

    Empty if masking would take so long that it delays other calls: then the client gets the message only.
    """
    text = body.decode(errors="replace")
    if not Secrets(secrets).may_be_in(text):
        return body
    if sum(map(text.count, _SLOW_CHARS)) > _MAX_SLOW:
        return b""
    try:
        parsed = msgspec.json.decode(body)
        clean = masked_json(parsed, secrets)
    except (ValueError, RecursionError):
        return masked(text, secrets).encode()
    if clean == parsed and masked(text, secrets) == text:
        return body
    return msgspec.json.encode(clean)

"""Recovery: what may follow on a failed attempt, besides the next target of the route.

| the failure | the cause | what follows |
|---|---|---|
| the request is longer than the model's context | `too_long` | the targets that `fallbacks` of the route names for it |
| the provider's moderation refuses the content | `content_policy` | likewise |
| the model refuses, or its answer is filtered, before the client has any of it | `refusal` | likewise |
| 429 | `rate_limit` | likewise, then the next target; at the last one, the same target again |
| 503, 529 | `overload` | likewise |
| any other 5xx, 408, no connection, a reset, no content | | the next target; at the last one, the same one again |

The same target is tried again after a wait that doubles from one repetition to the next and has jitter, and not before
`Retry-After`; at most `same_target` times, and only if the wait is short enough for a client. A timeout is not
repeated: a client that has waited a minute does not wait for another one. Nor is an attempt that the provider bills,
unless the route says so (`retry_billed`). Each repetition is taken from the retry budget.
"""

import random
from collections.abc import Callable

from penstock.core.hub.failure import Failure
from penstock.error_codes import ErrorCode
from penstock.gateway.config import Retries
from penstock.gateway.config.route_settings import Cause
from penstock.gateway.record.attempt import Attempt
from penstock.gateway.record.failure import REFUSED, TOO_LONG

_BY_CODE: dict[ErrorCode, Cause] = {
    TOO_LONG: "too_long",
    REFUSED: "refusal",
    "upstream_rate_limited": "rate_limit",
}
_OVERLOADED = frozenset((503, 529))
CAUSED_BY_REQUEST: frozenset[Cause] = frozenset(("too_long", "content_policy", "refusal"))
"""The causes that lie in the request: the other targets of the route would fail for them, too, and none is at fault."""
# A repetition at the same target may succeed.
_PASSING: frozenset[ErrorCode] = frozenset(
    (
        "upstream_connect_failed",
        "upstream_connect_timeout",
        "upstream_dns_failed",
        "upstream_empty",
        "upstream_error",
        "upstream_rate_limited",
        "upstream_reset",
        "upstream_stale",
        "upstream_truncated",
    )
)


def cause_of(failure: Failure) -> Cause | None:
    """The cause of a failure by which a route may name other targets."""
    if failure.content_policy:
        return "content_policy"
    if failure.code == "upstream_error" and failure.upstream_status in _OVERLOADED:
        return "overload"
    return _BY_CODE.get(failure.code)


def is_billed(attempt: Attempt) -> bool:
    """Whether the provider bills a failed attempt, as far as is known."""
    return attempt.answered or attempt.output_chars > 0 or attempt.usage is not None or attempt.tokens is not None


class Repetitions:
    """The repetitions of one call at the same target."""

    def __init__(self, retries: Retries, random_source: Callable[[], float] = random.random) -> None:
        self._retries = retries
        self._random = random_source
        self._done = 0

    def wait_s(self, failure: Failure, attempt: Attempt, cooling_s: float, *, billed_too: bool) -> float | None:
        """How long to wait before the same target is tried again; None if it is not. It cools down for `cooling_s`."""
        retries = self._retries
        if self._done >= retries.same_target or not failure.retryable or failure.code not in _PASSING:
            return None
        if is_billed(attempt) and not billed_too:
            return None
        backoff = retries.backoff_s * 2.0**self._done
        wait = max(backoff * (0.5 + self._random() / 2), cooling_s * (1 + self._random() / 10))
        if wait > retries.max_wait_s:
            return None
        self._done += 1
        return wait

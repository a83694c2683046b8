"""The response to a client whose call is denied by the account of its key."""

from collections.abc import Callable

import pytest

from penstock.core.hub.failure import Failure
from penstock.error_codes import ErrorCode
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.quota import Quota
from penstock.gateway.limits.accounts import LocalAccounts
from penstock.gateway.limits.admission import Decision, Denial, Limit, Reservation
from penstock.gateway.limits.demand import TokenDemand
from penstock.gateway.limits.output_estimate import BytesPerToken
from penstock.gateway.limits.reservation import Reservations
from penstock.gateway.record.call import Call

KEY = ClientKey(id="key_1", name="a key", quotas=(Quota(id="key_1"),))


class Denying(LocalAccounts):
    """Accounts that deny every call."""

    def __init__(self, limit: Limit, code: ErrorCode) -> None:
        super().__init__()
        self._denial = Denial(limit=limit, code=code, message="no", retry_after_s=5)

    def reserve(self, quota: Quota, demand: Reservation, then: Callable[[Decision], None]) -> None:  # noqa: ARG002 - as in `Accounts`
        """Deny it."""
        then(self._denial)


@pytest.mark.parametrize(
    ("limit", "code", "status", "error_type"),
    [
        ("budget", "insufficient_quota", 429, "insufficient_quota"),
        ("requests", "rate_limit_exceeded", 429, "rate_limit_error"),
        ("concurrent", "too_many_concurrent_requests", 429, "rate_limit_error"),
        ("ledger", "ledger_unavailable", 503, "server_error"),
    ],
)
def test_a_denial_has_the_status_of_its_code(limit: Limit, code: ErrorCode, status: int, error_type: str) -> None:
    reported: list[Failure | None] = []
    call = Call("req_1", "main/m", True, 0.0, key=KEY)
    Reservations(Denying(limit, code), BytesPerToken()).reserve(call, TokenDemand(1), (), 60.0, reported.append)
    (failure,) = reported
    assert failure is not None
    assert (failure.code, failure.status, failure.error_type, failure.retry_after) == (code, status, error_type, "5")

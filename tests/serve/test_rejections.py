"""Rejected requests: why, of which key and from where; in few lines of the log, and without what the client sent."""

from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from penstock.core.hub.failure import Failure
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.key_ring import KeyRing
from penstock.gateway.keys.key_secret import digest_of, new_secret
from penstock.http.exchange import HttpRequest
from penstock.serve.auth import Authenticator
from penstock.serve.rejections import REASONS, Rejection, Rejections, merged
from penstock.serve.request_head import parse_head

SECRET, OLD = new_secret(), new_secret()
KEY = ClientKey(id="key_1", name="ci", digest=digest_of(SECRET), previous=digest_of(OLD))
LONG_AGO = 1
# By reason: the key as it is stored, the secret that the client sends, and whether the key is named.
CASES: dict[str, tuple[ClientKey, str, bool]] = {
    "no_key": (KEY, "", False),
    "unknown_key": (KEY, new_secret(), False),
    "mistyped_key": (KEY, SECRET[:-1], False),
    "rotated_key": (replace(KEY, previous_until_ms=LONG_AGO), OLD, True),
    "revoked_key": (replace(KEY, revoked_ms=LONG_AGO, blocked_ms=LONG_AGO), SECRET, True),
    "expired_key": (replace(KEY, expires_ms=LONG_AGO), SECRET, True),
    "blocked_key": (replace(KEY, blocked_ms=LONG_AGO), SECRET, True),
    "blocked_team": (replace(KEY, team_refusal="the team acme is blocked"), SECRET, True),
}


class Unconnected(Struct):
    """A request that no connection has."""

    request: HttpRequest
    body: bytes = b""
    pieces: tuple[bytes, ...] = ()


def reject(key: ClientKey, secret: str) -> Rejection:
    authenticator = Authenticator()
    authenticator.use(KeyRing([key]))
    request = HttpRequest("POST", "/v1/chat/completions", "", {"authorization": f"Bearer {secret}"})
    exchange: Any = Unconnected(request)
    rejection = authenticator.authenticate(parse_head(request), exchange)
    assert isinstance(rejection, Rejection)
    return rejection


@pytest.mark.parametrize(("reason", "case"), CASES.items(), ids=CASES)
def test_a_rejection_has_its_reason_and_the_key_if_it_is_known(reason: str, case: tuple[ClientKey, str, bool]) -> None:
    key, secret, named = case
    rejection = reject(key, secret)
    assert (rejection.reason, rejection.key) == (reason, key if named else None)
    assert reason in REASONS


class Seen:
    """The table, with what it logs and counts."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        self.counted: list[str] = []
        self.table = Rejections(self.lines.append, self.counted.append, lambda: self.now)


def test_rows_are_counted_and_logged_once_a_minute_without_the_secret() -> None:
    seen = Seen()
    revoked, unknown = reject(*CASES["revoked_key"][:2]), reject(*CASES["unknown_key"][:2])
    for _ in range(30):
        seen.table.add(revoked, "10.0.0.5")
        seen.table.add(unknown, "10.0.0.6")
    seen.now = 61.0
    seen.table.add(revoked, "10.0.0.5")
    assert seen.lines == [
        "a request with the revoked key ci (key_1) was rejected, from 10.0.0.5",
        "a request with an unknown API key was rejected, from 10.0.0.6",
        "a request with the revoked key ci (key_1) was rejected, from 10.0.0.5 (31 since the start)",
    ]
    assert (seen.counted.count("revoked_key"), seen.counted.count("unknown_key")) == (31, 30)
    rows = [(row.key_name, row.address, row.reason, row.count) for row in merged([*seen.table.rows] * 2)]
    assert rows == [("ci", "10.0.0.5", "revoked_key", 62), ("", "10.0.0.6", "unknown_key", 60)]
    assert SECRET not in repr(seen.table.rows)


def test_a_flood_of_addresses_has_few_lines_and_hides_no_known_key() -> None:
    seen = Seen()
    seen.table.add(reject(*CASES["revoked_key"][:2]), "10.0.0.5")
    unknown = Rejection(Failure(code="invalid_api_key", message=""), "unknown_key")
    for number in range(5_000):
        seen.table.add(unknown, f"2001:db8::{number:x}")
    assert len(seen.lines) == 20
    assert seen.table.rows[0].reason == "revoked_key"

"""JwtClients: authenticates clients by JWTs of an identity provider, in place of keys.

1. The signature must be by a key of the issuer (`signing_keys.py`), with an algorithm that the configuration lists. All
   of these need a private key: `none` and HMAC are never accepted. Keys that a token brings or names itself (`jwk`,
   `jku`, `x5u`) are not used.
2. `iss` and `aud` must be those of the configuration, `exp` must be in the future and `nbf` in the past.
3. A claim says which team the client belongs to. A client of a team that does not exist is refused (403). Its calls are
   those of the key `jwt:TEAM`, which is in no store: the limits of the team apply to it. The subject of the token is
   the end user of the calls, unless configured otherwise.

A verified token is remembered until it expires, so a client that repeats it costs no signature. Needs the extra `oidc`.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any, NamedTuple

from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from msgspec import structs

from penstock.core.hub.failure import Failure
from penstock.gateway.config.people import JwtSettings
from penstock.gateway.keys.client_key import ClientKey
from penstock.serve.signing_keys import SigningKeys

_MAX_TOKEN = 16_384
_MAX_REMEMBERED = 10_000
# Clocks differ.
_LEEWAY_S = 30
_MAX_USER = 200
_FETCHING = Failure(
    code="ledger_unavailable",
    message="the gateway is fetching the signing keys of the identity provider; try again",
    retry_after="1",
)


class _Verified(NamedTuple):
    team: str
    user: str
    until_s: float


class JwtClients:
    """Verifies tokens of one issuer."""

    def __init__(self, settings: JwtSettings, signing_keys: SigningKeys) -> None:
        self.settings = settings
        self.signing_keys = signing_keys
        self._claims = jwt.JWTClaimsRegistry(
            leeway=_LEEWAY_S,
            iss={"essential": True, "value": settings.issuer},
            aud={"essential": True, "value": settings.audience},
            exp={"essential": True},
        )
        self._verified: dict[bytes, _Verified] = {}
        self._verified_with: KeySet | None = None

    def close(self) -> None:
        """Fetch no more keys."""
        self.signing_keys.close()

    def issued(self, token: str) -> bool:
        """Whether a text is a token that says it is of this issuer and for this gateway. No signature is checked."""
        if len(token) > _MAX_TOKEN:
            return False
        try:
            claims = json.loads(urlsafe_b64decode(token.split(".")[1] + "=="))
        except (ValueError, IndexError, RecursionError):
            return False
        if not isinstance(claims, dict):
            return False
        audience = claims.get("aud")
        return claims.get("iss") == self.settings.issuer and self.settings.audience in (
            audience if isinstance(audience, list) else [audience]
        )

    def authenticate(
        self, token: str, digest: bytes, keys: Mapping[str, ClientKey], now_s: float
    ) -> ClientKey | Failure:
        """The key of a client with this token, or why it is refused. `keys` are those of teams, by path."""
        signing_keys = self.signing_keys.keys
        if signing_keys is None:
            return _FETCHING
        if signing_keys is not self._verified_with:  # a key may have been withdrawn
            self._verified.clear()
            self._verified_with = signing_keys
        found = self._verified.get(digest)
        if found is None or found.until_s <= now_s:
            verified = self._verify(token, signing_keys)
            if isinstance(verified, Failure):
                return verified
            found = verified
            if len(self._verified) >= _MAX_REMEMBERED:
                del self._verified[next(iter(self._verified))]
            self._verified[digest] = found
        key = keys.get(found.team)
        if key is None:
            message = f"the team {found.team}, to which this token belongs, does not exist: ask for it to be created"
            return Failure(code="team_not_allowed", message=message, retryable=False)
        return structs.replace(key, subject=found.user) if found.user else key

    def _verify(self, token: str, signing_keys: KeySet) -> _Verified | Failure:
        if len(token) > _MAX_TOKEN:
            return _refused("this token is too long")
        try:
            claims = jwt.decode(token, signing_keys, algorithms=list(self.settings.algorithms)).claims
            self._claims.validate(claims)
            until_s = float(claims["exp"])
        except InvalidKeyIdError:
            return _FETCHING if self.signing_keys.refresh() else _UNKNOWN_KEY
        except (JoseError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            return _refused(_reason(error))
        team = self._team(claims.get(self.settings.team_claim))
        if team is None:
            return _refused(f"no value of the claim {self.settings.team_claim!r} of this token belongs to a team")
        user = claims.get(self.settings.user_claim, "") if self.settings.user_claim else ""
        if self.settings.user_claim and not (isinstance(user, str) and 0 < len(user) <= _MAX_USER):
            return _refused(f"this token has no valid claim {self.settings.user_claim!r}")
        return _Verified(team, user, until_s)

    def _team(self, claim: Any) -> str | None:
        """The team of a client: of several groups, the one that the configuration lists first."""
        values = {claim} if isinstance(claim, str) else set(filter(_is_text, claim)) if isinstance(claim, list) else ()
        return next((team for value, team in self.settings.teams.items() if value in values), None)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _reason(error: Exception) -> str:
    """Why a token is refused. The claims themselves are not quoted."""
    kind = type(error).__name__.removesuffix("Error")
    if kind == "ExpiredToken":
        return "this token has expired"
    claim = getattr(error, "claim", "")
    return f"this token is not accepted: {kind}{f' ({claim})' if claim else ''}"


def _refused(message: str) -> Failure:
    return Failure(code="invalid_api_key", message=message, retryable=False)


_UNKNOWN_KEY = _refused("this token is signed with a key that the identity provider does not list")

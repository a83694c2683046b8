"""ClientKey: the key of a call."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.gateway.keys.quota import Quota

State: TypeAlias = Literal["active", "revoked", "expired"]


class AnyKey:
    """What every form of a key has, and an API token."""

    __slots__ = ()
    id: str
    name: str
    expires_ms: int | None
    revoked_ms: int | None

    def unusable(self, now_ms: float) -> str:
        """Why the key is invalid for good, as a message for the client; empty if it is not."""
        if self.revoked_ms is not None and self.revoked_ms <= now_ms:
            return "this key was revoked; ask for another one"
        if self.expires_ms is not None and self.expires_ms <= now_ms:
            return "this key has expired; ask for another one"
        return ""

    def state(self, now_ms: float) -> State:
        """Whether it can be used, or why not."""
        if self.revoked_ms is not None and self.revoked_ms <= now_ms:
            return "revoked"
        return "expired" if self.unusable(now_ms) else "active"


class ClientKey(Struct, AnyKey, frozen=True, kw_only=True):
    """A key of the book, of the configuration, or of the clients of a team that have a JWT; with the accounts in which
    its calls are reserved. `gateway/teams/chain.py` makes it from the stored key and its teams."""

    id: str
    name: str
    team: str = ""
    owner: str = ""
    """The user who created it for itself; empty if none did."""
    configured: bool = False
    """Whether it is of the configuration. It has no limits, and its id is its place in a list, which may change."""
    digest: bytes = b""
    """SHA-256 of its secret; empty if no secret opens it."""
    previous: bytes = b""
    """SHA-256 of the previous secret; empty if there is none."""
    previous_until_ms: int | None = None
    expires_ms: int | None = None
    revoked_ms: int | None = None
    blocked_ms: int | None = None
    models: tuple[str, ...] = ()
    """Patterns of the models that it allows; empty for all."""
    tags: Mapping[str, str] = {}
    strict: bool = False
    client_credentials: tuple[str, ...] = ()
    """The providers that its calls may be made to with credentials of the client's own."""
    subject: str = ""
    """The end user of its calls, as a JWT names it; empty to take the one that the client names."""
    quotas: tuple[Quota, ...] = ()
    """The accounts in which its calls are reserved: its own, its further budgets, then those of its teams from the
    innermost to the organisation, of each level those of the member first."""
    user_quotas: tuple[Quota, ...] = ()
    """The limits of each of its end users; `chain.end_user_quotas` has the accounts of one."""
    team_models: tuple[tuple[str, ...], ...] = ()
    """The patterns of each team that limits models."""
    team_refusal: str = ""
    """Why its team cannot be used, as a message for the client; empty if it can."""

    @property
    def restricted(self) -> bool:
        """Whether the key or a team of it allows some models only."""
        return bool(self.models or self.team_models)

    @property
    def budgeted(self) -> bool:
        """Whether any budget limits its calls."""
        return any(quota.budget is not None for quota in self.quotas + self.user_quotas)

    def allows(self, model: str) -> bool:
        """Whether the key and its teams allow that model."""
        return not self.forbids(model)

    def forbids(self, model: str) -> str:
        """Who does not allow that model, as the subject of a sentence: the key, or a team of it; empty if all do."""
        if self.models and not any(fnmatchcase(model, pattern) for pattern in self.models):
            return "this key"
        allowed = (any(fnmatchcase(model, pattern) for pattern in patterns) for patterns in self.team_models)
        return "" if all(allowed) else "the team of this key"

    def refusal(self, now_ms: float) -> str:
        """Why the key cannot be used now, as a message for the client; empty if it can."""
        if self.expires_ms is None and self.revoked_ms is None and not self.blocked_ms:
            return self.team_refusal  # nearly always
        blocked = "this key is blocked; ask its administrator" if self.blocked_ms else ""
        return self.unusable(now_ms) or blocked or self.team_refusal

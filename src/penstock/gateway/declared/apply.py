"""Makes the plan for a file, and carries it out: all of it in one transaction of the ledger, or nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import structs

from penstock.errors import AdminError
from penstock.gateway.billing.queries import TakenOver
from penstock.gateway.declared.declaration import Declaration
from penstock.gateway.declared.plan import DeclaredPlan, PlanReport, SecretDigest, make_plan
from penstock.gateway.keys.keys import Key
from penstock.gateway.teams.team import Team


class DeclaredStore(Protocol):
    """The stored teams and keys. The book of `stores/` is one."""

    def teams(self) -> Sequence[Team]:
        """All teams, including deleted ones."""

    def keys(self) -> Sequence[Key]:
        """All keys, the oldest first, including revoked and expired ones."""

    def take_over(self, change: Callable[[list[Team], list[Key]], TakenOver]) -> TakenOver:
        """Store what `change` returns for the present teams and keys, in one transaction. It may be called twice."""


def plan_for(store: DeclaredStore, declaration: Declaration, now_ms: int, *, adopt: bool) -> PlanReport:
    """The plan for a file."""
    return make_plan(declaration, store.teams(), store.keys(), now_ms, adopt=adopt).report


def apply_plan(
    store: DeclaredStore,
    declaration: Declaration,
    fingerprint: str,
    secrets: Mapping[str, SecretDigest],
    now_ms: int,
    *,
    adopt: bool,
) -> PlanReport:
    """Carry out the plan with this fingerprint. Raises `AdminError` if the plan is another one by now.

    `secrets` are those of the new keys, by their names. Their owner makes them and keeps them before the keys exist, so
    that no key is ever without an owner who knows its secret.
    """
    done: list[PlanReport] = []

    def change(teams: list[Team], keys: list[Key]) -> TakenOver:
        plan = make_plan(declaration, teams, keys, now_ms, adopt=adopt)
        if done and not plan.report.changes:
            return TakenOver()  # it is stored; only the confirmation was lost
        if plan.report.conflicts:
            first = plan.report.conflicts[0]
            raise AdminError(f"{first.table} {first.name}: {first.message}".replace("managed_by :", "managed_by"))
        if plan.report.fingerprint != fingerprint:
            raise AdminError("teams or keys were changed since this plan was made: make a new one", code="plan_changed")
        done[:] = [plan.report]
        return TakenOver(teams=plan.teams, keys=_with_secrets(plan, keys, secrets))

    store.take_over(change)
    return done[0]


def _with_secrets(plan: DeclaredPlan, present: Sequence[Key], secrets: Mapping[str, SecretDigest]) -> list[Key]:
    """The keys of a plan, the new ones with their secrets."""
    used = {digest for key in present for digest in (key.digest, key.previous)}
    keys = []
    for key in plan.keys:
        if not key.digest:
            secret = secrets.get(key.name)
            if secret is None:
                raise AdminError(f"the new key {key.name} has no secret", param="secrets")
            if secret.digest in used:
                raise AdminError(f"the secret of the new key {key.name} is that of another key", param="secrets")
            used.add(secret.digest)
            key = structs.replace(key, digest=secret.digest, hint=secret.hint)
        keys.append(key)
    return keys

"""The handlers for `penstock apply`. They query the book."""

from collections.abc import Mapping

from penstock.gateway.declared.apply import apply_plan, plan_for
from penstock.gateway.declared.declaration import Declaration
from penstock.gateway.declared.plan import SecretDigest
from penstock.serve.admin.request import AdminRequest
from penstock.stores.book.sql_book import Book


class PlanBody(Declaration, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A declaration, and whether it may adopt what no file manages."""

    adopt: bool = False


class ApplyBody(PlanBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A declaration, the fingerprint of its plan, and the secrets of the new keys by their names."""

    fingerprint: str
    secrets: Mapping[str, SecretDigest] = {}


def make_plan(book: Book, request: AdminRequest) -> object:
    """Return the [plan](apply.md) for a declaration: what would be changed, and what is in its way. Changes nothing."""
    body = request.read_body(PlanBody)
    return plan_for(book, body, request.now_ms, adopt=body.adopt)


def carry_out_plan(book: Book, request: AdminRequest) -> object:
    """Carry out the plan for a declaration, all or nothing. If it would be another one by now, that is a 409
    `plan_changed`. `secrets` has what is stored of the secret of each new key: the client makes the secrets."""
    body = request.read_body(ApplyBody)
    return apply_plan(book, body, body.fingerprint, body.secrets, request.now_ms, adopt=body.adopt)

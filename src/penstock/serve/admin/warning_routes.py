"""The route of the admin API for budget warnings. It queries the book."""

import re

from penstock.gateway.billing.book import Book
from penstock.gateway.limits.warnings import BudgetWarning
from penstock.gateway.people.roles import Scope
from penstock.serve.admin.queries import read_limit
from penstock.serve.admin.routes import AdminReply, AdminRequest, Work
from penstock.serve.webhook import warning_json

_MOST = 10_000


def list_warnings(book: Book, request: AdminRequest) -> AdminReply:
    """List budget warnings, the newest first."""
    request.query.only({"limit"})
    limit, scope = read_limit(request.query), request.scope
    if scope is None:
        found = book.warnings(limit)
    else:
        keys = book.keys()
        own = {key.id for key in keys if scope.covers(key)}
        found = [each for each in book.warnings(_MOST) if _is_visible(each, scope, own)][:limit]
    return AdminReply(200, {"warnings": [{**warning_json(each), "delivery": each.delivery} for each in found]})


def _is_visible(warning: BudgetWarning, scope: Scope, keys: set[str]) -> bool:
    return warning.name in keys if warning.kind == "key" else scope.role_in(warning.name) is not None


WARNING_ROUTES: tuple[tuple[str, re.Pattern[str], Work], ...] = (
    ("GET", re.compile(r"/admin/warnings"), list_warnings),
)

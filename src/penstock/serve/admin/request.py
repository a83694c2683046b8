"""AdminRequest: one request of the admin API, as handlers get it."""

from typing import TypeVar

import msgspec
from msgspec import Struct

from penstock.amounts import Currency
from penstock.core.json.members import JsonMembers
from penstock.errors import AdminError
from penstock.gateway.people.group_roles import GroupRoles
from penstock.gateway.people.roles import Principal, Scope
from penstock.serve.admin.queries import Query

T = TypeVar("T")


class AdminRequest(Struct, frozen=True, kw_only=True):
    """One request of a user. `name` is the variable part of the path."""

    user: Principal
    name: str = ""
    query: Query = Query({})
    body: bytes = b""
    now_ms: int
    scope: Scope | None = None
    """The keys that the user may see and change; None for all. Only routes with `in_team` get one."""
    group_roles: GroupRoles = GroupRoles()
    """The roles of groups, as configured."""
    currency: Currency | None = None
    """The currency of reports, as configured."""

    def read_body(self, kind: type[T]) -> T:
        """Decode the JSON body. Errors do not quote it."""
        body = self.body or b"{}"
        try:
            value = msgspec.json.decode(body, type=kind)
        except msgspec.ValidationError as error:
            raise AdminError(f"the request body is not valid: {error}") from None
        except (msgspec.DecodeError, RecursionError):
            raise AdminError("the request body is not valid JSON") from None
        for name in JsonMembers(body).repeated():
            raise AdminError(f"`{name[:100]}` is there twice", param=name[:100])
        return value

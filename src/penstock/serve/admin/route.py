"""AdminRoute: a request that the admin API answers, who may send it, and what is recorded about it.

A role in a team can use the routes that have `in_team`. Their handlers then see only the keys of `Principal.scope`. Of
calls they see those that were made for its teams: all for a `team_admin`; for a `member`, those of its own keys and of
clients with a JWT. What is outside does not exist for them (404).
"""

import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

from penstock.gateway.people.roles import Permission, Principal, Scope
from penstock.http.exchange import Exchange
from penstock.serve.admin.backend import Backend
from penstock.serve.admin.queries import Parameter
from penstock.serve.admin.request import AdminRequest
from penstock.stores.book.sql_book import Book

CSV = "text/csv"
EVENT_STREAM = "text/event-stream"
# Runs in a thread that queries the book. Returns the body of the response.
BookHandler: TypeAlias = Callable[[Book, AdminRequest], object]
# Runs in the event loop. Returns the body of the response, or None if it sends the response itself.
LoopHandler: TypeAlias = Callable[[Backend, AdminRequest, Exchange], Coroutine[Any, Any, object]]


@dataclass(frozen=True, slots=True)
class AdminRoute:
    """A method, a path and its handler. Unless it says otherwise, only administrators may use it."""

    method: str
    path: str
    """A template as in RFC 6570: `{id}` is one part of the path, `{+id}` may have slashes."""
    handle: BookHandler | LoopHandler
    response: Any
    """The type of the JSON that it returns, or the media type of something else."""
    needs: Permission = "manage"
    """The permission of a global role."""
    _: KW_ONLY
    in_team: bool = False
    """Whether roles in teams can use it, within their scope."""
    audit: str = ""
    """The action that is recorded in the audit log before the route is handled. Routes that change keys or tokens have
    none: the book records those changes, each in the transaction that makes it."""
    query: Mapping[str, Parameter] | None = None
    """The parameters that it takes; None if it does not read the query."""
    body: Any = None
    """The type of the JSON that it takes, or the media type of something else; None if it takes no body."""
    status: int = 200

    @property
    def name(self) -> str:
        """Such as `GET /admin/keys/{id}`."""
        return f"{self.method} {self.path.replace('{+', '{')}"

    @property
    def summary(self) -> str:
        """What it does, as the documentation says it: the docstring of its handler."""
        return " ".join((self.handle.__doc__ or "").split())

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the paths of the route. Its group is the variable part."""
        return re.compile(self.path.replace("{id}", "([^/]+)").replace("{+id}", "(.+)"))

    @property
    def streams(self) -> bool:
        """Whether the response has no known length, so that there is no HEAD."""
        return self.response in (CSV, EVENT_STREAM)

    def answers(self, method: str) -> bool:
        """Whether it answers requests with a method."""
        return method == self.method or (method == "HEAD" and self.method == "GET" and not self.streams)

    def allows(self, user: Principal) -> bool:
        """Whether a user may use it at all."""
        return self.needs == "identify" or user.may(self.needs) or (self.in_team and bool(user.teams))

    def scope_of(self, user: Principal) -> Scope | None:
        """What it may show and change for a user; None for everything."""
        return None if user.may(self.needs) else user.scope

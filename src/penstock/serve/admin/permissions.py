"""Permissions: the table of what each admin route needs. A route without a row is for administrators only.

A role in a team can use the routes that have `in_team`. Their handlers then see only the keys of `Principal.scope`. Of
calls they see those that were made for its teams: all for a `team_admin`; for a `member`, those of its own keys and of
clients with a JWT. What is outside does not exist for them (404).
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from penstock.gateway.people.roles import Permission, Principal, Scope

_VARIABLE = "([^/]+)"
# The path of a team, which has slashes.
_PATH = "(.+)"


class Rule(NamedTuple):
    """What one route needs."""

    needs: Permission
    """The permission of a global role."""
    in_team: bool = False
    """Whether roles in teams can use it, within their scope."""
    audit: str = ""
    """The action that is recorded in the audit log before the route is handled. Routes that change keys or tokens have
    none: the book records those changes, each in the transaction that makes it."""


RULES: Mapping[tuple[str, str], Rule] = {
    ("GET", "/admin/me"): Rule("identify", in_team=True),
    ("DELETE", "/admin/session"): Rule("identify", in_team=True),
    ("GET", "/metrics"): Rule("read"),
    ("GET", "/admin/state"): Rule("read"),
    ("GET", "/admin/models"): Rule("read"),
    ("GET", "/admin/holds"): Rule("read"),
    ("GET", "/admin/provider-keys"): Rule("read"),
    ("GET", "/admin/setup"): Rule("read"),
    ("GET", "/admin/live"): Rule("read"),
    ("GET", "/admin/health"): Rule("read"),
    ("GET", "/admin/rejections"): Rule("read"),
    ("GET", "/admin/usage"): Rule("read", in_team=True),
    ("GET", "/admin/entries"): Rule("read", in_team=True),
    ("GET", "/admin/entries/{id}"): Rule("read", in_team=True),
    ("GET", "/admin/export"): Rule("read", in_team=True),
    ("GET", "/admin/keys"): Rule("read", in_team=True),
    ("GET", "/admin/keys/{id}"): Rule("read", in_team=True),
    ("POST", "/admin/keys"): Rule("manage", in_team=True),
    ("PATCH", "/admin/keys"): Rule("manage"),
    ("PATCH", "/admin/keys/{id}"): Rule("manage"),
    ("POST", "/admin/keys/{id}/revoke"): Rule("manage", in_team=True),
    ("POST", "/admin/keys/{id}/rotate"): Rule("manage", in_team=True),
    ("POST", "/admin/keys/{id}/stop"): Rule("operate", in_team=True),
    ("GET", "/admin/teams"): Rule("read", in_team=True),
    ("POST", "/admin/teams"): Rule("manage"),
    ("GET", "/admin/teams/{id}"): Rule("read", in_team=True),
    ("PATCH", "/admin/teams/{id}"): Rule("manage"),
    ("DELETE", "/admin/teams/{id}"): Rule("manage"),
    ("GET", "/admin/warnings"): Rule("read", in_team=True),
    ("GET", "/admin/calls/{id}/text"): Rule("content", audit="content.follow"),
    ("GET", "/admin/calls/{id}/content"): Rule("content", audit="content.read"),
    ("GET", "/admin/calls/{id}/capture"): Rule("content", audit="content.capture"),
    ("POST", "/admin/calls/{id}/stop"): Rule("operate", audit="call.stop"),
    ("POST", "/admin/playground"): Rule("operate", audit="playground.call"),
    ("POST", "/admin/inspect"): Rule("operate"),
    ("GET", "/admin/users/{id}"): Rule("content", audit="user.find"),
    ("DELETE", "/admin/users/{id}"): Rule("manage", audit="user.erase"),
    ("GET", "/admin/tokens"): Rule("manage"),
    ("POST", "/admin/tokens"): Rule("manage"),
    ("POST", "/admin/tokens/{id}/revoke"): Rule("manage"),
    ("GET", "/admin/sessions"): Rule("manage"),
    ("DELETE", "/admin/sessions/{id}"): Rule("manage"),
    ("GET", "/admin/audit"): Rule("manage"),
}
_UNLISTED = Rule("manage")


def rule_of(method: str, pattern: re.Pattern[str]) -> Rule:
    """The rule of a route."""
    return RULES.get((method, template(pattern)), _UNLISTED)


def template(pattern: re.Pattern[str]) -> str:
    """The path of a route, with `{id}` for its variable part."""
    return pattern.pattern.replace(_VARIABLE, "{id}").replace(_PATH, "{id}")


def is_allowed(principal: Principal, rule: Rule) -> bool:
    """Whether a user may use a route at all."""
    return rule.needs == "identify" or principal.may(rule.needs) or (rule.in_team and bool(principal.teams))


def allowed_routes(principal: Principal) -> list[str]:
    """The routes that a user may use, such as `GET /admin/keys/{id}`."""
    return [f"{method} {path}" for (method, path), rule in RULES.items() if is_allowed(principal, rule)]


def scope_of(principal: Principal, rule: Rule) -> Scope | None:
    """What a route may show and change for a user; None for everything."""
    return None if principal.may(rule.needs) else principal.scope

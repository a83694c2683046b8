"""The table of the routes of the admin API: who may use each, what is recorded, and its parameters and bodies.

What each does is said by the docstring of its handler. The groups are sections of `docs/admin.md`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_args

import msgspec

from penstock.gateway.billing.queries import Grouping
from penstock.gateway.declared.plan import PlanReport
from penstock.gateway.keys.owner import user_parts
from penstock.gateway.keys.terms import KeyTerms, KeyUpdate
from penstock.gateway.people.limit_requests import ApprovalTerms, RefusalTerms, RequestTerms
from penstock.gateway.people.roles import PERMISSIONS
from penstock.gateway.people.tokens import TokenTerms
from penstock.gateway.teams.changes import TeamTerms, TeamUpdate
from penstock.gateway.teams.members import MemberUpdate
from penstock.http.exchange import Exchange
from penstock.serve.admin import schemas
from penstock.serve.admin.backend import Backend
from penstock.serve.admin.handlers import (
    content,
    declared,
    gateway,
    keys,
    ledger,
    limit_requests,
    live,
    members,
    people,
    scim,
    teams,
)
from penstock.serve.admin.handlers.export import export, export_focus, export_usage
from penstock.serve.admin.lists import FIND, FIND_TEAM, KEY_SORT, TEAM_SORT
from penstock.serve.admin.openapi import document
from penstock.serve.admin.queries import FILTERS, LIMIT, MAX_LIMIT, MAX_NAMES, PAGE, Parameter
from penstock.serve.admin.replies import SCIM_JSON, SCIM_ROOT
from penstock.serve.admin.request import AdminRequest
from penstock.serve.admin.route import CSV, EVENT_STREAM, AdminRoute
from penstock.serve.admin.scim.replies import ScimHandler, over_scim
from penstock.stores.content.call_record import CallRecord


async def show_user(_backend: Backend, request: AdminRequest, _exchange: Exchange) -> object:
    """Return the user of the request: its `name`, its `role` with its `permissions`, the `routes` that it may use, its
    `teams`, and how it was authenticated (`via`)."""
    user = request.user
    return {
        "name": user_parts(user.name)[0],
        "via": user.via,
        "role": user.role,
        "permissions": sorted(PERMISSIONS[user.role]) if user.role is not None else ["identify"],
        "routes": [route.name for route in ROUTES if route.allows(user)],
        "teams": [{"team": team, "role": role} for team, role in sorted(user.teams.items())],
        "can_sign_out": user.via == "session",
    }


async def show_document(_backend: Backend, _request: AdminRequest, _exchange: Exchange) -> object:
    """Return this API as an OpenAPI document."""
    return await asyncio.to_thread(encoded_document)


@cache
def encoded_document() -> msgspec.Raw:
    """The OpenAPI document of all routes."""
    return msgspec.Raw(msgspec.json.encode(document(ROUTE_GROUPS)))


# Their bodies are whole files.
DECLARED = ("/admin/plan", "/admin/apply")
# The default path of Prometheus.
METRICS = "/metrics"
_NEXT = Parameter("The `next` of the previous page.")
_ALL = Parameter("`1` includes what is revoked or expired.")
_KEYS = {
    "all": _ALL,
    "names": Parameter(f"`1` returns only the `id` and `name` of each, at most {MAX_NAMES:,}."),
    "find": FIND,
    "team": Parameter("The path of a team: its keys, and those of all teams below it."),
    "sort": KEY_SORT,
    "limit": LIMIT,
    "after": _NEXT,
}
_TEAMS = {
    "names": Parameter("`1` returns only the `path` of each."),
    "find": FIND_TEAM,
    "sort": TEAM_SORT,
    "limit": Parameter(f"The size of a page, at most {MAX_LIMIT}; all teams if it is not given.", kind="integer"),
    "after": _NEXT,
}
_AUDIT = {
    "since": FILTERS["since"],
    "until": FILTERS["until"],
    "who": Parameter("A user."),
    "action": Parameter("Such as `key.create`; or `key` for all acts on keys."),
    "subject": Parameter("What was acted on: the id of a key, the path of a team."),
    **PAGE,
}
_REQUESTS = {"all": Parameter("`1` includes those that were answered or have expired."), **PAGE}
_MEMBERS = {"team": Parameter("The path of a team; without it, all teams that the user may see.")}
_WARNINGS = {"limit": LIMIT}
_GROUPS = ", ".join(f"`{group}`" for group in get_args(Grouping) if group != "tag")
_BY = f"The groups: {_GROUPS}, `tag:NAME`; several are separated by commas."
_USAGE = {"by": Parameter(_BY, repeated=True), **FILTERS}
_ENTRIES = {**PAGE, **FILTERS}
_CAPTURE = {"attempt": Parameter("The number of the attempt; 1 if it is not given.", kind="integer")}
_LIVE = {
    "find": Parameter("Only calls whose model, target, key or id contains this text (not case-sensitive)."),
    "before": _NEXT,
}
_HEALTH = {
    "since": Parameter("As for calls; `24h` if it is not given."),
    "bucket": Parameter("The length of the spans of time; `5m` if it is not given."),
}
_API = "The API of the request, a name of `apis`: with `messages`, it is answered as `/v1/messages` does."
_PLAYGROUND = {"api": Parameter(_API)}
_SCIM = {
    "attributes": Parameter("The attributes to return, separated by commas."),
    "excludedAttributes": Parameter("Those that are not to be returned, such as `members`."),
}
_SCIM_PAGE = {
    "filter": Parameter('Such as `userName eq "ann@example.com"`; several are joined by `and`.'),
    "startIndex": Parameter("The number of the first resource of the page, from 1.", kind="integer"),
    "count": Parameter("The size of the page; 100 if it is not given, at most 500.", kind="integer"),
    **_SCIM,
}
_BYTES = "application/octet-stream"
_JSON = dict[str, Any]


def _resources(name: str, *handlers: ScimHandler) -> list[AdminRoute]:
    """The routes of a type of resources of SCIM, which have bodies of its own media type."""
    listing, creating, showing, replacing, patching, deleting = handlers
    path, one = f"{SCIM_ROOT}/{name}", f"{SCIM_ROOT}/{name}/{{id}}"
    return [
        AdminRoute("GET", path, over_scim(listing), SCIM_JSON, "provision", query=_SCIM_PAGE),
        AdminRoute(
            "POST", path, over_scim(creating, 201), SCIM_JSON, "provision", query=_SCIM, status=201, body=SCIM_JSON
        ),
        AdminRoute("GET", one, over_scim(showing), SCIM_JSON, "provision", query=_SCIM),
        AdminRoute("PUT", one, over_scim(replacing), SCIM_JSON, "provision", query=_SCIM, body=SCIM_JSON),
        AdminRoute("PATCH", one, over_scim(patching), SCIM_JSON, "provision", query=_SCIM, body=SCIM_JSON),
        AdminRoute("DELETE", one, over_scim(deleting), SCIM_JSON, "provision", status=204),
    ]


ROUTE_GROUPS: Mapping[str, Sequence[AdminRoute]] = {
    "Keys": [
        AdminRoute("GET", "/admin/keys", keys.list_keys, schemas.KeyPage, "read", in_team=True, query=_KEYS),
        AdminRoute("POST", "/admin/keys", keys.create_key, schemas.NewKey, in_team=True, status=201, body=KeyTerms),
        AdminRoute("PATCH", "/admin/keys", keys.update_keys, schemas.Keys, body=keys.UpdateBody),
        AdminRoute("GET", "/admin/keys/{id}", keys.show_key, schemas.Key, "read", in_team=True),
        AdminRoute("PATCH", "/admin/keys/{id}", keys.update_key, schemas.Key, body=KeyUpdate),
        AdminRoute("POST", "/admin/keys/{id}/revoke", keys.revoke_key, schemas.Key, in_team=True),
        AdminRoute(
            "POST",
            "/admin/keys/{id}/rotate",
            keys.rotate_key,
            schemas.NewKey,
            in_team=True,
            status=201,
            body=keys.RotateBody,
        ),
        AdminRoute("POST", "/admin/keys/{id}/stop", keys.stop_calls, schemas.Key, "operate", in_team=True),
        AdminRoute("GET", "/admin/holds", gateway.list_holds, schemas.Holds, "read"),
    ],
    "Teams": [
        AdminRoute("GET", "/admin/teams", teams.list_teams, schemas.TeamPage, "read", in_team=True, query=_TEAMS),
        AdminRoute("POST", "/admin/teams", teams.create_team, schemas.Team, status=201, body=TeamTerms),
        AdminRoute("GET", "/admin/teams/{+id}", teams.show_team, schemas.Team, "read", in_team=True),
        AdminRoute("PATCH", "/admin/teams/{+id}", teams.update_team, schemas.Team, body=TeamUpdate),
        AdminRoute("DELETE", "/admin/teams/{+id}", teams.delete_team, schemas.DeletedTeam),
        AdminRoute(
            "GET", "/admin/members", members.list_members, schemas.TeamMembers, "read", in_team=True, query=_MEMBERS
        ),
        AdminRoute("PATCH", "/admin/members", members.update_member, schemas.TeamMember, body=MemberUpdate),
    ],
    "Requests for more": [
        AdminRoute(
            "GET",
            "/admin/requests",
            limit_requests.list_requests,
            schemas.LimitRequestPage,
            "read",
            in_team=True,
            query=_REQUESTS,
        ),
        AdminRoute(
            "POST",
            "/admin/requests",
            limit_requests.make_request,
            schemas.LimitRequest,
            in_team=True,
            status=201,
            body=RequestTerms,
        ),
        AdminRoute(
            "POST",
            "/admin/requests/{id}/approve",
            limit_requests.approve_request,
            schemas.LimitRequest,
            in_team=True,
            body=ApprovalTerms,
        ),
        AdminRoute(
            "POST",
            "/admin/requests/{id}/refuse",
            limit_requests.refuse_request,
            schemas.LimitRequest,
            in_team=True,
            body=RefusalTerms,
        ),
        AdminRoute(
            "POST",
            "/admin/requests/{id}/withdraw",
            limit_requests.withdraw_request,
            schemas.WithdrawnRequest,
            in_team=True,
        ),
    ],
    "Declared teams and keys": [
        AdminRoute("POST", DECLARED[0], declared.make_plan, PlanReport, body=declared.PlanBody),
        AdminRoute("POST", DECLARED[1], declared.carry_out_plan, PlanReport, body=declared.ApplyBody),
    ],
    "Warnings": [
        AdminRoute(
            "GET", "/admin/warnings", ledger.list_warnings, schemas.Warnings, "read", in_team=True, query=_WARNINGS
        ),
    ],
    "Users and the audit log": [
        AdminRoute("GET", "/admin/me", show_user, schemas.User, "identify", in_team=True),
        AdminRoute("DELETE", "/admin/session", people.end_session, schemas.SignedOut, "identify", in_team=True),
        AdminRoute("GET", "/admin/tokens", people.list_tokens, schemas.TokenList, query={"all": _ALL}),
        AdminRoute("POST", "/admin/tokens", people.create_token, schemas.CreatedToken, status=201, body=TokenTerms),
        AdminRoute("POST", "/admin/tokens/{id}/revoke", people.revoke_token, schemas.Token),
        AdminRoute("GET", "/admin/sessions", people.list_sessions, schemas.Sessions, query={}),
        AdminRoute("DELETE", "/admin/sessions/{id}", people.end_sessions, schemas.EndedSessions),
        AdminRoute("GET", "/admin/audit", people.list_audit, schemas.AuditPage, query=_AUDIT),
    ],
    "SCIM": [
        *(
            AdminRoute("GET", f"{SCIM_ROOT}/{path}", over_scim(handle), SCIM_JSON, "provision")
            for path, handle in (
                ("ServiceProviderConfig", scim.show_config),
                ("ResourceTypes", scim.list_resource_types),
                ("ResourceTypes/{id}", scim.show_resource_type),
                ("Schemas", scim.list_schemas),
                ("Schemas/{id}", scim.show_schema),
            )
        ),
        *_resources(
            "Users",
            scim.list_people,
            scim.create_person,
            scim.show_person,
            scim.replace_person,
            scim.patch_person,
            scim.delete_person,
        ),
        *_resources(
            "Groups",
            scim.list_groups,
            scim.create_group,
            scim.show_group,
            scim.replace_group,
            scim.patch_group,
            scim.delete_group,
        ),
    ],
    "Usage and entries": [
        AdminRoute("GET", "/admin/usage", ledger.usage, schemas.UsageSums, "read", in_team=True, query=_USAGE),
        AdminRoute("GET", "/admin/focus.csv", export_focus, CSV, "read", in_team=True, query=FILTERS),
        AdminRoute("GET", "/admin/usage.csv", export_usage, CSV, "read", in_team=True, query=_USAGE),
        AdminRoute(
            "GET", "/admin/entries", ledger.list_entries, schemas.EntryPage, "read", in_team=True, query=_ENTRIES
        ),
        AdminRoute("GET", "/admin/entries/{id}", ledger.show_entry, schemas.LedgerEntry, "read", in_team=True),
        AdminRoute("GET", "/admin/export", export, CSV, "read", in_team=True, query=FILTERS),
    ],
    "End users": [
        AdminRoute("GET", "/admin/users/{id}", content.find_user, schemas.EndUser, "content", audit="user.find"),
        AdminRoute("DELETE", "/admin/users/{id}", content.erase_user, schemas.ErasedEndUser, audit="user.erase"),
    ],
    "Content of calls": [
        AdminRoute(
            "GET", "/admin/calls/{id}/content", content.show_content, CallRecord, "content", audit="content.read"
        ),
        AdminRoute(
            "GET",
            "/admin/calls/{id}/capture",
            content.send_capture,
            "text/plain",
            "content",
            audit="content.capture",
            query=_CAPTURE,
        ),
    ],
    "Running calls": [
        AdminRoute("GET", "/admin/live", live.watch, EVENT_STREAM, "read", query=_LIVE),
        AdminRoute("GET", "/admin/calls/{id}/text", live.follow_text, EVENT_STREAM, "content", audit="content.follow"),
        AdminRoute("POST", "/admin/calls/{id}/stop", live.stop_call, schemas.StoppedCall, "operate", audit="call.stop"),
        AdminRoute("GET", "/admin/rejections", live.list_rejections, schemas.RejectedRequests, "read"),
    ],
    "Providers": [
        AdminRoute("GET", "/admin/health", ledger.health, schemas.Health, "read", query=_HEALTH),
        AdminRoute("GET", "/admin/provider-keys", gateway.list_provider_keys, schemas.ProviderKeys, "read"),
        AdminRoute("GET", "/admin/setup", gateway.show_setup, schemas.Setup, "read"),
    ],
    "Playground and inspection": [
        AdminRoute("GET", "/admin/models", gateway.list_models, schemas.ClientModels, "read"),
        AdminRoute(
            "POST",
            "/admin/playground",
            gateway.play,
            _JSON,
            "operate",
            audit="playground.call",
            query=_PLAYGROUND,
            body=_JSON,
        ),
        AdminRoute("POST", "/admin/inspect", gateway.inspect, _JSON, "operate", body=_BYTES),
    ],
    "The gateway": [
        AdminRoute("GET", "/admin/connect", gateway.show_connection, schemas.ClientConnection, "read", in_team=True),
        AdminRoute("GET", "/admin/openapi.json", show_document, _JSON, "read", in_team=True),
        AdminRoute("GET", "/admin/state", gateway.show_state, schemas.GatewayState, "read"),
        AdminRoute("GET", METRICS, gateway.send_metrics, "text/plain", "read"),
    ],
}
ROUTES = [route for group in ROUTE_GROUPS.values() for route in group]

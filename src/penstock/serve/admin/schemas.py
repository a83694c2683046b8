"""The bodies of responses of the admin API, as the OpenAPI document describes them (`openapi.py`).

`tests/serve/test_openapi.py` checks that real responses have exactly these fields.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, structs

from penstock.core.hub.usage import Tokens
from penstock.error_codes import ErrorCode
from penstock.gateway.billing.queries import Grouping, HealthBucket, ModelHealth, UsageRow
from penstock.gateway.keys import keys
from penstock.gateway.keys.client_key import State
from penstock.gateway.keys.fields import FIELDS
from penstock.gateway.keys.quota import Period
from penstock.gateway.limits.warnings import BudgetWarning, Delivery
from penstock.gateway.people import limit_requests
from penstock.gateway.people.audit import AuditEntry
from penstock.gateway.people.roles import GlobalRole, Permission, RoleGrant, TeamRole, Via
from penstock.gateway.people.sessions import AdminSession
from penstock.gateway.people.tokens import ApiToken
from penstock.gateway.record.entry import AttemptEntry, Entry, Measure
from penstock.gateway.teams import team
from penstock.serve.rejections import RejectionRow

Money: TypeAlias = Annotated[str, Meta(description="Dollars, exact to the nanodollar.", pattern=r"^-?\d+(\.\d{1,9})?$")]
Time: TypeAlias = Annotated[str, Meta(description="In UTC.", extra_json_schema={"format": "date-time"})]


# Not a tuple: its schema has `prefixItems`, which generators of clients do not read.
_Pair: TypeAlias = Annotated[list[int], Meta(min_length=2, max_length=2)]


class Error(Struct):
    """Why a request was refused or failed."""

    message: str
    type: str
    param: Annotated[str | None, Meta(description="The name of the wrong value.")]
    code: ErrorCode
    request_id: str


class AdminErrorBody(Struct):
    """The body of every error."""

    error: Error


class Budget(Struct):
    """A budget of one period."""

    period: Period
    budget: Money
    spent: Money
    left: Money
    renewed: Time | None


def _shown(title: str, text: str, kind: type[Struct], /, **further: Any) -> Any:
    """The schema of what `facts` (`gateway/keys/report.py`) shows of a struct, and of further fields: None omits."""
    fields: dict[str, Any] = {}
    for field in structs.fields(kind):
        shown, about = field.name.removesuffix("_ms"), FIELDS.get(field.name)
        if field.name.endswith("_ms"):
            fields[shown] = Time if field.type is int else Time | None
        elif field.name == "budgets":
            fields[shown] = Mapping[Period, Money]
        elif field.type is not bytes:
            fields[shown] = Money | None if field.name == "budget" else field.type
            if about is not None and about.help:
                fields[shown] = Annotated[fields[shown], Meta(description=about.help)]
    return _object(title, text, **{name: each for name, each in (fields | further).items() if each is not None})


def _like(title: str, text: str, kind: type[Struct], /, **changed: Any) -> Any:
    """The schema of a struct as it is, but for the fields that are changed or added: None omits."""
    fields = {field.name: field.type for field in structs.fields(kind)} | changed
    return _object(title, text, **{name: each for name, each in fields.items() if each is not None})


def _object(title: str, text: str, /, **fields: Any) -> Any:
    return defstruct(title, list(fields.items()), namespace={"__doc__": text})


def _list_of(kind: Any) -> Any:
    return list[kind]


EndUserLimits = _shown("EndUserLimits", "The limits of each end user.", keys.KeyLimits)
MemberLimits = _shown("MemberLimits", "The limits of each member, over all keys that it created.", keys.KeyLimits)
KeyPolicy = _shown("KeyPolicy", "The most that a key may have which a member creates for itself.", keys.KeyPolicy)
_KEY = {
    "hint": Annotated[str, Meta(description="The last four characters of the current secret.")],
    "previous_until": Annotated[Time | None, Meta(description="Until then, the previous secret is valid.")],
    "owner": Annotated[str | None, Meta(description="The member of a team who created the key.")],
    "team": str | None,
    "managed_by": str | None,
    "state": State | Literal["blocked"],
    "spent": Annotated[Money, Meta(description="In the current period.")],
    "left": Money | None,
    "renewed": Time | None,
    "budgets": list[Budget],
    "end_users": EndUserLimits,
}
Key = _shown("Key", "A key of a client.", keys.Key, **_KEY)
NewKey = _shown("NewKey", "A key with its secret, which is shown only once.", keys.Key, **_KEY, secret=str)
_KEY_NAME = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "name": {"type": "string"}},
    "required": ["id", "name"],
}
_KEY_OR_NAME = {"anyOf": [{"$ref": "#/components/schemas/Key"}, _KEY_NAME]}
Keys = _object("Keys", "The keys that were changed.", keys=_list_of(Key))


class KeyPage(Struct):
    """A page of keys; with `names`, only their names."""

    keys: Annotated[list[Any], Meta(extra_json_schema={"items": _KEY_OR_NAME})]
    next: str | None
    total: Annotated[int, Meta(description="How many were found, on all pages.")]


Holds = _object("Holds", "The amounts that are reserved, by the id of the key.", holds=Mapping[str, Money])
Team = _shown(
    "Team",
    "An organisation, a team or a project.",
    team.Team,
    level=Literal["organisation", "team", "project"],
    managed_by=str | None,
    state=Literal["active", "blocked"],
    spent_this_month=Money,
    keys=Annotated[int, Meta(description="The active keys at and below it.")],
    budgets=list[Budget],
    end_users=EndUserLimits,
    members=MemberLimits,
    member_keys=KeyPolicy,
    deleted=None,
)
TeamMember = _shown(
    "TeamMember",
    "A member of a team, with its limits over all keys that it created in the team and below it.",
    keys.KeyLimits,
    team=str,
    member=Annotated[str, Meta(description="Its id.")],
    name=str,
    keys=Annotated[int, Meta(description="Its active keys.")],
    raised=Annotated[bool, Meta(description="Whether it has limits of its own, in place of those of all members.")],
    spent_this_month=Money,
    budgets=list[Budget],
)
TeamMembers = _object("TeamMembers", "Members of a team, by name.", members=_list_of(TeamMember))
_TEAM_NAME = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
_TEAM_OR_NAME = {"anyOf": [{"$ref": "#/components/schemas/Team"}, _TEAM_NAME]}


class TeamPage(Struct):
    """A page of teams; with `names`, only their paths."""

    teams: Annotated[list[Any], Meta(extra_json_schema={"items": _TEAM_OR_NAME})]
    next: str | None
    total: Annotated[int, Meta(description="How many were found, on all pages.")]


DeletedTeam = _object("DeletedTeam", "A team that was deleted.", path=str, deleted=bool)
_WANTED = _shown("RaisedLimits", "Limits that are raised, and models that are allowed.", limit_requests.WantedLimits)
LimitRequest = _object(
    "LimitRequest",
    "A request of a member for more, for a key or for its own limits in a team.",
    id=str,
    created=Time,
    who=str,
    team=str,
    key=Annotated[str | None, Meta(description="The id of the key; null if it is about the limits of the member.")],
    key_name=str | None,
    wanted=_WANTED,
    present=Annotated[_WANTED | None, Meta(description="The present limits, while it is open.")],
    reason=str,
    state=limit_requests.State,
    answered=Time | None,
    answered_by=str | None,
    note=Annotated[str, Meta(description="Of the administrator, with the answer.")],
    granted=_WANTED | None,
    own=Annotated[bool, Meta(description="Whether it is yours: you can withdraw it.")],
    may_answer=Annotated[bool, Meta(description="Whether you can approve or refuse it.")],
)
LimitRequestPage = _object(
    "LimitRequestPage", "A page of requests for more.", requests=_list_of(LimitRequest), next=int | None
)
WithdrawnRequest = _object("WithdrawnRequest", "A request that was withdrawn.", id=str, withdrawn=bool)
Warning = _shown(
    "Warning",
    "A part of a budget is spent.",
    BudgetWarning,
    account=None,
    title=None,
    id=str,
    kind=Literal["key", "member", "organisation", "team", "project"],
    subject=Annotated[str, Meta(description="The id of the key, or the path of the team.")],
    name=str,
    period=Period,
    label=Annotated[str, Meta(description="The period, such as `2026-11`.")],
    budget=Money,
    spent=Money,
    refused=Annotated[bool, Meta(description="Whether a call was refused because too little was left.")],
    delivery=Annotated[Delivery, Meta(description="To the webhook.")],
)
Warnings = _object("Warnings", "Budget warnings.", warnings=_list_of(Warning))


class TeamGrant(Struct):
    """A role in a team."""

    team: str
    role: TeamRole


class User(Struct):
    """The user of a request."""

    name: str
    via: Via
    role: GlobalRole | None
    permissions: list[Permission]
    routes: list[str]
    teams: list[TeamGrant]
    can_sign_out: bool


SignedOut = _object("SignedOut", "The session has ended.", signed_out=bool)
_TOKEN = {"name": str, "team": str | None, "state": State, "expires": Time | None}
Token = _shown("Token", "An API token.", ApiToken, **_TOKEN)
CreatedToken = _shown(
    "CreatedToken", "An API token with its secret, which is shown only once.", ApiToken, **_TOKEN, secret=str
)
TokenList = _object("TokenList", "API tokens.", tokens=_list_of(Token))
UserSession = _shown(
    "UserSession",
    "A session of a user who signed in with OpenID Connect.",
    AdminSession,
    grants=None,
    roles=list[RoleGrant],
)
Sessions = _object("Sessions", "Sessions.", sessions=_list_of(UserSession))
EndedSessions = _object("EndedSessions", "How many sessions were ended.", ended=int)
AuditRecord = _shown(
    "AuditRecord",
    "An entry of the audit log. `before` and `after` have the fields that were changed.",
    AuditEntry,
    via=Via,
)
AuditPage = _object("AuditPage", "A page of the audit log.", entries=_list_of(AuditRecord), next=int | None)
UsageSum = _like(
    "UsageSum",
    "The usage of one group of calls.",
    UsageRow,
    group=Mapping[Grouping, str],
    cost=Annotated[Money, Meta(description="Of attempts with a price.")],
    converted=Annotated[Money | None, Meta(description="The cost in the currency of reports, if there is one.")],
    saved=Annotated[
        Money, Meta(description="What prompt caches and shared answers have saved; negative if their writes cost more.")
    ],
    unpriced=Annotated[int, Meta(description="Calls with an attempt without a price.")],
    estimated=Annotated[int, Meta(description="Calls with an attempt whose tokens are estimated.")],
    approximate=Annotated[int, Meta(description="Calls whose cost is approximate.")],
)
ReportCurrency = _object(
    "ReportCurrency", "The currency of reports: its code, and how much of it a dollar is.", code=str, rate=str
)
UsageSums = _object(
    "UsageSums",
    "The usage of calls, by groups.",
    by=list[Grouping],
    tag=str | None,
    usage=_list_of(UsageSum),
    truncated=bool,
    currency=ReportCurrency | None,
    archived_before=Time | None,
    no_sums_before=Time | None,
    archived_included=bool,
)
EntryAttempt = _like(
    "EntryAttempt",
    "One try at one target.",
    AttemptEntry,
    code=str | None,
    cost=Money | None,
    saved=Annotated[
        Money,
        Meta(description="What the prompt cache, or a shared answer, has saved; negative if its writes cost more."),
    ],
    price=Annotated[str | None, Meta(description="The price table and its version.")],
    tier=str | None,
    stalls=Annotated[list[_Pair], Meta(description="The start and length of gaps of more than a second.")],
    error=str | None,
)
LedgerEntry = _like(
    "LedgerEntry",
    "A call that has ended.",
    Entry,
    at_ms=None,
    at=Time,
    key=str | None,
    code=str | None,
    error=str | None,
    measure=Measure,
    tokens=Tokens,
    cost=Money | None,
    approximate=bool,
    user=str | None,
    team=str | None,
    owner=None,
    attempts=_list_of(EntryAttempt),
)
EntryPage = _object(
    "EntryPage",
    "A page of calls.",
    entries=_list_of(LedgerEntry),
    next=int | None,
    archived_before=Time | None,
    no_sums_before=Time | None,
)
HealthInterval = _like(
    "HealthInterval",
    "The attempts at a model in one span of time, and percentiles of the time to the first content.",
    HealthBucket,
    first_event_ms=None,
    p50=int | None,
    p95=int | None,
)
HealthOfModel = _like(
    "HealthOfModel", "The attempts at a model of a provider.", ModelHealth, buckets=_list_of(HealthInterval)
)
Health = _object("Health", "The health of providers.", since=int, bucket_ms=int, rows=_list_of(HealthOfModel))
EndUser = _object("EndUser", "An end user.", name=str, pseudonyms=list[str], since=Time, last_used=Time)
ErasedEndUser = _object("ErasedEndUser", "An end user that was erased.", erased=bool, pseudonyms=list[str], records=int)
StoppedCall = _object("StoppedCall", "A call that was stopped.", stopped=bool)
RejectedRequest = _shown(
    "RejectedRequest",
    "Rejected requests of one key, from one address, for one reason.",
    RejectionRow,
    key=Annotated[str, Meta(description="The id of the key; empty if it is not known.")],
)
RejectedRequests = _object(
    "RejectedRequests",
    "Rejected requests; and how many gateways use the ledger, and how many of them answered.",
    rejections=_list_of(RejectedRequest),
    gateways=int | None,
    answered=int,
)


class ProviderKeyState(Struct):
    """A key of a provider. `requests` and `tokens` are those of the last minute."""

    provider: str
    key: str
    account: str | None
    rpm: int | None
    tpm: int | None
    requests: int | None
    tokens: int | None
    cooling_s: Mapping[str, float]


class ProviderKeys(Struct):
    """The keys of providers that have several."""

    keys: list[ProviderKeyState]


class ConfiguredProvider(Struct):
    """A provider."""

    name: str
    origin: str
    url: str | None
    local_model: str | None
    replay: str | None
    dialects: list[str]
    key: Annotated[str | None, Meta(description="The variable or the file of its key.")]
    keys: list[str]
    models: list[str]
    cooling_s: Mapping[str, float]
    problem: Annotated[str | None, Meta(description="Why it cannot answer.")]


class RouteTarget(Struct):
    """A target of a route."""

    target: str
    provider: str
    weight: float | None
    available: bool


class ModelRoute(Struct):
    """A route, with its targets in order."""

    name: str
    pattern: bool
    strict: bool
    weighted: bool
    targets: list[RouteTarget]


class MissingProvider(Struct):
    """A built-in provider that is not configured, and the variable that enables it."""

    name: str
    variable: str


class Setup(Struct):
    """The configuration."""

    source: str
    providers: list[ConfiguredProvider]
    routes: list[ModelRoute]
    not_configured: list[MissingProvider]


class Model(Struct):
    """A model, in the form of `/v1/models`. A model on this machine also has a `description`, or the `reason` why it is
    not available."""

    available: bool
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    reason: str | UnsetType = UNSET
    description: str | UnsetType = UNSET


class ClientApi(Struct):
    """An API that clients can use."""

    name: str
    title: str


class ClientModels(Struct):
    """The models, and the APIs of clients."""

    models: list[Model]
    apis: list[ClientApi]


class ClientConnection(Struct):
    """What clients need to use the gateway."""

    public_url: str | None
    listening: list[str]
    tls: bool
    models: list[str]


class LedgerState(Struct):
    """The state of the ledger. Without one, only `enabled` is there."""

    enabled: bool
    ready: bool | UnsetType = UNSET
    degraded: Annotated[str | UnsetType | None, Meta(description="The stores that cannot be used.")] = UNSET
    trouble: str | UnsetType | None = UNSET
    waiting: Annotated[int | UnsetType, Meta(description="The calls that wait for the database.")] = UNSET


class GatewayState(Struct):
    """The state of the process that answers."""

    version: str
    pid: int
    admin: str
    tls: bool
    public_url: str | None
    listening: list[str]
    draining: bool
    open_calls: int
    recording: bool
    ledger: LedgerState

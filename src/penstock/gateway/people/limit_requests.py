"""LimitRequest: a member of a team asks for more, and an administrator approves it, as it is or changed, or refuses it.

| it is about | what is raised |
|---|---|
| a key | its budgets and rates, and the models that it allows |
| a member | its limits over all its keys in a team, in place of those of all members (`teams/members.py`) |

A limit that is not there cannot be raised, and no request lowers one. Another user answers: an administrator, or a
`team_admin` of the team. The latter has to keep the policies for keys of members (`teams/key_policy.py`) of this team
and those above it, as for keys that it creates. Pure.
"""

import secrets
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import UNSET, Struct, UnsetType, structs

from penstock.amounts import DAY_MS, dollars, moment
from penstock.errors import AdminError
from penstock.gateway.keys.fields import updated
from penstock.gateway.keys.keys import Key, KeyLimits
from penstock.gateway.keys.owner import user_parts
from penstock.gateway.keys.quota import Period, RateLimits
from penstock.gateway.keys.report import facts
from penstock.gateway.keys.terms import LimitTerms
from penstock.gateway.people.roles import Scope
from penstock.gateway.teams.key_policy import policies_for, within_policies
from penstock.gateway.teams.members import MemberLimits, limits_of_member
from penstock.gateway.teams.team import Team

State: TypeAlias = Literal["open", "approved", "refused", "expired"]
MAX_OPEN = 5
"""Of one member: who asks more often waits for an answer, or withdraws a request."""
VALID_MS = 30 * DAY_MS
_MAX_TEXT = 400


class WantedLimits(KeyLimits, frozen=True, kw_only=True, omit_defaults=True):
    """The limits that are to be raised, with their new values, and models that are to be allowed."""

    models: tuple[str, ...] = ()


NOTHING = WantedLimits()


class LimitRequest(Struct, frozen=True, kw_only=True):
    """A request, as it is stored."""

    id: str
    created_ms: int
    who: str
    """The member, as recorded."""
    team: str
    key: str = ""
    """The id of the key; empty if it is about the limits of the member."""
    wanted: WantedLimits
    reason: str
    answer: Literal["", "approved", "refused"] = ""
    answered_ms: int | None = None
    answered_by: str = ""
    note: str = ""
    granted: WantedLimits = NOTHING

    def state(self, now_ms: int) -> State:
        """Whether it waits for an answer, or which one it got."""
        if self.answer:
            return self.answer
        return "expired" if now_ms - self.created_ms >= VALID_MS else "open"

    @property
    def subject(self) -> str:
        """What the audit log records it for: the key, or the team and the member."""
        return self.key or f"{self.team} {self.member}"

    @property
    def member(self) -> str:
        """The id of the member."""
        return user_parts(self.who)[1]


class WantedTerms(LimitTerms, frozen=True, kw_only=True):
    """What is asked for, or granted, as users write it."""

    models: tuple[str, ...] | UnsetType = UNSET


class RequestTerms(WantedTerms, frozen=True, kw_only=True):
    """A new request: for a key, by its id or name, or for the own limits in a `team`. Also the body of
    `POST /admin/requests`."""

    reason: str
    key: str = ""
    team: str = ""


class ApprovalTerms(WantedTerms, frozen=True, kw_only=True):
    """An approval: what is given replaces what was asked for, and null leaves it out. Also the body of
    `POST /admin/requests/{id}/approve`."""

    note: str = ""


class RefusalTerms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A refusal. Also the body of `POST /admin/requests/{id}/refuse`."""

    note: str = ""


class Subject(NamedTuple):
    """What a request is about, as it is now: the key, or the limits of the member; and all teams."""

    key: Key | None
    member: MemberLimits | None
    teams: list[Team]

    @property
    def team(self) -> str:
        """The team of the key, or of the member. A key may have moved since it was asked for."""
        return self.key.team if self.key is not None else self.member.team if self.member is not None else ""


class Raised(NamedTuple):
    """What an approval stores."""

    request: LimitRequest
    key: Key | None
    member: MemberLimits | None


class TakenRequest(NamedTuple):
    """A new request that one process sends to the webhook. No other process takes it until its lease ends."""

    request: LimitRequest
    attempt: int
    """Of all processes, from 1."""


def new_request(terms: RequestTerms, who: str, subject: Subject, now_ms: int) -> LimitRequest:
    """A new request of a member; raises if it asks for nothing, or for no more than there is."""
    wanted = updated(NOTHING, _wanted_terms(terms), now_ms)
    request = LimitRequest(
        id=f"ask_{secrets.token_hex(6)}",
        created_ms=now_ms,
        who=who,
        team=subject.team,
        key=subject.key.id if subject.key is not None else "",
        wanted=wanted,
        reason=_text(terms.reason, "reason"),
    )
    if not request.reason:
        raise AdminError("say in `reason` what you need it for", code="invalid_parameter", param="reason")
    _raised(wanted, subject, now_ms)
    return request


def approved(
    request: LimitRequest, terms: ApprovalTerms, subject: Subject, scope: Scope | None, by: str, now_ms: int
) -> Raised:
    """What an approval changes. `scope` is that of a user with roles in teams only; None for an administrator."""
    granted = updated(request.wanted, _wanted_terms(terms), now_ms)
    key, member = _raised(granted, subject, now_ms)
    if scope is not None:
        _check_policies(granted, subject, scope, now_ms)
    answered = structs.replace(
        request,
        answer="approved",
        answered_ms=now_ms,
        answered_by=by,
        note=_text(terms.note, "note"),
        granted=granted,
    )
    return Raised(answered, key, member)


def refused(request: LimitRequest, terms: RefusalTerms, by: str, now_ms: int) -> LimitRequest:
    """A request with its refusal."""
    note = _text(terms.note, "note")
    return structs.replace(request, answer="refused", answered_ms=now_ms, answered_by=by, note=note)


def present_limits(request: LimitRequest, subject: Subject) -> WantedLimits:
    """The present values of what a request wants to raise."""
    limits, budgets, models = _present(subject)
    return WantedLimits(
        budgets={period: budgets[period] for period in request.wanted.budgets if period in budgets},
        models=models if request.wanted.models else (),
        **{
            name: getattr(limits, name)
            for name in RateLimits.__struct_fields__
            if getattr(request.wanted, name) is not None
        },
    )


def request_json(request: LimitRequest, subject: Subject | None, now_ms: int) -> dict[str, object]:
    """A request as the admin API and the command line show it. Without `subject`, the present limits are not known."""
    state = request.state(now_ms)
    present = facts(present_limits(request, subject)) if state == "open" and subject is not None else None
    return {
        "id": request.id,
        "created": moment(request.created_ms),
        "who": user_parts(request.who)[0],
        "team": request.team,
        "key": request.key or None,
        "key_name": subject.key.name if subject is not None and subject.key is not None else None,
        "wanted": facts(request.wanted),
        "present": present,
        "reason": request.reason,
        "state": state,
        "answered": moment(request.answered_ms),
        "answered_by": user_parts(request.answered_by)[0] or None,
        "note": request.note,
        "granted": facts(request.granted) if request.answer == "approved" else None,
    }


def subjects_of(
    requests: Sequence[LimitRequest], keys: Iterable[Key], teams: Iterable[Team], members: Iterable[MemberLimits]
) -> dict[str, Subject]:
    """What requests are about, by their ids, but for those whose team is deleted."""
    known, living = {key.id: key for key in keys}, [team for team in teams if team.deleted_ms is None]
    own = {(each.team, each.member): each for each in members}
    paths = {team.path for team in living}
    found: dict[str, Subject] = {}
    for each in requests:
        if each.key in known:
            found[each.id] = Subject(known[each.key], None, living)
        elif not each.key and each.team in paths:
            limits = own.get((each.team, each.member), MemberLimits(team=each.team, member=each.member, who=each.who))
            found[each.id] = Subject(None, limits, living)
    return found


def _wanted_terms(terms: WantedTerms) -> WantedTerms:
    return WantedTerms(**{name: getattr(terms, name) for name in WantedTerms.__struct_fields__})


def _text(text: str, param: str) -> str:
    text = " ".join(text.split())
    if len(text) > _MAX_TEXT or not text.isprintable():
        raise AdminError(f"{param} has at most {_MAX_TEXT} printable characters", code="invalid_parameter", param=param)
    return text


def _present(subject: Subject) -> tuple[KeyLimits, dict[Period, int], tuple[str, ...]]:
    """The limits, the budgets and the models as they are."""
    if subject.key is not None:
        key = subject.key
        budgets = dict(key.budgets)
        if key.budget is not None:
            budgets[key.period] = min(key.budget, budgets.get(key.period, key.budget))
        return key, budgets, key.models
    assert subject.member is not None
    team = next(team for team in subject.teams if team.path == subject.team)
    limits = limits_of_member(team, subject.member)
    return limits, dict(limits.budgets), ()


def _raised(wanted: WantedLimits, subject: Subject, now_ms: int) -> tuple[Key | None, MemberLimits | None]:
    """The key or the member with what is wanted."""
    if wanted == NOTHING:
        raise AdminError("name at least one limit, with the value that you need", param="budgets")
    limits, budgets, models = _present(subject)
    for period, amount in wanted.budgets.items():
        _check_more(budgets.get(period), amount, f"budget {'in total' if period == 'total' else f'per {period}'}")
    for name in RateLimits.__struct_fields__:
        if (value := getattr(wanted, name)) is not None:
            _check_more(getattr(limits, name), value, name)
    rates = {name: getattr(wanted, name) for name in RateLimits.__struct_fields__ if getattr(wanted, name) is not None}
    if subject.key is None:
        if wanted.models:
            raise AdminError("models are allowed for a key: name the key", param="models")
        assert subject.member is not None
        own = {**subject.member.budgets, **wanted.budgets}
        return None, structs.replace(subject.member, budgets=own, **rates)
    key = subject.key
    if key.unusable(now_ms):
        raise AdminError(f"the key {key.id} is revoked or expired", code="key_unusable")
    if wanted.models and not models:
        raise AdminError("the key allows all models that its team allows", param="models")
    further = {period: wanted.budgets.get(period, amount) for period, amount in key.budgets.items()}
    budget = key.budget if key.budget is None else max(key.budget, wanted.budgets.get(key.period, 0))
    every = tuple(dict.fromkeys((*key.models, *wanted.models)))
    return structs.replace(key, budget=budget, budgets=further, models=every, **rates), None


def _check_more(present: int | None, wanted: int, what: str) -> None:
    is_budget = what.startswith("budget")
    if present is None:
        name = what if is_budget else f"limit of {what.replace('_', ' ')}"
        raise AdminError(f"there is no {name} that could be raised", param="budgets" if is_budget else what)
    if wanted <= present:
        shown = dollars(present) if is_budget else str(present)
        raise AdminError(
            f"the {what.replace('_', ' ')} is {shown}: ask for more than that", param="budgets" if is_budget else what
        )


def _check_policies(granted: WantedLimits, subject: Subject, scope: Scope, now_ms: int) -> None:
    """Raise if a team_admin may not grant this: a policy keeps it for administrators."""
    policies = policies_for(subject.teams, subject.team, lambda level: scope.role_in(level) == "team_admin")
    if subject.key is not None:
        rates = {name: getattr(granted, name) for name in RateLimits.__struct_fields__}
        asked = structs.replace(
            subject.key, budget=None, budgets=granted.budgets, models=granted.models, expires_ms=None, owner="", **rates
        )
        within_policies(asked, policies, (), now_ms)
    elif any(each.policy.raised_by == "admin" for each in policies):
        raise AdminError(
            "the policy of the team says that only administrators of Penstock raise limits", code="key_policy"
        )


def check_open(requests: Iterable[LimitRequest], now_ms: int) -> None:
    """Raise `AdminError` if `MAX_OPEN` requests of the member wait for an answer."""
    if sum(each.state(now_ms) == "open" for each in requests) >= MAX_OPEN:
        raise AdminError(
            f"{MAX_OPEN} requests of yours wait for an answer: withdraw one, or wait", code="too_many_open_requests"
        )

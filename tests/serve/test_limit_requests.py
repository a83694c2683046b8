"""Members ask for more, and administrators of the right role and team answer."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.gateway.people.limit_requests import MAX_OPEN
from tests.faults.gateway import settings
from tests.faults.upstream import Upstream
from tests.serve.in_process import InProcessGateway
from tests.serve.support import AdminClient

TEAM, FOREIGN = "acme/search", "acme/other"
ROLES = (
    ("ann", "member", TEAM),
    ("bob", "member", TEAM),
    ("lead", "team_admin", TEAM),
    ("stranger", "team_admin", FOREIGN),
    ("head", "team_admin", "acme"),
    ("watcher", "viewer", ""),
)


class Company:
    """A gateway with teams, and API tokens for people of each role in it."""

    def __init__(self, client: AdminClient) -> None:
        self.client = client
        for path in ("acme", TEAM, FOREIGN):
            client.ask("POST", "/admin/teams", {"path": path})
        self.tokens: dict[str, str] = {}
        for name, role, team in ROLES:
            assert client.ask("POST", "/admin/tokens", {"name": name, "role": role, "team": team})[0] == 201
            self.tokens[name] = client.secrets[-1]

    def ask(self, who: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        token = self.tokens.get(who, self.client.token)
        return self.client.send(method, path, body, {"Authorization": f"Bearer {token}"})[:2]

    def key(self, who: str, **terms: object) -> str:
        status, made = self.ask(who, "POST", "/admin/keys", {"team": TEAM, "budget": "10", **terms})
        assert status == 201, made
        return str(made["id"])

    def request_more(self, who: str, **terms: object) -> dict[str, Any]:
        status, made = self.ask(who, "POST", "/admin/requests", {"reason": "a demo on Friday", **terms})
        assert status == 201, made
        return dict(made)

    def refused(self, who: str, path: str, body: object = None) -> str:
        status, reported = self.ask(who, "POST", f"/admin/requests{path}", body)
        assert status >= 400, reported
        return str(reported["error"]["code"])

    def seen_by(self, who: str, query: str = "") -> dict[str, Any]:
        status, page = self.ask(who, "GET", f"/admin/requests?limit=500{query}")
        assert status == 200, page
        return {each["id"]: each for each in page["requests"]}

    def set_members(self, path: str, **terms: object) -> None:
        assert self.client.ask("PATCH", f"/admin/teams/{path}", terms)[0] == 200


@pytest.fixture(scope="module")
def whole_company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    with Upstream() as upstream:
        folder = tmp_path_factory.mktemp("requests")
        with InProcessGateway(folder, upstream, settings(upstream.url, 0)) as gateway:
            yield Company(AdminClient(gateway))


@pytest.fixture
def company(whole_company: Company) -> Iterator[Company]:
    """The company, in which no request is open afterwards."""
    yield whole_company
    for id, each in whole_company.seen_by("admin").items():
        assert whole_company.ask("admin", "POST", f"/admin/requests/{id}/refuse")[0] == 200, each


def test_a_member_asks_and_the_lead_of_its_team_approves(company: Company) -> None:
    key = company.key("ann", requests_per_minute=10, models=["fast"])
    asked = company.request_more("ann", key=key, budgets={"month": "50"}, requests_per_minute=20, models=["smart"])
    assert (asked["state"], asked["own"], asked["may_answer"]) == ("open", True, False)
    assert asked["present"]["budgets"] == {"month": "10.00"}
    assert asked["wanted"]["budgets"] == {"month": "50.00"}
    seen = company.seen_by("lead")[asked["id"]]
    assert (seen["who"], seen["reason"], seen["own"], seen["may_answer"]) == (
        "token:ann",
        "a demo on Friday",
        False,
        True,
    )
    status, answered = company.ask("lead", "POST", f"/admin/requests/{asked['id']}/approve", {"note": "Good luck"})
    assert (status, answered["state"], answered["answered_by"]) == (200, "approved", "token:lead")
    shown = company.ask("ann", "GET", f"/admin/keys/{key}")[1]
    assert (shown["budget"], shown["requests_per_minute"], shown["models"]) == ("50.00", 20, ["fast", "smart"])
    assert asked["id"] not in company.seen_by("ann")
    mine = company.seen_by("ann", "&all=1")[asked["id"]]
    assert (mine["state"], mine["note"], mine["granted"]["budgets"]) == ("approved", "Good luck", {"month": "50.00"})
    acts = company.client.get(f"/admin/audit?subject={key}")["entries"]
    assert [(act["action"], act["who"].partition(" ")[0]) for act in acts] == [
        ("limits.approve", "token:lead"),
        ("key.update", "token:lead"),
        ("limits.ask", "token:ann"),
        ("key.create", "token:ann"),
    ]
    assert company.refused("lead", f"/{asked['id']}/approve") == "request_answered"
    assert company.refused("lead", f"/{asked['id']}/refuse") == "request_answered"
    assert company.refused("ann", f"/{asked['id']}/withdraw") == "request_answered"


def test_an_approval_may_grant_something_else(company: Company) -> None:
    key = company.key("ann", requests_per_minute=10)
    asked = company.request_more("ann", key=key, budgets={"month": "50"}, requests_per_minute=20)
    path = f"/{asked['id']}/approve"
    assert company.refused("head", path, {"budgets": {"month": "5"}}) == "invalid_key_terms", "no approval lowers"
    assert (
        company.refused("head", path, {"budgets": {"month": None}, "requests_per_minute": None}) == "invalid_key_terms"
    )
    status, answered = company.ask(
        "head", "POST", f"/admin/requests{path}", {"budgets": {"month": "20"}, "requests_per_minute": None}
    )
    assert (status, answered["granted"]["budgets"]) == (200, {"month": "20.00"})
    shown = company.ask("ann", "GET", f"/admin/keys/{key}")[1]
    assert (shown["budget"], shown["requests_per_minute"]) == ("20.00", 10)


def test_a_refusal_changes_nothing_and_has_a_note(company: Company) -> None:
    key = company.key("bob")
    asked = company.request_more("bob", key=key, budgets={"month": "50"})
    status, answered = company.ask(
        "lead", "POST", f"/admin/requests/{asked['id']}/refuse", {"note": "Use the small one"}
    )
    assert (status, answered["state"], answered["granted"]) == (200, "refused", None)
    assert company.seen_by("bob", "&all=1")[asked["id"]]["note"] == "Use the small one"
    assert company.ask("bob", "GET", f"/admin/keys/{key}")[1]["budget"] == "10.00"


def test_only_another_administrator_of_the_team_answers(company: Company) -> None:
    key = company.key("ann")
    asked = company.request_more("ann", key=key, budgets={"month": "50"})
    own = company.request_more("lead", key=key, budgets={"month": "60"})
    for path in (f"/{asked['id']}/approve", f"/{asked['id']}/refuse"):
        assert company.refused("ann", path) == "permission_denied"
        assert company.refused("watcher", path) == "permission_denied"
        assert company.refused("bob", path) == "request_not_found", "what it may not see does not exist"
        assert company.refused("stranger", path) == "request_not_found"
        assert company.refused("lead", path.replace(asked["id"], own["id"])) == "permission_denied"
    assert company.refused("lead", f"/{asked['id']}/withdraw") == "permission_denied"
    assert company.refused("bob", f"/{asked['id']}/withdraw") == "request_not_found"
    assert {who: asked["id"] in company.seen_by(who) for who, *_ in ROLES} == {
        "ann": True,
        "bob": False,
        "lead": True,
        "stranger": False,
        "head": True,
        "watcher": True,
    }
    assert not company.seen_by("watcher")[asked["id"]]["may_answer"]
    assert company.seen_by("admin")[asked["id"]]["may_answer"]
    assert company.ask("ann", "POST", f"/admin/requests/{asked['id']}/withdraw") == (
        200,
        {"id": asked["id"], "withdrawn": True},
    )
    assert asked["id"] not in company.seen_by("ann", "&all=1")
    # A key that has moved to another team since is not for the administrators of the earlier one.
    assert company.client.ask("PATCH", f"/admin/keys/{key}", {"team": FOREIGN})[0] == 200
    late = company.seen_by("lead")[own["id"]]
    assert not late["may_answer"]
    other = company.key("ann", name="to-move")
    moved = company.request_more("ann", key=other, budgets={"month": "50"})
    assert company.client.ask("PATCH", f"/admin/keys/{other}", {"team": FOREIGN})[0] == 200
    assert company.refused("lead", f"/{moved['id']}/approve") == "permission_denied"


def test_a_team_admin_keeps_the_policies_that_it_may_not_exceed(company: Company) -> None:
    key = company.key("ann")
    policy = {"budgets": {"month": "40"}, "raised_by": "admin"}
    company.set_members(TEAM, member_keys=policy, members={"budgets": {"month": "100"}})
    try:
        asked = company.request_more("ann", key=key, budgets={"month": "50"})
        own = company.request_more("ann", team=TEAM, budgets={"month": "200"})
        path = f"/{asked['id']}/approve"
        assert company.refused("lead", path) == "key_policy"
        assert company.refused("head", path) == "key_policy"
        assert company.refused("lead", f"/{own['id']}/approve") == "key_policy"
        assert company.ask("lead", "POST", f"/admin/requests{path}", {"budgets": {"month": "40"}})[0] == 200
        assert company.ask("admin", "POST", f"/admin/requests/{own['id']}/approve")[0] == 200
        again = company.request_more("ann", key=key, budgets={"month": "50"})
        assert company.ask("admin", "POST", f"/admin/requests/{again['id']}/approve")[0] == 200
        assert company.ask("ann", "GET", f"/admin/keys/{key}")[1]["budget"] == "50.00"
    finally:
        none: dict[str, object] = {"budgets": {"month": None}}
        company.set_members(TEAM, member_keys={**none, "raised_by": "team_admin"}, members=none)


def test_a_member_asks_for_its_own_limits(company: Company) -> None:
    company.key("bob")
    company.set_members(TEAM, members={"budgets": {"month": "5"}, "concurrent": 2})
    try:
        asked = company.request_more("bob", team=TEAM, budgets={"month": "9"}, concurrent=3)
        assert (asked["key"], asked["team"], asked["present"]["budgets"]) == (None, TEAM, {"month": "5.00"})
        assert company.ask("lead", "POST", f"/admin/requests/{asked['id']}/approve")[0] == 200
        (mine,) = company.ask("bob", "GET", f"/admin/members?team={TEAM}")[1]["members"]
        assert (mine["budgets"][0]["budget"], mine["concurrent"], mine["raised"]) == ("9.00", 3, True)
        for wanted in ({"budgets": {"month": "9"}}, {"budgets": {"day": "9"}}, {"models": ["fast"]}, {}):
            assert company.refused("bob", "", {"team": TEAM, "reason": "more", **wanted}) == "invalid_key_terms"
        assert company.refused("bob", "", {"team": FOREIGN, "reason": "x", "concurrent": 9}) == "invalid_key_terms"
    finally:
        company.set_members(TEAM, members={"budgets": {"month": None}, "concurrent": None})


def test_what_cannot_be_asked_for(company: Company) -> None:
    key = company.key("ann")
    theirs = company.key("bob")
    reason = {"reason": "a demo"}
    wrong: tuple[tuple[dict[str, object], str], ...] = (
        ({"key": key, "budgets": {"month": "10"}, **reason}, "invalid_key_terms"),  # no more than it has
        ({"key": key, "budgets": {"day": "50"}, **reason}, "invalid_key_terms"),  # there is no such budget
        ({"key": key, "requests_per_minute": 5, **reason}, "invalid_key_terms"),  # nor such a limit
        ({"key": key, "models": ["smart"], **reason}, "invalid_key_terms"),  # it allows all
        ({"key": key, **reason}, "invalid_key_terms"),
        ({"budgets": {"month": "50"}, **reason}, "invalid_key_terms"),
        ({"key": key, "team": TEAM, "budgets": {"month": "50"}, **reason}, "invalid_key_terms"),
        ({"key": key, "budgets": {"month": "50"}}, "invalid_key_terms"),
        ({"key": key, "budgets": {"month": "50"}, "reason": "  "}, "invalid_parameter"),
        ({"key": key, "budgets": {"month": "50"}, "reason": "x" * 401}, "invalid_parameter"),
        ({"key": theirs, "budgets": {"month": "50"}, **reason}, "key_not_found"),
    )
    for body, code in wrong:
        assert company.refused("ann", "", body) == code, body
    assert company.refused("admin", "", {"key": key, "budgets": {"month": "50"}, **reason}) == "invalid_parameter"
    assert company.refused("admin", "/ask_none/approve") == "request_not_found"
    assert company.seen_by("ann") == {}


def test_the_open_requests_of_a_member_are_bounded(company: Company) -> None:
    key = company.key("ann")
    asked = [company.request_more("ann", key=key, budgets={"month": 20 + number}) for number in range(MAX_OPEN)]
    more = {"key": key, "budgets": {"month": "99"}, "reason": "more"}
    assert company.refused("ann", "", more) == "too_many_open_requests"
    company.request_more("lead", key=key, budgets={"month": "99"})  # another one has its own
    assert company.ask("ann", "POST", f"/admin/requests/{asked[0]['id']}/withdraw")[0] == 200
    company.request_more("ann", **more)
    pages, before = [], ""
    while True:
        page = company.ask("admin", "GET", f"/admin/requests?limit=2{before}")[1]
        pages += [each["id"] for each in page["requests"]]
        if page["next"] is None:
            break
        before = f"&before={page['next']}"
    assert pages == list(company.seen_by("admin"))
    assert len(pages) == MAX_OPEN + 1


def test_a_request_for_a_revoked_key_cannot_be_approved(company: Company) -> None:
    key = company.key("ann")
    asked = company.request_more("ann", key=key, budgets={"month": "50"})
    assert company.ask("ann", "POST", f"/admin/keys/{key}/revoke")[0] == 200
    assert company.refused("lead", f"/{asked['id']}/approve") == "key_unusable"

"""Members of teams: the policy for keys that they create, and the budgets of each over all its keys."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tests.faults.gateway import settings
from tests.faults.scripts import unstreamed
from tests.faults.upstream import Upstream
from tests.serve.in_process import InProcessGateway
from tests.serve.support import AdminClient

TEAM = "acme/search"


class Team:
    """A gateway with a team, and API tokens for people of each role in it."""

    def __init__(self, client: AdminClient) -> None:
        self.client = client
        for path in ("acme", TEAM):
            client.ask("POST", "/admin/teams", {"path": path})
        self.tokens = {
            name: self._token(name, role, team)
            for name, role, team in (
                ("ann", "member", TEAM),
                ("bob", "member", TEAM),
                ("lead", "team_admin", TEAM),
                ("head", "team_admin", "acme"),
            )
        }

    def _token(self, name: str, role: str, team: str) -> str:
        status, _ = self.client.ask("POST", "/admin/tokens", {"name": name, "role": role, "team": team})
        assert status == 201
        return self.client.secrets[-1]

    def ask(self, who: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        return self.client.send(method, path, body, {"Authorization": f"Bearer {self.tokens[who]}"})[:2]

    def set(self, path: str, **terms: object) -> None:
        status, reported = self.client.ask("PATCH", f"/admin/teams/{path}", terms)
        assert status == 200, reported

    def answers(self, secret: str) -> bool:
        return self.client.call(secret, max_tokens=1) == 200

    def create(self, who: str, **terms: object) -> tuple[int, Any]:
        return self.ask(who, "POST", "/admin/keys", {"name": f"{who}-{time.time_ns()}", "team": TEAM, **terms})


@pytest.fixture(scope="module")
def team_of_people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with Upstream() as upstream:
        upstream.play(unstreamed(), "river-1")
        folder = tmp_path_factory.mktemp("members")
        with InProcessGateway(folder, upstream, settings(upstream.url, 0)) as gateway:
            yield Team(AdminClient(gateway))


@pytest.fixture
def team(team_of_people: Team) -> Iterator[Team]:
    """The team without a policy, and its people without keys."""
    yield team_of_people
    none: dict[str, None] = dict.fromkeys(("day", "week", "month", "total"))
    rates: dict[str, None] = dict.fromkeys(("requests_per_minute", "tokens_per_minute", "concurrent"))
    for path in ("acme", TEAM):
        policy: dict[str, Any] = {
            "budgets": none,
            **rates,
            "number": None,
            "days": None,
            "models": [],
            "raised_by": "team_admin",
        }
        team_of_people.set(path, member_keys=policy, members={"budgets": none, **rates})
    client = team_of_people.client
    for key in client.get("/admin/keys?limit=500")["keys"]:
        client.ask("POST", f"/admin/keys/{key['id']}/revoke")


def test_a_key_of_a_member_gets_what_the_policies_allow(team: Team) -> None:
    team.set("acme", member_keys={"budgets": {"month": 50}, "days": 30, "models": ["main/*"]})
    team.set(TEAM, member_keys={"budgets": {"month": 80, "day": 5}, "concurrent": 3, "days": 90})
    status, key = team.create("ann")
    assert status == 201
    assert (key["budget"], key["period"], key["concurrent"], key["models"]) == ("5.00", "day", 3, ["main/*"])
    assert [(each["period"], each["budget"]) for each in key["budgets"]] == [("month", "50.00")]
    assert key["expires"] is not None
    status, key = team.create("ann", budget=20, period="month", models=["main/river-1"], concurrent=1, expires="1d")
    assert (status, key["budget"], key["models"], key["concurrent"]) == (201, "20.00", ["main/river-1"], 1)
    assert [(each["period"], each["budget"]) for each in key["budgets"]] == [("day", "5.00")]


BEYOND: dict[str, tuple[dict[str, Any], str, str]] = {
    "a budget": ({"budget": 60, "period": "month"}, "budget", "a budget of at most $50.00 per month"),
    "a further budget": ({"budgets": {"month": 51}}, "budget", "at most $50.00 per month"),
    "a rate": ({"concurrent": 4}, "concurrent", "at most 3 concurrent"),
    "a lifetime": ({"expires": "31d"}, "expires", "at most 30 days until it expires"),
    "a model": ({"models": ["main/x", "other/*"]}, "models", "the models main/*, and not other/*"),
    "all models": ({"models": ["*"]}, "models", "and not *"),
}


@pytest.mark.parametrize("beyond", BEYOND)
def test_a_key_beyond_the_policy_is_refused(team: Team, beyond: str) -> None:
    terms, param, message = BEYOND[beyond]
    policy: dict[str, Any] = {"budgets": {"month": 50}, "days": 30, "models": ["main/*"], "concurrent": 3}
    team.set("acme", member_keys=policy)
    status, refused = team.create("ann", **terms)
    assert (status, refused["error"]["code"], refused["error"]["param"]) == (403, "key_policy", param)
    assert message in refused["error"]["message"]
    assert "the organisation acme allows a key of a member" in refused["error"]["message"]
    # Who is responsible for the level may go beyond it; who is responsible for a team below may not.
    assert team.create("lead", **terms)[0] == 403
    assert team.create("head", **terms)[0] == 201
    team.set("acme", member_keys={"raised_by": "admin"})
    assert team.create("head", **terms)[0] == 403
    assert team.client.ask("POST", "/admin/keys", {"name": f"admin-{beyond}", "team": TEAM, **terms})[0] == 201


def test_a_member_has_so_many_active_keys_also_if_it_hurries(team: Team) -> None:
    team.set("acme", member_keys={"number": 3})
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda number: team.create("ann", name=f"hurry-{number}"), range(8)))
    assert sorted(status for status, _ in made) == [201] * 3 + [403] * 5
    refused = next(reported for status, reported in made if status == 403)
    assert "the organisation acme allows a member 3 active keys, which you have" in refused["error"]["message"]
    assert team.create("bob")[0] == 201
    own = next(reported["id"] for status, reported in made if status == 201)
    assert team.ask("ann", "POST", f"/admin/keys/{own}/revoke")[0] == 200
    assert team.create("ann")[0] == 201


def test_a_budget_of_a_member_is_for_all_its_keys(team: Team) -> None:
    team.set(TEAM, members={"budgets": {"month": "0.0005"}})
    secrets: dict[str, list[str]] = {}
    for who in ("ann", "ann", "bob"):
        assert team.create(who)[0] == 201
        secrets.setdefault(who, []).append(team.client.secrets[-1])
    first, second = secrets["ann"]
    (other,) = secrets["bob"]
    for secret in (first, second, other):
        team.client.gateway.until(partial(team.answers, secret))
    spent = 0
    while team.client.call(first, max_tokens=1) == 200:
        spent += 1
        assert spent < 200
    assert team.client.call(second, max_tokens=1) == 429
    assert team.client.call(other, max_tokens=1) == 200
    rows = team.client.get(f"/admin/members?team={TEAM}")["members"]
    assert [(row["name"], row["keys"], row["raised"]) for row in rows if row["keys"]] == [
        ("token:ann", 2, False),
        ("token:bob", 1, False),
    ]
    (mine,) = team.ask("ann", "GET", f"/admin/members?team={TEAM}")[1]["members"]
    assert mine["name"] == "token:ann"
    listed = team.ask("lead", "GET", f"/admin/members?team={TEAM}")[1]["members"]
    assert [row["member"] for row in listed] == [row["member"] for row in rows]
    # An administrator gives one member more, and then the same as all others.
    change = {"team": TEAM, "member": "token:ann", "budgets": {"month": 5}}
    status, raised = team.client.ask("PATCH", "/admin/members", change)
    assert (status, raised["raised"], raised["budgets"][0]["budget"]) == (200, True, "5.00")
    team.client.until_known(second)
    change = {"team": TEAM, "member": mine["member"], "budgets": {"month": None}}
    status, lowered = team.client.ask("PATCH", "/admin/members", change)
    assert (status, lowered["raised"], lowered["budgets"][0]["budget"]) == (200, False, "0.0005")
    team.client.gateway.until(lambda: team.client.call(second, max_tokens=1) == 429)
    assert team.client.ask("PATCH", "/admin/members", {"team": TEAM, "member": "eve"})[0] == 404

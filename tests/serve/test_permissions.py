"""The authorisation matrix: every admin route, asked by every role, about its own team and about a foreign one."""

import csv
import itertools
import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from penstock.gateway.keys.key_secret import digest_of
from penstock.gateway.keys.keys import Key
from penstock.gateway.people.roles import GlobalRole, Principal
from penstock.gateway.people.tokens import TokenTerms
from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.gateway.teams.changes import TeamTerms
from penstock.gateway.teams.changes import create as create_team
from penstock.serve.admin.route import AdminRoute
from penstock.serve.admin.routes import ROUTES as ADMIN_ROUTES
from penstock.serve.admin.routes import show_user
from penstock.serve.admin.schemas import User as UserJson
from penstock.stores.book.sqlite import SqliteBook
from tests.faults.gateway import settings
from tests.faults.upstream import Upstream
from tests.serve.in_process import InProcessGateway
from tests.serve.support import AdminClient

OWN, FOREIGN = "acme/search", "acme/other"

# Who may use a route, stated apart from the code: the weakest global role, and whether roles in teams may, for what is
# theirs.
GLOBAL: tuple[GlobalRole, ...] = ("viewer", "operator", "admin")
MATRIX: dict[tuple[str, str], tuple[str, bool]] = {
    ("GET", "/admin/me"): ("anyone", True),
    ("DELETE", "/admin/session"): ("anyone", True),
    ("GET", "/metrics"): ("viewer", False),
    ("GET", "/admin/openapi.json"): ("viewer", True),
    ("GET", "/admin/state"): ("viewer", False),
    ("GET", "/admin/models"): ("viewer", False),
    ("GET", "/admin/connect"): ("viewer", True),
    ("GET", "/admin/holds"): ("viewer", False),
    ("GET", "/admin/provider-keys"): ("viewer", False),
    ("GET", "/admin/setup"): ("viewer", False),
    ("GET", "/admin/live"): ("viewer", False),
    ("GET", "/admin/health"): ("viewer", False),
    ("GET", "/admin/rejections"): ("viewer", False),
    ("GET", "/admin/usage"): ("viewer", True),
    ("GET", "/admin/usage.csv"): ("viewer", True),
    ("GET", "/admin/focus.csv"): ("viewer", True),
    ("GET", "/admin/entries"): ("viewer", True),
    ("GET", "/admin/entries/{id}"): ("viewer", True),
    ("GET", "/admin/export"): ("viewer", True),
    ("GET", "/admin/keys"): ("viewer", True),
    ("GET", "/admin/keys/{id}"): ("viewer", True),
    ("POST", "/admin/keys"): ("admin", True),
    ("PATCH", "/admin/keys"): ("admin", False),
    ("PATCH", "/admin/keys/{id}"): ("admin", False),
    ("POST", "/admin/keys/{id}/revoke"): ("admin", True),
    ("POST", "/admin/keys/{id}/rotate"): ("admin", True),
    ("POST", "/admin/keys/{id}/stop"): ("operator", True),
    ("GET", "/admin/teams"): ("viewer", True),
    ("POST", "/admin/teams"): ("admin", False),
    ("GET", "/admin/teams/{id}"): ("viewer", True),
    ("PATCH", "/admin/teams/{id}"): ("admin", False),
    ("DELETE", "/admin/teams/{id}"): ("admin", False),
    ("GET", "/admin/requests"): ("viewer", True),
    ("POST", "/admin/requests"): ("admin", True),
    ("POST", "/admin/requests/{id}/approve"): ("admin", True),
    ("POST", "/admin/requests/{id}/refuse"): ("admin", True),
    ("POST", "/admin/requests/{id}/withdraw"): ("admin", True),
    ("POST", "/admin/plan"): ("admin", False),
    ("POST", "/admin/apply"): ("admin", False),
    ("GET", "/admin/members"): ("viewer", True),
    ("PATCH", "/admin/members"): ("admin", False),
    ("GET", "/admin/warnings"): ("viewer", True),
    ("GET", "/admin/calls/{id}/text"): ("operator", False),
    ("GET", "/admin/calls/{id}/content"): ("operator", False),
    ("GET", "/admin/calls/{id}/capture"): ("operator", False),
    ("POST", "/admin/calls/{id}/stop"): ("operator", False),
    ("POST", "/admin/playground"): ("operator", False),
    ("POST", "/admin/inspect"): ("operator", False),
    ("GET", "/admin/users/{id}"): ("operator", False),
    ("DELETE", "/admin/users/{id}"): ("admin", False),
    ("GET", "/admin/tokens"): ("admin", False),
    ("POST", "/admin/tokens"): ("admin", False),
    ("POST", "/admin/tokens/{id}/revoke"): ("admin", False),
    ("GET", "/admin/sessions"): ("admin", False),
    ("DELETE", "/admin/sessions/{id}"): ("admin", False),
    ("GET", "/admin/audit"): ("admin", False),
}
SCIM = "/admin/scim/v2"
MATRIX |= {
    ("GET", f"{SCIM}/{path}"): ("admin", False)
    for path in ("ServiceProviderConfig", "ResourceTypes", "ResourceTypes/{id}", "Schemas", "Schemas/{id}")
}
MATRIX |= {
    (method, f"{SCIM}/{kind}{which}"): ("admin", False)
    for kind in ("Users", "Groups")
    for which, methods in (("", ("GET", "POST")), ("/{id}", ("GET", "PUT", "PATCH", "DELETE")))
    for method in methods
}


class User(NamedTuple):
    """A role, and which of the keys and calls it may see: by their team and whether they are its own."""

    role: str
    team: str
    sees: frozenset[str]

    def sees_call(self, what: str) -> bool:
        if self.role in GLOBAL or what in self.sees or what == "jwt":
            return True
        return what in ("foreign jwt", "moved") and self.team == "acme"


# The keys: mine and theirs in the own team, one in a foreign team, one without a team.
KEYS = ("mine", "theirs", "foreign", "none")
# The calls: one of each key; those of clients with a JWT, whose keys are in no store; and one that the key `mine` made
# for a foreign team, before it moved to its present one.
CALLS = (*KEYS, "jwt", "foreign jwt", "moved")
USERS = {
    "viewer": User("viewer", "", frozenset(KEYS)),
    "operator": User("operator", "", frozenset(KEYS)),
    "provisioner": User("provisioner", "", frozenset()),
    "admin": User("admin", "", frozenset(KEYS)),
    "member": User("member", OWN, frozenset({"mine"})),
    "team_admin": User("team_admin", OWN, frozenset({"mine", "theirs"})),
    "above": User("team_admin", "acme", frozenset({"mine", "theirs", "foreign"})),
}
# A key that is revoked cannot be rotated.
ROUTES = sorted(MATRIX, key=lambda route: (route[1].endswith("revoke"), route))


def test_every_route_is_in_the_matrix() -> None:
    names = [route.name for route in ADMIN_ROUTES]
    assert sorted(names) == sorted(f"{method} {path}" for method, path in MATRIX)


def test_a_route_that_does_not_say_who_may_use_it_is_for_administrators() -> None:
    route = AdminRoute("GET", "/admin/new", show_user, UserJson)
    users = {role: Principal(name=role, via="API token", role=role) for role in GLOBAL}
    assert [role for role, user in users.items() if route.allows(user)] == ["admin"]
    assert not route.allows(Principal(name="member", via="API token", teams={OWN: "team_admin"}))


class Site:
    """A gateway with tokens of every role, and with keys and calls to ask about."""

    def __init__(self, client: AdminClient) -> None:
        self.client = client
        self.path = client.state / "ledger.db"
        self.tokens: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self._numbers = itertools.count()
        book = SqliteBook.open(self.path)
        try:
            for path in ("acme", OWN, FOREIGN, f"{OWN}/project"):
                create_team(book, TeamTerms(path=path), _now())
            for name, user in USERS.items():
                terms = TokenTerms(name=name, role=user.role, team=user.team)  # type: ignore[arg-type]
                made = book.people.create_token(terms, book.actor, _now())
                self.tokens[name] = made.secret
                self.names[name] = made.token.principal.name
        finally:
            book.close()

    def keys(self, name: str) -> dict[str, str]:
        """New keys for one user, and an entry of each: their ids by what they are to the user."""
        number = next(self._numbers)
        owners = {"mine": (OWN, self.names[name]), "theirs": (OWN, "token:someone"), "foreign": (FOREIGN, "token:else")}
        made = {
            what: Key(
                id=f"key_{number:06x}{index:06x}",
                name=f"{what}-{number}",
                digest=digest_of(f"{what}-{number}"),
                hint="abcd",
                created_ms=_now(),
                team=owners.get(what, ("", ""))[0],
                owner=owners.get(what, ("", ""))[1],
            )
            for index, what in enumerate(KEYS)
        }
        book = SqliteBook.open(self.path)
        try:
            book.change_keys(lambda *_: list(made.values()))
            keys = {what: key.id for what, key in made.items()}
            calls = {what: (key.id, key.team) for what, key in made.items()} | {
                "jwt": (f"jwt:{OWN}", OWN),
                "foreign jwt": (f"jwt:{FOREIGN}", FOREIGN),
                "moved": (keys["mine"], FOREIGN),
            }
            book.append([_entry(call_of(keys, what), *calls[what]) for what in CALLS])
        finally:
            book.close()
        return keys

    def ask(self, name: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.tokens[name]}"}
        status, reported, _ = self.client.send(method, path, body, headers)
        return status, reported


def _now() -> int:
    return time.time_ns() // 1_000_000


def call_of(keys: dict[str, str], what: str) -> str:
    """The id of a call."""
    return f"call_{keys['mine']}_{CALLS.index(what)}"


def _entry(id: str, key: str, team: str) -> Entry:
    attempt = AttemptEntry(provider="main", model="m", outcome="completed", status=200)
    return Entry(
        id=id,
        at_ms=_now(),
        key=key,
        surface="chat",
        model="m",
        outcome="completed",
        team=team,
        attempts=(attempt,),
    )


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminClient]:
    with Upstream() as upstream:
        folder = tmp_path_factory.mktemp("permissions")
        with InProcessGateway(folder, upstream, settings(upstream.url, 0, admin={"content": True})) as gateway:
            yield AdminClient(gateway)


@pytest.fixture(scope="module")
def people_site(admin: AdminClient) -> Site:
    return Site(admin)


@pytest.mark.parametrize("name", USERS)
def test_the_matrix(people_site: Site, name: str) -> None:
    """One user asks every route, about each kind of key where the route is about a key."""
    user = USERS[name]
    keys = people_site.keys(name)
    for method, path in ROUTES:
        if path == "/admin/live":
            continue  # a stream; the role that may not open it is in the test below
        weakest, in_team = MATRIX[method, path]
        is_global = weakest == "anyone" or (user.role in GLOBAL and GLOBAL.index(user.role) >= GLOBAL.index(weakest))
        of_call = "entries/{id}" in path
        subjects = CALLS if of_call else KEYS if "keys/{id}" in path else ("nothing",)
        for what in subjects:
            id = call_of(keys, what) if of_call else keys.get(what, "nothing")
            body = {"name": f"new-{name}", "team": OWN} if (method, path) == ("POST", "/admin/keys") else None
            status, reported = people_site.ask(name, method, path.replace("{id}", id), body)
            error = reported.get("error") if isinstance(reported, dict) else None
            code = error["code"] if isinstance(error, dict) else ""
            if path.startswith(SCIM):
                is_global = user.role in ("provisioner", "admin")
                code = "permission_denied" if isinstance(reported, dict) and reported.get("status") == "403" else ""
            case = (name, method, path, what, status, reported)
            if not is_global and not (in_team and user.team):
                assert (status, code) == (403, "permission_denied"), case
            elif what in CALLS and not is_global and not (user.sees_call(what) if of_call else what in user.sees):
                assert status == 404, case
                assert id not in str(reported), case
            else:
                assert status != 401, case
                assert code != "permission_denied", case
                if what in CALLS:
                    assert status in (200, 201), case


@pytest.mark.parametrize("name", ["member", "team_admin", "above"])
def test_lists_and_sums_have_what_is_in_the_team_only(people_site: Site, name: str) -> None:
    keys, user = people_site.keys(name), USERS[name]
    listed = people_site.ask(name, "GET", "/admin/keys?all=1&limit=500")[1]["keys"]
    ids = {key["id"] for key in listed}
    assert {what for what, id in keys.items() if id in ids} == user.sees
    assert all(key["team"] and key["team"].startswith(user.team) for key in listed)
    seen = {what for what in CALLS if user.sees_call(what)}
    entries = people_site.ask(name, "GET", "/admin/entries?limit=500")[1]["entries"]
    assert {what for what in CALLS if call_of(keys, what) in {entry["id"] for entry in entries}} == seen
    exported = str(people_site.ask(name, "GET", "/admin/export")[1])
    assert {what for what in CALLS if call_of(keys, what) in exported} == seen
    groups = people_site.ask(name, "GET", "/admin/usage?by=key")[1]["usage"]
    rows = csv.DictReader(str(people_site.ask(name, "GET", "/admin/usage.csv?by=key")[1]).splitlines())
    assert {row["key"]: int(row["calls"]) for row in rows} == {row["group"]["key"]: row["calls"] for row in groups}
    tree = people_site.ask(name, "GET", "/admin/usage?by=tree")[1]["usage"]
    assert tree[0]["group"]["tree"] == user.team
    calls = {row["group"]["key"]: row["calls"] for row in groups}
    assert {what for what, id in keys.items() if id in calls} == user.sees
    assert calls[keys["mine"]] == (2 if name == "above" else 1)
    assert {id for id in calls if id.startswith("jwt:")} == {
        f"jwt:{OWN}",
        *(() if name != "above" else (f"jwt:{FOREIGN}",)),
    }
    teams = [team["path"] for team in people_site.ask(name, "GET", "/admin/teams")[1]["teams"]]
    own = [OWN, f"{OWN}/project"]
    assert teams == (["acme", FOREIGN, *own] if name == "above" else own)
    for path, status in ((OWN, 200), (FOREIGN, 200 if name == "above" else 404)):
        assert people_site.ask(name, "GET", f"/admin/teams/{path}")[0] == status
    # A filter does not lead out of the team: neither by id, nor by name, nor by a key that does not exist.
    foreign = [f"key={keys['foreign']}", f"key=jwt:{FOREIGN}", f"team={FOREIGN}", f"team={FOREIGN}&team=none"]
    outside = [f"key={keys['none']}", "key=none-0", "key=(none)", "key=", "team=other", "team=(none)"]
    for wanted in (*outside, *([] if name == "above" else foreign)):
        assert people_site.ask(name, "GET", f"/admin/entries?{wanted}")[1]["entries"] == []
        assert people_site.ask(name, "GET", f"/admin/usage?{wanted}")[1]["usage"][0]["calls"] == 0
    for wanted in (f"key=jwt:{OWN}", f"team={OWN}", "find=jwt:acme"):
        assert call_of(keys, "jwt") in str(people_site.ask(name, "GET", f"/admin/entries?{wanted}&limit=500")[1])


def test_a_member_manages_its_own_keys_and_no_others(people_site: Site) -> None:
    ask = people_site.ask
    status, made = ask("member", "POST", "/admin/keys", {"name": "self-service", "budget": 1})
    assert (status, made["team"], made["owner"]) == (201, OWN, people_site.names["member"])
    assert ask("member", "POST", f"/admin/keys/{made['id']}/rotate", {"grace": "1h"})[0] == 201
    assert ask("member", "POST", "/admin/keys/self-service/revoke")[1]["state"] == "revoked"
    for team in (FOREIGN, "acme", "other"):
        status, refused = ask("member", "POST", "/admin/keys", {"name": "x", "team": team})
        assert (status, refused["error"]["param"]) == (400, "team")
    assert ask("member", "POST", "/admin/keys", {"name": "x", "owner": "token:else"})[0] == 400
    assert ask("member", "POST", "/admin/keys", {"name": "p", "team": f"{OWN}/project"})[0] == 201
    # A name that another team uses is refused without saying whose it is.
    people_site.client.ask("POST", "/admin/keys", {"name": "theirs-too", "team": FOREIGN})
    status, refused = ask("member", "POST", "/admin/keys", {"name": "theirs-too"})
    assert status == 409
    assert "key_" not in str(refused)
    acts = people_site.client.get(f"/admin/audit?who=token:member&subject={made['id']}")["entries"]
    assert [act["action"] for act in acts] == ["key.revoke", "key.rotate", "key.create"]
    assert {act["address"] for act in acts} == {"127.0.0.1"}


def test_a_token_ends_at_once(people_site: Site) -> None:
    client = people_site.client
    status, made = client.ask("POST", "/admin/tokens", {"name": "brief", "role": "viewer", "expires": "1h"})
    assert status == 201
    secret = client.secrets[-1]
    headers = {"Authorization": f"Bearer {secret}"}
    assert client.send("GET", "/admin/state", headers=headers)[0] == 200
    assert client.send("GET", "/admin/me", headers=headers)[1]["name"] == "token:brief"
    assert client.ask("POST", f"/admin/tokens/{made['id']}/revoke")[1]["state"] == "revoked"
    assert client.send("GET", "/admin/state", headers=headers)[0] == 401
    assert secret not in str(client.get("/admin/audit?action=token"))
    assert client.get("/admin/tokens?all=1")["tokens"][-1]["state"] == "revoked"
    for wrong in (secret[:-1] + "x", secret + "x", "pst-", secret.upper()):
        assert client.send("GET", "/admin/state", headers={"Authorization": f"Bearer {wrong}"})[0] == 401
    # It is no key for clients, and a client's key is no token.
    assert client.call(people_site.tokens["admin"]) == 401
    key = client.make(name="a-client")[0]
    assert client.send("GET", "/admin/state", headers={"Authorization": f"Bearer {key}"})[0] == 401


def test_looks_at_content_and_acts_on_calls_are_recorded(people_site: Site) -> None:
    ask = people_site.ask
    assert ask("operator", "GET", "/admin/calls/call_x/content")[0] == 404
    assert ask("operator", "POST", "/admin/calls/call_x/stop")[0] == 404
    assert ask("operator", "GET", "/admin/users/ann%40example.com")[0] == 404
    found = people_site.client.get("/admin/audit?who=token:operator&limit=3")["entries"]
    assert [(act["action"], act["subject"]) for act in reversed(found)] == [
        ("content.read", "call_x"),
        ("call.stop", "call_x"),
        ("user.find", "(given by name)"),
    ]
    assert ask("viewer", "GET", "/admin/calls/call_x/content")[0] == 403
    recorded = "/admin/audit?who=token:viewer"
    people_site.client.gateway.until(lambda: people_site.client.get(recorded)["entries"])
    acts = people_site.client.get(recorded)["entries"]
    assert {act["action"] for act in acts} == {"request.refuse"}


def test_refusals_are_recorded_in_few_entries(people_site: Site) -> None:
    client, route = people_site.client, "PATCH /admin/keys/{id}"
    wrong = {"Authorization": "Bearer canary-of-a-wrong-token"}
    for number in range(20):
        assert people_site.ask("operator", "PATCH", f"/admin/keys/canary-{number}", {"budget": 1})[0] == 403
        assert client.send("GET", f"/admin/canary-{number}", headers=wrong)[0] == 401
        assert client.send("GET", "/admin/state")[0] == 401  # without credentials it is no sign-in
    client.gateway.until(lambda: client.get("/admin/audit?action=session.refuse")["entries"])
    refused = client.get(f"/admin/audit?{urlencode({'subject': route, 'who': 'token:operator'})}")["entries"]
    assert [(act["action"], act["via"], act["after"]) for act in refused] == [
        ("request.refuse", "API token", {"reason": "permission_denied", "times": 1})
    ]
    failed = client.get("/admin/audit?action=session.refuse&limit=500")["entries"]
    assert [(act["who"], act["address"], act["after"]["reason"]) for act in failed] == [
        ("(unknown)", "127.0.0.1", "invalid_admin_token")
    ]
    assert "canary" not in str(client.get("/admin/audit?limit=500"))


def test_no_route_changes_the_audit_log(people_site: Site) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert people_site.client.ask(method, "/admin/audit")[0] == 405
        assert people_site.client.ask(method, "/admin/audit/1")[0] == 404


@pytest.mark.parametrize("name", ["member", "team_admin"])
def test_the_live_calls_of_all_are_not_for_a_team(people_site: Site, name: str) -> None:
    assert people_site.ask(name, "GET", "/admin/live")[0] == 403

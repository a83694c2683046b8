"""SCIM: what Okta's and Entra ID's published tests ask of a service, and what becomes of people who leave."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.gateway.keys import changes as key_changes
from penstock.gateway.keys.terms import KeyTerms
from penstock.gateway.people.audit import Actor
from penstock.gateway.people.roles import RoleGrant
from penstock.gateway.people.sessions import AdminSession
from penstock.stores.book.sqlite import SqliteBook
from tests.faults.gateway import settings
from tests.faults.scripts import unstreamed
from tests.faults.upstream import Upstream
from tests.serve.in_process import InProcessGateway
from tests.serve.scim import ENTERPRISE, ERROR, GROUP, LIST, PATCH, SCIM, USER, Provisioner
from tests.serve.support import AdminClient


@pytest.fixture(scope="module")
def scim_admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminClient]:
    with Upstream() as upstream:
        upstream.play(unstreamed(), "river-1")
        folder = tmp_path_factory.mktemp("scim")
        with InProcessGateway(folder, upstream, settings(upstream.url, 0)) as gateway:
            yield AdminClient(gateway)


@pytest.fixture(scope="module")
def okta(scim_admin: AdminClient) -> Provisioner:
    return Provisioner(scim_admin, "okta")


def new_name() -> str:
    return f"{uuid.uuid4().hex[:10]}@example.com"


def okta_user(name: str) -> dict[str, Any]:
    """A user as Okta creates it."""
    return {
        "userName": name,
        "name": {"givenName": "Ann", "familyName": "Lee"},
        "emails": [{"primary": True, "value": name, "type": "work"}],
        "displayName": "Ann Lee",
        "locale": "en-US",
        "externalId": f"00u{uuid.uuid4().hex[:17]}",
        "groups": [],
        "password": "not-stored",
        "active": True,
    }


# Okta's tests of a SCIM 2.0 service, in their order.


def test_okta_reads_a_page_of_users(okta: Provisioner) -> None:
    okta.create("Users", **okta_user(new_name()))
    page = okta.get("/Users?count=1&startIndex=1")
    assert page["schemas"] == [LIST]
    assert (page["itemsPerPage"], page["startIndex"]) == (1, 1)
    assert page["totalResults"] >= 1
    (user,) = page["Resources"]
    assert user["schemas"] == [USER]
    for value in (user["id"], user["userName"], user["name"]["givenName"], user["name"]["familyName"]):
        assert value
    assert user["active"] is True
    assert user["emails"][0]["value"]
    assert okta.get(f"/Users/{user['id']}") == user


def test_okta_asks_for_users_that_do_not_exist(okta: Provisioner) -> None:
    found = okta.find("Users", 'userName eq "no-such-user@example.com"')
    assert (found["schemas"], found["totalResults"], found["Resources"]) == ([LIST], 0, [])
    status, error = okta.ask("GET", "/Users/010101001010101011001010101011")
    assert (status, error["schemas"], error["status"]) == (404, [ERROR], "404")
    assert error["detail"]


def test_okta_creates_a_user_once(okta: Provisioner) -> None:
    name = new_name()
    given = okta_user(name)
    status, made = okta.ask("POST", "/Users", {"schemas": [USER], **given})
    assert status == 201
    assert (made["userName"], made["active"], made["externalId"]) == (name, True, given["externalId"])
    assert made["name"] == given["name"]
    assert made["meta"]["resourceType"] == "User"
    assert made["meta"]["location"].endswith(f"{SCIM}/Users/{made['id']}")
    assert "password" not in made
    assert okta.get(f"/Users/{made['id']}") == made
    status, error = okta.ask("POST", "/Users", {"schemas": [USER], **given, "userName": name.upper()})
    assert (status, error["schemas"], error["status"], error["scimType"]) == (409, [ERROR], "409", "uniqueness")


def test_okta_finds_a_user_in_any_case(okta: Provisioner) -> None:
    name = new_name()
    made = okta.create("Users", **okta_user(name))
    for condition in (
        f'userName eq "{name}"',
        f'username EQ "{name.upper()}"',
        f'externalId eq "{made["externalId"]}"',
        f'id eq "{made["id"]}"',
        f'emails.value eq "{name}"',
        f'emails[type eq "work"].value eq "{name}" and active eq true',
        f'{USER}:userName eq "{name}"',
    ):
        found = okta.find("Users", condition, "&startIndex=1&count=100")
        assert [each["id"] for each in found["Resources"]] == [made["id"]], condition
    assert okta.find("Users", f'externalId eq "{made["externalId"].upper()}"')["totalResults"] == 0
    assert okta.find("Users", f'emails[type eq "home"].value eq "{name}"')["totalResults"] == 0
    assert okta.find("Users", f'userName eq "another" and userName eq "{name}"')["totalResults"] == 0


def test_okta_changes_deactivates_and_reactivates_a_user(okta: Provisioner) -> None:
    name = new_name()
    made = okta.create("Users", **okta_user(name))
    path = f"/Users/{made['id']}"
    status, changed = okta.ask("PUT", path, {**made, "name": {"givenName": "Anna", "familyName": "Lee"}})
    assert (status, changed["name"]["givenName"], changed["id"]) == (200, "Anna", made["id"])
    assert okta.patch(path, {"op": "replace", "value": {"active": False}})["active"] is False
    assert okta.find("Users", f'userName eq "{name}"')["Resources"][0]["active"] is False
    status, kept = okta.ask("PUT", path, {name: value for name, value in made.items() if name != "active"})
    assert (status, kept["active"]) == (200, False)  # it was not given
    assert okta.ask("PUT", path, {**made, "active": True})[1]["active"] is True


def test_okta_pushes_groups(okta: Provisioner) -> None:
    people = [okta.create("Users", **okta_user(new_name())) for _ in range(3)]
    ids = sorted(each["id"] for each in people)
    assert okta.get("/Groups?startIndex=1&count=100")["schemas"] == [LIST]
    name = f"llm-{uuid.uuid4().hex[:6]}"
    members = [{"value": id, "display": "any"} for id in ids[:2]]
    group = okta.create("Groups", displayName=name, members=members)
    path = f"/Groups/{group['id']}"
    assert [each["value"] for each in group["members"]] == ids[:2]
    assert {each["display"] for each in group["members"]} <= {each["userName"] for each in people}
    assert okta.find("Groups", f'displayName eq "{name}"')["Resources"][0]["id"] == group["id"]
    # Okta renames a group and replaces its members without a path, and names its own id.
    renamed = okta.patch(path, {"op": "replace", "value": {"id": group["id"], "displayName": f"{name}-2"}})
    assert renamed["displayName"] == f"{name}-2"
    okta.patch(
        path,
        {"op": "remove", "path": f'members[value eq "{ids[0]}"]'},
        {"op": "add", "path": "members", "value": [{"value": ids[2], "display": "any"}]},
    )
    assert [each["value"] for each in okta.get(path)["members"]] == ids[1:]
    assert okta.patch(path, {"op": "replace", "path": "members", "value": []})["members"] == []
    status, changed = okta.ask("PUT", path, {"schemas": [GROUP], "displayName": name, "members": members})
    assert (status, [each["value"] for each in changed["members"]]) == (200, ids[:2])
    assert okta.ask("DELETE", path)[0] == 204
    assert okta.ask("GET", path)[0] == 404


# What Entra ID sends, as its documentation describes it.


@pytest.fixture
def entra_user(okta: Provisioner) -> Any:
    name = new_name()
    return okta.create(
        "Users",
        schemas=[USER, ENTERPRISE],
        externalId=uuid.uuid4().hex,
        userName=name,
        active=True,
        emails=[{"primary": True, "type": "work", "value": name}],
        meta={"resourceType": "User"},
        name={"formatted": "Ann Lee", "familyName": "Lee", "givenName": "Ann"},
        roles=[],
    )


PATCHES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "a value of a kind": (
        [{"op": "Replace", "path": 'emails[type eq "work"].value', "value": "new@example.com"}],
        {"emails": [{"value": "new@example.com", "type": "work", "primary": True}]},
    ),
    "a value of a kind that is not there": (
        [{"op": "Add", "path": 'emails[type eq "home"].value', "value": "home@example.com"}],
        {"emails": [None, {"value": "home@example.com", "type": "home"}]},
    ),
    "two operations": (
        [
            {"op": "Replace", "path": "displayName", "value": "A. Lee"},
            {"op": "Replace", "path": "name.familyName", "value": "Li"},
        ],
        {"displayName": "A. Lee", "name": {"formatted": "Ann Lee", "familyName": "Li", "givenName": "Ann"}},
    ),
    "no path, and names with a point": (
        [{"op": "Add", "value": {"displayName": "Ann", "name.givenName": "Anna", "title": "Engineer"}}],
        {"displayName": "Ann", "name": {"formatted": "Ann Lee", "familyName": "Lee", "givenName": "Anna"}},
    ),
    "the enterprise extension": (
        [
            {"op": "Add", "path": f"{ENTERPRISE}:department", "value": "Research"},
            {"op": "Replace", "value": {f"{ENTERPRISE}:employeeNumber": "7", ENTERPRISE: {"manager": "x"}}},
        ],
        {"displayName": None},
    ),
    "a truth value as text": ([{"op": "Replace", "path": "active", "value": "False"}], {"active": False}),
    "a truth value without a path": ([{"op": "REPLACE", "value": {"active": "False"}}], {"active": False}),
    "the form of before 2018": (
        [{"op": "Replace", "path": "displayName", "value": [{"$ref": None, "value": "Old form"}]}],
        {"displayName": "Old form"},
    ),
    "a removal": ([{"op": "Remove", "path": "name.formatted"}], {"name": {"familyName": "Lee", "givenName": "Ann"}}),
    "a removal of a value": ([{"op": "Remove", "path": 'emails[type eq "work"]'}], {"emails": None}),
    "the name by which it signs in": ([{"op": "Replace", "path": "userName", "value": "x1@example.com"}], {}),
}


@pytest.mark.parametrize(("operations", "expected"), PATCHES.values(), ids=PATCHES)
def test_entra_changes_a_user(
    operations: list[dict[str, Any]], expected: dict[str, Any], okta: Provisioner, entra_user: Any
) -> None:
    changed = okta.patch(f"/Users/{entra_user['id']}", *operations)
    assert okta.get(f"/Users/{entra_user['id']}") == changed
    for name, value in expected.items():
        if isinstance(value, list):
            value = [each or entra_user[name][place] for place, each in enumerate(value)]
        assert changed.get(name) == value
    if not expected:
        assert changed["userName"] == "x1@example.com"


def test_entra_keeps_the_members_of_a_group(okta: Provisioner) -> None:
    first, second = sorted(okta.create("Users", **okta_user(new_name()))["id"] for _ in range(2))
    group = okta.create("Groups", externalId=uuid.uuid4().hex, displayName=uuid.uuid4().hex)
    path = f"/Groups/{group['id']}"
    assert "members" not in okta.get(f"{path}?excludedAttributes=members")
    found = okta.find("Groups", f'displayName eq "{group["displayName"]}"', "&excludedAttributes=members")
    assert [each["id"] for each in found["Resources"]] == [group["id"]]
    for id in (first, second):
        okta.patch(path, {"op": "Add", "path": "members", "value": [{"$ref": None, "value": id}]})
    assert [each["value"] for each in okta.get(path)["members"]] == [first, second]
    okta.patch(path, {"op": "Remove", "path": "members", "value": [{"$ref": None, "value": first}]})
    assert [each["value"] for each in okta.get(path)["members"]] == [second]
    assert okta.patch(path, {"op": "Remove", "path": f'members[value eq "{second}"]'})["members"] == []
    assert okta.patch(path, {"op": "Replace", "path": "displayName", "value": f"{group['displayName']}-2"})


def test_the_service_describes_itself(okta: Provisioner) -> None:
    config = okta.get("/ServiceProviderConfig")
    assert (config["patch"], config["bulk"]["supported"]) == ({"supported": True}, False)
    assert config["authenticationSchemes"][0]["type"] == "oauthbearertoken"
    types = okta.get("/ResourceTypes")
    assert [(each["endpoint"], each["schema"]) for each in types["Resources"]] == [("/Users", USER), ("/Groups", GROUP)]
    assert okta.get("/ResourceTypes/User") == types["Resources"][0]
    listed = okta.get("/Schemas")["Resources"]
    assert [each["id"] for each in listed] == [USER, GROUP]
    assert okta.get(f"/Schemas/{USER}") == listed[0]
    names = {attribute["name"] for attribute in listed[0]["attributes"]}
    made = okta.create("Users", **okta_user(new_name()))
    assert set(made) - names == {"schemas", "id", "meta"}


def test_pages_have_every_user_once(okta: Provisioner) -> None:
    for _ in range(3):
        okta.create("Users", **okta_user(new_name()))
    total = okta.get("/Users?count=0")["totalResults"]
    ids: list[str] = []
    while len(ids) < total:
        page = okta.get(f"/Users?startIndex={len(ids) + 1}&count=2&attributes=userName")
        assert page["totalResults"] == total
        assert all(set(each) == {"schemas", "id", "userName"} for each in page["Resources"])
        ids += [each["id"] for each in page["Resources"]]
    assert len(set(ids)) == total
    assert okta.get(f"/Users?startIndex={total + 1}")["Resources"] == []
    assert okta.get("/Users?startIndex=-5&count=-1")["Resources"] == []


INVALID: dict[str, tuple[str, str, Any, str]] = {
    "no name": ("POST", "/Users", {"displayName": "x"}, "invalidValue"),
    "an empty name": ("POST", "/Users", {"userName": " "}, "invalidValue"),
    "a long name": ("POST", "/Users", {"userName": "x" * 201}, "invalidValue"),
    "a name that is a number": ("POST", "/Users", {"userName": 7}, "invalidValue"),
    "no JSON object": ("POST", "/Users", [], "invalidValue"),
    "another operator": ("GET", "/Users?filter=userName%20co%20%22a%22", None, "invalidFilter"),
    "another attribute": ("GET", "/Users?filter=shoe%20eq%20%22a%22", None, "invalidFilter"),
    "a filter that does not end": ("GET", "/Users?filter=userName%20eq%20%22a", None, "invalidFilter"),
    "a very long filter": ("GET", f"/Users?filter=userName%20eq%20%22{'x' * 2_000}%22", None, "invalidFilter"),
    "or": ("GET", "/Users?filter=id%20eq%20%22a%22%20or%20id%20eq%20%22b%22", None, "invalidFilter"),
    "a page of words": ("GET", "/Users?count=many", None, "invalidValue"),
    "another operation": ("PATCH", "/Users/ID", {"Operations": [{"op": "move", "path": "name"}]}, "invalidSyntax"),
    "a path": ("PATCH", "/Users/ID", {"Operations": [{"op": "add", "path": "a[", "value": 1}]}, "invalidPath"),
    "a removal of all": ("PATCH", "/Users/ID", {"Operations": [{"op": "remove"}]}, "noTarget"),
    "a name removed": ("PATCH", "/Users/ID", {"Operations": [{"op": "remove", "path": "userName"}]}, "invalidValue"),
    "an address that is no text": (
        "PATCH",
        "/Users/ID",
        {"Operations": [{"op": "add", "path": "emails[value eq true].type", "value": "work"}]},
        "invalidValue",
    ),
    "a long address": (
        "PATCH",
        "/Users/ID",
        {"Operations": [{"op": "add", "path": f'emails[value eq "{"x" * 300}"].type', "value": "work"}]},
        "invalidValue",
    ),
    "very many addresses": (
        "PATCH",
        "/Users/ID",
        {"Operations": [{"op": "add", "path": "emails", "value": [{"value": f"{n}@a.b"}]} for n in range(30)]},
        "invalidValue",
    ),
    "no truth": (
        "PATCH",
        "/Users/ID",
        {"Operations": [{"op": "replace", "path": "active", "value": "perhaps"}]},
        "invalidValue",
    ),
}


@pytest.mark.parametrize(("method", "path", "body", "scim_type"), INVALID.values(), ids=INVALID)
def test_what_is_not_valid_is_refused(
    method: str, path: str, body: Any, scim_type: str, okta: Provisioner, entra_user: Any
) -> None:
    status, error = okta.ask(method, path.replace("ID", entra_user["id"]), body)
    assert (status, error["schemas"], error["status"], error["scimType"]) == (400, [ERROR], "400", scim_type)
    assert okta.get(f"/Users/{entra_user['id']}") == entra_user


def test_only_a_provisioner_provisions(scim_admin: AdminClient, okta: Provisioner) -> None:
    status, error, headers = scim_admin.send("GET", f"{SCIM}/Users")
    assert (status, error["status"], headers["www-authenticate"]) == (401, "401", "Bearer")
    assert scim_admin.send("GET", f"{SCIM}/Users", headers={"Authorization": "Bearer pst-wrong"})[0] == 401
    status, error = okta.ask("GET", "/Shoes")
    assert (status, error["status"]) == (404, "404")
    assert okta.ask("DELETE", "/Users")[0] == 405
    assert scim_admin.send("GET", "/admin/keys", headers={"Authorization": f"Bearer {okta.token}"})[0] == 403
    me = scim_admin.send("GET", "/admin/me", headers={"Authorization": f"Bearer {okta.token}"})[1]
    assert (me["role"], me["permissions"]) == ("provisioner", ["identify", "provision"])


# Leaving.


class Employee:
    """A person of the directory who has signed in, and has a key."""

    def __init__(self, client: AdminClient, provisioner: Provisioner, *, sub: str = "") -> None:
        self.client, self.provisioner = client, provisioner
        self.name = new_name()
        self.user = provisioner.create("Users", **okta_user(self.name))
        self.who = f"{self.name} <{sub or self.user['externalId']}>"
        self.path = f"/Users/{self.user['id']}"
        self.session = self.sign_in()
        assert self.session
        with self._book() as book:
            self.secret, self.key = key_changes.create(book, KeyTerms(name=self.name), _now(), owner=self.who)
        client.until_known(self.secret)

    def sign_in(self) -> str:
        """The id of a new session; empty if the person may not sign in."""
        id, now = uuid.uuid4().hex, _now()
        grants = (RoleGrant("viewer"),)
        session = AdminSession(id=id, who=self.who, grants=grants, created_ms=now, expires_ms=now + 10**7)
        with self._book() as book:
            return id if book.directory.sign_in(session, Actor(self.who, "session")) else ""

    def has_session(self) -> bool:
        with self._book() as book:
            return book.people.session(self.session, _now()) is not None

    def state(self) -> str:
        return str(self.client.get(f"/admin/keys/{self.key.id}")["state"])

    def until_refused(self) -> None:
        deadline = time.monotonic() + 10
        while self.client.call(self.secret) != 401:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def acts(self) -> list[Any]:
        return list(self.client.get(f"/admin/audit?subject={self.user['id']}")["entries"])

    def _book(self) -> "_OpenBook":
        return _OpenBook(self.client)


class _OpenBook:
    def __init__(self, client: AdminClient) -> None:
        self._book = SqliteBook.open(client.state / "ledger.db")

    def __enter__(self) -> SqliteBook:
        return self._book

    def __exit__(self, *_: object) -> None:
        self._book.close()


def _now() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.slow
def test_who_is_deactivated_loses_sessions_and_keys_until_it_is_activated(
    scim_admin: AdminClient, okta: Provisioner
) -> None:
    employee = Employee(scim_admin, okta)
    blocked = scim_admin.make(name=new_name())[1]  # not its own: it stays
    okta.patch(employee.path, {"op": "replace", "value": {"active": False}})
    assert (employee.has_session(), employee.state()) == (False, "blocked")
    assert employee.sign_in() == ""
    employee.until_refused()
    assert scim_admin.get(f"/admin/keys/{blocked['id']}")["state"] == "active"
    okta.patch(employee.path, {"op": "replace", "value": {"active": True}})
    assert employee.state() == "active"
    scim_admin.until_known(employee.secret)
    assert employee.sign_in()
    assert [(act["action"], act["via"], act["after"]) for act in employee.acts()[:2]] == [
        ("person.update", "API token", {"active": True, "keys_unblocked": 1}),
        ("person.update", "API token", {"active": False, "sessions_ended": 1, "keys_blocked": 1}),
    ]
    who = {act["who"] for act in scim_admin.get(f"/admin/audit?subject={employee.key.id}&action=key.update")["entries"]}
    assert all(name.startswith("token:okta") for name in who)


def test_who_is_created_as_deactivated_loses_what_it_has(scim_admin: AdminClient, okta: Provisioner) -> None:
    employee = Employee(scim_admin, okta)
    with employee._book() as book:
        book.directory.delete_person(employee.user["id"], _now())
        again, key = key_changes.create(book, KeyTerms(name="again"), _now(), owner=employee.who)
    employee.secret, employee.key, employee.session = again, key, employee.sign_in()
    assert employee.has_session()
    okta.create("Users", **okta_user(employee.name) | {"active": False})
    assert (employee.has_session(), employee.sign_in(), employee.state()) == (False, "", "blocked")


def test_a_key_that_an_administrator_blocked_stays_blocked(scim_admin: AdminClient, okta: Provisioner) -> None:
    employee = Employee(scim_admin, okta)
    assert scim_admin.ask("PATCH", f"/admin/keys/{employee.key.id}", {"blocked": True})[0] == 200
    for active in (False, True):
        okta.patch(employee.path, {"op": "replace", "value": {"active": active}})
    assert employee.state() == "blocked"


def test_who_is_deleted_loses_its_keys_for_good(scim_admin: AdminClient, okta: Provisioner) -> None:
    employee = Employee(scim_admin, okta)
    assert okta.ask("DELETE", employee.path)[0] == 204
    assert okta.ask("GET", employee.path)[0] == 404
    assert okta.ask("DELETE", employee.path)[0] == 404
    assert (employee.has_session(), employee.state()) == (False, "revoked")
    employee.until_refused()
    okta.create("Users", **okta_user(employee.name))
    assert employee.state() == "revoked"


def test_a_person_with_another_name_is_the_one_who_signed_in(scim_admin: AdminClient, okta: Provisioner) -> None:
    """Entra ID does not say which `sub` a person has; it is known from the sign-in."""
    employee = Employee(scim_admin, okta, sub="pairwise-sub-of-the-application")
    married = new_name()
    new = {"userName": married, "emails": [{"value": married, "primary": True}], "externalId": ""}
    okta.patch(employee.path, {"op": "replace", "value": new})
    okta.patch(employee.path, {"op": "Replace", "path": "active", "value": "False"})
    assert (employee.has_session(), employee.state()) == (False, "blocked")
    assert employee.sign_in() == ""


def test_who_leaves_a_group_has_to_sign_in_again(scim_admin: AdminClient, okta: Provisioner) -> None:
    stays, leaves = Employee(scim_admin, okta), Employee(scim_admin, okta)
    group = okta.create(
        "Groups", displayName=new_name(), members=[{"value": each.user["id"]} for each in (stays, leaves)]
    )
    assert stays.has_session()
    with leaves._book() as book:
        assert book.directory.membership(leaves.who).groups == (group["displayName"],)
    okta.patch(f"/Groups/{group['id']}", {"op": "remove", "path": f'members[value eq "{leaves.user["id"]}"]'})
    assert (stays.has_session(), leaves.has_session()) == (True, False)
    with leaves._book() as book:
        assert book.directory.membership(leaves.who).groups == ()
    assert okta.ask("DELETE", f"/Groups/{group['id']}")[0] == 204
    assert not stays.has_session()
    assert stays.state() == leaves.state() == "active"


def test_a_session_that_has_ended_makes_no_key(scim_admin: AdminClient, okta: Provisioner) -> None:
    """A request that was authenticated before the person left."""
    employee = Employee(scim_admin, okta)
    okta.patch(employee.path, {"op": "replace", "value": {"active": False}})
    with employee._book() as book:
        book.actor = Actor(employee.who, "session")
        with pytest.raises(Exception, match="session has ended"):
            key_changes.create(book, KeyTerms(name="late"), _now(), owner=employee.who)


def test_a_patch_needs_its_schema_no_more_than_providers_send_it(okta: Provisioner, entra_user: Any) -> None:
    body = {"schemas": [PATCH], "Operations": [{"op": "add", "path": "DISPLAYNAME", "value": "any case"}]}
    assert okta.ask("PATCH", f"/Users/{entra_user['id']}", body)[1]["displayName"] == "any case"

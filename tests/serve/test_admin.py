"""The admin API: authentication, keys, the ledger, and what it never discloses."""

import hashlib
import os
import signal
import socket
import stat
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from penstock.errors import ConfigError
from penstock.gateway.config import load
from penstock.gateway.keys.terms import KeyTerms
from penstock.serve.admin.access import ADMIN_TOKEN
from penstock.serve.admin.endpoint import TOKEN_FILE, open_endpoint
from penstock.serve.admin.handlers import ledger
from penstock.serve.admin.queries import Query
from penstock.serve.admin.request import AdminRequest
from penstock.serve.admin.routes import ROUTES as ADMIN_ROUTES
from tests.faults.client import CLIENT_KEY, body, post
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import HELLO, REST, unstreamed
from tests.faults.upstream import Gate, Upstream, chunk, head, last_chunk
from tests.serve.in_process import InProcessGateway
from tests.serve.support import WAIT_S, AdminClient
from tests.stores.entries import FULL
from tests.stores.places import SqlitePlace

ROUTES = (
    ("GET", "/admin/keys"),
    ("POST", "/admin/keys"),
    ("GET", "/admin/keys/key_1"),
    ("PATCH", "/admin/keys/key_1"),
    ("POST", "/admin/keys/key_1/revoke"),
    ("POST", "/admin/keys/key_1/rotate"),
    ("GET", "/admin/usage"),
    ("GET", "/admin/entries"),
    ("GET", "/admin/entries/req_1"),
    ("GET", "/admin/state"),
    ("GET", "/admin/nothing"),
    ("GET", "/admin"),
)


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminClient]:
    with Upstream() as upstream:
        upstream.play(unstreamed(), "river-1")
        configuration = settings(upstream.url, 0).replace("output = 2.0", "output = 1000.0")
        with InProcessGateway(tmp_path_factory.mktemp("admin"), upstream, configuration) as gateway:
            yield AdminClient(gateway)


def test_metrics_are_reported_with_the_token(admin: AdminClient) -> None:
    place = f"http://{admin.place}/metrics"
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        urllib.request.urlopen(place, timeout=WAIT_S)
    refused.value.close()
    request = urllib.request.Request(place, headers={"Authorization": f"Bearer {admin.token}"})
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        assert answer.headers["content-type"].startswith("text/plain")
        assert b"# TYPE penstock_requests_total counter" in answer.read()


@pytest.mark.slow
def test_silent_connections_do_not_block_the_port(admin: AdminClient) -> None:
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(socket.create_connection(("127.0.0.1", admin.port), timeout=WAIT_S))
        assert admin.get("/admin/state")["draining"] is False


def test_a_revoked_key_in_use_is_seen(admin: AdminClient) -> None:
    secret, key = admin.make(name="leaked")
    admin.until_known(secret)
    assert admin.ask("POST", f"/admin/keys/{key['id']}/revoke")[0] == 200
    deadline = time.monotonic() + WAIT_S
    while admin.call(secret) != 401:
        assert time.monotonic() < deadline
    (row,) = [each for each in admin.get("/admin/rejections")["rejections"] if each["key"] == key["id"]]
    assert (row["key_name"], row["address"], row["reason"]) == ("leaked", "127.0.0.1", "revoked_key")
    admin.gateway.says(f"with the revoked key leaked ({key['id']}) was rejected, from 127.0.0.1")
    _, _, metrics = admin.download("/metrics", {"Authorization": f"Bearer {admin.token}"})
    assert b'penstock_rejected_requests_total{reason="revoked_key"} ' in metrics
    assert secret not in "".join(admin.gateway.output)


def test_what_is_reserved_for_running_calls_is_reported(admin: AdminClient) -> None:
    secret, key = admin.make(name="holds", budget="5", period="day")
    admin.until_known(secret)
    gate = Gate()
    model = admin.gateway.upstream.play([head(), chunk(HELLO), gate, chunk(REST), last_chunk()])
    with admin.gateway.client() as client:
        content = body(f"main/{model}", stream=True, max_tokens=100)
        client.send(post(content, {"Authorization": f"Bearer {secret}"}))
        admin.gateway.until(lambda: float(admin.get("/admin/holds")["holds"].get(key["id"], 0)) > 0.1)
        gate.open()
        assert client.response().status == 200
    admin.gateway.until(lambda: not admin.get("/admin/holds")["holds"])


def test_the_page_explains_every_route_and_every_term() -> None:
    page = (Path(__file__).parents[2] / "docs" / "admin.md").read_text(encoding="utf-8")
    for route in ADMIN_ROUTES:
        assert f"`{route.name}`" in page
    assert "clients.md#the-admin-api" in page  # its codes: tests/test_client_contract.py
    for field in KeyTerms.__struct_fields__:
        assert f"`{field}`" in page


# Who is let in


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_nothing_is_reported_without_the_token(method: str, path: str, admin: AdminClient) -> None:
    secret, _ = admin.make()
    wrong = {
        "nothing": {},
        "a configured key": {"Authorization": f"Bearer {CLIENT_KEY}"},
        "a stored key": {"Authorization": f"Bearer {secret}"},
        "as a client shows its key": {"x-api-key": admin.token},
        "a wrong token": {"Authorization": f"Bearer {admin.token[:-1]}x"},
        "a part of it": {"Authorization": f"Bearer {admin.token[:-1]}"},
        "no token": {"Authorization": "Bearer "},
        "another scheme": {"Authorization": f"Basic {admin.token}"},
        "in the query": {},
    }
    for how, headers in wrong.items():
        query = f"?token={admin.token}" if how == "in the query" else ""
        status, reported, sent_text = admin.send(method, path + query, {} if method == "POST" else None, headers)
        assert (status, reported["error"]["code"]) == (401, "invalid_admin_token"), how
        assert sent_text["www-authenticate"] == "Bearer"
        assert sent_text["x-request-id"] == reported["error"]["request_id"]
    known = {"/admin/keys", "/admin/usage", "/admin/entries", "/admin/state"}
    status, _ = admin.ask(method, path, {} if method == "POST" else None)
    assert status == (201 if method == "POST" and path in known else 200 if path in known else 404)


def test_the_token_is_no_key_of_a_client(admin: AdminClient) -> None:
    assert admin.call(admin.token) == 401


def test_the_token_is_its_owners_alone(admin: AdminClient) -> None:
    assert stat.S_IMODE((admin.state / TOKEN_FILE).stat().st_mode) == 0o600
    assert len(admin.token) > 40


HOSTS = {
    "127.0.0.1": 200,
    "127.0.0.1:1": 200,
    "localhost": 200,
    "LOCALHOST:9": 200,
    "[::1]:80": 200,
    "evil.example": 403,
    "127.0.0.1.evil.example": 403,
    "localhost.evil.example:8081": 403,
    "10.0.0.7": 403,
    "": 403,
}


@pytest.mark.parametrize(("host", "wanted"), HOSTS.items())
def test_only_this_host_is_meant(host: str, wanted: int, admin: AdminClient) -> None:
    headers = {"Authorization": f"Bearer {admin.token}", "Host": host}
    assert admin.send("GET", "/admin/state", headers=headers)[0] == wanted


ORIGINS: dict[str, tuple[dict[str, str], int]] = {
    "its own page": ({"Origin": "http://PLACE", "Sec-Fetch-Site": "same-origin"}, 200),
    "typed into a browser": ({"Sec-Fetch-Site": "none"}, 200),
    "another page": ({"Origin": "https://evil.example"}, 403),
    "another port": ({"Origin": "http://127.0.0.1:1"}, 403),
    "its own page, behind TLS": ({"Origin": "https://PLACE", "Sec-Fetch-Site": "same-origin"}, 200),
    "another scheme": ({"Origin": "ftp://PLACE"}, 403),
    "a link elsewhere, followed": (
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        403,
    ),
    "no page": ({"Origin": "null"}, 403),
    "nothing": ({"Origin": ""}, 403),
    "a link elsewhere": ({"Sec-Fetch-Site": "cross-site"}, 403),
    "a sibling": ({"Sec-Fetch-Site": "same-site"}, 403),
}


@pytest.mark.parametrize(("headers", "wanted"), ORIGINS.values(), ids=ORIGINS)
def test_pages_of_others_are_refused(headers: dict[str, str], wanted: int, admin: AdminClient) -> None:
    headers = {name: value.replace("PLACE", admin.place) for name, value in headers.items()}
    status, _, sent_text = admin.send(
        "GET", "/admin/state", headers={**headers, "Authorization": f"Bearer {admin.token}"}
    )
    assert status == wanted
    assert not [name for name in sent_text if name.startswith("access-control-")]
    assert sent_text["cache-control"] == "no-store"


def test_methods_and_bodies_are_bounded(admin: AdminClient) -> None:
    status, reported = admin.ask("DELETE", "/admin/keys")
    assert (status, reported["error"]["code"]) == (405, "method_not_allowed")
    assert admin.ask("POST", "/admin/state", {})[0] == 405
    assert admin.ask("POST", "/admin/keys", b"x" * 70_000)[0] == 413
    assert admin.ask("POST", "/admin/keys", b"[" * 60_000)[0] == 400
    assert admin.ask("POST", "/admin/keys", b"\xff{")[0] == 400


# Keys


def test_a_key_goes_round(admin: AdminClient) -> None:
    secret, made = admin.make(name="round", budget="$3.5", period="day", requests_per_minute=100, tags={"team": "a"})
    admin.until_known(secret)
    assert admin.get(f"/admin/keys/{made['id']}")["id"] == admin.get("/admin/keys/round")["id"]
    shown = admin.get("/admin/keys/round")
    assert (shown["budget"], shown["period"], shown["tags"]) == ("3.50", "day", {"team": "a"})
    assert admin.ask("POST", "/admin/keys", {"name": "round"})[1]["error"]["code"] == "name_taken"
    status, new = admin.ask("POST", "/admin/keys/round/rotate", {"grace": "1h"})
    may_differ = {"hint", "spent", "left"}  # two may end alike, and the call may be booked by now
    changed = {name for name in made if new[name] != made[name]}
    assert (status, changed - may_differ) == (201, {"rotated", "previous_until"})
    assert new["hint"] == admin.secrets[-1][-4:]
    rotated, until = (datetime.fromisoformat(new[name]) for name in ("rotated", "previous_until"))
    assert until - rotated == timedelta(hours=1)
    shown = admin.get("/admin/keys/round")
    assert {name for name in new if shown[name] != new[name]} <= may_differ - {"hint"}
    for _ in range(2):
        status, reported = admin.ask("POST", "/admin/keys/round/revoke")
        assert (status, reported["id"], reported["state"]) == (200, made["id"], "revoked")
    status, reported = admin.ask("POST", f"/admin/keys/{new['id']}/rotate")
    assert (status, reported["error"]["code"]) == (409, "key_unusable")
    living = [key["id"] for key in admin.get("/admin/keys?limit=500")["keys"]]
    everything = [key["id"] for key in admin.get("/admin/keys?all=1&limit=500")["keys"]]
    assert new["id"] not in living
    assert new["id"] in everything


def test_keys_are_changed(admin: AdminClient) -> None:
    _, first = admin.make(name="one", budget="5")
    _, second = admin.make(name="two")
    status, changed = admin.ask(
        "PATCH", f"/admin/keys/{first['id']}", {"budget": "7", "period": "day", "blocked": True}
    )
    assert (status, changed["budget"], changed["period"], changed["state"]) == (200, "7.00", "day", "blocked")
    status, refused = admin.ask("PATCH", "/admin/keys", {"keys": [{"key": "one", "budget": 1}, {"key": "three"}]})
    assert (status, refused["error"]["code"]) == (404, "key_not_found")
    assert refused["error"]["message"].startswith("keys[1]: ")
    several = [{"key": "one", "blocked": False, "budget": None}, {"key": second["id"], "name": "zwei"}]
    status, changed = admin.ask("PATCH", "/admin/keys", {"keys": several})
    assert [(key["name"], key["budget"], key["state"]) for key in changed["keys"]] == [
        ("one", None, "active"),
        ("zwei", None, "active"),
    ]
    status, refused = admin.ask("PATCH", f"/admin/keys/{first['id']}", {"bugdet": 7})
    assert (status, "bugdet" in refused["error"]["message"]) == (400, True)
    status, refused = admin.ask("PATCH", f"/admin/keys/{first['id']}", b'{"budget": 1, "budget": 2}')
    assert (status, refused["error"]["message"]) == (400, "`budget` is there twice")


def test_teams_go_round(admin: AdminClient) -> None:
    status, made = admin.ask("POST", "/admin/teams", {"path": "acme", "budgets": {"month": 5, "day": "0.5"}})
    assert (status, made["level"], made["budgets"][0]["left"]) == (201, "organisation", "0.50")
    assert admin.ask("POST", "/admin/teams", {"path": "acme/search", "end_users": {"concurrent": 1}})[0] == 201
    secret, _ = admin.make(name="in-a-team", team="acme/search")
    admin.until_known(secret)
    # The calls that the gateway has refused or answered so far are those of the team.
    admin.gateway.until(lambda: admin.get("/admin/entries?team=acme")["entries"])
    assert admin.get("/admin/entries?team=acme")["entries"][0]["team"] == "acme/search"
    (row,) = admin.get("/admin/usage?team=acme&by=team")["usage"]
    assert row["group"] == {"team": "acme/search"}
    status, changed = admin.ask(
        "PATCH", "/admin/teams/acme/search", {"blocked": True, "end_users": {"concurrent": None}}
    )
    assert (status, changed["state"], changed["end_users"]["concurrent"], changed["keys"]) == (200, "blocked", None, 1)
    assert admin.get("/admin/teams/acme%2Fsearch")["state"] == "blocked"
    assert [team["path"] for team in admin.get("/admin/teams")["teams"]] == ["acme", "acme/search"]
    assert admin.ask("DELETE", "/admin/teams/acme")[1]["error"]["code"] == "team_in_use"
    assert admin.ask("GET", "/admin/teams/nobody")[1]["error"]["code"] == "team_not_found"
    assert admin.ask("POST", "/admin/keys/in-a-team/revoke")[0] == 200
    assert admin.ask("DELETE", "/admin/teams/acme/search") == (200, {"path": "acme/search", "deleted": True})


def test_keys_come_in_pages(admin: AdminClient) -> None:
    for _ in range(5):
        admin.make()
    everything = [key["id"] for key in admin.get("/admin/keys?limit=500")["keys"]]
    paged, after = [], ""
    while True:
        page = admin.get(f"/admin/keys?limit=3{after}")
        assert len(page["keys"]) <= 3
        paged += [key["id"] for key in page["keys"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert paged == everything
    assert admin.ask("GET", "/admin/keys?after=key_none")[0] == 400


def test_keys_are_searched_sorted_and_counted(admin: AdminClient) -> None:
    for path in ("lists", "lists/one", "lists/two"):
        assert admin.ask("POST", "/admin/teams", {"path": path})[0] == 201
    made = {
        name: admin.make(name=name, team=team, budget=budget)[1]["id"]
        for name, team, budget in (
            ("lists-b", "lists/one", "5"),
            ("lists-a", "lists/two", "0"),  # a budget of nothing is used up
            ("Lists-c", "lists/two", None),
        )
    }

    def names(query: str) -> list[str]:
        page = admin.get(f"/admin/keys?{query}")
        assert page["total"] >= len(page["keys"])
        return [key["name"] for key in page["keys"]]

    assert names("find=LISTS-") == ["lists-b", "lists-a", "Lists-c"]
    assert names("find=LISTS-&sort=-created") == ["Lists-c", "lists-a", "lists-b"]
    assert names("find=lists/two&sort=name") == ["lists-a", "Lists-c"]
    assert names(f"find={made['lists-b'][4:]}") == ["lists-b"]
    assert names("team=lists&sort=-team")[2:] == ["lists-b"]
    assert names("team=lists/two&names=1") == ["lists-a", "Lists-c"]
    assert names("team=lists&sort=-used") == ["lists-a", "lists-b", "Lists-c"]
    assert names("find=no+such+key") == []
    first = admin.get("/admin/keys?team=lists&sort=name&limit=2")
    assert (first["total"], [key["name"] for key in first["keys"]]) == (3, ["lists-a", "lists-b"])
    assert admin.ask("POST", f"/admin/keys/{first['next']}/revoke")[0] == 200  # meanwhile
    second = admin.get(f"/admin/keys?team=lists&sort=name&limit=2&after={first['next']}")
    assert (second["total"], second["next"], [key["name"] for key in second["keys"]]) == (2, None, ["Lists-c"])
    assert names("team=lists&all=1&sort=name") == ["lists-a", "lists-b", "Lists-c"]
    for query in ("sort=digest", "sort=--name", f"find=other&after={made['lists-a']}"):
        assert admin.ask("GET", f"/admin/keys?{query}")[0] == 400


def test_keys_are_sorted_by_what_they_spent(admin: AdminClient) -> None:
    assert admin.ask("POST", "/admin/teams", {"path": "spenders"})[0] == 201
    made = [admin.make(name=f"spender-{number}", team="spenders", budget="100") for number in range(3)]
    admin.until_known(made[0][0])
    admin.until_known(made[2][0])
    assert admin.call(made[2][0]) == 200
    deadline = time.monotonic() + WAIT_S
    for order in ("spent", "used"):
        while True:  # until the calls are booked
            found = admin.get(f"/admin/keys?team=spenders&sort=-{order}")["keys"]
            if float(found[0]["spent"]) > float(found[1]["spent"]) > float(found[2]["spent"]) == 0:
                break
            assert time.monotonic() < deadline, found
        assert [key["name"] for key in found] == ["spender-2", "spender-0", "spender-1"]


def test_teams_are_searched_sorted_and_come_in_pages(admin: AdminClient) -> None:
    for path, budget in (("paged", None), ("paged/b", "5"), ("paged/a", "0"), ("paged/a/p", None)):
        terms = {"path": path} if budget is None else {"path": path, "budgets": {"month": budget}}
        assert admin.ask("POST", "/admin/teams", terms)[0] == 201
    admin.make(name="of-paged", team="paged/b")

    def paths(query: str) -> list[str]:
        return [team["path"] for team in admin.get(f"/admin/teams?find=PAGED&{query}")["teams"]]

    assert paths("") == ["paged", "paged/a", "paged/a/p", "paged/b"]
    assert paths("sort=-used")[:2] == ["paged/a", "paged/b"]
    assert paths("sort=-keys")[:2] == ["paged", "paged/b"]
    assert paths("names=1&limit=1") == ["paged"]
    page = admin.get("/admin/teams?find=paged&limit=2")
    assert (page["total"], page["next"]) == (4, "paged/a")
    assert paths("limit=2&after=paged/a") == ["paged/a/p", "paged/b"]
    assert admin.ask("GET", "/admin/teams?sort=name")[0] == 400


def test_a_key_may_be_made_strict(admin: AdminClient) -> None:
    _, strict = admin.make(strict=True)
    _, other = admin.make()
    assert (strict["strict"], other["strict"]) == (True, False)
    assert admin.get(f"/admin/keys/{strict['id']}")["strict"] is True


BAD_TERMS: dict[str, tuple[object, str | None]] = {
    "an unknown field": ({"nmae": "x"}, None),
    "no object": ([], None),
    "a name of another type": ({"name": 5}, None),
    "money": ({"budget": "lots"}, "budget"),
    "negative money": ({"budget": -5}, "budget"),
    "a limit of none": ({"concurrent": 0}, "concurrent"),
    "a period of its own": ({"budget": 1, "period": "year"}, None),
    "a period alone": ({"period": "day"}, "period"),
    "an end": ({"expires": "yesterday"}, "expires"),
    "strict in words": ({"strict": "yes"}, None),
    "long tags": ({"tags": {"a": "x" * 300}}, "tags"),
}


@pytest.mark.parametrize(("terms", "param"), BAD_TERMS.values(), ids=BAD_TERMS)
def test_terms_that_cannot_be_are_refused(terms: object, param: str | None, admin: AdminClient) -> None:
    status, reported = admin.ask("POST", "/admin/keys", terms)
    assert (status, reported["error"]["code"], reported["error"]["param"]) == (400, "invalid_key_terms", param)
    assert admin.ask("POST", "/admin/keys/x/rotate", {"grace": "soon"})[0] == 400


SQLISH = (
    "' OR '1'='1",
    "x'; DROP TABLE keys; --",
    '"',
    "%",
    "_",
    "\\",
    "key_' UNION SELECT digest FROM keys --",
    "\0",
    "é☃",
)


@pytest.mark.parametrize("text", SQLISH)
def test_what_looks_like_sql_is_a_name_like_any_other(text: str, admin: AdminClient) -> None:
    before = len(admin.get("/admin/keys?all=1&limit=500")["keys"])
    quoted = quote(text, safe="")
    for path in (f"/admin/keys/{quoted}", f"/admin/entries/{quoted}"):
        assert admin.ask("GET", path)[0] == 404
    for parameter in ("key", "model", "provider", "repair"):
        assert admin.get(f"/admin/entries?{parameter}={quoted}")["entries"] == []
        assert admin.ask("GET", f"/admin/usage?by=model&{parameter}={quoted}")[0] == 200
    assert admin.get(f"/admin/entries?tag={quote('a=' + text, safe='')}")["entries"] == []
    assert admin.ask("GET", f"/admin/usage?by=tag:{quoted}")[0] in (200, 400)
    for parameter in ("since", "until", "outcome", "limit", "before", quoted):
        assert admin.ask("GET", f"/admin/entries?{parameter}={quoted}")[0] == 400
    assert admin.ask("GET", f"/admin/usage?by={quoted}")[0] == 400
    assert len(admin.get("/admin/keys?all=1&limit=500")["keys"]) == before


# The ledger


def test_usage_and_entries_are_reported(admin: AdminClient) -> None:
    secret, made = admin.make(name="reader", budget=5)
    admin.until_known(secret)
    for number in range(6):
        assert admin.call(secret, metadata={"step": str(number % 2)}) == 200
    deadline = time.monotonic() + WAIT_S
    while len(entries := admin.get("/admin/entries?key=reader&limit=500")["entries"]) < 7:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert {entry["key"] for entry in entries} == {made["id"]}
    entry = entries[0]
    assert (entry["outcome"], entry["status"], entry["cost"]) == ("completed", 200, "0.003005")
    assert (entry["tokens"]["input"], entry["tokens"]["output"]) == (5, 3)
    assert entry["attempts"][0]["provider"] == "main"
    assert admin.get(f"/admin/entries/{entry['id']}") == entry
    paged, before = [], ""
    while True:
        page = admin.get(f"/admin/entries?key={made['id']}&limit=2{before}")
        paged += page["entries"]
        if page["next"] is None:
            break
        before = f"&before={page['next']}"
    assert paged == entries
    assert admin.get("/admin/entries?key=reader&limit=7")["next"] is None
    assert admin.get("/admin/entries?key=reader&limit=6")["next"] is not None
    (row,) = admin.get("/admin/usage?by=key,model&key=reader&since=1h")["usage"]
    assert row["group"] == {"key": made["id"], "model": "main/river-1"}
    assert (row["calls"], row["input"], row["output"], row["cost"]) == (7, 35, 21, "0.021035")
    (row,) = admin.get("/admin/usage?by=month,owner,user&key=reader&month=this")["usage"]
    assert (row["group"]["owner"], row["group"]["user"], row["calls"]) == ("", "", 7)
    for wrong in ("month=2026-13", "month=this&since=7d", "by=months"):
        assert admin.ask("GET", f"/admin/usage?{wrong}")[0] == 400
    assert admin.get("/admin/usage?by=model&key=reader&month=last")["usage"] == []
    steps = admin.get("/admin/usage?by=tag:step&key=reader")["usage"]
    assert [(step["group"]["tag"], step["calls"]) for step in steps] == [("", 1), ("0", 3), ("1", 3)]
    assert admin.get("/admin/usage?key=reader&until=2020-01-01&by=day")["usage"] == []
    assert admin.get("/admin/entries?key=reader&outcome=failed")["entries"] == []
    shown = admin.get("/admin/keys/reader")
    assert (shown["spent"], shown["left"]) == ("0.021035", "4.978965")
    assert admin.ask("GET", "/admin/entries?limit=501")[0] == 400
    status, reported = admin.ask("GET", "/admin/entries?tag=step=0&tag=step=1")
    assert (status, reported["error"]["param"]) == (400, "tag")


@pytest.mark.slow
def test_what_cost_most_is_reported_where_not_all_can_be(tmp_path: Path) -> None:
    book = SqlitePlace(tmp_path).open()
    for number in range(600):
        attempts = (replace(FULL.attempts[1], cost=number),)
        book.append([replace(FULL, id=f"call_{number}", model=f"model-{number:03}", attempts=attempts)])
    asked = AdminRequest(user=ADMIN_TOKEN, query=Query.parse("by=model"), now_ms=0)
    reported: Any = ledger.usage(book, asked)
    book.close()
    assert reported["truncated"] is True
    assert [row["group"]["model"] for row in reported["usage"]] == [f"model-{number}" for number in range(100, 600)]


def test_the_state_is_reported(admin: AdminClient) -> None:
    state = admin.get("/admin/state")
    assert state["listening"] == [f"127.0.0.1:{admin.gateway.port}"]
    assert (state["admin"], state["pid"]) == (admin.place, admin.gateway.pid)
    assert (state["draining"], state["open_calls"]) == (False, 0)
    assert (state["ledger"]["ready"], state["ledger"]["trouble"]) == (True, None)


def test_many_who_ask_at_once_are_all_answered(admin: AdminClient) -> None:
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(admin.ask("GET", "/admin/usage?by=key,day,model")[0]))
        for _ in range(60)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(statuses) == 60
    assert set(statuses) <= {200, 503}  # too many requests at a time get 503 with `retry-after`
    assert admin.ask("GET", "/admin/usage")[0] == 200


@pytest.mark.slow
def test_no_secret_is_given_away(admin: AdminClient) -> None:
    """Over all that was said, logged and stored by then."""
    secret, made = admin.make(name="canary")
    admin.until_known(secret)
    admin.ask("POST", f"/admin/keys/{made['id']}/rotate", {"grace": "1h"})
    admin.call(admin.secrets[-1][:-1])
    for method, path in ROUTES:
        path = path.replace("key_1", made["id"])
        admin.ask(method, path, {} if method == "POST" else None)
        admin.send(method, path, headers={"Authorization": f"Bearer {secret}"})
    paths = [path for path in admin.state.rglob("*") if path.is_file() and path.name != TOKEN_FILE]
    files = b"".join(path.read_bytes().replace(b"\0", b"") for path in paths)
    reported = admin.sent_text + "".join(admin.gateway.output).encode()
    everything = files + reported
    assert len(admin.secrets) >= 3
    assert b"canary" in files
    for secret in admin.secrets:
        digest = hashlib.sha256(secret.encode()).digest()
        assert secret[6:-6].encode() not in everything
        assert digest.hex().encode() in files  # all that is kept of it
        assert digest.hex().encode() not in reported
        assert digest not in reported
    assert admin.token.encode() not in everything


# Where it listens


def test_beyond_this_machine_it_needs_a_token(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"

    def problem(text: str) -> str:
        file.write_text(text)
        try:
            load(file, {})
        except ConfigError as error:
            return str(error)
        return ""

    assert "[admin] token" in problem('[admin]\nlisten = "0.0.0.0:8081"')
    assert problem('[admin]\nlisten = "0.0.0.0:8081"\ntoken = "0123456789abcdef"') == ""
    assert problem('[admin]\nlisten = "0.0.0.0:8081"\nenabled = false') == ""
    assert "shorter than 16" in problem('[admin]\ntoken = "0123456789"')
    assert "another port" in problem('[admin]\nlisten = "127.0.0.1:8080"')
    both = '[server]\nkeys = ["0123456789abcdef"]\n[admin]\ntoken = "0123456789abcdef"'
    assert "a client's key too" in problem(both)
    assert "0123456789" not in problem(both)


def test_it_listens_beside_the_server(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    places = {"127.0.0.1:9000": "127.0.0.1:9001", "[::1]:9000": "[::1]:9001", "0.0.0.0:9000": "127.0.0.1:9001"}
    for server, admin in (places | {"127.0.0.1:0": "127.0.0.1:0", "127.0.0.1:65535": "127.0.0.1:65534"}).items():
        file.write_text(f'[server]\nlisten = "{server}"\nkeys = ["a-good-key"]')
        assert load(file, {}).admin.listen == admin


def opened(folder: Path, text: str) -> tuple[Any, list[str]]:
    folder.mkdir(exist_ok=True)
    (folder / "penstock.toml").write_text(text)
    sent_text: list[str] = []
    environment = {"PENSTOCK_STATE": str(folder / "state")}
    return open_endpoint(load(folder / "penstock.toml", environment), environment, sent_text.append), sent_text


def test_a_port_that_is_taken_is_another_one_unless_it_was_asked_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        place, sent_text = opened(tmp_path, f'[server]\nlisten = "127.0.0.1:{port - 1}"')
        with place.socket:
            assert place.address.port not in (0, port)
        assert sent_text == []
        with pytest.raises(ConfigError, match=r"admin\.listen: the admin API cannot listen there"):
            opened(tmp_path, f'[admin]\nlisten = "127.0.0.1:{port}"')


def test_the_token_is_kept_and_one_that_others_may_read_is_refused(tmp_path: Path) -> None:
    text = '[server]\nlisten = "127.0.0.1:0"'
    tokens = set()
    for _ in range(2):
        place, _ = opened(tmp_path, text)
        place.socket.close()
        tokens.add(place.token.reveal())
        assert place.token.reveal() not in repr(place)
    assert len(tokens) == 1
    assert os.listdir(tmp_path / "state") == [TOKEN_FILE]
    (tmp_path / "state" / TOKEN_FILE).chmod(0o644)
    place, sent_text = opened(tmp_path, text)
    assert place is None
    assert "is readable by other users" in sent_text[0]
    assert opened(tmp_path, "[admin]\nenabled = false") == (None, [])


@pytest.mark.slow
def test_a_token_can_be_changed_and_the_state_is_reported_to_the_end(tmp_path: Path) -> None:
    tokens = ["the-first-token-of-two", "the-second-token-of-two"]
    gate = Gate()
    with Upstream() as upstream:
        model = upstream.play([head(), chunk(HELLO), gate, chunk(REST), last_chunk()])
        texts = [settings(upstream.url, 0, server={"drain_s": 5.0}, admin={"token": token}) for token in tokens]
        with Gateway(tmp_path, upstream, texts[0]) as gateway:
            served = AdminClient(gateway, tokens[0])
            assert served.ask("GET", "/admin/state")[0] == 200
            gateway.file.write_text(texts[1])
            gateway.signal(signal.SIGHUP)
            gateway.says("was reloaded")
            assert served.ask("GET", "/admin/state")[0] == 401
            served.token = tokens[1]
            with gateway.begin(f"main/{model}", stream=True) as client:
                client.read_until(b"Hello")
                assert served.get("/admin/state")["open_calls"] == 1
                gateway.signal(signal.SIGTERM)
                deadline = time.monotonic() + WAIT_S
                while not (state := served.get("/admin/state"))["draining"]:
                    assert time.monotonic() < deadline
                assert (state["open_calls"], state["listening"]) == (1, [])
                gate.open()
                assert client.response().done
            assert gateway.wait() == 0


@pytest.mark.slow
def test_without_a_ledger_the_state_is_reported_and_nothing_else(tmp_path: Path) -> None:
    with Upstream() as upstream:
        configuration = settings(upstream.url, 0, ledger={"enabled": False})
        with Gateway(tmp_path, upstream, configuration) as gateway:
            served = AdminClient(gateway)
            assert served.get("/admin/state")["ledger"] == {"enabled": False}
            status, reported = served.ask("GET", "/admin/keys")
            assert (status, reported["error"]["code"]) == (503, "ledger_unavailable")


@pytest.mark.slow
def test_every_worker_answers_and_a_configured_token_opens(tmp_path: Path) -> None:
    token = "a-token-of-my-own-for-tests"
    with Upstream() as upstream:
        upstream.play(unstreamed(), "river-1")
        configuration = settings(upstream.url, 0, admin={"token": token})
        with Gateway(tmp_path, upstream, configuration, arguments=("--workers", "2")) as gateway:
            assert not (gateway.file.parent / "state" / TOKEN_FILE).exists()
            served = AdminClient(gateway, token)
            deadline = time.monotonic() + WAIT_S
            seen: set[int] = set()
            while len(seen) < 2:
                assert time.monotonic() < deadline
                seen.add(served.get("/admin/state")["pid"])
            assert seen == set(gateway.workers())
            secret, _ = served.make(name="shared")
            served.until_known(secret)
            assert token not in "".join(gateway.output)

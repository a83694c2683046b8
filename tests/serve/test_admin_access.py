"""Access to the page: links that work once, sessions and their rights, and the files of the page."""

import http.client
import json
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.gateway.config import load
from penstock.gateway.people.roles import Principal
from penstock.serve.admin.access import LINK, LINK_S, SESSION_S, Access, new_link
from penstock.serve.admin.endpoint import ENDPOINT_FILE, TOKEN_FILE
from penstock.serve.admin.page_files import read_files
from tests.faults.client import CLIENT_KEY
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import unstreamed
from tests.faults.upstream import Upstream

pytestmark = pytest.mark.slow

_LINK = re.compile(r"http://(127\.0\.0\.1:(\d+))(/open\?link=\S+)")
# The banner shows the link only to people: a JSON log, which others may read, has none.
_TERMINAL = {"log": "pretty"}


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class AdminListener:
    """The admin listener of a gateway, from outside."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        gateway.until(lambda: _LINK.search("".join(gateway.output)))
        found = _LINK.search("".join(gateway.output))
        assert found
        self.place, self.port, self.first = found[1], int(found[2]), found[3]
        self.state = gateway.file.parent / "state"

    def send(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in ({"Host": self.place} | dict(headers or {})).items():
                connection.putheader(name, value)
            if body:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            response = connection.getresponse()
            return Answer(
                response.status, {name.lower(): value for name, value in response.headers.items()}, response.read()
            )
        finally:
            connection.close()

    def new_link(self) -> str:
        command = [sys.executable, "-m", "penstock", "open", "--print", "--config", str(self.gateway.file)]
        environment = {"PENSTOCK_STATE": str(self.state), "PYTHONPATH": ":".join(sys.path)}
        printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        found = _LINK.fullmatch(printed.stdout.strip())
        assert found
        assert found[1] == self.place
        return found[3]

    def session(self) -> str:
        """A new session, as the value of a Cookie header."""
        opened = self.send("GET", self.new_link())
        assert opened.status == 303
        return opened.headers["set-cookie"].partition(";")[0]

    def own(self, cookie: str) -> dict[str, str]:
        """The headers that our own page sends."""
        return {"Cookie": cookie, "Origin": f"http://{self.place}", "X-Penstock-Page": "1"}


@pytest.fixture(scope="module")
def admin_listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminListener]:
    with (
        Upstream() as upstream,
        Gateway(tmp_path_factory.mktemp("door"), upstream, settings(upstream.url, 0, server=_TERMINAL)) as gateway,
    ):
        yield AdminListener(gateway)


@pytest.fixture(scope="module")
def cookie(admin_listener: AdminListener) -> str:
    return admin_listener.session()


# Links


def test_the_link_of_the_start_opens_once(admin_listener: AdminListener) -> None:
    assert admin_listener.send("HEAD", admin_listener.first).status == 403  # a preview does not use it up
    fields = "&".join(f"x{number}=1" for number in range(50))
    assert admin_listener.send("GET", f"/open?{fields}").status == 403
    assert admin_listener.send("GET", admin_listener.first, {"Sec-Purpose": "prefetch"}).status == 403
    opened = admin_listener.send("GET", admin_listener.first)
    assert (opened.status, opened.headers["location"], opened.headers["cache-control"]) == (303, "/", "no-store")
    name, *rules = opened.headers["set-cookie"].split("; ")
    assert name.startswith("penstock_session=")
    assert set(rules) == {"Path=/", f"Max-Age={SESSION_S}", "HttpOnly", "SameSite=Lax"}
    session = name
    assert admin_listener.send("GET", "/admin/state", {"Cookie": session}).status == 200
    again = admin_listener.send("GET", admin_listener.first)
    assert again.status == 403
    assert "set-cookie" not in again.headers
    assert b"penstock open" in again.body
    # A browser with a session gets the page, also with a link that is no longer valid.
    assert admin_listener.send("GET", admin_listener.first, {"Cookie": session}).status == 303


def test_a_wrong_link_opens_nothing(admin_listener: AdminListener) -> None:
    link = admin_listener.new_link()
    last = "0" if link[-1] != "0" else "1"
    later = f"{int(time.time()) + 10_000_000:x}"
    forged = re.sub(r"link=[0-9a-f]+\.", f"link={later}.", link)
    for wrong in ("/open", "/open?link=", "/open?link=a.b.c", link[:-1], link[:-1] + last, forged, "/open?link=%00%ff"):
        answer = admin_listener.send("GET", wrong)
        assert answer.status == 403, wrong
        assert "set-cookie" not in answer.headers
    assert admin_listener.send("GET", link).status == 303


def test_links_and_sessions_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = Access("a key", tmp_path, tmp_path / "ended")
    access.use("the token")
    began = time.time()
    link = new_link("a key")
    monkeypatch.setattr(time, "time", lambda: began + LINK_S + 1)
    assert access.redeem(link) == ""
    cookie = access.redeem(new_link("a key")).partition(";")[0]
    assert access.identify({"cookie": f"other=1; {cookie}; more"}) == LINK
    assert access.identify({"cookie": cookie.replace("session", "sessions")}) is None
    access.use("another token")
    assert access.identify({"cookie": cookie}) is None
    access.use("the token")
    monkeypatch.setattr(time, "time", lambda: began + LINK_S + SESSION_S + 2)
    assert access.identify({"cookie": cookie}) is None
    assert access.redeem(new_link("another key")) == ""


def test_where_no_gateway_runs_open_says_so(tmp_path: Path) -> None:
    for note in (None, "127.0.0.1:1\nkey\n", "nonsense"):
        (tmp_path / ENDPOINT_FILE).write_text(note) if note is not None else None
        finished = subprocess.run(
            [sys.executable, "-m", "penstock", "open", "--print"],
            env={"PENSTOCK_STATE": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert finished.returncode == 1
        assert "penstock serve" in finished.stderr
        assert finished.stdout == ""


def test_what_makes_links_is_its_owners_alone(admin_listener: AdminListener) -> None:
    note = admin_listener.state / ENDPOINT_FILE
    assert note.stat().st_mode & 0o777 == 0o600
    secret = note.read_text().split()[1]
    assert secret not in "".join(admin_listener.gateway.output)
    assert (admin_listener.state / TOKEN_FILE).read_text().strip() not in note.read_text()


# Sessions

DIRECT = (
    ("GET", "/admin/live"),
    ("GET", "/admin/calls/req_1/text"),
    ("POST", "/admin/calls/req_1/stop"),
    ("POST", "/admin/inspect"),
    ("POST", "/admin/playground"),
    ("GET", "/admin/models"),
    ("GET", "/admin/health"),
)


@pytest.mark.parametrize(("method", "path"), DIRECT)
def test_who_is_not_signed_in_learns_nothing(
    method: str, path: str, admin_listener: AdminListener, cookie: str
) -> None:
    for headers in ({}, {"Authorization": f"Bearer {CLIENT_KEY}"}, {"Cookie": f"{cookie}x"}):
        assert admin_listener.send(method, path, headers, b"{}" if method == "POST" else b"").status == 401
    if method == "POST":
        assert admin_listener.send(method, path, {"Cookie": cookie}, b"{}").status == 403


def test_a_session_looks_and_our_own_page_changes(admin_listener: AdminListener, cookie: str) -> None:
    body = b'{"name": "made-by-the-page"}'
    assert admin_listener.send("GET", "/admin/keys", {"Cookie": cookie}).status == 200
    own = admin_listener.own(cookie)
    refused = {
        "no proof": {"Cookie": cookie},
        "no header": {name: own[name] for name in ("Cookie", "Origin")},
        "no origin": {name: own[name] for name in ("Cookie", "X-Penstock-Page")},
        "another header": own | {"X-Penstock-Page": "yes"},
        "another origin": own | {"Origin": "http://evil.example"},
        "another port": own | {"Origin": "http://127.0.0.1:1"},
        "a page of the same machine": own | {"Sec-Fetch-Site": "same-site"},
    }
    for how, headers in refused.items():
        assert admin_listener.send("POST", "/admin/keys", headers, body).status == 403, how
    assert admin_listener.send("POST", "/admin/keys", own, body).status == 201
    token = (admin_listener.state / TOKEN_FILE).read_text().strip()
    assert admin_listener.send("POST", "/admin/keys", {"Authorization": f"Bearer {token}"}, b"{}").status == 201


VISITS: dict[str, tuple[dict[str, str], int]] = {
    "followed": ({}, 200),
    "in a frame": ({"Sec-Fetch-Dest": "iframe"}, 403),
    "by a script": ({"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, 403),
    "by a form": ({"Origin": "https://wiki.example"}, 403),
}


@pytest.mark.parametrize(("headers", "wanted"), VISITS.values(), ids=VISITS)
def test_a_link_that_stands_elsewhere_leads_to_the_page(
    headers: dict[str, str], wanted: int, admin_listener: AdminListener, cookie: str
) -> None:
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert admin_listener.send("GET", "/", {"Cookie": cookie} | visit | headers).status == wanted
    assert admin_listener.send("GET", admin_listener.new_link(), visit | headers).status == (
        303 if wanted == 200 else 403
    )
    assert admin_listener.send("GET", "/admin/state", {"Cookie": cookie} | visit | headers).status == 403


def test_it_may_have_a_name_behind_something_that_speaks_tls(tmp_path: Path) -> None:
    with (
        Upstream() as upstream,
        Gateway(
            tmp_path, upstream, settings(upstream.url, 0, server=_TERMINAL, admin={"hosts": ["Gate.example"]})
        ) as gateway,
    ):
        admin_listener = AdminListener(gateway)
        own = {"Host": "gate.example:8443", "Origin": "https://gate.example:8443", "X-Penstock-Page": "1"}
        session = {"Cookie": admin_listener.session()}
        assert admin_listener.send("POST", "/admin/keys", own | session, b'{"name": "made-by-the-page"}').status == 201
        assert admin_listener.send("GET", "/app.js", own).status == 200
        assert admin_listener.send("GET", "/", own | {"Origin": "https://gate.example"}).status == 403
        assert (
            admin_listener.send("GET", "/", own | {"Host": "other.example", "Origin": "https://other.example"}).status
            == 403
        )


def test_nothing_but_a_session_is_one(admin_listener: AdminListener, cookie: str) -> None:
    name, _, value = cookie.partition("=")
    until, chance, seal = value.split(".")
    wrong = (
        f"{name}={until}.{chance}.{seal[:-1]}",
        f"{name}={int(until, 16) + 1:x}.{chance}.{seal}",
        f"{name}=",
        f"{name}={CLIENT_KEY}",
        f"other={value}",
        f"{name}={admin_listener.new_link().partition('=')[2]}",  # a link is no session
    )
    for given in wrong:
        assert admin_listener.send("GET", "/admin/state", {"Cookie": given}).status == 401, given
    assert admin_listener.send("GET", f"/admin/state?{cookie}").status == 401


# The page's files


def test_the_page_is_hardened_and_known_by_its_tag(admin_listener: AdminListener) -> None:
    for path, file in read_files().items():
        if path.endswith(".html"):
            continue
        answer = admin_listener.send("GET", path)
        assert (answer.status, answer.body) == (200, file.body)
        assert answer.headers["content-type"] == file.media_type
        assert answer.headers["cache-control"] == "no-cache"
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        same = admin_listener.send("GET", path, {"If-None-Match": f'"x", W/{answer.headers["etag"]}'})
        assert (same.status, same.body) == (304, b"")
        assert "content-length" not in same.headers
        assert admin_listener.send("GET", path, {"If-None-Match": '"x"'}).status == 200
        assert admin_listener.send("HEAD", path).body == b""
        assert admin_listener.send("POST", path, {}, b"x").status == 405


def test_without_a_session_the_page_says_how_to_get_one(admin_listener: AdminListener, cookie: str) -> None:
    for path in ("/", "/index.html", "/link.html"):
        answer = admin_listener.send("GET", path)
        assert answer.status == 401
        assert b"penstock open" in answer.body
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        shown = admin_listener.send("GET", path, {"Cookie": cookie})
        assert b"penstock open" not in shown.body
        assert shown.status == 200


TRAVERSALS = (
    "/../__init__.py",
    "/..%2f__init__.py",
    "/%2e%2e/__init__.py",
    "/views/../../__init__.py",
    "/./link.css",
    "//link.css",
    "/link.css/",
    "/link.css%00",
    "/etc/passwd",
    "/.",
    "/__init__.py",
    "/%2fetc%2fpasswd",
    "/..\\..\\app.py",
    "/LINK.CSS",
)


@pytest.mark.parametrize("path", TRAVERSALS)
def test_nothing_else_is_a_file(path: str, admin_listener: AdminListener) -> None:
    answer = admin_listener.send("GET", path)
    assert answer.status in (400, 404), path
    assert b"import" not in answer.body


def test_every_worker_knows_links_and_sessions(tmp_path: Path) -> None:
    with Upstream() as upstream:
        gateway = Gateway(tmp_path, upstream, settings(upstream.url, 0, server=_TERMINAL), arguments=("--workers", "2"))
        with gateway:
            admin_listener = AdminListener(gateway)
            cookie = admin_listener.session()
            pids: set[bytes] = set()
            deadline = time.monotonic() + 10
            while len(pids) < 2:
                assert time.monotonic() < deadline
                answer = admin_listener.send("GET", "/admin/state", {"Cookie": cookie})
                assert answer.status == 200
                pids.add(re.findall(rb'"pid":(\d+)', answer.body)[0])
            link = admin_listener.new_link()
            assert [admin_listener.send("GET", link).status for _ in range(12)] == [303] + [403] * 11


# Signing in and out


def test_without_an_identity_provider_there_is_no_sign_in(admin_listener: AdminListener) -> None:
    assert b"Sign in" not in admin_listener.send("GET", "/").body
    for path in ("/login", "/login/callback?code=1&state=2"):
        assert admin_listener.send("GET", path).status == 404


def test_a_session_that_was_ended_is_of_no_use(admin_listener: AdminListener) -> None:
    cookie = admin_listener.session()
    own = admin_listener.own(cookie)
    shown = admin_listener.send("GET", "/admin/me", {"Cookie": cookie})
    assert json.loads(shown.body)["name"] == "link"
    assert admin_listener.send("DELETE", "/admin/session", {"Cookie": cookie}).status == 403  # another page (CSRF)
    ended = admin_listener.send("DELETE", "/admin/session", own)
    assert (ended.status, ended.headers["set-cookie"].partition(";")[0]) == (200, "penstock_session=")
    for path in ("/admin/state", "/"):
        assert admin_listener.send("GET", path, {"Cookie": cookie}).status == 401
    assert admin_listener.send("DELETE", "/admin/session", own).status == 401


def test_a_session_that_was_ended_is_not_valid_again_after_a_restart(tmp_path: Path) -> None:
    with (
        Upstream() as upstream,
        Gateway(tmp_path, upstream, settings(upstream.url, 0, server=_TERMINAL)) as gateway,
    ):
        before = AdminListener(gateway)
        ended, open_one = before.session(), before.session()
        assert before.send("DELETE", "/admin/session", before.own(ended)).status == 200
        assert [before.send("GET", "/admin/me", {"Cookie": each}).status for each in (ended, open_one)] == [401, 200]
        gateway.stop()
        gateway.output.clear()
        gateway.start()
        after = AdminListener(gateway)
        assert [after.send("GET", "/admin/me", {"Cookie": each}).status for each in (ended, open_one)] == [401, 200]


def test_a_user_that_a_proxy_names_is_believed_from_listed_addresses_only(tmp_path: Path) -> None:
    text = """
[server]
proxies = ["192.0.2.0/24"]
[admin]
proxies = ["192.0.2.1"]
user_header = "X-Forwarded-User"
[admin.groups.ops]
role = "operator"
[admin.groups.search]
role = "member"
team = "acme/search"
"""
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    access = Access("a key", tmp_path, tmp_path / "ended")
    access.use("the token", load(file, {}))
    headers = {"x-forwarded-user": "ann", "x-forwarded-groups": "search, ops,unknown"}
    found = access.identify(headers, "192.0.2.1")
    assert found == Principal(name="ann", via="proxy", role="operator", teams={"acme/search": "member"})
    assert isinstance(found, Principal)
    assert found.ambient  # a browser is behind it: changes need the proof of our page
    assert access.identify(headers, "192.0.2.2") is None
    assert access.identify(headers, "") is None
    for name in ("", " ann", "token:ci", "admin token", "link", "ann <8f3e>", "a" * 300):
        assert access.identify(headers | {"x-forwarded-user": name}, "192.0.2.1") is None
    without_role = access.identify({"x-forwarded-user": "eve"}, "192.0.2.1")
    assert isinstance(without_role, Principal)
    assert (without_role.role, without_role.teams) == (None, {})


# An identity provider that does not answer


@pytest.fixture
def silent_provider(tmp_path: Path) -> Iterator[tuple[AdminListener, Upstream]]:
    """A gateway whose identity provider accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=32) as silent, Upstream() as upstream:
        issuer = f"http://127.0.0.1:{silent.getsockname()[1]}"
        tables: dict[str, dict[str, object]] = {
            "admin.oidc": {"issuer": issuer, "client_id": "penstock"},
            "admin.groups.ops": {"role": "admin"},
        }
        with Gateway(tmp_path, upstream, settings(upstream.url, 0, server=_TERMINAL, **tables)) as gateway:
            yield AdminListener(gateway), upstream


def test_sign_ins_that_wait_delay_no_large_call(silent_provider: tuple[AdminListener, Upstream]) -> None:
    listener, upstream = silent_provider
    head = f"GET /login HTTP/1.1\r\nHost: {listener.place}\r\n\r\n".encode()
    with ExitStack() as stack:
        waiting = [
            stack.enter_context(socket.create_connection(("127.0.0.1", listener.port), timeout=10)) for _ in range(8)
        ]
        for each in waiting:
            each.sendall(head)
        model = upstream.play(unstreamed())
        content = "x" * 600_000  # read in a thread
        response = listener.gateway.ask(f"main/{model}", stream=False, messages=[{"role": "user", "content": content}])
        assert response.status == 200
        assert select.select(waiting, [], [], 0)[0] == []


def test_a_callback_with_many_fields_is_refused(silent_provider: tuple[AdminListener, Upstream]) -> None:
    listener, _ = silent_provider
    for count in (1, 20, 21, 1_000):
        assert listener.send("GET", "/login/callback?" + "&".join(["a=1"] * count)).status == 403

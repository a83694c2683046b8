"""Attacks that have succeeded against other gateways, by the id of their report. Each test says what must not happen.

Those that have their own tests elsewhere:

| id | test |
|---|---|
| CVE-2024-6587, CVE-2025-66405 | the request names the upstream: `test_c33_…` in faults/test_client_requests.py |
| the same, by the name of a model | faults/test_model_paths.py |
| CVE-2026-48710, CVE-2026-59950 | `Host` and `Origin` without keys: faults/test_hosts.py |
| CVE-2025-62155, CVE-2026-42339 | addresses: upstream/test_names.py, upstream/test_media.py, serve/test_webhook.py |
| CVE-2026-47101 | roles of the admin API: serve/test_permissions.py |
| CVE-2026-30886 | answers of another key: `test_another_key_finds_nothing` in kept/test_kept_responses.py |
| CVE-2026-59822 | credentials of clients: serve/test_client_credentials.py |
| CVE-2026-12772 | sessions end, also with their user: serve/test_admin_access.py, serve/test_scim.py |
| CVE-2025-64323 | the sockets of workers are private: serve/test_metrics.py |
| litellm #25447 | calls at the same time keep their identities: serve/test_client_credentials.py |
"""

import asyncio
import http.client
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

import penstock
from penstock.core.hub.failure import Failure
from penstock.gateway.config.people import JwtSettings
from penstock.gateway.keys.access_keys import access_key
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.fields import KEY_FIELDS
from penstock.gateway.keys.key_secret import digest_of
from penstock.gateway.teams.chain import Chain
from penstock.serve.admin.routes import ROUTES
from penstock.serve.jwt_clients import JwtClients
from penstock.serve.signing_keys import SigningKeys
from tests.faults.client import CLIENT_KEY, RawClient, body, post
from tests.faults.dialects import PROVIDERS, Provider
from tests.faults.gateway import CANARIES, Gateway, Table, settings
from tests.faults.scripts import unstreamed
from tests.faults.upstream import JSON, Gate, Upstream, status
from tests.serve.identity import IdentityProvider, part, until
from tests.serve.in_process import InProcessGateway
from tests.serve.support import WAIT_S, AdminClient

SIGNS = "of-the-configuration-0123456789abcdef"
# No server listens there.
AWAY = "http://127.0.0.1:9"
JWT = f'\n[auth.jwt]\nissuer = "{AWAY}"\naudience = "penstock"\nteams = {{ dev = "acme/search" }}\n'
FORGED = part({"alg": "none"}) + "." + part({"iss": AWAY, "aud": "penstock", "sub": "root", "groups": ["dev"]}) + "."
SURFACES = {
    "/v1/chat/completions": {"model": "main/any", "messages": [{"role": "user", "content": "Hi"}]},
    "/v1/messages": {"model": "main/any", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]},
    "/v1/messages/count_tokens": {"model": "main/any", "messages": [{"role": "user", "content": "Hi"}]},
    "/v1/responses": {"model": "main/any", "input": "Hi"},
    "/v1/responses/input_tokens": {"model": "main/any", "input": "Hi"},
    "/v1/responses/compact": {"model": "main/any", "input": "Hi"},
    "/v1/responses/resp_1/cancel": {},
    "/v1beta/models/main%2Fany:generateContent": {"contents": [{"parts": [{"text": "Hi"}]}]},
    "/v1beta/models/main%2Fany:countTokens": {"contents": [{"parts": [{"text": "Hi"}]}]},
    "/v1/embeddings": {"model": "main/any", "input": "Hi"},
    "/v2/chat": {"model": "main/any", "messages": [{"role": "user", "content": "Hi"}]},
    "/model/main%2Fany/converse": {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
    "/model/main%2Fany/converse-stream": {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
}
READ = (
    "/v1/models",
    "/v1/models/main%2Fany",
    "/v1/responses/resp_1",
    "/v1/responses/resp_1/input_items",
    "/v1/calls/req_1",
    "/v1/nothing",
)
INJECTIONS = (
    "x' OR (SELECT pg_sleep(8)) IS NULL--",
    "x'; WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM t) SELECT count(*) FROM t--",
    "' OR '1'='1",
    'x"); DROP TABLE keys;--',
    "%",
    "*",
    "${jndi:ldap://127.0.0.1:9/a}",
)
# Clients of AWS know a refused key by this status.
REFUSED = dict.fromkeys((*SURFACES, *READ), 401) | {path: 403 for path in SURFACES if path.startswith("/model/")}
HEADERS = ("Authorization", "x-api-key", "api-key", "x-goog-api-key", "x-penstock-key")


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Gateway]:
    """It has keys, and takes JWTs of an issuer that is down."""
    upstream.play(unstreamed(), "any")
    tables: dict[str, Table] = {
        "admin": {"listen": "127.0.0.1:0"},
        "limits": {"max_body": 100_000},
        "server": {"access_key_secret": SIGNS},
    }
    text = settings(upstream.url, 1, PROVIDERS.values(), **tables)
    with InProcessGateway(tmp_path_factory.mktemp("attacked"), upstream, text + JWT) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def admin(gateway: Gateway) -> AdminClient:
    return AdminClient(gateway)


def ask(
    port: int, method: str, path: str, headers: Mapping[str, str], fields: object = None
) -> tuple[int, dict[str, str], bytes]:
    """The path and the headers go as they are; `Host` is added unless it is among them."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    content = json.dumps(fields).encode() if fields is not None else b""
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(content)), **headers}.items():
            connection.putheader(name, value)
        connection.endheaders(content)
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.headers.items()}, response.read()
    finally:
        connection.close()


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@pytest.mark.parametrize("injected", INJECTIONS)
def test_cve_2026_42208_a_key_is_no_sql(
    gateway: Gateway, admin: AdminClient, upstream: Upstream, injected: str
) -> None:
    asked, began = len(upstream.asked_for), time.monotonic()
    for header in HEADERS:
        value = f"Bearer {injected}" if header == "Authorization" else injected
        found, _, _ = ask(
            gateway.port, "POST", "/v1/chat/completions", {header: value}, SURFACES["/v1/chat/completions"]
        )
        assert found == 401, header
    assert ask(admin.port, "GET", "/admin/keys", bearer(injected))[0] == 401
    assert time.monotonic() - began < WAIT_S / 2
    assert len(upstream.asked_for) == asked
    assert admin.get("/admin/keys")["keys"] == []


# The modules that start processes, and what these run. None has a word of a request in it.
STARTS = {
    "cli/declared/secret_keeping.py": "the command of penstock apply that keeps secrets, from the command line",
    "gateway/billing/price_table.py": "Penstock, to read the prices of a package",
    "gateway/config/expand.py": "commands of the configuration that print secrets",
    "serve/admin/inspection.py": "penstock inspect, which reads the capture from its standard input",
    "serve/run.py": "the workers",
    "upstream/local/model.py": "the server of the local model",
    "upstream/local/weights.py": "the download of a model, from the command line",
}
_STARTS = re.compile(
    r"\bcreate_subprocess_\w+\(|\bsubprocess\.\w+\(|\bos\.(?:system|popen|fork|posix_spawn|exec\w+|spawn\w+)\("
)
_RUNS_CODE = re.compile(r"(?<![\w.])(?:eval|exec|__import__)\(|\bimport pickle\b|\bmarshal\.loads?\(")


@pytest.mark.slow
def test_cve_2026_42271_what_starts_a_process_is_known_and_nothing_evaluates_code() -> None:
    root = Path(penstock.__file__).parent
    sources = {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in root.rglob("*.py")}
    assert {name for name, source in sources.items() if _STARTS.search(source)} == STARTS.keys()
    assert [name for name, source in sources.items() if _RUNS_CODE.search(source)] == []


BAD_HOSTS = (
    "a/?x=",
    "a/v1/models?x=",
    "127.0.0.1/health?",
    "a#",
    "a@127.0.0.1",
    "localhost\\@a",
    "127.0.0.1:8080/livez?",
)


@pytest.mark.parametrize("host", BAD_HOSTS)
@pytest.mark.parametrize("key", ["", "sk-forged"])
def test_cve_2026_48710_the_host_changes_no_path(gateway: Gateway, admin: AdminClient, host: str, key: str) -> None:
    headers = {"Host": host} | (bearer(key) if key else {})
    for path, fields in SURFACES.items():
        assert ask(gateway.port, "POST", path, headers, fields)[0] in (400, 401, 403), path
    for path in READ:
        assert ask(gateway.port, "GET", path, headers)[0] in (400, 401, 403), path
    for route in ROUTES:
        path = re.sub(r"\{[^}]*\}", "any", route.path)
        assert ask(admin.port, route.method, path, headers)[0] in (400, 401, 403, 421), route.path


TOKENS = {
    "unknown": "sk-forged-forged",
    "in the form of a key": "sk-ps-" + "A" * 43 + "000000",
    "a JWT": FORGED,
    "a JWT with a signature": FORGED + "c2ln",
    "of a subscription": "sk-ant-oat01-forged",
    "null": "null",
    "undefined": "undefined",
    "a digest": digest_of(CLIENT_KEY).hex(),
    "the id of a key": "configured-1",
    "an end of a line": "any%0d%0a",
}


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
@pytest.mark.parametrize("header", HEADERS)
def test_cve_2026_59822_a_failed_check_is_a_refusal_everywhere(
    gateway: Gateway, upstream: Upstream, header: str, token: str
) -> None:
    """The issuer of JWTs is down, so what looks like one may also get a 503. It is never let in."""
    asked = len(upstream.asked_for)
    or_down = (503,) if token.startswith("eyJ") else ()
    headers = {header: f"Bearer {token}" if header == "Authorization" else token}
    with_own = headers | {"x-penstock-key": token, "Authorization": "Bearer of-a-provider"}
    for path, fields in SURFACES.items():
        for given in (headers, with_own):
            found, _, _ = ask(gateway.port, "POST", path, given, fields)
            assert found in (REFUSED[path], *or_down), (path, found)
    for path in READ:
        found, _, _ = ask(gateway.port, "GET", path, headers)
        assert found in (REFUSED[path], *or_down), (path, found)
    assert len(upstream.asked_for) == asked


@pytest.mark.parametrize(
    "id", [access_key(SIGNS, digest_of(CLIENT_KEY)).id, "PSAKAAAAAAAAAAAAAAAA", "AKIAIOSFODNN7EXAMPLE"]
)
def test_cve_2026_59822_a_signature_that_is_not_valid_is_a_refusal_everywhere(
    gateway: Gateway, upstream: Upstream, id: str
) -> None:
    asked, moment = len(upstream.asked_for), time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    scope = f"{id}/{moment[:8]}/eu-west-3/bedrock/aws4_request"
    signed = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host;x-amz-date, Signature={'0' * 64}"
    headers = {"Authorization": signed, "X-Amz-Date": moment}
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    for given in (headers, headers | {"x-api-key": "sk-forged"}, headers | {"x-penstock-key": id}):
        for path, fields in SURFACES.items():
            assert ask(gateway.port, "POST", path, given, fields)[0] == REFUSED[path], path
        for path in READ:
            assert ask(gateway.port, "GET", path, given)[0] == REFUSED[path], path
        offer = given | upgrade | {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
        assert ask(gateway.port, "GET", "/v1/responses", offer)[0] == 401
    assert len(upstream.asked_for) == asked


def test_cve_2026_59822_a_token_of_the_gateway_reaches_no_provider(gateway: Gateway, upstream: Upstream) -> None:
    """Not even where it is sent as a credential for one."""
    asked = len(upstream.asked_for)
    for token in (FORGED, CLIENT_KEY):
        headers = {**bearer(token), "x-penstock-key": CLIENT_KEY}
        for path, fields in SURFACES.items():
            assert ask(gateway.port, "POST", path, headers, fields)[0] == REFUSED[path], path
    assert len(upstream.asked_for) == asked


def test_cve_2026_35030_tokens_that_begin_alike_are_different_clients() -> None:
    with IdentityProvider() as provider:
        wanted = JwtSettings(issuer=provider.url, audience="penstock", teams={"dev": "acme/search"})
        clients = JwtClients(wanted, SigningKeys(wanted.issuer, "", lambda _: None, 600.0))
        try:
            until(lambda: clients.signing_keys.keys is not None)
            keys = {"acme/search": Chain([]).jwt_key("acme/search")}

            def found(token: str) -> ClientKey | Failure:
                return clients.authenticate(token, digest_of(token), keys, time.time())

            ann, bob = (provider.token(aud=["x" * 600, "penstock"], sub=name) for name in ("ann", "bob"))
            assert ann[:500] == bob[:500]
            first, second = found(ann), found(bob)
            assert isinstance(first, ClientKey)
            assert isinstance(second, ClientKey)
            assert (first.subject, second.subject) == ("ann", "bob")
            begin, _, signature = ann.rpartition(".")
            for forged in (
                f"{begin}.{'A' * len(signature)}",
                f"{ann}A",
                ann[:-4],
                f"{bob.rpartition('.')[0]}.{signature}",
            ):
                assert isinstance(found(forged), Failure)
        finally:
            clients.close()


NAMES_OF_SECRETS = (
    "${HOME}",
    "$HOME",
    "os.environ/HOME",
    "env:HOME",
    "oidc/env_path/HOME",
    "file:/etc/passwd",
    "@/etc/passwd",
)


@pytest.mark.parametrize("name", NAMES_OF_SECRETS)
def test_cve_2026_35029_a_value_of_the_api_names_no_variable_and_no_file(admin: AdminClient, name: str) -> None:
    found = Path("/etc/passwd").read_text(encoding="utf-8").partition(":")[0] + ":x:"
    for path, fields in {
        "/admin/keys": {"name": name, "tags": {"a": name}, "models": [name]},
        "/admin/tokens": {"name": name, "role": "viewer"},
        "/admin/teams": {"path": name},
    }.items():
        status, made = admin.ask("POST", path, fields)
        assert status in (201, 400, 404), (path, made)
        assert status != 201 or made.get("name", name) == name, made
    assert f'"{Path.home()}"'.encode() not in admin.sent_text
    assert found.encode() not in admin.sent_text


# By a field of keys: what would widen it.
WIDER: dict[str, object] = {
    "name": "renamed",
    "budget": 1_000_000,
    "period": "day",
    "budgets": {"day": 1_000_000},
    "requests_per_minute": None,
    "tokens_per_minute": None,
    "concurrent": None,
    "models": [],
    "end_users": {"requests_per_minute": None},
    "blocked": False,
    "strict": False,
    "client_credentials": ["main"],
    "expires": None,
    "tags": {},
    "team": None,
    "managed_by": "else",
}
INTERNAL: dict[str, object] = {
    "id": "key_000000000000",
    "digest": "00",
    "owner": "token:else",
    "role": "admin",
    "revoked": None,
    "spent": "0",
    "quotas": [],
    "allowed_routes": ["*"],
}
NARROW = {"models": ["main/none"], "requests_per_minute": 3, "budget": 0.01, "strict": True, "team": "acme/search"}


@pytest.mark.slow
def test_cve_2026_47101_no_one_but_an_administrator_changes_a_field(admin: AdminClient) -> None:
    assert WIDER.keys() == {field.name for field in KEY_FIELDS}
    for path in ("acme", "acme/search"):
        assert admin.ask("POST", "/admin/teams", {"path": path})[0] == 201
    secret, made = admin.make(name="narrow", **NARROW)
    roles = {"viewer": "", "operator": "", "member": "acme/search", "team_admin": "acme/search"}
    tokens = {}
    for role, team in roles.items():
        terms = {"name": f"of-{role}", "role": role} | ({"team": team} if team else {})
        found, _ = admin.ask("POST", "/admin/tokens", terms)
        assert found == 201
        tokens[role] = admin.secrets[-1]
    before = admin.get(f"/admin/keys/{made['id']}")
    for who, token in {**tokens, "the key itself": secret}.items():
        for name, value in (WIDER | INTERNAL).items():
            for path, change in (
                (f"/admin/keys/{made['id']}", {name: value}),
                ("/admin/keys", {"keys": [{"key": made["id"], name: value}]}),
                ("/admin/teams/acme/search", {name: value}),
            ):
                found, _, _ = admin.send("PATCH", path, change, bearer(token))
                assert found in (401, 403), (who, path, name)
        for terms in ({"name": "mine", "role": "admin"}, {"name": "mine", "role": "member", "team": "acme"}):
            assert admin.send("POST", "/admin/tokens", terms, bearer(token))[0] in (401, 403), who
    for name, value in INTERNAL.items():  # also not by an administrator
        assert admin.ask("PATCH", f"/admin/keys/{made['id']}", {name: value})[0] == 400, name
    assert admin.get(f"/admin/keys/{made['id']}") == before
    for role in ("member", "team_admin"):  # a key of their own has what they may give it
        for wider in (
            {"client_credentials": ["main"]},
            {"team": "acme"},
            {"owner": "else"},
            {"digest": "00"},
            {"managed_by": "x"},
        ):
            found, _, _ = admin.send("POST", "/admin/keys", {"name": f"{role}-own", **wider}, bearer(tokens[role]))
            assert found == 400, (role, wider)


CLIENT_PATHS = [
    "/v1/%2e%2e/admin/keys",
    "/v1/../admin/keys",
    "//admin/keys",
    "/v1//../admin/keys",
    "/v1/..;/admin/keys",
    "/v1%2f..%2fadmin%2fkeys",
    "/admin/keys",
    "/admin;/keys",
    "/v1/models/../../admin/keys",
    "/%61dmin/keys",
    "/metrics",
    "/v1/%2e%2e/chat/completions",
    "//v1/chat/completions",
    "/v1/chat;x=1/completions",
    "/v1/chat%2fcompletions",
    "/v1/./chat/completions",
    "/v1/chat/../chat/completions",
    "/health/../v1/chat/completions",
    "/livez/..;/v1/models",
    "/health%2f..%2fv1%2fmodels",
    "/v1/models%00",
    "/V1/models",
    "/openai/../v1/models",
    "/livez//v1/models",
]
ADMIN_PATHS = [
    "//admin/keys",
    "/admin//keys",
    "/admin/./keys",
    "/admin/%6beys",
    "/admin;/keys",
    "/admin/keys;x",
    "/admin/keys/..;/",
    "/page.css/../admin/keys",
    "/%2e/admin/keys",
    "/admin%2fkeys",
    "/ADMIN/keys",
    "/admin/keys%00",
    "/login/../admin/keys",
    "/admin/keys?token=any",
    "/admin/keys#x",
    "/livez/..;/admin/keys",
    "/v1/../admin/keys",
]


@pytest.mark.parametrize("path", CLIENT_PATHS)
def test_bifrost_5763_a_path_has_one_reading(gateway: Gateway, upstream: Upstream, path: str) -> None:
    asked, fields = len(upstream.asked_for), SURFACES["/v1/chat/completions"]
    for method in ("GET", "POST"):
        found, _, answer = ask(gateway.port, method, path, {}, fields if method == "POST" else None)
        assert found in (400, 401, 404, 405), (method, found, answer)
    found, _, answer = ask(gateway.port, "GET", path, bearer(CLIENT_KEY))  # the admin API is nowhere on this port
    assert found in (400, 404, 405), (found, answer)
    assert len(upstream.asked_for) == asked


@pytest.mark.parametrize("path", ADMIN_PATHS)
def test_bifrost_5763_a_path_of_the_admin_api_needs_its_token(admin: AdminClient, path: str) -> None:
    for headers in ({}, bearer(CLIENT_KEY), {"x-penstock-key": CLIENT_KEY}, {"X-Original-URL": "/livez"}):
        found, _, answer = ask(admin.port, "GET", path, headers)
        assert found in (400, 401, 404), (found, answer)
        assert b'"keys"' not in answer


COUNTS = (
    "9223372036854775808",
    "18446744073709551616",
    "-5",
    "-9223372036854775809",
    "NaN",
    "1e400",
    "-1e400",
    '"7"',
    "0.5",
)


@pytest.mark.slow
@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)
def test_cve_2026_71479_no_count_is_negative_or_overflows(
    gateway: Gateway, admin: AdminClient, upstream: Upstream, provider: Provider
) -> None:
    secret, made = admin.make(name=f"counted-{provider.dialect}", budget=1000)
    for number, count in enumerate(COUNTS):
        answer = re.sub(rb'("\w*(?:[tT]oken|_count)\w*"\s*:\s*)\d+', rb"\g<1>" + count.encode(), provider.body("Hello"))
        assert count.encode() in answer
        model = upstream.play([status(200, JSON, answer)])
        request = body(f"main{provider.suffix}/{model}", stream=False)
        found, headers, _ = ask(gateway.port, "POST", "/v1/chat/completions", bearer(secret), json.loads(request))
        entry = gateway.book.entry(headers["x-request-id"])
        case = (provider.dialect, count, found, entry)
        assert entry.priced >= 0, case
        figures = entry.tokens.__struct_fields__
        assert all(0 <= getattr(entry.tokens, name) <= 10**12 for name in figures), case
        spent = float(admin.get(f"/admin/keys/{made['id']}")["spent"])
        assert spent >= 0, (*case, number)


def test_cve_2026_64865_a_change_of_a_key_leaves_what_it_has_spent(
    gateway: Gateway, admin: AdminClient, upstream: Upstream
) -> None:
    secret, made = admin.make(name="spending", budget=5)
    upstream.play(unstreamed(), "river-1")
    admin.until_known(secret)
    gateway.until(lambda: float(admin.get(f"/admin/keys/{made['id']}")["spent"]) > 0)
    gate = Gate()
    model = upstream.play([gate, *unstreamed()])
    with RawClient(gateway.port) as client:
        client.send(post(body(f"main/{model}", stream=False), {"Authorization": f"Bearer {secret}"}))
        upstream.asked(model)
        before = admin.get(f"/admin/keys/{made['id']}")["spent"]
        for change in ({"name": "spending-2"}, {"budget": 6}, {"tags": {"a": "b"}}, {"budget": None}, {"budget": 7}):
            assert admin.ask("PATCH", f"/admin/keys/{made['id']}", change)[0] == 200
            assert admin.get(f"/admin/keys/{made['id']}")["spent"] == before
        gate.open()
        response = client.response()
    entry = gateway.book.entry(response.request_id)
    assert entry.priced > 0
    gateway.until(lambda: float(admin.get(f"/admin/keys/{made['id']}")["spent"]) > float(before))


def test_cve_2026_64859_lists_have_no_secrets(admin: AdminClient) -> None:
    secret, _ = admin.make(name="listed")
    for route in ROUTES:
        if route.method == "GET" and "{" not in route.path and not isinstance(route.response, str):
            admin.ask("GET", route.path)
    sent = admin.sent_text
    for hidden in (*CANARIES, secret, admin.token, digest_of(secret).hex()):
        assert hidden.encode() not in sent


def test_cve_2026_64868_a_body_is_limited_before_its_key_is_known(gateway: Gateway) -> None:
    """The answer comes before the body was sent, and nothing of the body is kept or logged."""
    for path in (*SURFACES, "/v1/nothing"):
        with RawClient(gateway.port) as client:
            length = 10**12
            client.send(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n".encode())
            assert client.response().status == 413, path
        with RawClient(gateway.port) as client:
            client.send(post(b"canary-of-a-body" + b"x" * 90_000, {"Authorization": "Bearer sk-forged"}, path))
            assert client.response().status == REFUSED[path], path
    assert "canary-of-a-body" not in "".join(gateway.output)


@pytest.mark.parametrize("wanted", ["%", "%" * 1000, "_" * 1000, "%_" * 500, "~%"])
def test_cve_2026_25591_wildcards_are_text(
    gateway: Gateway, admin: AdminClient, upstream: Upstream, wanted: str
) -> None:
    asked = body(f"main/{upstream.play(unstreamed())}", stream=False)
    _, headers, _ = ask(gateway.port, "POST", "/v1/chat/completions", bearer(CLIENT_KEY), json.loads(asked))
    gateway.book.entry(headers["x-request-id"])
    began = time.monotonic()
    assert len(admin.get("/admin/entries?find=mai")["entries"]) > 0
    escaped = "".join(f"%{ord(character):02x}" for character in wanted)
    assert admin.get(f"/admin/entries?find={escaped}")["entries"] == []
    assert time.monotonic() - began < WAIT_S / 2


class Detour:
    """Leads to the gateway under another port, so that the check at its start does not notice it."""

    def __init__(self) -> None:
        self.port, self.target = 0, 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        made = asyncio.start_server(self._lead, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(made, self._loop).result(WAIT_S)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, there = await asyncio.open_connection("127.0.0.1", self.target)
        try:
            await asyncio.gather(self._copy(reader, there), self._copy(back, writer))
        finally:
            writer.close()
            there.close()

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
            writer.write_eof()


@pytest.mark.slow
def test_portkey_1718_a_gateway_that_calls_itself_is_bounded(tmp_path: Path, upstream: Upstream) -> None:
    """Each turn of the loop needs a connection, and these are limited."""
    most = 40
    with Detour() as detour:
        text = settings(upstream.url, 1, limits={"max_connections": most}, admin={"listen": "127.0.0.1:0"})
        text += f'[providers.loop]\nbase_url = "http://127.0.0.1:{detour.port}/v1"\napi_key = "{CLIENT_KEY}"\n'
        text += '[routes.again]\ntargets = ["loop/again"]\n'
        with InProcessGateway(tmp_path, upstream, text) as gateway:
            detour.target = gateway.port
            began = time.monotonic()
            for stream in (False, True):
                response = gateway.ask("again", stream=stream)
                assert response.error["code"].startswith(("upstream_", "no_healthy_target")), response
            assert time.monotonic() - began < WAIT_S
            model = upstream.play(unstreamed())
            gateway.until(lambda: gateway.ask(f"main/{model}", stream=False).status == 200)
            gateway.until(lambda: sum(line["model"] == "again" for line in gateway.calls) >= 2)
            looped = [line for line in gateway.calls if line["model"] == "again"]
            assert 2 <= len(looped) <= 2 * most
            assert all(line["ending"] != "completed" for line in looped)


def test_kilo_14080_a_connection_has_no_bytes_of_an_earlier_request(gateway: Gateway, upstream: Upstream) -> None:
    model = upstream.play(unstreamed())
    texts = [f"canary-{number}-" + "x" * (number * 97 % 500) for number in range(60)]
    with RawClient(gateway.port) as client:
        for text in texts:
            client.send(post(body(f"main/{model}", stream=False, user=text)))
            assert client.response().status == 200
    requests = upstream.requests(model)
    for text, request in zip(texts, requests, strict=True):
        assert re.findall(rb"canary-\d+-", request) == [text.partition("-x")[0].encode().rstrip(b"-") + b"-"]

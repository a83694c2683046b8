"""Clients that authenticate with a JWT: valid and forged ones, and keys that are rotated."""

import base64
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey, RSAKey

from penstock.core.hub.failure import Failure
from penstock.errors import ConfigError
from penstock.gateway.config import load
from penstock.gateway.config.people import JwtSettings
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.key_secret import digest_of
from penstock.gateway.teams.chain import Chain
from penstock.gateway.teams.changes import TeamTerms, create, delete
from penstock.serve.jwt_clients import JwtClients
from penstock.serve.signing_keys import SigningKeys
from penstock.stores.book.sqlite import SqliteBook
from tests.faults.client import body, get, post
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import unstreamed
from tests.faults.upstream import Upstream
from tests.serve.identity import OTHER, IdentityProvider, part, signed_with_public_key, unsigned, until

KEYS = {"acme/search": Chain([]).jwt_key("acme/search")}
TEAMS = {"dev": "acme/search", "gone": "acme/gone"}


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


@pytest.fixture(scope="module")
def clients(provider: IdentityProvider) -> Iterator[JwtClients]:
    clients = make(provider)
    yield clients
    clients.close()


def make(
    provider: IdentityProvider, min_interval_s: float = 600.0, warn: Callable[[str], object] = str, **other: Any
) -> JwtClients:
    wanted = JwtSettings(issuer=provider.url, audience="penstock", teams=TEAMS, **other)
    clients = JwtClients(wanted, SigningKeys(wanted.issuer, "", warn, min_interval_s))
    until(lambda: clients.signing_keys.keys is not None)
    return clients


def ask(clients: JwtClients, token: str) -> ClientKey | Failure:
    return clients.authenticate(token, digest_of(token), KEYS, time.time())


def test_a_valid_token_is_that_of_its_team_and_user(provider: IdentityProvider, clients: JwtClients) -> None:
    for token in (provider.token(), provider.token(aud=["other", "penstock"]), provider.token(groups="dev")):
        found = ask(clients, token)
        assert isinstance(found, ClientKey), found
        assert (found.id, found.team, found.subject) == ("jwt:acme/search", "acme/search", "ann")
        assert ask(clients, token) == found  # remembered


def with_own_key(provider: IdentityProvider) -> str:
    header = {"jwk": OTHER.as_dict(private=False), "jku": "http://127.0.0.1:1/jwks"}
    return provider.token(OTHER, header)


def changed(provider: IdentityProvider) -> str:
    head, _, signature = provider.token().split(".")
    return f"{head}.{part(provider.claims(sub='root'))}.{signature}"


FORGED = {
    "none": lambda provider: unsigned(provider, "none"),
    "None": lambda provider: unsigned(provider, "None"),
    "no signature": lambda provider: unsigned(provider, "RS256"),
    "HMAC with the public key": signed_with_public_key,
    "another key of the same id": lambda provider: provider.token(OTHER),
    "a key in the token": with_own_key,
    "changed claims": changed,
    "a signature that is not listed": lambda provider: provider.token(header={"alg": "RS512"}),
    "expired": lambda provider: provider.token(exp=int(time.time()) - 60),
    "without an end": lambda provider: provider.token(exp=None),
    "an end that is no number": lambda provider: provider.token(exp="tomorrow"),
    "not valid yet": lambda provider: provider.token(nbf=int(time.time()) + 600),
    "another audience": lambda provider: provider.token(aud="other"),
    "no audience": lambda provider: provider.token(aud=None),
    "another issuer": lambda provider: provider.token(iss="https://id.example.com"),
    "no issuer": lambda provider: provider.token(iss=None),
    "no group": lambda provider: provider.token(groups=None),
    "a foreign group": lambda provider: provider.token(groups=["ops", 1, None, ["dev"]]),
    "a group of another type": lambda provider: provider.token(groups={"dev": 1}),
    "no subject": lambda provider: provider.token(sub=None),
    "a long subject": lambda provider: provider.token(sub="x" * 300),
    "too long": lambda provider: provider.token(more="x" * 20_000),
    "nonsense": lambda _: "eyJ.eyJ.x",
    "two parts": lambda provider: provider.token().rpartition(".")[0],
    "nested brackets": lambda _: f"{base64.urlsafe_b64encode(b'{' + b'[' * 9_000).decode()}.e30.x",
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_forged_token_is_refused(forge: Any, provider: IdentityProvider, clients: JwtClients) -> None:
    token = forge(provider)
    found = ask(clients, token)
    assert isinstance(found, Failure)
    assert (found.status, found.code) == (401, "invalid_api_key")
    assert "root" not in found.message


def test_a_remembered_token_still_expires(provider: IdentityProvider, clients: JwtClients) -> None:
    token = provider.token(exp=int(time.time()) + 100)
    assert isinstance(ask(clients, token), ClientKey)
    cached = clients.authenticate(token, digest_of(token), KEYS, time.time() + 99)
    assert isinstance(cached, ClientKey)
    assert clients._verified[digest_of(token)].until_s < time.time() + 101


def test_a_team_that_is_gone_is_refused_at_once(provider: IdentityProvider, clients: JwtClients) -> None:
    token = provider.token()
    assert isinstance(ask(clients, token), ClientKey)
    assert isinstance(clients.authenticate(token, digest_of(token), {}, time.time()), Failure)


def test_a_team_that_does_not_exist_is_refused(provider: IdentityProvider, clients: JwtClients) -> None:
    found = ask(clients, provider.token(groups=["gone"]))
    assert isinstance(found, Failure)
    assert (found.status, found.code) == (403, "team_not_allowed")
    assert "acme/gone" in found.message


def test_keys_are_rotated_and_withdrawn() -> None:
    with IdentityProvider() as provider:
        warnings: list[str] = []
        clients = make(provider, 0.0, warnings.append)
        old, before = provider.token(), provider.keys[0]
        assert isinstance(ask(clients, old), ClientKey)
        provider.keys = [before, RSAKey.generate_key(2048, {"kid": "two"})]
        new = provider.token(provider.keys[1])
        until(lambda: isinstance(ask(clients, new), ClientKey))  # which is retried: 503, or 401
        assert isinstance(ask(clients, old), ClientKey)
        provider.keys = provider.keys[1:]
        unknown = provider.token(RSAKey.generate_key(2048, {"kid": "three"}))
        until(lambda: isinstance(ask(clients, unknown), Failure) and isinstance(ask(clients, old), Failure))
        assert isinstance(ask(clients, new), ClientKey)
        provider.status = 500  # the keys stay
        until(lambda: isinstance(ask(clients, unknown), Failure) and bool(warnings))
        assert "500" not in warnings[0]
        assert isinstance(ask(clients, new), ClientKey)
        clients.close()


def test_unknown_keys_cost_few_requests(provider: IdentityProvider, clients: JwtClients) -> None:
    fetched = provider.fetched
    for _ in range(20):
        found = ask(clients, provider.token(OTHER, {"kid": "unknown"}))
        assert isinstance(found, Failure)
    assert provider.fetched == fetched


def test_other_signatures_are_possible(provider: IdentityProvider) -> None:
    key = ECKey.generate_key("P-256", {"kid": "curve"})
    provider.keys.append(key)
    clients = make(provider, algorithms=("ES256",), user_claim="")
    found = ask(clients, provider.token(key, {"alg": "ES256"}))
    assert isinstance(found, ClientKey)
    assert found.subject == ""
    assert isinstance(ask(clients, provider.token()), Failure)  # RS256 is not listed
    clients.close()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('algorithms = ["none"]', "must be one of"),
        ('algorithms = ["HS256"]', "must be one of"),
        ("algorithms = []", "at least one"),
        ('issuer = "http://id.example.com"', "https://"),
        ('jwks = "http://id.example.com/jwks"', "https://"),
        ('audience = ""', "needs audience"),
        ('teams = { dev = "../x" }', "path of a team"),
        ("teams = {}", "needs teams"),
    ],
)
def test_a_configuration_that_would_let_others_in_is_refused(line: str, problem: str, tmp_path: Path) -> None:
    given = {
        "issuer": 'issuer = "https://id.example.com"',
        "audience": 'audience = "penstock"',
        "teams": 'teams = { dev = "acme/search" }',
    }
    given[line.partition(" ")[0]] = line
    file = tmp_path / "penstock.toml"
    file.write_text("\n".join(["[auth.jwt]", *given.values()]))
    with pytest.raises(ConfigError, match=problem):
        load(file, {})


@pytest.mark.slow
def test_a_gateway_takes_tokens_beside_keys(tmp_path: Path, provider: IdentityProvider) -> None:
    jwt = f'\n[auth.jwt]\nissuer = "{provider.url}"\naudience = "penstock"\nteams = {{ dev = "acme/search" }}\n'
    with Upstream() as upstream, Gateway(tmp_path, upstream, settings(upstream.url, 0) + jwt) as gateway:
        upstream.play(unstreamed(), "river-1")

        def call(token: str) -> tuple[int, str]:
            with gateway.client() as client:
                content = body("main/river-1", stream=False, user="someone-else")
                client.send(post(content, {"Authorization": f"Bearer {token}"}))
                response = client.response()
                return response.status, response.request_id

        until(lambda: call(provider.token())[0] == 403)  # 503 until the signing keys are fetched
        book = SqliteBook.open(gateway.book.path)
        for team in ("acme", "acme/search"):
            create(book, TeamTerms(path=team), 1)
        until(lambda: call(provider.token())[0] == 200)
        status, id = call(provider.token(sub="bob"))
        assert status == 200
        until(lambda: gateway.book.entry(id) is not None)
        entry = gateway.book.entry(id)
        assert entry.key == "jwt:acme/search"
        assert entry.user.startswith("u_")
        for sub, expected in (("bob", 200), ("ann", 404)):  # of one team, so of one key
            as_user = {"Authorization": f"Bearer {provider.token(sub=sub)}"}
            assert gateway.send(get(f"/v1/calls/{id}", as_user)).status == expected
        assert call(provider.token(OTHER))[0] == 401
        assert call(unsigned(provider, "none"))[0] == 401
        delete(book, "acme/search", 2)
        book.close()
        until(lambda: call(provider.token())[0] == 403)

"""People with keys who leave, on two gateways that share a database: for the tests, and for scripts/off-board."""

import time
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from penstock.gateway.config import LedgerSettings
from penstock.gateway.keys.fields import make_key
from penstock.gateway.keys.keys import Key
from penstock.gateway.keys.terms import KeyTerms
from penstock.gateway.people.audit import Actor
from penstock.gateway.people.directory import Person
from penstock.gateway.people.roles import RoleGrant
from penstock.gateway.people.sessions import AdminSession
from penstock.providers.secret import Secret
from penstock.stores.book.open import open_book
from tests.faults.client import get
from tests.faults.gateway import Gateway
from tests.serve.scim import Provisioner
from tests.serve.support import AdminClient

_WAIT_S = 60.0


class Leaving(NamedTuple):
    """How long it took, in seconds: all requests of the identity provider, and until each gateway refused the last key
    after that."""

    requests_s: float
    refused_s: float


def employ(url: str, count: int) -> tuple[list[Person], list[str]]:
    """People of the directory who have signed in, each with a key; returns them, and the secrets of the keys."""
    now = time.time_ns() // 1_000_000
    people, keys, secrets = [], list[Key](), []
    with closing(open_book(LedgerSettings(postgres=Secret(url)), {})) as book:
        for number in range(count):
            name = f"person-{number}@example.com"
            person = Person(
                id=f"{number:032x}", user_name=name, known_as=name, email=name, created_ms=now, changed_ms=now
            )
            book.directory.add_person(person)
            who = f"{name} <sub-{number}>"
            session = AdminSession(
                id=f"s{number}", who=who, grants=(RoleGrant("viewer"),), created_ms=now, expires_ms=now + 10**7
            )
            assert book.directory.sign_in(session, Actor(who, "session"))
            secret, key = make_key(KeyTerms(name=name, budget=5), now)
            keys.append(Key(**{name: getattr(key, name) for name in Key.__struct_fields__} | {"owner": who}))
            people.append(person)
            secrets.append(secret)
        book.change_keys(lambda *_: keys)
    return people, secrets


def off_board(gateways: Sequence[Gateway], people: Sequence[Person], secrets: Sequence[str]) -> Leaving:
    """Deactivate people over SCIM, one request after another, as providers do; wait until no key works anywhere."""
    for gateway in gateways:
        wait(lambda gateway=gateway: accepted(gateway, secrets) == len(secrets))
    provisioner = Provisioner(AdminClient(gateways[0]), "okta")
    began = time.monotonic()
    for person in people:
        changed = provisioner.patch(f"/Users/{person.id}", {"op": "replace", "value": {"active": False}})
        assert changed["active"] is False
    ended = time.monotonic()
    for gateway in gateways:
        wait(lambda gateway=gateway: accepted(gateway, secrets[-1:]) == 0)
    refused = time.monotonic()
    assert [accepted(gateway, secrets) for gateway in gateways] == [0] * len(gateways)
    assert provisioner.client.get("/admin/sessions")["sessions"] == []
    return Leaving(ended - began, refused - ended)


def accepted(gateway: Gateway, secrets: Sequence[str]) -> int:
    """How many keys a gateway accepts."""
    count = 0
    with gateway.client() as client:
        for secret in secrets:
            client.send(get("/v1/models", {"Authorization": f"Bearer {secret}"}))
            count += client.response("GET").status == 200
    return count


def wait(true: object) -> None:
    deadline = time.monotonic() + _WAIT_S
    assert callable(true)
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)

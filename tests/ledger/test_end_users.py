"""End users have one pseudonym on all workers and APIs. Their names are in the content store only, until erased."""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any
from urllib.parse import quote

from penstock.gateway.billing.queries import Filter
from penstock.gateway.config import LedgerSettings
from penstock.providers.secret import Secret
from penstock.stores.book.open import open_book
from tests.faults.conftest import Starter
from tests.faults.dialects import CHAT_CLIENT, CLIENTS, Client
from tests.faults.gateway import Gateway
from tests.faults.scripts import whole
from tests.serve.support import AdminClient
from tests.stores.postgres import PostgresServer

ANN = "canary-of-a-user/ann@example.com"
_WAIT_S = 15.0
# Where each API has the user.
NAMED: dict[str, dict[str, Any]] = {
    "openai_chat": {"user": ANN},
    "anthropic_messages": {"metadata": {"user_id": ANN}},
    "openai_responses": {"safety_identifier": ANN},
}


def until(condition: Callable[[], bool], why: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < deadline, why
        time.sleep(0.05)


def ask(gateway: Gateway, client: Client = CHAT_CLIENT) -> str:
    """A call of the user; returns the user of its entry."""
    model = gateway.upstream.play(whole())
    response = gateway.ask(f"main/{model}", client, stream=True, **NAMED[client.dialect])
    assert response.status == 200
    return gateway.book.entry(response.request_id).user


def files(gateway: Gateway) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in gateway.book.folder.rglob("*") if path.is_file()}


def test_a_user_has_one_pseudonym_until_it_is_erased(start: Starter) -> None:
    gateway = start("--workers", "2")
    admin = AdminClient(gateway)
    users = {ask(gateway, client) for client in CLIENTS.values() for _ in range(6)}
    (pseudonym,) = users
    assert pseudonym.startswith("u_")
    named = [name for name, data in files(gateway).items() if ANN.encode() in data]
    assert named
    assert all(name.startswith("content.db") for name in named)
    path = f"/admin/users/{quote(ANN, safe='')}"
    assert admin.ask("GET", path)[1]["pseudonyms"] == [pseudonym]
    assert admin.ask("GET", f"/admin/users/{pseudonym}")[1]["name"] == ANN
    assert len(admin.ask("GET", f"/admin/entries?user={pseudonym}")[1]["entries"]) == 6 * len(CLIENTS)

    status, erased = admin.ask("DELETE", path)
    assert (status, erased) == (200, {"erased": True, "pseudonyms": [pseudonym], "records": 0})
    assert admin.ask("GET", path)[0] == admin.ask("DELETE", path)[0] == 404
    until(lambda: all(ANN.encode() not in data for data in files(gateway).values()), "the name is still there")
    gateway.says(f"the user behind {pseudonym} was erased")
    time.sleep(1.5)  # within a second the other worker knows; a busy one a little later
    until(lambda: pseudonym not in {ask(gateway) for _ in range(6)}, "a worker still has the old pseudonym")
    (again,) = {ask(gateway) for _ in range(6)}
    assert again.startswith("u_")
    assert again != pseudonym
    assert ANN not in "".join(gateway.output)


def test_names_are_stored_if_the_operator_wants_them(start: Starter) -> None:
    gateway = start(users={"pseudonyms": False})
    assert ask(gateway) == ANN
    assert not (gateway.book.folder / "content.db").exists()


def test_gateways_that_share_a_database_share_pseudonyms(start: Starter, postgres: PostgresServer) -> None:
    url = postgres.new_database()
    gateways = [start(ledger={"postgres": url}) for _ in range(2)]
    for gateway in gateways:
        gateway.ask(f"main/{gateway.upstream.play(whole())}", stream=True, user=ANN)
    with closing(open_book(LedgerSettings(postgres=Secret(url)), {})) as book:
        until(lambda: book.last() >= 2, "the calls are not booked")
        users = {entry.user for _, entry in book.following(Filter(), 0, limit=9)}
    (pseudonym,) = users
    assert AdminClient(gateways[1]).ask("GET", f"/admin/users/{pseudonym}")[1]["name"] == ANN

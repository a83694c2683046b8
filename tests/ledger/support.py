"""Shared by the tests of the ledger: keys that are created while a gateway runs, and many concurrent clients."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from penstock.core.hub.input_estimate import estimate_input
from penstock.gateway.config import LedgerSettings
from penstock.gateway.keys.key_secret import digest_of, new_secret
from penstock.gateway.keys.keys import Key, new_id
from penstock.gateway.keys.quota import Period
from penstock.gateway.limits.reservation import with_margin
from penstock.stores.book.open import open_book
from tests.faults.book import INPUT_COST, OUTPUT_COST
from tests.faults.client import RawClient, Response, body, post
from tests.faults.gateway import Gateway

# A call of a crowd: what it is billed for, what that costs, and what is held for it while it runs.
INPUT, OUTPUT = 40, 200
COST = INPUT * INPUT_COST + OUTPUT * OUTPUT_COST
# An upper limit (`reserved_input`).
RESERVED_INPUT = 90 * INPUT_COST
RESERVED = RESERVED_INPUT + OUTPUT * OUTPUT_COST
# For how many of the crowd a budget suffices.
FEW = 10

_KEY_S = 30.0
# The probability that this many connections miss one of four workers is 1 in 10,000.
_TRIES = 32


def make_key(
    gateway: Gateway, *, budget: int | None = None, period: Period = "total", **limits: int
) -> tuple[Key, str]:
    """A key in the book of a gateway, and its secret; returns when the gateway knows it."""
    secret = new_secret()
    now = int(time.time() * 1000)
    key = Key(
        id=new_id(),
        name="a test's",
        digest=digest_of(secret),
        hint=secret[-4:],
        created_ms=now,
        budget=budget,
        period=period,
        **limits,  # type: ignore[arg-type]
    )
    put_key(gateway.book.folder, key)
    wait_for_key(gateway, secret)
    return key, secret


def wait_for_key(gateway: Gateway, secret: str) -> None:
    """Return when all workers of a gateway know a key. The kernel chooses the worker of each connection."""
    deadline = time.monotonic() + _KEY_S
    while not all(_is_known(gateway, secret) for _ in range(_TRIES)):
        assert time.monotonic() < deadline, "the gateway does not take the key"
        time.sleep(0.05)


def put_key(folder: Path, key: Key) -> None:
    """Store a key in its present form."""
    with closing(open_book(LedgerSettings(folder=str(folder)), {})) as book:
        book.change_keys(lambda *_: [key])


def ask(gateway: Gateway, secret: str, model: str, *, stream: bool, **fields: object) -> Response:
    """Make a call with that key."""
    with gateway.client() as client:
        client.send(request(secret, model, stream=stream, **fields))
        return client.response()


def reserved_input(model: str, *, stream: bool, **fields: object) -> int:
    """The tokens that are reserved for the input of a request: it depends on the length of its body."""
    content = body(model, stream=stream, **fields)
    return with_margin(estimate_input(content, json.loads(content)).tokens)


def request(secret: str, model: str, *, stream: bool, **fields: object) -> bytes:
    """The request of a client with that key."""
    return post(body(model, stream=stream, **fields), {"Authorization": f"Bearer {secret}"})


def all_at_once(gateway: Gateway, requests: list[bytes], then: Callable[[], None] = lambda: None) -> list[Response]:
    """The answers to requests that are all sent at once; `then` is called when all are sent."""
    clients = [RawClient(gateway.port) for _ in requests]
    for client, content in zip(clients, requests, strict=True):
        client._socket.settimeout(20.0)
        client.send(content)
    with ThreadPoolExecutor(len(clients)) as threads:
        reading = threads.map(RawClient.response, clients)
        then()
        responses = list(reading)
    for client in clients:
        client.close()
    return responses


def _is_known(gateway: Gateway, secret: str) -> bool:
    try:
        with gateway.client() as client:
            client.send(f"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n\r\n".encode())
            return client.response().status == 200
    except ConnectionRefusedError:
        return False  # no worker listens yet

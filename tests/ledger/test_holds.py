"""What is reserved for calls of a key, as each worker reports it: a hold disappears within a second after its call."""

import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.gateway import Gateway, Table, settings
from tests.faults.scripts import HELLO, REST, whole
from tests.faults.upstream import Gate, Upstream, chunk, head, last_chunk
from tests.ledger.support import make_key, request
from tests.promptness import in_time, prompt
from tests.serve.scrapes import parse, value
from tests.serve.support import AdminClient

BUDGET = 5_000_000_000
_CALLS = 8
# The promised bound, and the time that the requests after it need.
_DROPPED_S = 2.0
_WAIT_S = 10.0


@prompt
@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_every_worker_drops_a_hold_when_its_call_is_over(
    tmp_path: Path, request: pytest.FixtureRequest, store: str
) -> None:
    tables: dict[str, Table] = {}
    if store == "redis":
        url = request.getfixturevalue("redis_server").url
        # With timeouts that a busy machine does not run into.
        tables["ledger"] = {"redis": f"{url}?socket_timeout=8&socket_connect_timeout=8"}
    with Upstream() as upstream:
        text = settings(upstream.url, 0, **tables).replace("output = 2.0", "output = 1000.0")
        with Gateway(tmp_path, upstream, text, arguments=("--workers", "2")) as gateway:
            gateway.says("/admin for")
            _check(gateway, AdminClient(gateway))


def _check(gateway: Gateway, admin: AdminClient) -> None:
    key, secret = make_key(gateway, budget=BUDGET)
    gate = Gate()
    slow = gateway.upstream.play([head(), chunk(HELLO), gate, chunk(REST), last_chunk()])
    quick = gateway.upstream.play(whole())

    with ExitStack() as stack:
        waiting = [stack.enter_context(gateway.client()) for _ in range(_CALLS)]
        for client in waiting:
            client.send(request(secret, f"main/{slow}", stream=True, max_tokens=100))
            client.read_until(b"Hello")
        for _ in range(_CALLS):  # so that each worker has seen what the other holds
            with gateway.client() as client:
                client.send(request(secret, f"main/{quick}", stream=True, max_tokens=100))
                assert client.response().done
        assert max(float(admin.get("/admin/holds")["holds"].get(key.id, 0)) for _ in range(_CALLS)) > 0
        gate.open()
        for client in waiting:
            assert client.response().status == 200
    over = time.monotonic()
    while {float(admin.get("/admin/holds")["holds"].get(key.id, 0)) for _ in range(4 * _CALLS)} != {0.0}:
        in_time(time.monotonic() - over, _DROPPED_S)
    spent = sum(entry.priced for entry in gateway.book.entries() if entry.key == key.id)
    assert spent > 0
    metrics = urllib.request.Request(
        f"http://{admin.place}/metrics", headers={"Authorization": f"Bearer {admin.token}"}
    )
    with urllib.request.urlopen(metrics, timeout=_WAIT_S) as answer:
        samples = parse(answer.read().decode())
    left = value(samples, "penstock_budget_remaining_ratio", kind="key", name=key.name, period=key.period)
    assert left == pytest.approx(1 - spent / BUDGET)

"""Budget warnings of real gateways, to a receiver that fails and then accepts."""

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from penstock.gateway.config import LedgerSettings
from penstock.gateway.keys.changes import NewKey
from penstock.gateway.keys.changes import create as create_key
from penstock.gateway.keys.terms import KeyTerms
from penstock.gateway.teams.changes import TeamTerms, create
from penstock.stores.book.open import open_book
from tests.faults.conftest import Starter
from tests.faults.gateway import Gateway
from tests.faults.scripts import HELLO
from tests.faults.upstream import chunk, head, last_chunk
from tests.ledger.support import COST, INPUT, OUTPUT, ask, wait_for_key
from tests.serve.support import AdminClient
from tests.serve.webhooks import documented
from tests.streams import DONE, bill, counts, finishes, sse

SECRET = "whsec_canary+of+a+webhook+000000000000"
# Key, organisation, and the percentages of which each is warned.
EXPECTED = {("key", 50), ("key", 80), ("key", 100), ("organisation", 50)}


class Receiver(ThreadingHTTPServer):
    """Refuses requests: the first two, or all until it is `repaired`. Keeps what it accepts."""

    def __init__(self, *, repaired: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.seen = 0
        self.repaired = repaired
        self.accepted: list[tuple[dict[str, str], bytes]] = []

    @property
    def warnings(self) -> list[dict[str, Any]]:
        with self.lock:
            return [json.loads(body) for _, body in self.accepted]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        body = self.rfile.read(int(self.headers["content-length"]))
        with self.server.lock:
            self.server.seen += 1
            accepts = self.server.seen > 2 and self.server.repaired
            if accepts:
                headers = {name.lower(): value for name, value in self.headers.items()}
                self.server.accepted.append((headers, body))
        self.send_response(204 if accepts else 500)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def nanodollars(amount: int) -> str:
    return f"{amount / 10**9:.9f}"


@contextmanager
def receiving(*, repaired: bool) -> Iterator[tuple[Receiver, dict[str, str]]]:
    """A receiver, and the configuration for it."""
    with Receiver(repaired=repaired) as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        yield receiver, {"webhook": f"http://127.0.0.1:{receiver.server_port}/hook", "webhook_secret": SECRET}
        receiver.shutdown()


def spend(gateway: Gateway) -> tuple[NewKey, str]:
    """Make a call that passes 50 and 80 % of a key's budget, and 50 % of its team's; returns the key and the model."""
    now = int(time.time() * 1000)
    with closing(open_book(LedgerSettings(folder=str(gateway.book.folder)), {})) as book:
        create(book, TeamTerms(path="acme", budgets={"total": nanodollars(2 * COST)}), now)
        terms = KeyTerms(name="ci", team="acme", budget=nanodollars(COST * 5 // 4), period="total")
        new = create_key(book, terms, now)
    wait_for_key(gateway, new.secret)
    rest = sse(finishes(), bill(**counts(INPUT, OUTPUT)), DONE)
    model = f"main/{gateway.upstream.play([head(), chunk(HELLO), chunk(rest), last_chunk()])}"
    assert ask(gateway, new.secret, model, stream=True, max_tokens=OUTPUT).status == 200
    return new, model


def test_warnings_of_a_killed_gateway_arrive_after_its_restart(start: Starter) -> None:
    with receiving(repaired=False) as (receiver, budgets):
        gateway = start(budgets=budgets)
        spend(gateway)
        gateway.until(lambda: receiver.seen >= 3, 60.0)
        gateway.stop(signal.SIGKILL)
        with receiver.lock:
            receiver.repaired = True
        gateway.output.clear()
        gateway.start()
        gateway.until(lambda: len(receiver.warnings) >= 3, 60.0)
        admin = AdminClient(gateway)
        gateway.until(lambda: {each["delivery"] for each in _listed(admin)} == {"delivered"}, 60.0)
        ids = sorted(warning["id"] for warning in receiver.warnings)
        assert ids == sorted(each["id"] for each in _listed(admin))
        assert len(set(ids)) == 3
        assert all(documented()(SECRET, *accepted) for accepted in receiver.accepted)


def _listed(admin: AdminClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = admin.ask("GET", "/admin/warnings")[1]["warnings"]
    return found


def test_each_warning_arrives_once(start: Starter) -> None:
    with receiving(repaired=True) as (receiver, budgets):
        gateway = start("--workers", "2", budgets=budgets)
        new, model = spend(gateway)
        gateway.until(lambda: len(receiver.warnings) == 3, 60.0)
        for _ in range(8):  # the refusals of both workers
            assert ask(gateway, new.secret, model, stream=True, max_tokens=OUTPUT).status == 429
        gateway.until(lambda: len(receiver.warnings) >= len(EXPECTED), 60.0)
        warned = [(warning["kind"], warning["percent"]) for warning in receiver.warnings]
        assert Counter(warned) == Counter(EXPECTED)
        assert all(documented()(SECRET, *accepted) for accepted in receiver.accepted)

        last = next(warning for warning in receiver.warnings if warning["percent"] == 100)
        assert (last["subject"], last["refused"], last["spent"]) == (new.key.id, True, "0.00044")
        admin = AdminClient(gateway)
        assert sorted(each["id"] for each in _listed(admin)) == sorted(each["id"] for each in receiver.warnings)
        assert len(admin.ask("GET", "/admin/warnings?limit=1")[1]["warnings"]) == 1
        gateway.says("the organisation acme has spent 50 %")
        assert SECRET not in "".join(gateway.output)

"""Content that a gateway keeps for its operator: each rule, masked, read by administrators only, and erased with its
user."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.core.dialects.registry import DIALECTS
from tests.faults.client import CLIENT_KEY, Response, body, get, post
from tests.faults.gateway import PROVIDER_KEY, Gateway, Table, settings
from tests.faults.scripts import stream
from tests.faults.upstream import JSON, Upstream, chunk, head, rst, status
from tests.serve.support import AdminClient
from tests.stores.postgres import PostgresServer
from tests.streams import DONE, begins, finishes, says, sse

pytestmark = pytest.mark.slow

ANN = "canary-of-a-user-77aa"
MAIL = "canary@mail.example"
OTHER_KEY = "canary-of-another-client-8d21"
_WAIT_S = 15.0
# A provider that quotes what it got, in pieces.
PIECES = (
    "Dear canary-of-",
    "a-user-77aa, is can",
    "ary@mail.exam",
    "ple yours? ",
    PROVIDER_KEY[:11],
    PROVIDER_KEY[11:],
)
ANSWER = stream(sse(begins(), *map(says, PIECES), finishes(), DONE))
CUT = [head(), chunk(sse(begins(), says("Half an"))), rst()]
UNKEPT = {"x-penstock-store": "false"}
# A request in each dialect, by its path.
REQUESTS: dict[str, dict[str, object]] = {
    "/v1/chat/completions": {"model": "main/answer", "messages": [{"role": "user", "content": "Hi"}]},
    "/v1/responses": {"model": "main/answer", "input": "Hi"},
    "/v1/messages": {"model": "main/answer", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
    "/v1beta/models/main/answer:generateContent": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    "/v2/chat": {"model": "main/answer", "messages": [{"role": "user", "content": "Hi"}]},
    "/model/main%2Fanswer/converse": {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
}
RULES = """
[routes.failing]
targets = ["main/cut"]
content = "failed"
[routes.silent]
targets = ["main/answer"]
content = "never"
"""


class Keeping(Gateway):
    """A gateway that keeps content, and its administrator."""

    def __init__(self, folder: Path, upstream: Upstream, **tables: Table) -> None:
        given: dict[str, Table] = {
            "server": {"keys": [CLIENT_KEY, OTHER_KEY]},
            "admin": {"content": True},
            "content": {"keep": "always", "mask": ["email"]},
        }
        given |= tables
        upstream.play(ANSWER, "answer")
        upstream.play(CUT, "cut")
        super().__init__(folder, upstream, settings(upstream.url, 0, **given) + RULES)

    def ask_about(self, model: str = "main/answer", **fields: object) -> Response:
        """A call of the user."""
        messages = [{"role": "user", "content": f"I am {ANN}, {MAIL}, {PROVIDER_KEY}"}]
        self.expected += 1
        return self.send(post(body(model, stream=True, messages=messages, user=ANN, **fields)))

    def ask_in(self, path: str, headers: dict[str, str]) -> Response:
        """A call in the dialect of a path."""
        self.expected += 1
        response = self.send(post(json.dumps(REQUESTS[path]).encode(), headers, path))
        assert response.status == 200, response
        return response

    def content(self, response: Response, wanted: int = 200) -> Any:
        """The kept content of a call, which may be on its way."""
        deadline = time.monotonic() + _WAIT_S
        while (found := AdminClient(self).ask("GET", f"/admin/calls/{response.request_id}/content"))[0] != wanted:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found[1]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command with its configuration."""
        environment = os.environ | {"PENSTOCK_STATE": str(self.book.folder)}
        return subprocess.run(
            [*self.command, *arguments, "--config", str(self.file)],
            check=False,
            capture_output=True,
            text=True,
            env=environment,
        )


def test_content_is_kept_by_rule_masked_and_erased(tmp_path: Path, upstream: Upstream) -> None:
    with Keeping(tmp_path, upstream) as gateway:
        response = gateway.ask_about()
        kept = gateway.content(response)
        user = kept["user"]
        assert user.startswith("u_")
        assert kept["request"]["messages"][0]["content"] == f"I am {user}, [email], …"
        assert kept["request"]["user"] == user
        (message,) = kept["answer"]
        assert message["parts"] == [{"type": "text", "content": f"Dear {user}, is [email] yours? …"}]
        gateway.says(f"the kept content of the call {response.request_id} was read over the admin API")
        shown = json.loads(gateway.run("ledger", "show", response.request_id, "--content").stdout)
        assert shown == kept

        failed = gateway.ask_about("failing")
        assert gateway.content(failed)["answer"][0]["parts"] == [{"type": "text", "content": "Half an"}]
        unkept = [gateway.ask_about("silent"), gateway.ask_about(store=False)]
        last = gateway.ask_about()
        gateway.content(last)  # those before it would be there, too
        for other in unkept:
            gateway.content(other, 404)

        # No client can read it, whatever its key is.
        for key in (CLIENT_KEY, OTHER_KEY):
            for path in (f"/v1/responses/{response.request_id}", f"/admin/calls/{response.request_id}/content"):
                assert gateway.send(get(path, {"Authorization": f"Bearer {key}"})).status == 404
        place = f"/admin/calls/{response.request_id}/content"
        assert AdminClient(gateway, CLIENT_KEY).ask("GET", place)[0] == 401

        assert gateway.run("users", "erase", ANN).stdout == f"erased {user}, with 3 kept records\n"
        gateway.content(response, 404)
        gateway.content(last, 404)
        state = {path.name: path.read_bytes() for path in gateway.book.folder.rglob("*") if path.is_file()}
        for canary in (ANN, MAIL, PROVIDER_KEY, "Half an"):
            assert not [name for name, data in state.items() if canary.encode() in data], canary
            assert canary not in "".join(gateway.output)


def test_clients_of_every_dialect_can_refuse_that_content_is_kept(tmp_path: Path, upstream: Upstream) -> None:
    assert len(REQUESTS) == sum(dialect.surface is not None for dialect in DIALECTS.values())
    with Keeping(tmp_path, upstream) as gateway:
        unkept = [gateway.ask_in(path, UNKEPT) for path in REQUESTS]
        kept = [gateway.ask_in(path, {"x-penstock-store": "true"}) for path in REQUESTS]
        for response in kept:
            gateway.content(response)
        for response in unkept:  # they were queued before
            gateway.content(response, 404)


def test_content_is_read_only_if_administrators_may(tmp_path: Path, upstream: Upstream) -> None:
    with Keeping(tmp_path, upstream, admin={"content": False}) as gateway:
        response = gateway.ask_about()
        found = AdminClient(gateway).ask("GET", f"/admin/calls/{response.request_id}/content")
        assert (found[0], found[1]["error"]["code"]) == (403, "content_not_allowed")


def test_content_is_kept_in_postgres(tmp_path: Path, upstream: Upstream, postgres: PostgresServer) -> None:
    with Keeping(tmp_path, upstream, ledger={"postgres": postgres.new_database()}) as gateway:
        upstream.play([status(500, JSON, b'{"error": {"message": "broken"}}')], "broken")
        kept = [gateway.content(gateway.ask_about(model)) for model in ("main/answer", "main/broken")]
        assert "[email]" in kept[0]["answer"][0]["parts"][0]["content"]
        assert (kept[1]["answer"], kept[1]["request"]["user"]) == ([], kept[0]["user"])

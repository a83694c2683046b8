"""`penstock doctor`: each check reports a problem when there is one, and what to do."""

import json
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.doctor import _try, command
from penstock.stores.book.schema import MIGRATIONS
from penstock.stores.book.sqlite import SqliteBook
from tests.upstream.azure import HEADER, TOKEN, EntraServer

KEY = "canary-key-of-a-provider"


class Answers(BaseHTTPRequestHandler):
    """A provider whose status and clock are in its path: /STATUS/SKEW; the status of a POST is in a query."""

    def do_GET(self) -> None:
        status, skew = self.path.split("/")[1:3]
        self._answer(status, skew)

    def do_POST(self) -> None:
        assert self.rfile.read(int(self.headers["content-length"])) == b"{}"
        path, _, query = self.path.partition("?")
        status, _, message = query.partition("=")
        self._answer(status or path.split("/")[1], path.split("/")[2], message)

    def _answer(self, status: str, skew: str, message: str = "") -> None:
        accepted = self.headers["authorization"] == f"Bearer {KEY}"
        body = json.dumps({"error": {"message": "", "code": message}}).encode() if message else b""
        self.send_response_only(int(status) if accepted else 401)
        self.send_header("date", formatdate(time.time() + float(skew), usegmt=True))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def run(tmp_path: Path) -> Any:
    def run(text: str, *arguments: str, state: Path | None = None) -> tuple[int, dict[str, list[dict[str, str]]], str]:
        file = tmp_path / "penstock.toml"
        file.write_text(text)
        file.chmod(0o600)
        env = {"PENSTOCK_STATE": str(state or tmp_path / "state"), "NO_PROXY": "*", "HOME": str(tmp_path)}
        done = CliRunner(env=env).invoke(command, ["--config", str(file), "--json", *arguments])
        assert KEY not in done.output
        findings: dict[str, list[dict[str, str]]] = {}
        for finding in json.loads(done.stdout)["findings"]:
            findings.setdefault(finding["check"], []).append(finding)
        return done.exit_code, findings, done.output

    return run


def acme(url: str, key: str = KEY) -> str:
    return f'[server]\nlisten = "127.0.0.1:0"\n[providers.acme]\nbase_url = "{url}"\napi_key = "{key}"\n'


def test_all_is_well(run: Any, provider: str) -> None:
    status, findings, _ = run(acme(f"{provider}/200/0"))
    assert status == 0
    assert findings["provider acme"][0]["message"].endswith("is reachable, and takes the key")
    assert not [each for each in findings if findings[each][0]["level"] == "error"]


def test_a_wrong_key(run: Any, provider: str) -> None:
    status, findings, _ = run(acme(f"{provider}/200/0", "some-other-key"))
    assert status == 1
    assert "refuses the key (status 401)" in findings["provider acme"][0]["message"]
    assert findings["provider acme"][0]["action"].startswith("check the key from ")


def test_each_of_several_keys_is_tried(run: Any, provider: str) -> None:
    keys = f'keys = [{{ name = "good", api_key = "{KEY}" }}, {{ name = "bad", api_key = "some-other-key" }}]'
    status, findings, _ = run(f'[providers.acme]\nbase_url = "{provider}/200/0"\n{keys}\n')
    assert status == 1
    levels = [findings[f"provider acme, key {name}"][0]["level"] for name in ("good", "bad")]
    assert levels == ["ok", "error"]


def test_access_tokens_are_looked_for(run: Any, provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f'[server]\nlisten = "127.0.0.1:0"\n[providers.azure]\nauth = "azure"\nbase_url = "{provider}/401/0"\n'
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
    with EntraServer(tmp_path) as entra:
        for name, value in entra.managed_identity().items():
            monkeypatch.setenv(name, value)
        status, findings, output = run(text)
        assert [each["message"] for each in findings["provider azure"]] == [
            "access tokens of Entra ID are available",
            f"{provider.removeprefix('http://')} is reachable",
        ]
        assert status == 0
        entra.broken = True
        status, findings, failed = run(text)
        first = findings["provider azure"][0]
        assert (status, first["level"], first["message"]) == (1, "error", "no access tokens of Entra ID")
        assert "must set AZURE_TENANT_ID and AZURE_CLIENT_ID" in first["action"]
    assert TOKEN not in output + failed
    assert HEADER not in output + failed


@pytest.mark.parametrize(
    ("path", "level"),
    [
        ("", "error"),
        ("/chat?400", "ok"),
        ("/{model}/chat?404=DeploymentNotFound", "ok"),
        ("/{model}/chat?404=not_found", "error"),
    ],
    ids=["a wrong path", "no list of models", "no such deployment", "another 404"],
)
def test_a_wrong_path_is_not_ok(run: Any, provider: str, path: str, level: str) -> None:
    text = acme(f"{provider}/404/0") + (f'path = "{path}"\n' if path else "")
    status, findings, _ = run(text)
    (found,) = findings["provider acme"]
    assert (found["level"], status) == (level, 1 if level == "error" else 0)
    if level == "error":
        assert "has nothing at /404/0/" in found["message"]
        assert found["action"] == "correct base_url, or path, of this provider"


def test_a_provider_in_trouble_is_a_warning(run: Any, provider: str) -> None:
    status, findings, _ = run(acme(f"{provider}/503/0"))
    assert (status, findings["provider acme"][0]["level"]) == (0, "warning")


@pytest.mark.parametrize(("skew", "words"), [(-600, "600 s ahead of"), (600, "600 s behind")])
def test_a_wrong_clock(run: Any, provider: str, skew: int, words: str) -> None:
    _, findings, _ = run(acme(f"{provider}/200/{skew}"))
    assert words in findings["clock"][0]["message"].replace("599", "600").replace("601", "600")


def test_a_provider_that_cannot_be_reached(run: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    status, findings, _ = run(acme(f"http://127.0.0.1:{port}"))
    assert status == 1
    assert findings["provider acme"][0]["message"] == f"127.0.0.1:{port} cannot be reached: Connection refused"
    assert run(acme(f"http://127.0.0.1:{port}"), "--offline")[0] == 0


def test_a_port_that_is_taken(run: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = f'[server]\nlisten = "127.0.0.1:{taken.getsockname()[1]}"\n[admin]\nenabled = false\n'
        _, findings, _ = run(text, "--offline")
    assert findings["server.listen"][0]["level"] == "warning"
    assert "is a gateway running already?" in findings["server.listen"][0]["action"]


def test_a_folder_that_others_can_enter(run: Any, tmp_path: Path) -> None:
    state = tmp_path / "open"
    state.mkdir(mode=0o755)
    _, findings, _ = run("", "--offline", state=state)
    assert findings["state"][0]["action"] == f"chmod 700 {state}"


def test_too_little_room(run: Any) -> None:
    workers = '[server]\nlisten = "127.0.0.1:0"\nworkers = 256\n[ledger]\njournal = 1000000000\n'
    status, findings, _ = run(workers, "--offline")
    assert (status, findings["state"][0]["level"]) == (1, "error")
    assert "the journal needs 768000 MB" in findings["state"][0]["message"]


def test_redis_that_does_not_answer(run: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    status, findings, _ = run(f'[ledger]\nredis = "redis://127.0.0.1:{port}"\n', "--offline")
    assert status == 1
    assert findings["limits"][0]["message"].startswith("Redis does not answer")


def test_keys_in_a_file_that_others_can_read(run: Any, tmp_path: Path) -> None:
    run(acme("https://a.example"), "--offline")
    file = tmp_path / "penstock.toml"
    file.chmod(0o644)
    done = CliRunner(env={"PENSTOCK_STATE": str(tmp_path / "state")}).invoke(
        command, ["--config", str(file), "--offline"]
    )
    assert f"chmod 600 {file}" in done.output


def test_every_mistake_of_the_configuration_is_listed(run: Any) -> None:
    status, findings, _ = run('[server]\nlisten = "x"\nworkers = 0\n')
    assert status == 1
    assert len(findings["configuration"]) == 2


@pytest.mark.parametrize(
    ("schema", "expected"),
    [(16, "move it away to start a new one"), (99, "use that version, or restore a backup")],
    ids=["before the first release", "newer"],
)
def test_a_ledger_of_another_version_is_reported(run: Any, tmp_path: Path, schema: int, expected: str) -> None:
    SqliteBook.open(tmp_path / "ledger.db").close()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as database, database:
        database.execute("UPDATE meta SET value = ? WHERE name = 'schema'", (schema,))
    status, findings, _ = run("", "--offline", state=tmp_path)
    (finding,) = findings["ledger"]
    assert (status, finding["level"]) == (1, "error")
    assert expected in f"{finding['message']} {finding['action']}"


def test_a_ledger_that_will_be_migrated_is_a_warning(tmp_path: Path) -> None:
    SqliteBook.open(tmp_path / "ledger.db").close()
    later = (*MIGRATIONS, lambda _: ("CREATE TABLE later (id BIGINT)",))
    found = _try("ledger", "", lambda: SqliteBook.open(tmp_path / "ledger.db", readonly=True, migrations=later), "")
    assert found.level == "warning"
    assert "`penstock serve` migrates it at its start" in found.action

"""`penstock apply`: what it prints, asks and refuses, where secrets go; and the same over the admin API."""

import contextlib
import json
import os
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from click.testing import Result

from penstock.cli.declared.secret_keeping import SecretFile
from penstock.gateway.keys.key_secret import digest_of
from penstock.stores.book.sqlite import SqliteBook
from tests.cli.support import command, invoke
from tests.faults.gateway import settings
from tests.faults.scripts import unstreamed
from tests.faults.upstream import Upstream
from tests.serve.in_process import InProcessGateway
from tests.serve.support import AdminClient

FILE = """\
managed_by = "platform"

[teams.acme]
budgets = { month = 500, day = 50 }

[teams."acme/search"]
requests_per_minute = 600

[keys.ci]
team = "acme/search"
budget = 25
expires = 2099-01-01

[keys.nightly]
team = "acme"
tags = { env = "prod" }
"""
MISTAKES = """\
prune = "sometimes"
[teams.acme]
budget = 5
budgets = { year = 5 }
[teams."acme/x/y"]
concurrent = "many"
[keys.ci]
expires = 7
[groups.platform]
role = "admin"
"""
INVALID = """\
[teams.acme]
budgets = { month = "much" }
[keys.ci]
expires = "30d"
[keys."key_0123456789ab"]
period = "day"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of teams and keys, and no configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("PENSTOCK_ADMIN_TOKEN", raising=False)
    (tmp_path / "company.toml").write_text(FILE)
    return tmp_path


def apply(*arguments: str) -> Result:
    return invoke("apply", "-f", "company.toml", *arguments)


def applied(*arguments: str) -> str:
    result = apply(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: str) -> str:
    result = apply(*arguments)
    assert result.exit_code == 1, result.output
    return result.stderr


def names() -> list[str]:
    return sorted(each["name"] for each in json.loads(invoke("keys", "list", "--json").stdout)["keys"])


def is_secret_of(secret: str, name: str) -> bool:
    book = SqliteBook.open(Path("state/ledger.db"))
    try:
        keys = book.keys()
        return [key.digest for key in keys if key.name == name and key.revoked_ms is None] == [digest_of(secret)]
    finally:
        book.close()


def test_a_file_is_planned_applied_and_then_there_is_nothing_to_do(folder: Path) -> None:
    plan = applied("--dry-run")
    assert "  + organisation acme\n      budgets.day             50.00\n" in plan
    assert "  + key ci\n      budget                  25.00\n" in plan
    assert plan.endswith("Plan: 4 to create.\n")
    assert apply("--dry-run", "--detailed-exitcode").exit_code == 2
    assert names() == []
    done = applied("--secrets", "keys.json")
    assert done.endswith("Done: 4 changes; 2 new secrets went to keys.json.\n")
    secrets = json.loads((folder / "keys.json").read_text())
    assert stat.S_IMODE((folder / "keys.json").stat().st_mode) == 0o600
    assert all(is_secret_of(secret, name) for name, secret in secrets.items())
    assert sorted(secrets) == ["ci", "nightly"]
    assert not any(secret in done for secret in secrets.values())
    assert applied("--detailed-exitcode", "--dry-run").endswith("No changes: the ledger is as the file says.\n")
    assert json.loads(invoke("keys", "show", "ci", "--json").stdout)["managed_by"] == "platform"


def test_a_manual_change_is_undone_and_what_left_the_file_ends(folder: Path) -> None:
    applied("--secrets", "keys.json")
    invoke("keys", "update", "ci", "--budget", "99")
    invoke("keys", "create", "--name", "anns", "--team", "acme")
    (folder / "company.toml").write_text(FILE.partition("[keys.nightly]")[0])
    plan = applied("--dry-run")
    assert "  ~ key ci\n      budget                  99.00 → 25.00\n  - key nightly (key_" in plan
    assert refused() == "Error: 1 key or team would end: give --yes to agree; nothing was changed\n"
    assert "Plan: 1 to change, 1 to delete." in applied("--yes")
    assert names() == ["anns", "ci"]
    (folder / "company.toml").write_text('managed_by = "platform"')
    message = "company.toml: teams.acme: is not in the file any more, but has the key anns: move or delete that first"
    assert message in refused("--yes")
    assert "Plan: 3 to block." in applied("--yes", "--prune", "block")
    assert names() == ["anns", "ci"]
    assert [json.loads(invoke("keys", "show", name, "--json").stdout)["state"] for name in names()] == [
        "active",
        "blocked",
    ]
    (folder / "company.toml").write_text(FILE)
    assert "note: the key ci is blocked, and stays so: blocked = false unblocks it" in applied("--secrets", "keys.json")


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "left"), [(b"n\n", ["ci", "nightly"]), (b"y\n", [])])
def test_it_asks_on_a_terminal_before_something_ends(folder: Path, answer: bytes, left: list[str]) -> None:
    applied("--secrets", "keys.json")
    (folder / "company.toml").write_text('managed_by = "platform"')
    ours, theirs = os.openpty()
    with subprocess.Popen(command("apply", "-f", "company.toml"), stdin=theirs, stdout=theirs, stderr=theirs) as run:
        os.close(theirs)
        os.write(ours, answer)
        shown = b""
        with contextlib.suppress(OSError):  # how Linux says that the other end was closed
            while data := os.read(ours, 65536):
                shown += data
        status = run.wait(timeout=60)
    os.close(ours)
    assert b"4 keys and teams would end. Go on? [y/N]" in shown
    assert (status, names()) == (0 if not left else 1, left)


def test_what_others_made_is_adopted_only_if_that_is_asked_for() -> None:
    invoke("keys", "create", "--name", "ci", "--budget", "3")
    message = "company.toml:9: keys.ci: exists, and no file manages it: --adopt takes it over, or use another name\n"
    assert refused("--secrets", "keys.json") == message + "company.toml: 1 error; nothing was changed\n"
    plan = applied("--secrets", "keys.json", "--adopt")
    assert "  ~ key ci: managed by this file from now on\n      budget                  3.00 → 25.00\n" in plan
    assert list(json.loads(Path("keys.json").read_text())) == ["nightly"]
    Path("company.toml").write_text(FILE.replace("platform", "another"))
    assert "keys.ci: is managed by platform: remove it there, or release it: penstock keys update ci" in refused(
        "--adopt"
    )
    invoke("keys", "update", "ci", "--managed-by", "none")
    assert "keys.ci: exists, and no file manages it" in refused()


def test_all_mistakes_are_reported_with_their_lines(folder: Path) -> None:
    (folder / "company.toml").write_text(MISTAKES)
    assert [line.split(": ")[:2] for line in refused().splitlines()] == [
        ["company.toml:1", "prune"],
        ["company.toml:3", "teams.acme.budget"],
        ["company.toml:4", "teams.acme.budgets.year"],
        ["company.toml:6", 'teams."acme/x/y".concurrent'],
        ["company.toml:8", "keys.ci.expires"],
        ["company.toml:9", "groups"],
        ["company.toml", "6 errors; nothing was changed"],
    ]
    (folder / "company.toml").write_text(INVALID)
    lines = refused().splitlines()
    assert [line.split(": ")[1] for line in lines[:-1]] == [
        "managed_by",
        "teams.acme.budget",
        "keys.ci.expires",
        "keys.key_0123456789ab.name",
    ]
    assert 'is missing: give the file a name of its own, such as managed_by = "platform"' in lines[0]
    (folder / "company.toml").write_text('managed_by = "a"\n[keys.ci]\nteam = "acme"\n[teams."b/c"]\n')
    lines = refused().splitlines()
    assert lines[0] == 'company.toml:4: teams."b/c": there is no team b: add [teams."b"]'
    assert lines[1] == 'company.toml:3: keys.ci.team: there is no team acme: add [teams."acme"]'
    (folder / "company.toml").write_text("[keys")
    assert refused().startswith("company.toml:1: not valid TOML")
    (folder / "company.toml").unlink()
    assert refused().startswith("company.toml: cannot be read: No such file")


def test_a_new_key_needs_a_place_for_its_secret(folder: Path) -> None:
    assert "say where it goes, with --secrets FILE" in refused("--yes")
    (folder / "open.json").write_text("{}")
    (folder / "open.json").chmod(0o644)
    assert "open.json is readable by other users: chmod 600 open.json" in refused("--secrets", "open.json")
    (folder / "text.json").write_text("text")
    (folder / "text.json").chmod(0o600)
    assert "text.json has something else in it" in refused("--secrets", "text.json")
    assert "no regular file: secrets are not printed" in refused("--secrets", "/dev/null")
    assert "/nowhere cannot be opened: No such file" in refused("--secrets", "/nowhere/keys.json")
    assert apply("--secrets", "a", "--secret-command", "b").exit_code == 2
    assert names() == []


def test_secrets_become_a_manifest_that_grows(folder: Path) -> None:
    file = folder / "company.toml"
    file.write_text('managed_by = "a"\n[keys.ci]\n')
    applied("--kubernetes-secrets", "keys.yaml")
    file.write_text('managed_by = "a"\n[keys.ci]\n[keys."Ann\'s laptop"]\n')
    applied("--kubernetes-secrets", "keys.yaml")
    manifest = json.loads((folder / "keys.yaml").read_text())
    first, second = manifest["items"]
    for item in manifest["items"]:
        kubernetes_validate.validate(item, "1.34", strict=True)
    assert first["metadata"]["name"] == "penstock-ci"
    assert second["metadata"]["name"].startswith("penstock-ann-s-laptop-")
    assert is_secret_of(first["stringData"]["key"], "ci")
    assert is_secret_of(second["stringData"]["key"], "Ann's laptop")


@pytest.mark.slow
def test_a_command_gets_each_secret_and_its_failure_makes_no_key(folder: Path) -> None:
    script = 'test "$PENSTOCK_KEY" != nightly || { echo "no $(cat)" >&2; exit 3; }; cat >"$PENSTOCK_KEY"'
    message = refused("--secret-command", script)
    assert "failed for the key nightly (status 3: no …), after 1 others; no key was made" in message
    assert names() == []
    assert not is_secret_of((folder / "ci").read_text(), "ci")
    done = applied("--secret-command", 'cat >"$PENSTOCK_KEY"; cat "$PENSTOCK_KEY"')
    assert done.endswith("2 new secrets went to the command.\n")
    for name in ("ci", "nightly"):
        assert is_secret_of((folder / name).read_text(), name)
        assert (folder / name).read_text() not in done


def test_a_file_of_secrets_is_as_it_was_if_the_keys_are_not_made(folder: Path) -> None:
    keeper = SecretFile(folder / "keys.json", manifest=False)
    take_back = keeper.keep({"ci": "one"})
    assert json.loads((folder / "keys.json").read_text()) == {"ci": "one"}
    take_back_more = keeper.keep({"ci": "two", "web": "three"})
    assert json.loads((folder / "keys.json").read_text()) == {"ci": "two", "web": "three"}
    take_back_more()
    assert json.loads((folder / "keys.json").read_text()) == {"ci": "one"}
    take_back()
    assert sorted(path.name for path in folder.iterdir()) == ["company.toml"]


def test_the_plan_is_there_as_json() -> None:
    plan = json.loads(applied("--json", "--dry-run"))
    assert (plan["file"], plan["applied"]) == ("company.toml", False)
    assert plan["plan"]["changes"][2] == {
        "action": "create",
        "kind": "key",
        "name": "ci",
        "id": None,
        "before": {},
        "after": {"budget": "25.00", "period": "month", "expires": "2099-01-01T00:00:00Z", "team": "acme/search"},
    }
    assert json.loads(applied("--json", "--secrets", "keys.json"))["applied"]
    assert json.loads(applied("--json"))["plan"]["changes"] == []


@pytest.mark.slow
def test_two_runs_at_once_end_with_one_secret_that_works(folder: Path) -> None:
    arguments = command("apply", "-f", "company.toml", "--secrets", "keys.json")
    runs = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = [run.communicate(timeout=120)[0] for run in runs]
    assert [run.returncode for run in runs] == [0] * 4, outputs
    assert sum("Done: 4 changes" in output for output in outputs) == 1
    secrets = json.loads((folder / "keys.json").read_text())
    assert all(is_secret_of(secrets[name], name) for name in ("ci", "nightly"))


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminClient]:
    with Upstream() as upstream:
        upstream.play(unstreamed(), "river-1")
        with InProcessGateway(tmp_path_factory.mktemp("apply"), upstream, settings(upstream.url)) as gateway:
            yield AdminClient(gateway)


class LostReplies:
    """A proxy that forwards requests, and closes the connection instead of returning the reply to one path."""

    def __init__(self, port: int, path: bytes) -> None:
        self._port, self._path = port, path
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, socket.create_connection(("127.0.0.1", self._port)) as server:
                head, _, body = client.recv(65536).partition(b"\r\n\r\n")
                (length,) = [
                    int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line
                ]
                while len(body) < length:
                    body += client.recv(65536)
                server.sendall(head + b"\r\n\r\n" + body)
                reply = b""
                while data := server.recv(65536):
                    reply += data
                if self._path not in head:
                    client.sendall(reply)


def test_a_gateway_does_the_same_over_its_admin_api(remote: AdminClient, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{remote.port}"
    assert "set PENSTOCK_ADMIN_TOKEN to the gateway's admin token" in refused("--gateway", url)
    monkeypatch.setenv("PENSTOCK_ADMIN_TOKEN", "wrong-token-of-the-gateway")
    assert refused("--gateway", url).startswith(f"Error: the gateway {url}: ")
    monkeypatch.setenv("PENSTOCK_ADMIN_TOKEN", remote.token)
    assert "is this the address of the admin API, and is the token valid?" in refused(
        "--gateway", f"http://127.0.0.1:{remote.gateway.port}"
    )
    assert "cannot be reached: Connection refused" in refused("--gateway", "http://127.0.0.1:1")
    assert apply("--gateway", "127.0.0.1:8081").exit_code == 2
    assert apply("--gateway", url, "--config", "penstock.toml").exit_code == 2

    done = applied("--gateway", url, "--secrets", "keys.json")
    assert f"company.toml, as platform, in the gateway {url}\n" in done
    secret = json.loads(Path("keys.json").read_text())["ci"]
    remote.until_known(secret)
    assert secret not in done
    assert "No changes" in applied("--gateway", f"{url}/admin")
    remote.ask("PATCH", "/admin/keys/ci", {"budget": 1})
    Path("company.toml").write_text(FILE.partition("[keys.nightly]")[0])
    assert "Plan: 1 to change, 1 to delete." in applied("--gateway", url, "--yes")
    assert remote.get("/admin/keys/ci")["budget"] == "25.00"
    status, error = remote.ask("POST", "/admin/apply", {"managed_by": "x", "fingerprint": "old"})
    assert (status, error["error"]["code"]) == (409, "plan_changed")


def test_a_reply_that_is_lost_loses_no_secret(remote: AdminClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_ADMIN_TOKEN", remote.token)
    Path("company.toml").write_text('managed_by = "lost"\n[keys.lost]\n')
    proxy = LostReplies(remote.port, b"/admin/apply")
    try:
        message = refused("--gateway", proxy.url, "--secrets", "keys.json")
    finally:
        proxy.close()
    assert (
        "it is not known whether the changes were made; 1 new secret went to keys.json. Run the same command" in message
    )
    url = f"http://127.0.0.1:{remote.port}"
    assert "No changes" in applied("--gateway", url, "--secrets", "keys.json")
    remote.until_known(json.loads(Path("keys.json").read_text())["lost"])


def test_members_cannot_say_that_a_file_manages_their_keys(remote: AdminClient) -> None:
    remote.ask("POST", "/admin/teams", {"path": "members"})
    status, _ = remote.ask("POST", "/admin/tokens", {"name": "member", "role": "member", "team": "members"})
    assert status == 201
    member: Any = AdminClient(remote.gateway, remote.secrets[-1])
    status, error = member.ask("POST", "/admin/keys", {"name": "mine", "managed_by": "platform"})
    assert (status, error["error"]["param"]) == (400, "managed_by")

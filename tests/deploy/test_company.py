"""docs/company.md is true: its commands run as they are written, with two gateways, PostgreSQL and Redis.

A stand-in answers for the cluster (`stand_in.py`); the real Helm renders the chart. Signing in is tested with a real
provider in `tests/web/test_sign_in.py`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import yaml

from tests.deploy.chart import HELM, ROOT, configuration, environment, every, needs_helm
from tests.faults.gateway import Gateway
from tests.faults.scripts import unstreamed
from tests.faults.upstream import Upstream
from tests.serve.scim import GROUP, PATCH, SCIM, USER
from tests.serve.support import AdminClient
from tests.stores.conftest import RedisServer, postgres, redis_server
from tests.stores.postgres import PostgresServer

__all__ = ["postgres", "redis_server"]
pytestmark = [pytest.mark.slow, needs_helm]

PAGE = (ROOT / "docs" / "company.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FILES = dict(
    zip(
        ("databases.yaml", "values.yaml", "company.toml"),
        (text for kind, text in BLOCKS if kind in ("yaml", "toml")),
        strict=True,
    )
)
COMMANDS = "".join(text for kind, text in BLOCKS if kind == "sh").replace("\\\n", "").splitlines()
GIVEN = {"OIDC_CLIENT_SECRET": "oidc-secret-1", "OPENAI_API_KEY": "openai-key-1", "ANTHROPIC_API_KEY": "claude-key-1"}
PROGRAMS = ("kubectl", "helm", "penstock", "curl")


class Ran:
    """What the page's commands printed, and what they left behind."""

    def __init__(self, folder: Path, start: Any) -> None:
        self.folder = folder
        self._start = start
        self.printed: dict[str, str] = {}
        self.gateways: list[Gateway] = []
        work = folder / "work"
        (work / "deploy").mkdir(parents=True)
        (work / "deploy" / "helm").symlink_to(ROOT / "deploy" / "helm")
        for name, text in FILES.items():
            (work / name).write_text(text)
        (folder / "bin").mkdir()
        (folder / "cluster").mkdir()
        for name in PROGRAMS:
            program = folder / "bin" / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT}/tests/deploy/stand_in.py {name} "$@"\n')
            program.chmod(0o755)

    def secret(self, name: str) -> dict[str, str]:
        """The entries of a Secret that the commands made."""
        found: dict[str, str] = json.loads((self.folder / "cluster" / "secrets" / f"{name}.json").read_text())
        return found

    def run(self) -> None:
        """Run all commands in one shell's state; the gateways start before the first one that needs them."""
        for command in COMMANDS:
            if command.startswith("helm test"):
                self.gateways += self._start(self)
            self.printed[command] = self.shell(command)

    def shell(self, command: str) -> str:
        """What a command prints, after those before it."""
        state = self.folder / "state.sh"
        lines = ["set -euo pipefail", f". {state}" if state.exists() else "", command]
        lines.append(f"{{ declare -p | grep -vE '^declare -[a-zA-Z]*r'; declare -f; }} > {state}")
        done = subprocess.run(
            ["bash", "-c", "\n".join(lines)],
            cwd=self.folder / "work",
            env=os.environ
            | GIVEN
            | {
                "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                "CLUSTER": str(self.folder / "cluster"),
                "HELM": str(HELM),
                "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def of(self, beginning: str) -> str:
        """What the one command printed that begins so."""
        (found,) = [printed for command, printed in self.printed.items() if command.startswith(beginning)]
        return found


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer, valkey: RedisServer) -> Iterator[Ran]:
    folder = tmp_path_factory.mktemp("company")
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream())
        upstream.play(unstreamed(), "gpt-5-mini")

        def start(ran: Ran) -> list[Gateway]:
            objects = [each for each in yaml.safe_load_all((folder / "cluster" / "rendered.yaml").read_text()) if each]
            text = configuration(objects, folder)
            text = text.replace('listen = "0.0.0.0:8081"', 'listen = "127.0.0.1:0"')
            text = text.replace("[providers.openai]\n", f'[providers.openai]\nbase_url = "{upstream.url}"\n')
            variables = environment(objects) | ran.secret("penstock")
            variables |= {"DATABASE_URL": postgres.new_database(), "REDIS_URL": valkey.url}
            gateways = []
            for name in ("one", "two"):
                (folder / name).mkdir()
                gateway = Gateway(folder / name, upstream, text, environment=variables)
                gateways.append(stack.enter_context(gateway))
            admin = AdminClient(gateways[0], variables["PENSTOCK_ADMIN_TOKEN"])
            page, clients = f"http://127.0.0.1:{admin.port}", f"http://127.0.0.1:{gateways[1].port}"
            running = {
                "file": str(gateways[0].file),
                "environment": variables | {"PENSTOCK_STATE": str(folder / "one" / "state")},
                "curl": shutil.which("curl"),
                "addresses": {
                    "https://llm-admin.example.com": page,
                    "https://llm.example.com": clients,
                    "http://penstock.llm.svc:80": clients,
                    "http://penstock-admin.llm.svc:8081": page,
                },
            }
            (folder / "cluster" / "running.json").write_text(json.dumps(running))
            return gateways

        ran = Ran(folder, start)
        ran.run()
        yield ran


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("valkey"))
    yield server
    server.kill()


def test_the_databases_fit_the_schema_of_kubernetes() -> None:
    objects = [*yaml.safe_load_all(FILES["databases.yaml"])]
    for each in objects:
        kubernetes_validate.validate(each, "1.30", strict=True)
    wanted = {
        variable["valueFrom"]["secretKeyRef"]["key"]
        for each in objects
        if "template" in each["spec"]
        for variable in each["spec"]["template"]["spec"]["containers"][0]["env"]
        if "valueFrom" in variable
    }
    assert wanted == {"postgres", "valkey"}


def test_the_secret_has_what_the_configuration_reads(ran: Ran) -> None:
    read = set(re.findall(r"\$\{(\w+)\}", FILES["values.yaml"])) - {"PENSTOCK_DRAIN_S"}
    made = ran.secret("penstock")
    assert set(made) == read
    assert all(made.values())
    services = {item["metadata"]["name"] for item in every([*yaml.safe_load_all(FILES["databases.yaml"])], "Service")}
    database, limits = urlsplit(made["DATABASE_URL"]), urlsplit(made["REDIS_URL"])
    assert {str(database.hostname).partition(".")[0], str(limits.hostname).partition(".")[0]} == services
    passwords = ran.secret("databases")
    assert (database.password, limits.password) == (passwords["postgres"], passwords["valkey"])


def test_the_gateways_are_well(ran: Ran) -> None:
    assert ran.of("helm test").count("ok ") == 3
    assert "ERROR" not in ran.of("penstock doctor")
    assert "fast   openai/gpt-5-mini, then anthropic/claude-haiku-4-5" in ran.of("penstock check")


def test_prometheus_may_read_and_nothing_else(ran: Ran) -> None:
    token = ran.secret("penstock-prometheus")["token"]
    viewer = AdminClient(ran.gateways[0], token)
    assert viewer.send("GET", "/metrics", None, {"Authorization": f"Bearer {token}"})[0] == 200
    assert viewer.send("POST", "/admin/keys", {"name": "x"}, {"Authorization": f"Bearer {token}"})[0] == 403


def test_groups_give_the_roles_that_the_page_says(ran: Ran) -> None:
    assert re.search(r"team_admin.*acme/search|acme/search.*team_admin", ran.of("penstock roles llm-search-admin"))
    assert "admin" in ran.of("penstock roles llm-platform")


def test_the_first_call_is_answered_and_booked(ran: Ran) -> None:
    answer = json.loads(ran.of("curl "))
    assert answer["choices"][0]["message"]["content"]
    booked = re.compile(r"^acme/search +fast +1 ", re.MULTILINE)  # a moment after the answer
    ran.gateways[1].until(lambda: booked.search(ran.shell(COMMANDS[-1])))
    plan = [text for command, text in ran.printed.items() if command.startswith("command penstock apply")]
    assert "Plan: 3 to create." in plan[0]
    assert re.search(r"^ +member_keys\.budgets\.month +50\.00$", plan[0], re.MULTILINE)
    assert "3 changes; 1 new secret" in plan[1]
    assert oct((ran.folder / "work" / "keys.json").stat().st_mode & 0o777) == "0o600"


def test_scim_takes_the_token_of_the_page(ran: Ran) -> None:
    """A person gets the role of its group, and is off-boarded."""
    token = ran.of("penstock tokens create --name okta").strip()
    client = AdminClient(ran.gateways[1], token)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/scim+json"}

    def ask(method: str, path: str, schema: str, **fields: object) -> Any:
        status, reported, _ = client.send(
            method, SCIM + path, json.dumps({"schemas": [schema], **fields}).encode(), headers
        )
        assert status in (200, 201), reported
        return reported

    person = ask("POST", "/Users", USER, userName="ann@example.com", active=True)
    ask("POST", "/Groups", GROUP, displayName="llm-search-member", members=[{"value": person["id"]}])
    roles = ran.shell("penstock roles --person ann@example.com")
    assert "member" in roles
    assert "acme/search" in roles
    change = {"op": "replace", "path": "active", "value": False}
    assert ask("PATCH", f"/Users/{person['id']}", PATCH, Operations=[change])["active"] is False

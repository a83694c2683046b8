"""The OpenAPI document of the admin API, by a validator from outside, and by a client that a generator makes of it."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.gateway import settings
from tests.faults.upstream import Upstream
from tests.judges.cases import ROOT
from tests.judges.packages import admin_api_python
from tests.serve.in_process import InProcessGateway
from tests.serve.support import AdminClient

DOCUMENT = ROOT / "docs/reference/openapi.json"
USE = Path(__file__).parent / "use_client.py"


def run(*arguments: str | Path, folder: Path = ROOT) -> str:
    command = [str(admin_api_python()), *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[AdminClient]:
    with Upstream() as upstream, InProcessGateway(tmp_path, upstream, settings(upstream.url)) as gateway:
        yield AdminClient(gateway)


def test_the_document_is_valid() -> None:
    run("-m", "openapi_spec_validator", DOCUMENT)


def test_a_generated_client_manages_teams_and_keys(remote: AdminClient, tmp_path: Path) -> None:
    command = ("-m", "openapi_python_client", "generate", "--meta", "none", "--fail-on-warning")
    (tmp_path / "options.yaml").write_text("post_hooks: []\n")
    run(*command, "--config", tmp_path / "options.yaml", "--path", DOCUMENT, "--output-path", tmp_path / "client")
    got = json.loads(run(USE, f"http://127.0.0.1:{remote.port}", remote.token, folder=tmp_path))
    assert (got["team"]["path"], got["team"]["level"], got["team"]["budgets"][0]["budget"]) == (
        "acme/search",
        "team",
        "5.00",
    )
    assert (got["key"]["budget"], got["key"]["end_users"]["concurrent"], got["key"]["models"]) == ("2.50", 3, ["fast"])
    assert (got["updated"]["budget"], got["updated"]["strict"], got["updated"]["models"]) == (None, True, ["fast"])
    assert (got["listed"], got["shown"], got["revoked"]) == (True, True, "revoked")
    assert (got["missing"]["code"], got["refused"]["param"]) == ("key_not_found", "budget")
    assert [(each["action"], each["after"]) for each in got["plan"]["changes"]] == [("create", {"concurrent": 4})]
    assert got["applied"]
    assert got["deleted"] == {"path": "acme/search", "deleted": True}
    assert (got["token"], got["user"], got["usage"], got["entries"]) == ("viewer", "admin", 0, [])
    assert {"team.create", "key.create", "key.update", "key.revoke", "token.create"} <= {*got["audit"]}
    assert got["version"]

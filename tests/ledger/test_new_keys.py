"""A key works in the first call after it was created, and the first key closes the gateway at once."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.client import get
from tests.faults.gateway import Gateway, Table, settings
from tests.faults.upstream import Upstream
from tests.judges.cases import ROOT
from tests.stores.postgres import PostgresServer

pytestmark = pytest.mark.slow
# The two lines of the README that create a key and use it.
README = re.findall(r"^    (KEY=.*|curl -H .*\$KEY.*)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture(params=["one process", "three workers", "two machines"])
def gateways(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Gateway]]:
    """Gateways that need no key yet, all with one ledger."""
    ledger: Table = {}
    if request.param == "two machines":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        ledger = {"postgres": postgres.new_database()}
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream())
        configuration = settings(upstream.url, 0, server={"keys": []}, ledger=ledger)
        started = []
        for name in ("one", "two") if ledger else ("one",):
            (tmp_path / name).mkdir()
            workers = ("--workers", "3") if request.param == "three workers" else ()
            gateway = Gateway(tmp_path / name, upstream, configuration, arguments=workers)
            started.append(stack.enter_context(gateway))
        yield started


def statuses(gateway: Gateway, key: str = "") -> set[int]:
    """What requests with a key, or without one, get, each on a connection of its own: all workers get some."""
    headers = {"Authorization": f"Bearer {key}"} if key else {"Authorization": ""}
    return {gateway.send(get("/v1/models", headers)).status for _ in range(8)}


def create_key(gateway: Gateway, name: str) -> str:
    command = [*gateway.command, "keys", "create", "--name", name, "--config", str(gateway.file)]
    environment = os.environ | {"PENSTOCK_STATE": str(gateway.book.folder)}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


def test_a_key_is_known_and_closes_the_gateway_in_the_next_call(gateways: list[Gateway]) -> None:
    assert [statuses(gateway) for gateway in gateways] == [{200}] * len(gateways)
    first = create_key(gateways[0], "first")
    for gateway in reversed(gateways):  # the other machine first
        assert statuses(gateway) == {401}
        assert statuses(gateway, first) == {200}
    second = create_key(gateways[0], "second")
    for gateway in reversed(gateways):
        assert statuses(gateway, second) == {200}
        assert statuses(gateway, f"{second[:-1]}!") == {401}


def test_the_lines_of_the_readme_work_one_after_the_other(tmp_path: Path) -> None:
    assert len(README) == 2
    with Upstream() as upstream:
        configuration = settings(upstream.url, 0, server={"keys": []}, admin={"listen": "127.0.0.1:0"})
        with Gateway(tmp_path, upstream, configuration) as gateway:
            lines = "\n".join(README).replace(".venv/bin/penstock", f"{sys.executable} -m penstock")
            script = lines.replace("127.0.0.1:8080", f"127.0.0.1:{gateway.port}").replace(
                "curl", "curl -sS -w '%{http_code}'"
            )
            environment = os.environ | {"PENSTOCK_STATE": str(gateway.book.folder)}
            done = subprocess.run(
                ["sh", "-ec", script], cwd=tmp_path, check=True, capture_output=True, text=True, env=environment
            )
            assert done.stdout.endswith("200")
            assert f"http://127.0.0.1:{gateway.port}/v1/models" in done.stderr  # what `keys create` says

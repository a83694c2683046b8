"""The recipes of docs/deploy.md for incidents: their commands are run as they are printed, and they help."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.documented import blocks, run
from tests.faults.gateway import Gateway, Table, settings
from tests.faults.scripts import whole
from tests.faults.upstream import Upstream, status
from tests.ledger.support import ask, wait_for_key

_WAIT_S = 15.0
pytestmark = pytest.mark.slow


class Operator:
    """Runs the commands of the page beside a gateway, whose client has the key `ci`."""

    def __init__(self, gateway: Gateway, folder: Path) -> None:
        self.gateway = gateway
        self._folder = folder
        programs = folder / "bin"
        programs.mkdir()
        systemctl = programs / "systemctl"  # what the unit's ExecReload does
        systemctl.write_text(f'#!/bin/sh\n[ "$*" = "reload penstock" ] && kill -HUP {gateway.pid}\n')
        systemctl.chmod(0o755)
        self._programs = programs
        self.key = self.run(["penstock keys create --name ci --budget 0.00001"]).strip()
        wait_for_key(gateway, self.key)

    def run(self, commands: list[str]) -> str:
        places = {"127.0.0.1:8080": f"127.0.0.1:{self.gateway.port}", "/var/lib/penstock": str(self._folder / "state")}
        for shown, real in places.items():
            commands = [command.replace(shown, real) for command in commands]
        # A provider that is down makes the doctor fail, as it should.
        commands = [f"{command} || true" if " doctor " in command else command for command in commands]
        state = {"PENSTOCK_STATE": str(self._folder / "state"), "no_proxy": "127.0.0.1"}
        return run(commands, self._folder, state, self._programs)

    def status(self, model: str, key: str = "") -> int:
        return ask(self.gateway, key or self.key, model, stream=True).status

    def until(self, model: str, wanted: int, key: str = "") -> None:
        """Wait until calls get this status."""
        deadline = time.monotonic() + _WAIT_S
        while (found := self.status(model, key)) != wanted:
            assert time.monotonic() < deadline, f"{found}, not {wanted}"
            time.sleep(0.1)


def configuration(url: str, *targets: str) -> str:
    tables: dict[str, Table] = {
        "providers.openai": {"base_url": url, "api_key": "a-provider-key"},
        'prices."openai/*"': {"input": 1.0, "output": 2.0},
        "routes.fast": {"targets": list(targets)},
    }
    return settings(url, 0, **tables)


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with Upstream() as upstream:
        upstream.play([status(500, {"content-length": "2"}, b"{}")], "down")
        upstream.play(whole(), "up")
        with Gateway(tmp_path, upstream, configuration(upstream.url, "openai/down")) as gateway:
            yield Operator(gateway, tmp_path)


def test_a_budget_then_a_provider_then_a_key(operator: Operator) -> None:
    assert operator.status("spare/up") == 429
    (commands,) = blocks("### A budget is used up")
    assert "0.00001" in operator.run(commands)
    operator.until("spare/up", 200)

    assert operator.status("fast") == 502
    look, change = blocks("### A provider is down")
    shown = operator.run(look)
    assert "openai" in shown
    assert "failed" in shown
    file = operator.gateway.file
    file.write_text(configuration(operator.gateway.upstream.url, "openai/down", "spare/up"))
    operator.run(change)
    operator.until("fast", 200)

    (commands,) = blocks("### A key has leaked")
    secret = operator.run(commands).split()[0]
    operator.until("fast", 401)
    operator.until("fast", 200, secret)

    (commands,) = blocks("### The database is full or down")
    shown = operator.run(commands)
    assert os.fspath(operator.gateway.book.path) + " can be used" in shown
    assert '"ok"' in shown

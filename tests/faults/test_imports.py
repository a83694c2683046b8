"""A gateway imports what its calls need. So it starts soon and stays small, however much Penstock can do."""

import re
import sys
from pathlib import Path

import pytest

from penstock.core.dialects.registry import DIALECTS
from tests.faults.client import get
from tests.faults.dialects import MESSAGES_CLIENT
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import spare, unstreamed
from tests.faults.support import wait_until_listening, worker_pids
from tests.faults.upstream import Upstream

# What a call from a chat client to a chat provider does not need, and the packages below.
UNUSED = {
    "asyncpg",
    "botocore",
    "difflib",
    "email",
    "genai_prices",
    "html",
    "importlib.metadata",
    "importlib.resources",
    "opentelemetry",
    "penstock.cli.litellm",
    "penstock.replay",
    "penstock.serve.admin.listener",
    "penstock.serve.recording.recorder",
    "penstock.serve.sockets",
    "penstock.serve.telemetry.exposition",
    "penstock.serve.telemetry.traces",
    "penstock.stores.book.postgres",
    "prometheus_client",
    "pydantic",
    "redis",
    "requests",
    "rich",
    "websockets",
    "zipfile",
} | {f"penstock.core.dialects.{name}" for name in DIALECTS if name != "openai_chat"}


class ListingGateway(Gateway):
    """A gateway that lists its modules when it ends."""

    @property
    def command(self) -> tuple[str, ...]:
        return sys.executable, "-m", "tests.faults.module_list"


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    return tmp_path / "modules"


def start(folder: Path, upstream: Upstream, modules: Path) -> ListingGateway:
    root = str(Path(__file__).resolve().parents[2])
    return ListingGateway(
        folder, upstream, settings(upstream.url), environment={"PYTHONPATH": root, "MODULES": str(modules)}
    )


def test_chat_to_chat_imports_nothing_that_it_does_not_need(tmp_path: Path, modules: Path) -> None:
    with Upstream() as upstream, start(tmp_path, upstream, modules) as gateway:
        assert gateway.send(get("/readyz")).status == 200
        for stream, answer in ((True, spare()), (False, unstreamed())):
            assert gateway.ask(gateway.pair(answer, spare()), stream=stream).status == 200
        gateway.quiet()
    assert UNUSED.intersection(modules.read_text().split("\n")) == set()


def test_another_api_is_imported_when_a_client_uses_it(tmp_path: Path, modules: Path) -> None:
    with Upstream() as upstream, start(tmp_path, upstream, modules) as gateway:
        assert gateway.ask(gateway.pair(spare(), spare()), MESSAGES_CLIENT, stream=True).status == 200
        gateway.quiet()
    assert UNUSED.intersection(modules.read_text().split("\n")) == {"penstock.core.dialects.anthropic_messages"}


def test_workers_share_the_memory_of_what_was_imported(tmp_path: Path) -> None:
    """Most pages that a worker has are those that the first process wrote before it forked."""
    configuration = (
        "[server]\nworkers = 2\n[providers.main]\nbase_url = 'http://127.0.0.1:9/v1'\napi_key = 'unused-key'\n"
    )
    with Upstream() as upstream, Gateway(tmp_path, upstream, configuration) as gateway:
        wait_until_listening(gateway, 2)
        for pid in worker_pids(gateway, 2):
            pages = Path(f"/proc/{pid}/smaps_rollup").read_text()
            private, shared = (int(re.findall(rf"{kind}_Dirty: +([0-9]+)", pages)[0]) for kind in ("Private", "Shared"))
            assert private < shared

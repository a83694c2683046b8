"""A gateway that knows the ticker dialect, and the dialect itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.dialects.registry import DIALECTS
from tests.dialects.support import TickerGateway
from tests.dialects.ticker import TICKER
from tests.faults.gateway import settings
from tests.faults.upstream import Upstream


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TickerGateway]:
    with Upstream() as upstream:
        configuration = settings(upstream.url) + "\n".join(
            [
                "[providers.tape]",
                f'base_url = "{upstream.url}"',
                'dialect = "ticker"',
                'path = "/ticker"',
                'api_key = "canary-of-the-ticker-1234"',
                "[routes.either]",
                'targets = ["tape/either-a", "main/either-b"]',
                "",
            ]
        )
        root = str(Path(__file__).resolve().parents[2])
        folder = tmp_path_factory.mktemp("ticker")
        with TickerGateway(folder, upstream, configuration, environment={"PYTHONPATH": root}) as gateway:
            yield gateway


@pytest.fixture
def gateway(shared: TickerGateway) -> Iterator[TickerGateway]:
    yield shared
    shared.quiet()


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DIALECTS, "ticker", TICKER)

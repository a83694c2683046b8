"""A Redis that stops and comes back: the log reports it, once each time, and metrics count it."""

import time
import urllib.request
from pathlib import Path

from tests.faults.gateway import Gateway, settings
from tests.faults.upstream import Upstream
from tests.serve.scrapes import Samples, parse, value
from tests.serve.support import AdminClient
from tests.stores.conftest import RedisServer

# Longer than a gateway without calls takes to notice, on a busy machine.
_WAIT_S = 20.0
LOST = "the store of keys' limits (redis) does not respond"
FOUND = "the store of keys' limits (redis) responds again"


def scraped(admin: AdminClient) -> Samples:
    headers = {"Authorization": f"Bearer {admin.token}"}
    with urllib.request.urlopen(urllib.request.Request(f"http://{admin.place}/metrics", headers=headers)) as answer:
        return parse(answer.read().decode())


def changes(samples: Samples) -> tuple[float, float]:
    name = "penstock_limits_store_changes_total"
    return value(samples, name, store="redis", to="down"), value(samples, name, store="redis", to="up")


def test_losing_and_finding_redis_is_logged_and_counted(tmp_path: Path, redis_server: RedisServer) -> None:
    """Without a single call that would notice it."""
    redis = f"{redis_server.url}?socket_timeout=8&socket_connect_timeout=8"
    with (
        Upstream() as upstream,
        Gateway(tmp_path, upstream, settings(upstream.url, 0, ledger={"redis": redis})) as gateway,
    ):
        gateway.says("/admin for")
        admin = AdminClient(gateway)

        def reported(words: str, times: int) -> None:
            gateway.until(lambda: sum(words in line for line in gateway.output) == times, _WAIT_S)

        def is_up() -> float:
            return value(scraped(admin), "penstock_limits_store_up", store="redis")

        assert (is_up(), changes(scraped(admin))) == (1, (0, 0))
        for times in (1, 2):
            redis_server.kill()
            reported(LOST, times)
            assert (is_up(), changes(scraped(admin))) == (0, (times, times - 1))
            assert admin.get("/admin/state")["ledger"]["degraded"] == "redis"
            redis_server.start()
            reported(FOUND, times)
            assert (is_up(), changes(scraped(admin))) == (1, (times, times))
        time.sleep(1.0)  # nothing more is said
        reported(LOST, 2)
        reported(FOUND, 2)


def test_where_nothing_is_shared_there_is_no_such_series(tmp_path: Path) -> None:
    with Upstream() as upstream, Gateway(tmp_path, upstream, settings(upstream.url, 0)) as gateway:
        gateway.says("/admin for")
        samples = scraped(AdminClient(gateway))
        assert "penstock_limits_store_up" not in samples
        assert "penstock_limits_store_changes_total" not in samples

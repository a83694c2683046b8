"""A Redis that stops and comes back: the log reports it, once each time, and metrics count it. Meanwhile each process
uses its share of what is left of a limit."""

import time
import urllib.request
from pathlib import Path

from tests.faults.gateway import Gateway, settings
from tests.faults.upstream import Upstream
from tests.ledger.provider_keys import MODEL, RPM, two_gateways
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


def changes(samples: Samples) -> tuple[float, float, float]:
    """Whether Redis is up, how often it was lost, and how often it was found again."""
    name = "penstock_limits_store_changes_total"
    is_up = value(samples, "penstock_limits_store_up", store="redis")
    return is_up, value(samples, name, store="redis", to="down"), value(samples, name, store="redis", to="up")


def reported(gateway: Gateway, words: str, times: int) -> None:
    """Wait until the log has said something so often."""
    gateway.until(lambda: sum(words in line for line in gateway.output) == times, _WAIT_S)


def test_losing_and_finding_redis_is_logged_and_counted(tmp_path: Path, redis_server: RedisServer) -> None:
    """Without a single call that would notice it."""
    redis = f"{redis_server.url}?socket_timeout=8&socket_connect_timeout=8"
    with (
        Upstream() as upstream,
        Gateway(tmp_path, upstream, settings(upstream.url, 0, ledger={"redis": redis})) as gateway,
    ):
        gateway.says("/admin for")
        admin = AdminClient(gateway)

        assert changes(scraped(admin)) == (1, 0, 0)
        for times in (1, 2):
            redis_server.kill()
            reported(gateway, LOST, times)
            assert changes(scraped(admin)) == (0, times, times - 1)
            assert admin.get("/admin/state")["ledger"]["degraded"] == "redis"
            redis_server.start()
            reported(gateway, FOUND, times)
            assert changes(scraped(admin)) == (1, times, times)
        time.sleep(1.0)  # nothing more is said
        reported(gateway, LOST, 2)
        reported(gateway, FOUND, 2)


class Caller:
    """Makes calls with a provider's key that has a limit, one after the other, and keeps when each began and ended."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.admitted: list[tuple[float, float]] = []
        self.degraded = ""
        """What the last answer says about stores that do not respond."""

    def wait_after_call(self) -> str:
        """Make a call. Returns the seconds until the next try if it was refused, and none if it was admitted."""
        began = time.monotonic()
        answer = self._gateway.ask(f"keyed/{MODEL}", stream=True)
        self.degraded = answer.headers.get("x-penstock-degraded", "")
        if answer.status == 429:
            return answer.headers["retry-after"]
        assert answer.status == 200
        self.admitted.append((began, time.monotonic()))
        return ""

    def is_counted(self) -> bool:
        """Make a call, and say whether it counts. A call whose grant comes late, on a busy machine, counts as well: it
        is refused for one second."""
        return self.wait_after_call() in ("", "1")


def most_in_a_minute(callers: list[Caller]) -> int:
    """The most calls that certainly were in the same 60 seconds, on however busy a machine."""
    calls = [call for caller in callers for call in caller.admitted]
    return max(sum(began >= first and ended <= first + 60 for began, ended in calls) for first, _ in calls)


def test_a_key_of_a_provider_has_a_share_in_each_process_while_redis_is_lost(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    before = 4
    share = (RPM - 2 * before) // 4  # the default of `local_share` is a quarter of what is left
    with two_gateways(tmp_path, redis_server, workers=1) as (gateways, _):
        callers = [Caller(gateway) for gateway in gateways]
        for _ in range(before):
            assert [(caller.is_counted(), caller.degraded) for caller in callers] == [(True, "")] * 2
        redis_server.kill()
        for gateway, caller in zip(gateways, callers, strict=True):
            assert all(caller.is_counted() for _ in range(share))
            while caller.is_counted():  # on a machine so slow that a minute has passed
                pass
            assert most_in_a_minute([caller]) <= before + share
            assert caller.degraded == "redis"
            reported(gateway, LOST, 1)
            gateway.last_call()  # each call is counted when it is logged
            samples = scraped(AdminClient(gateway))
            assert changes(samples) == (0, 1, 0)
            name = "penstock_provider_keys_at_limit_total"
            assert value(samples, name, provider="keyed", provider_key="only", limit="requests") >= 1
        redis_server.start()
        for gateway, caller in zip(gateways, callers, strict=True):
            reported(gateway, FOUND, 1)
            assert changes(scraped(AdminClient(gateway))) == (1, 1, 1)
            gateway.until(lambda caller=caller: not caller.wait_after_call())  # type: ignore[misc]
        # What they sent meanwhile counts again: together they get the rest of the limit, and no more.
        counted = 2 * (before + share + 1)
        while more := sum([caller.is_counted() for caller in callers]):
            counted += more
        assert counted >= RPM
        assert most_in_a_minute(callers) <= RPM
        assert [caller.degraded for caller in callers] == ["", ""]


def test_where_nothing_is_shared_there_is_no_such_series(tmp_path: Path) -> None:
    with Upstream() as upstream, Gateway(tmp_path, upstream, settings(upstream.url, 0)) as gateway:
        gateway.says("/admin for")
        samples = scraped(AdminClient(gateway))
        assert "penstock_limits_store_up" not in samples
        assert "penstock_limits_store_changes_total" not in samples

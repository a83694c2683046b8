"""See scripts/key-limit."""

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from tests.faults.client import RawClient, body, post
from tests.faults.gateway import Gateway
from tests.ledger.provider_keys import MODEL, two_gateways
from tests.stores.conftest import RedisServer

_WINDOW_S = 60.0
# Of each client: short enough that many of them together ask far more often than the limit allows.
_PAUSE_S = 0.3


class TimedList(list[tuple[str, bytes]]):
    """The requests that a provider gets, with the time of each."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def append(self, item: tuple[str, bytes]) -> None:
        """Add a request."""
        self.times.append(time.monotonic())
        super().append(item)


def main() -> int:
    """Run; the exit status is 1 if any 60 seconds had more requests than the limit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--rpm", type=int, default=60)
    parser.add_argument("--clients", type=int, default=4, help="for each gateway")
    given = parser.parse_args()
    statuses: Counter[int] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "redis").mkdir()
        redis = RedisServer(Path(folder) / "redis")
        try:
            with two_gateways(Path(folder), redis, workers=4, rpm=given.rpm) as (gateways, upstream):
                upstream.asked_for = timed = TimedList()
                until = time.monotonic() + given.seconds
                clients = [
                    threading.Thread(target=_ask, args=(gateway, until, statuses))
                    for gateway in gateways
                    for _ in range(given.clients)
                ]
                for client in clients:
                    client.start()
                for client in clients:
                    client.join()
        finally:
            redis.kill()
    most = max(sum(first <= each < first + _WINDOW_S for each in timed.times) for first in timed.times)
    print(f"{sum(statuses.values())} calls in {given.seconds:g} s: {dict(sorted(statuses.items()))}")
    print(f"the provider got {len(timed.times)} requests, at most {most} in any 60 s; the limit is {given.rpm}")
    return int(most > given.rpm)


def _ask(gateway: Gateway, until: float, statuses: "Counter[int]") -> None:
    while time.monotonic() < until:
        with RawClient(gateway.port) as client:
            client.send(post(body(f"keyed/{MODEL}", stream=True)))
            statuses[client.response().status] += 1
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    sys.exit(main())

"""What the tests of the gateway as a process share."""

import time
from pathlib import Path

from tests.faults.client import RawClient, Response
from tests.faults.gateway import Gateway
from tests.promptness import Late


def in_time_for_its_head(gateway: Gateway, response: Response) -> None:
    """The gateway has read the head of the first attempt while it waited for an event; or the test is `Late`."""
    if gateway.call(response)["attempts"][0]["code"] == "upstream_timeout_headers":
        gateway.quiet()
        raise Late("the time for the first event was over before the head was read")


def begin_probe(gateway: Gateway, model: str, target: str) -> RawClient:
    """Begin a streamed call that reaches a target after its cool-down. Calls before that are made to their end."""
    asked = len(gateway.upstream.requests(target))
    calls = 0

    def is_known() -> bool:
        return len(gateway.upstream.requests(target)) > asked or len(gateway.calls) > calls

    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        calls, client = len(gateway.calls), gateway.begin(model, stream=True)
        gateway.until(is_known)
        if len(gateway.upstream.requests(target)) > asked:
            return client
        with client:
            gateway.keep(client.response())
    raise AssertionError("the cool-down does not end")


def worker_pids(gateway: Gateway, count: int, without: int = 0) -> list[int]:
    """Wait until there are this many workers, and none of them is the dead one."""
    deadline = time.monotonic() + 30.0
    while len(found := [pid for pid in gateway.workers() if pid != without]) < count:
        assert time.monotonic() < deadline, "there are not enough workers"
        time.sleep(0.01)
    return found


def wait_until_listening(gateway: Gateway, count: int) -> None:
    """Wait until so many workers have opened the port."""
    deadline = time.monotonic() + 30.0
    port = f":{gateway.port:04X} 00000000:0000 0A"
    while Path("/proc/net/tcp").read_text().count(port) < count:
        assert time.monotonic() < deadline, "the workers do not listen"
        time.sleep(0.01)

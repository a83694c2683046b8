"""What the tests of the gateway as a process share."""

import time
from pathlib import Path

from tests.faults.gateway import Gateway


def worker_pids(gateway: Gateway, count: int, without: int = 0) -> list[int]:
    """Wait until there are this many workers, and none of them is the dead one."""
    deadline = time.monotonic() + 10.0
    while len(found := [pid for pid in gateway.workers() if pid != without]) < count:
        assert time.monotonic() < deadline, "there are not enough workers"
        time.sleep(0.01)
    return found


def wait_until_listening(gateway: Gateway, count: int) -> None:
    """Wait until so many workers have opened the port."""
    deadline = time.monotonic() + 10.0
    port = f":{gateway.port:04X} 00000000:0000 0A"
    while Path("/proc/net/tcp").read_text().count(port) < count:
        assert time.monotonic() < deadline, "the workers do not listen"
        time.sleep(0.01)

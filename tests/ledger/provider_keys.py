"""A provider whose key has a limit, and two gateways that share it: for the tests, and for scripts/key-limit."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.faults.gateway import Gateway, Table, settings
from tests.faults.upstream import Upstream, chunk, head, last_chunk
from tests.stores.conftest import RedisServer
from tests.streams import DONE, bill, counts, finishes, says, sse

RPM = 60
MODEL = "limited"
SCRIPT = [head(), chunk(sse(says("Hello"), finishes(), bill(**counts(1, 1)), DONE)), last_chunk()]
SECRET = "canary-of-a-limited-key"


def limited(url: str, *more: str, rpm: int = RPM) -> str:
    """The provider `keyed` with a key that has a limit."""
    lines = ["[providers.keyed]", f'base_url = "{url}"', "[[providers.keyed.keys]]", 'name = "only"']
    return "\n".join([*lines, f'api_key = "{SECRET}"', f"rpm = {rpm}", *more, ""])


@contextmanager
def two_gateways(
    folder: Path, redis: RedisServer, workers: int, rpm: int = RPM
) -> Iterator[tuple[list[Gateway], Upstream]]:
    """Two gateways that share a Redis and nothing else, and the provider of both."""
    # With timeouts that a busy machine does not run into.
    tables: dict[str, Table] = {
        "ledger": {"redis": f"{redis.url}?socket_timeout=8&socket_connect_timeout=8"},
        "server": {"workers": workers},
    }
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream())
        upstream.play(SCRIPT, MODEL)
        gateways = []
        for name in ("one", "two"):
            (folder / name).mkdir()
            configuration = settings(upstream.url, 0, **tables) + limited(upstream.url, rpm=rpm)
            gateways.append(stack.enter_context(Gateway(folder / name, upstream, configuration)))
        yield gateways, upstream

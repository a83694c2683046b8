"""See scripts/off-board."""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.faults.gateway import Gateway, settings
from tests.faults.upstream import Upstream
from tests.ledger.leaving import employ, off_board
from tests.stores.postgres import PostgresServer

# Within a minute after the identity provider has said it.
_LIMIT_S = 60.0


def main() -> int:
    """Run; the exit status is 1 if a key worked for longer than a minute."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=1000)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)  # the server of root runs as another user
        (folder / "postgres").mkdir()
        server = PostgresServer(folder / "postgres")
        server.start()
        stack.callback(server.stop)
        upstream = stack.enter_context(Upstream())
        url = server.new_database()
        gateways = []
        for name in ("one", "two"):
            (folder / name).mkdir()
            configuration = settings(upstream.url, 0, ledger={"postgres": url})
            gateways.append(stack.enter_context(Gateway(folder / name, upstream, configuration)))
        leaving = off_board(gateways, *employ(url, given.people))
    print(f"{given.people} people were deactivated in {leaving.requests_s:.1f} s")
    print(f"both gateways refused the last key {leaving.refused_s:.2f} s after that")
    return int(leaving.refused_s > _LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())

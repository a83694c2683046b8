"""See scripts/rehearse-litellm."""

import argparse
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.stores.litellm_rehearsal import CALLS, KEYS, MODELS, Rehearsed, hashes, migrations, rehearse
from tests.stores.postgres import PostgresServer


def main() -> int:
    """Run; the exit status is 1 if a client failed or an amount differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--litellm", required=True, help="a Python that has litellm[proxy]")
    python = parser.parse_args().litellm
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)  # the server of root runs as another user
        for name in ("postgres", "move"):
            (folder / name).mkdir()
        server = PostgresServer(folder / "postgres")
        server.start()
        stack.callback(server.stop)
        command = [python, "-c", "import litellm; print(litellm.__file__)"]
        package = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()).parent
        result = rehearse(folder / "move", server, migrations(package.parent), hashes(python), python)
    return report(result)


def report(result: Rehearsed) -> int:
    """Print what was seen."""
    print(f"{len(KEYS)} clients, {len(MODELS)} models, {CALLS} calls of each client before and after the switch")
    print(f"{result.answered} of {CALLS * len(KEYS)} calls after the switch got an answer")
    before, taken, after = (sum(each.values()) for each in (result.before, result.taken, result.after))
    print(f"spent by all keys: ${before:.6f} in LiteLLM, ${taken:.6f} after the import, ${after:.6f} at the end")
    print(f"conversion, check and import took {result.import_s:.1f} s")
    print(f"from LiteLLM's end to Penstock's first answer: {result.gap_s:.1f} s")
    differences = result.differences()
    print(*result.failed, *differences, sep="\n")
    return int(bool(result.failed or differences))


if __name__ == "__main__":
    sys.exit(main())

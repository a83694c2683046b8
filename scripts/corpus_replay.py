"""Plays every recorded chat stream as a capture, and prints what is not as it was."""

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.corpus import CORPUS, captures  # noqa: E402
from tests.replay.corpus import replay  # noqa: E402


def main() -> int:
    found = captures()
    if not found:
        print(f"There is no corpus in {CORPUS}. PENSTOCK_CORPUS may name another place.", file=sys.stderr)
        return 2
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = list(replay(found, Path(folder)))
    different = [result for result in results if result.differences]
    for result in different:
        print(f"{result.original.file}: {', '.join(result.differences)}")
    reads = sum(result.reads for result in results)
    size = sum(result.size for result in results)
    print(f"{len(results):,} captures with {reads:,} reads and {size:,} bytes were played in", end=" ")
    print(f"{time.monotonic() - began:.0f} s; different: {len(different) or 'none'}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

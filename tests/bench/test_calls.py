"""The benchmark of short calls: its answers are whole, and it measures every kind of them."""

import subprocess
import sys

from bench.calls.__main__ import PAIRS
from bench.load.exchanges import KINDS
from bench.load.processes import ROOT


def test_every_kind_of_call_is_measured() -> None:
    command = [sys.executable, "-m", "bench.calls", "--rounds", "1", "--peers", "", "--only", "chat,"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "chat, streamed " in line]
    rows = [line for line in done.stdout.splitlines() if "chat," in line]
    assert len(rows) == len(KINDS) * sum(provider == "chat" for _, provider in PAIRS)

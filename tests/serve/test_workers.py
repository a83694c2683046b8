"""What several workers say of one that cannot go on."""

import subprocess
import sys

BROKEN = """
import os
from penstock.serve.run import _spawn

def work(alive):
    raise RuntimeError("the worker's last words")

alive, lifeline = os.pipe()
pid = _spawn(work, alive, lifeline)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_worker_that_dies_of_an_exception_says_which() -> None:
    ended = subprocess.run([sys.executable, "-c", BROKEN], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == "1\n"
    assert "RuntimeError: the worker's last words" in ended.stderr

"""Penstock, which lists its modules in a file when it ends: `python -m tests.faults.module_list serve …`."""

import atexit
import os
import sys
from pathlib import Path

from penstock.cli.main import main

if __name__ == "__main__":
    atexit.register(lambda: Path(os.environ["MODULES"]).write_text("\n".join(sys.modules)))
    main()

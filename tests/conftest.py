"""What holds for all tests."""

import atexit
import os
import shutil
import signal
import tempfile

# Whoever runs the tests in the background may have told them to ignore Ctrl-C; what is tested must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test writes into the ledger of whoever runs it.
os.environ["PENSTOCK_STATE"] = tempfile.mkdtemp(prefix="penstock-tests-")
atexit.register(shutil.rmtree, os.environ["PENSTOCK_STATE"], ignore_errors=True)

"""What holds for all tests."""

import signal

# Whoever runs the tests in the background may have told them to ignore Ctrl-C; what is tested must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

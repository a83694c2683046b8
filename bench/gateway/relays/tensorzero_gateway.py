"""Starts TensorZero's gateway, which its Python package holds whole: `tensorzero_gateway.py CONFIGURATION`.

The package means it for a client in the same process, so it listens on a port of its own choosing; `fixed_port.c` is
loaded before it to choose that port.
"""

# mypy: ignore-errors
# It runs in an environment of its own, whose packages ours does not have.

import signal
import sys

from tensorzero import _start_http_gateway

gateway = _start_http_gateway(
    config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False
)
signal.pause()  # it serves from threads of its own, as long as `gateway` lives

"""Gateways for the tests of the ledger: those of the fault tests; and the servers of the tests of its stores."""

from tests.faults.conftest import start
from tests.stores.conftest import postgres, redis_server

__all__ = ["postgres", "redis_server", "start"]

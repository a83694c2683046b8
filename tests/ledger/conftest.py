"""Gateways for the tests of the ledger: those of the fault tests."""

from tests.faults.conftest import start

__all__ = ["start"]

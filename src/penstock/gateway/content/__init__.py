"""Kept content: what clients sent and got, stored beside the ledger and with its own retention."""

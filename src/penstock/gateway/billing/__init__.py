"""What a call cost: tokens, prices, entries, and the ledger that records them."""

"""Where the ledger lives: the book, the journal before it, and what processes share."""

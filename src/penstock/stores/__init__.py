"""Where the ledger is stored: the journal, the database, and the accounts that processes share."""

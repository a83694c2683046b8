"""The ledger's database: SQL over SQLite and PostgreSQL, and the thread that writes to it."""

"""The database of kept content: SQLite and PostgreSQL."""

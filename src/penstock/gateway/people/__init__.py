"""The people who use the admin API and its page: roles, API tokens, sessions, and the audit log."""

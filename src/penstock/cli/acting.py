"""The user of a command as the audit log names it, and the record of what it does outside of the book."""

import getpass
import time

from penstock.cli.ledger_options import opened
from penstock.gateway.config import Config
from penstock.gateway.people.audit import Actor, entry_of


def actor(config: Config) -> Actor:
    """The user who runs the command."""
    try:
        who = getpass.getuser()
    except (OSError, KeyError):  # a container may have no name for its user
        who = "unknown"
    return Actor(who, "command line", "", config.admin.audit_days)


def record(config: Config, action: str, subject: str) -> None:
    """Append to the audit log. A command that looks at content does so first."""
    user = actor(config)
    with opened(config.ledger, readonly=False) as book:
        entry = entry_of(user, time.time_ns() // 1_000_000, action, subject)
        book.people.record(entry, user.keep_days)

"""Loads [ledger] and validates the URLs of its servers, before the first connection.

No message quotes a URL: it may contain a password, which can be anywhere in it if it is not escaped.
"""

import base64
from typing import Any
from urllib.parse import SplitResult, urlsplit

from penstock.gateway.config.addresses import parse_url
from penstock.gateway.config.problems import Problems
from penstock.gateway.config.settings import BudgetSettings, LedgerSettings
from penstock.gateway.config.toml import Path
from penstock.providers.secret import Secret

_POSTGRES = ("postgresql", "postgres")
_SOCKET = "unix"
_REDIS = ("redis", "rediss", _SOCKET)
_ESCAPE = "; write %2F for a / in a password, %40 for an @, %23 for a #"
_LAST_PORT = 65_535
# Of the secrets of Standard Webhooks.
_SECRET_PREFIX = "whsec_"


def load_ledger(given: dict[str, Any], problems: Problems) -> LedgerSettings:
    """The settings of the ledger."""
    ledger = LedgerSettings(**given)
    checked = (("postgres", ledger.postgres, _postgres_problem), ("redis", ledger.redis, _redis_problem))
    for key, url, problem_of in checked:
        if isinstance(url, Secret) and (wrong := problem_of(url.reveal())):
            problems.error(("ledger", key), wrong)
    keep, keep_sums = ledger.keep_days, ledger.keep_sums_days
    if keep_sums is not None and (keep is None or keep_sums < keep):
        problems.error(("ledger", "keep_sums_days"), "cannot be shorter than keep_days: sums outlast their calls")
    return ledger


def load_budgets(given: dict[str, Any], ledger: LedgerSettings, problems: Problems) -> BudgetSettings:
    """The settings of budget warnings."""
    budgets = BudgetSettings(**given)
    check_webhook(("budgets",), budgets.webhook, budgets.webhook_secret, problems)
    if isinstance(budgets.webhook, Secret) and not ledger.enabled:
        problems.error(("budgets", "webhook"), "needs the ledger, which has the budgets; enable it")
    return budgets


def check_webhook(path: Path, webhook: Secret | None, secret: Secret | None, problems: Problems) -> None:
    """Report what is wrong with a webhook and the secret of its table."""
    if not isinstance(webhook, Secret):
        return
    try:
        parse_url(webhook.reveal().partition("?")[0])
    except ValueError as error:
        problems.error((*path, "webhook"), str(error))
    if secret is None:
        problems.error(path, "a webhook needs webhook_secret, with which its requests are signed")
    elif isinstance(secret, Secret):
        try:
            signing_key(secret.reveal())
        except ValueError as error:
            problems.error((*path, "webhook_secret"), str(error))


def signing_key(secret: str) -> bytes:
    """The key in a secret of Standard Webhooks. Raises `ValueError`, which does not quote the secret."""
    try:
        key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(_SECRET_PREFIX) or not 24 <= len(key) <= 64:
        raise ValueError(
            f"is {_SECRET_PREFIX} and 24 to 64 random bytes in base64: "
            f'echo "{_SECRET_PREFIX}$(openssl rand -base64 32)" makes one'
        )
    return key


def _postgres_problem(url: str) -> str:
    """Why a URL is invalid; empty if it is valid."""
    parts = _split(url)
    if parts is None or parts.scheme not in _POSTGRES or not _has_slashes(url):
        return "is no URL of a PostgreSQL: write postgresql://user:password@host:port/database"
    places = parts.netloc.rpartition("@")[2].split(",")  # several servers, for failover
    return "" if all(map(_has_valid_port, places)) else f"has a port that is not a number from 1 to 65535{_ESCAPE}"


def _redis_problem(url: str) -> str:
    parts = _split(url)
    if parts is None or parts.scheme not in _REDIS or not _has_slashes(url):
        return "is no URL of a Redis: write redis://host:port, rediss:// for TLS, or unix://path"
    if parts.scheme == _SOCKET:
        return "" if parts.path.strip("/") else "has no path of a socket: write unix:///path/of/the.sock"
    if not _has_valid_port(parts.netloc.rpartition("@")[2]):
        return f"has a port that is not a number from 1 to 65535{_ESCAPE}"
    number = parts.path.strip("/")
    return "" if not number or (number.isascii() and number.isdigit()) else "has a database that is not a number"


def _split(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:  # its message would quote the URL
        return None


def _has_slashes(url: str) -> bool:
    return "://" in url


def _has_valid_port(place: str) -> bool:
    """Whether `host`, `host:port` or `[IPv6]:port` has no port or a valid one."""
    port = place.rpartition("]")[2].partition(":")[2]
    return not port or (port.isascii() and port.isdigit() and 1 <= int(port[:9]) <= _LAST_PORT)

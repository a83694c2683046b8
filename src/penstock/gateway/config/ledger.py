"""Loads [ledger]: whether the URLs of its servers can be such, before anybody is asked there.

No message quotes a URL: it may hold a password, and one that is not escaped may stand anywhere in it.
"""

from typing import Any
from urllib.parse import SplitResult, urlsplit

from penstock.gateway.config.problems import Problems
from penstock.gateway.config.settings import LedgerSettings
from penstock.providers.secret import Secret

_POSTGRES = ("postgresql", "postgres")
_SOCKET = "unix"
_REDIS = ("redis", "rediss", _SOCKET)
_ESCAPE = "; write %2F for a / in a password, %40 for an @, %23 for a #"
_LAST_PORT = 65_535


def load_ledger(given: dict[str, Any], problems: Problems) -> LedgerSettings:
    """Where the ledger is kept."""
    ledger = LedgerSettings(**given)
    for key, url, judge in (("postgres", ledger.postgres, _judge_postgres), ("redis", ledger.redis, _judge_redis)):
        if isinstance(url, Secret) and (wrong := judge(url.reveal())):
            problems.error(("ledger", key), wrong)
    return ledger


def _judge_postgres(url: str) -> str:
    """What is wrong with it; empty where nothing is."""
    parts = _split(url)
    if parts is None or parts.scheme not in _POSTGRES or not _has_slashes(url):
        return "is no URL of a PostgreSQL: write postgresql://user:password@host:port/database"
    places = parts.netloc.rpartition("@")[2].split(",")  # several servers, of which one answers
    return "" if all(map(_has_good_port, places)) else f"has a port that is not a number from 1 to 65535{_ESCAPE}"


def _judge_redis(url: str) -> str:
    parts = _split(url)
    if parts is None or parts.scheme not in _REDIS or not _has_slashes(url):
        return "is no URL of a Redis: write redis://host:port, rediss:// for TLS, or unix://path"
    if parts.scheme == _SOCKET:
        return "" if parts.path.strip("/") else "has no path of a socket: write unix:///path/of/the.sock"
    if not _has_good_port(parts.netloc.rpartition("@")[2]):
        return f"has a port that is not a number from 1 to 65535{_ESCAPE}"
    number = parts.path.strip("/")
    return "" if not number or (number.isascii() and number.isdigit()) else "has a database that is not a number"


def _split(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:  # whose words would quote the URL
        return None


def _has_slashes(url: str) -> bool:
    return "://" in url


def _has_good_port(place: str) -> bool:
    """Whether `host`, `host:port` or `[IPv6]:port` has no port, or one that there can be."""
    port = place.rpartition("]")[2].partition(":")[2]
    return not port or (port.isascii() and port.isdigit() and 1 <= int(port[:9]) <= _LAST_PORT)

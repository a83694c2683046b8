"""Accounts in Redis or Valkey, for several machines. It is never the book: what it loses is seeded from the ledger.

An account is one string: eight bytes of its version, then its data. A script swaps it, so that one message does.
"""

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress

from penstock.errors import ConfigError, Problem
from penstock.providers.secret import Secret
from penstock.stores.accounts.storage import Found, StorageError

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError:  # an extra
    _INSTALLED = False
else:
    _INSTALLED = True

INSTALL = "pip install 'penstock[redis]'"
PREFIX = "penstock:account:1:"
_VERSION_BYTES = 8
# On a local network an answer takes less than one millisecond.
_TIMEOUT_S = 0.025
# A connection that was idle for so long may have been closed by whatever lies between.
_IDLE_S = 5.0
# What nobody has touched for so long is of no use: it can be seeded at any time.
_KEPT_MS = 86_400_000
_SWAP = """
local found = redis.call('GET', KEYS[1])
if (found or ''):sub(1, 8) == ARGV[1] then
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
    return 1
end
return found
"""
_SWAP_SHA = hashlib.sha1(_SWAP.encode(), usedforsecurity=False).hexdigest()


class RedisAccounts:
    """See `Storage`. Raises `ConfigError` if the URL cannot be used, or the client is not installed."""

    name = "redis"

    def __init__(self, url: Secret, timeout_s: float = _TIMEOUT_S) -> None:
        if not _INSTALLED:
            raise _problem(f"the client for Redis is not installed: {INSTALL}")
        try:
            self._redis = redis.Redis.from_url(
                url.reveal(),
                socket_timeout=timeout_s,
                socket_connect_timeout=timeout_s,
                retry=Retry(NoBackoff(), 0),
            )
        except Exception as error:  # noqa: BLE001 - whatever it says may quote the password
            kind = type(error).__name__
            message = f"this is no URL of a Redis ({kind}): write redis://host:port, rediss:// for TLS, or unix://path"
            raise _problem(message) from None
        self._execute: Callable[..., object] = self._redis.execute_command
        self._used = time.monotonic()

    def load(self, key_id: str) -> Found:
        """See `Storage`."""
        return _taken_apart(self._ask_again("GET", PREFIX + key_id))

    def swap(self, key_id: str, expected: bytes | None, version: bytes, data: bytes) -> tuple[bool, Found]:
        """See `Storage`."""
        if time.monotonic() - self._used > _IDLE_S:
            self._ask_again("PING")
        arguments = (1, PREFIX + key_id, expected or b"", version + data, _KEPT_MS)
        try:
            answer = self._ask("EVALSHA", _SWAP_SHA, *arguments)
        except redis.exceptions.NoScriptError:
            answer = self._ask("EVAL", _SWAP, *arguments)
        return (True, None) if answer == 1 else (False, _taken_apart(answer))

    def probe(self) -> None:
        """See `Storage`. Asks whether it can be written to, which a replica or a full one cannot."""
        self._ask("SET", PREFIX + "probe", b"", "PX", 1000)

    def close(self) -> None:
        """See `Storage`."""
        with suppress(redis.exceptions.RedisError, OSError):
            self._redis.close()

    def _ask_again(self, *command: object) -> object:
        """Ask, and once more where the connection turns out to be closed: for what may be done twice."""
        try:
            return self._execute(*command)
        except redis.exceptions.RedisError as error:
            if isinstance(error, redis.exceptions.TimeoutError):
                raise _failed(error) from None
        return self._ask(*command)

    def _ask(self, *command: object) -> object:
        try:
            answer = self._execute(*command)
        except redis.exceptions.NoScriptError:
            raise
        except (redis.exceptions.RedisError, OSError) as error:
            raise _failed(error) from None
        self._used = time.monotonic()
        return answer


def _failed(error: Exception) -> StorageError:
    # The client's own words may have the address, and with it a password.
    return StorageError(f"Redis does not do it: {type(error).__name__}")


def _taken_apart(value: object) -> Found:
    if not isinstance(value, bytes):
        return None
    return value[:_VERSION_BYTES], value[_VERSION_BYTES:]


def _problem(message: str) -> ConfigError:
    return ConfigError((Problem("", None, "ledger.redis", message),))

"""Accounts in Redis or Valkey, for several machines. It is only a cache: what it loses is seeded from the ledger.

An account is one string: eight bytes of its version, then its data. A Lua script does the compare-and-set in one round
trip.
"""

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress

from penstock.amounts import DAY_MS
from penstock.errors import ConfigError, Problem
from penstock.gateway.keys.quota import END_USER
from penstock.installation import install_command
from penstock.providers.secret import Secret
from penstock.stores.accounts.storage import StorageError, StoredValue

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError:  # an extra
    _INSTALLED = False
else:
    _INSTALLED = True

PREFIX = "penstock:account:1:"
_VERSION_BYTES = 8
# On a local network a reply takes less than one millisecond.
_TIMEOUT_S = 0.025
# A connection that was idle for this long may have been closed by a firewall or proxy.
_IDLE_S = 5.0
# An account that no process has written for this long expires: it can be seeded again at any time.
_EXPIRES_MS = DAY_MS
# Those of end users sooner: clients choose their names, so that there may be very many.
_USERS_EXPIRE_MS = 3_600_000
_SWAP = """
local current = redis.call('GET', KEYS[1])
if (current or ''):sub(1, 8) == ARGV[1] then
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
    return 1
end
return current
"""
_SWAP_SHA = hashlib.sha1(_SWAP.encode(), usedforsecurity=False).hexdigest()


class RedisAccounts:
    """See `Storage`. Raises `ConfigError` if the URL cannot be used, or the client is not installed."""

    name = "redis"

    def __init__(self, url: Secret, timeout_s: float = _TIMEOUT_S) -> None:
        if not _INSTALLED:
            raise _problem(f"needs the Python package redis, which is not installed: {install_command('redis')}")
        try:
            self._redis = redis.Redis.from_url(
                url.reveal(),
                socket_timeout=timeout_s,
                socket_connect_timeout=timeout_s,
                retry=Retry(NoBackoff(), 0),
            )
        except Exception as error:  # noqa: BLE001 - its message may quote the password
            kind = type(error).__name__
            message = f"this is not a Redis URL ({kind}): write redis://host:port, rediss:// for TLS, or unix://path"
            raise _problem(message) from None
        self._execute: Callable[..., object] = self._redis.execute_command
        self._used = time.monotonic()

    def load(self, account_id: str) -> StoredValue:
        """See `Storage`."""
        return _split_version(self._execute_with_retry("GET", PREFIX + account_id))

    def swap(self, account_id: str, expected: bytes | None, version: bytes, data: bytes) -> tuple[bool, StoredValue]:
        """See `Storage`."""
        if time.monotonic() - self._used > _IDLE_S:
            self._execute_with_retry("PING")
        expires_ms = _USERS_EXPIRE_MS if account_id.startswith(END_USER) else _EXPIRES_MS
        arguments = (1, PREFIX + account_id, expected or b"", version + data, expires_ms)
        try:
            answer = self._command("EVALSHA", _SWAP_SHA, *arguments)
        except redis.exceptions.NoScriptError:
            answer = self._command("EVAL", _SWAP, *arguments)
        return (True, None) if answer == 1 else (False, _split_version(answer))

    def probe(self) -> None:
        """See `Storage`. Writes a value, which fails on a replica or when the memory is full."""
        self._command("SET", PREFIX + "probe", b"", "PX", 1000)

    def close(self) -> None:
        """See `Storage`."""
        with suppress(redis.exceptions.RedisError, OSError):
            self._redis.close()

    def _execute_with_retry(self, *command: object) -> object:
        """Run an idempotent command; retry it once if the connection was closed."""
        try:
            return self._execute(*command)
        except redis.exceptions.RedisError as error:
            if isinstance(error, redis.exceptions.TimeoutError):
                raise _failed(error) from None
        return self._command(*command)

    def _command(self, *command: object) -> object:
        try:
            answer = self._execute(*command)
        except redis.exceptions.NoScriptError:
            raise
        except (redis.exceptions.RedisError, OSError) as error:
            raise _failed(error) from None
        self._used = time.monotonic()
        return answer


def _failed(error: Exception) -> StorageError:
    # The client's own message is not quoted: it may have the address, and with it a password.
    return StorageError(f"Redis failed: {type(error).__name__}")


def _split_version(value: object) -> StoredValue:
    if not isinstance(value, bytes):
        return None
    return value[:_VERSION_BYTES], value[_VERSION_BYTES:]


def _problem(message: str) -> ConfigError:
    return ConfigError((Problem("", None, "ledger.redis", message),))

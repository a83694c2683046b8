"""Changes of a configuration that need a restart: a reload does not apply them."""

from msgspec import structs

from penstock.gateway.config.snapshot import Config

# By section. A reload applies all other keys.
_FIXED_AT_START: dict[str, tuple[str, ...]] = {
    "server": ("listen", "tls", "workers", "log"),
    "ledger": ("enabled", "folder", "postgres", "redis", "journal", "local_share", "keep_days", "keep_sums_days"),
    "responses": ("store", "memory"),
    "streams": ("store",),
    "limits": ("websocket_memory",),
    "admin": ("enabled", "listen", "tls", "token"),
}
NEED_RESTART = tuple(f"{section}.{key}" for section, keys in _FIXED_AT_START.items() for key in keys)


def waiting_for_restart(started: Config, new: Config) -> tuple[str, ...]:
    """The keys that differ from the configuration at the gateway's start and need a restart.

    A new admin token is applied by a reload; the removal of the token is not. If the file does not set `admin.listen`,
    it follows from `server.listen`, which is reported instead.
    """
    changed = {
        f"{section}.{key}"
        for section, keys in _FIXED_AT_START.items()
        for key in keys
        if getattr(getattr(started, section), key) != getattr(getattr(new, section), key)
    }
    if new.admin.token is not None:
        changed.discard("admin.token")
    if started.admin.implied and new.admin.implied:
        changed.discard("admin.listen")
    return tuple(name for name in NEED_RESTART if name in changed)


def as_started(started: Config, new: Config) -> Config:
    """The new configuration with the keys that need a restart as they were at the gateway's start."""
    fixed = {
        section: structs.replace(
            getattr(new, section), **{key: getattr(getattr(started, section), key) for key in keys if key != "token"}
        )
        for section, keys in _FIXED_AT_START.items()
    }
    return structs.replace(new, **fixed)
